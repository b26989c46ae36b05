"""Workload generators and client histories."""
