"""Failover drills: hosts, faults, scenarios and the verdict on what clients saw."""
