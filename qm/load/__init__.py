"""Workload generators, client histories, what a history proves. May import `qm.node` and below."""
