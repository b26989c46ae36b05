"""Whole nodes: in one loop (`harness`), and as processes."""
