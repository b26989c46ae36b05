"""Mutation testing of the durable code: `make mutants-code` (see `__main__`)."""
