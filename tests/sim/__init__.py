"""The simulator: production replicas in a deterministic bad world (see tests/sim/__main__.py)."""
