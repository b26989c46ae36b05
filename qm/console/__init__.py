"""The web console of a node."""
