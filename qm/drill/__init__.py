"""Failover drills: hosts, faults, scenarios and the verdict on what clients saw. May import
`qm.load` and below; deals with disks and builds through `qm.node`.
"""
