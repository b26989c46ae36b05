"""Kinds of faults and the sets of them that seeds draw. Imports nothing."""

from typing import Final

FAULT_SETS: Final = {
    "quiet": (),
    "crash": ("kill", "power", "armed", "transfer", "away"),
    "net": ("cut", "one_way", "pause", "reset", "slow_net", "far_away"),
    "time": ("clock", "pause", "kill"),
    "all": (
        "transfer",
        "kill",
        "power",
        "armed",
        "away",
        "cut",
        "one_way",
        "pause",
        "reset",
        "clock",
        "slow_disk",
        "lost_disk",
        "backup",
        "hostile",
    ),
    "disk": ("eio", "full", "full_class", "kill", "power", "away"),
    "rocks": ("rocks_full", "rocks_eio", "kill", "full"),
    "space": ("full", "full_class", "full_all", "rocks_full", "slow_disk"),
    "copies": ("set_back", "set_back", "kill", "power", "transfer", "cut", "pause"),
    "outage": ("blackout", "power", "kill", "eio", "long_outage"),
    "install": ("away", "away", "transfer", "backup", "lost_disk"),
    "rot": ("rot", "rot", "rot", "scrub", "scrub", "kill", "power", "away", "transfer", "full"),
    "bent": ("bent", "bent", "away", "away", "transfer", "lost_disk"),
    "members": ("remove", "remove", "kill", "power", "transfer", "cut", "pause"),
    "visit": ("hostile", "backup", "kill", "transfer", "full_class"),
}
"""A seed draws one: a failure is read without the noise of all other faults."""
FAULT_KINDS: Final = frozenset(kind for kinds in FAULT_SETS.values() for kind in kinds)
