"""What each kind of target can do, and why not if it never can."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from qm.drill.targets.ability import Ability

DEV: Final = "dev"
NETNS: Final = "netns"
HOSTS: Final = "hosts.toml"
KUBERNETES: Final = "kubernetes"

KUBERNETES_NOTE: Final = (
    "this target was tested against a server that simulates Kubernetes' API, with its requests"
    " recorded and the chart's pods run as processes; not against a real cluster"
)

_ONE_MACHINE: Final = "processes share one machine's network"
_SEAM: Final = "it needs nodes that were started for it, which only dev and netns do"
_NO_SHELL: Final = "the API server has no such call, and nothing runs inside the pods"
_STORAGE: Final = (
    *(Ability.SYNCS, Ability.SMALL_DISKS, Ability.CLOCKS),
    *(Ability.DISK_ERRORS, Ability.FOLDERS),
)
_OWN_RPC: Final = "its nodes read for accounts of their own, and for nobody without one"
_NETWORKS: Final = (Ability.NETWORK, Ability.UNPLUG)

REASONS: Final[Mapping[str, Mapping[Ability, str]]] = MappingProxyType(
    {
        DEV: {
            **dict.fromkeys(_NETWORKS, _ONE_MACHINE),
            Ability.VIRTUAL_ADDRESS: _ONE_MACHINE,
            Ability.PROXY: _ONE_MACHINE,
        },
        NETNS: {},
        HOSTS: {**dict.fromkeys(_STORAGE, _SEAM), Ability.REMOTE_READ: _OWN_RPC},
        KUBERNETES: {
            **dict.fromkeys(_STORAGE, _SEAM),
            **dict.fromkeys(_NETWORKS, _NO_SHELL),
            Ability.PAUSE: _NO_SHELL,
            Ability.REPLACE: "a StatefulSet starts a lost pod under its old name: see lost-disk",
            Ability.BUILDS: "an upgrade there is `helm upgrade`",
            Ability.REMOTE_READ: _OWN_RPC,
            Ability.PROXY: "its Service is in front of the nodes: see vip-move",
        },
    }
)
"""By kind of target; abilities not listed are available there, though not on every machine."""


def refusals(kind: str, needs: Iterable[Ability]) -> list[str]:
    """Return why a kind of target can never do all of these; empty if it can."""
    known = REASONS[kind]
    return sorted({known[ability] for ability in needs if ability in known})


def refusal(kind: str, ability: Ability) -> str:
    """Return a target's message about something that it cannot do."""
    why = REASONS[kind].get(ability, "this one is not configured for it, or lacks a program")
    return f"the target {kind} cannot {ability.value}: {why}"
