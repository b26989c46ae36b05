"""A simulator of whole nodes: design.md says what is simulated, and how."""
