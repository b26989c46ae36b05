"""Workload generators, client histories and their verdict. May import `qm.node` and below."""
