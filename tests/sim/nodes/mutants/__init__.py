"""Planted bugs of the whole product, and the hunt for them: `python -m tests.sim.nodes.mutants`."""
