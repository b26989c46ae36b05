"""One process: configuration, wiring, lifecycle."""
