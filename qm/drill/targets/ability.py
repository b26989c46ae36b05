"""What scenarios need of a target, and how a target refuses what it cannot do."""

from enum import Enum


class Ability(Enum):
    """What a scenario needs and a target may have."""

    PROCESSES = "kill and stop nodes, and start them again"
    PAUSE = "pause a node"
    DISKS = "take a node's disk away"
    SYNCS = "slow down, stop and tear what a node writes"
    SMALL_DISKS = "fill a node's disk"
    DISK_ERRORS = "fail what a node writes"
    FOLDERS = "set a node's folder back to an earlier copy"
    CLOCKS = "set a node's wall clock"
    NETWORK = "cut nodes and clients off from each other"
    UNPLUG = "unplug the machine that has the virtual address"
    SCALE = "add nodes and remove them again"
    REPLACE = "give up a member and add another machine"
    BUILDS = "run another build on nodes"
    VIRTUAL_ADDRESS = "give clients a virtual address that moves between nodes"
    REMOTE_READ = "let Windows programs read"
    PROXY = "give clients a proxy in front of the nodes"


class Refused(Exception):
    """This target cannot do that; the text says why."""
