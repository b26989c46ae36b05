"""Nouns of who others are: the directory with its queue managers and users, and certificates."""
