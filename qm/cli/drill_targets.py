"""Which target `qm drill run` acts on, from its options."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

if TYPE_CHECKING:
    from qm.drill.target import Target

HOSTS_SUFFIX: Final = ".toml"


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The options."""

    target: str
    """dev, netns, or the path of a file of hosts."""
    folder: Path
    network: str
    other_build: Path | None


@contextlib.contextmanager
def chosen(choice: Choice) -> Iterator["Target"]:
    """Yield the target, and remove what it made on this machine. Raises Refused, UsageError."""
    from qm.drill import reasons

    if choice.target == reasons.DEV:
        from qm.drill.process_target import ProcessTarget

        yield ProcessTarget(reasons.DEV, choice.folder, choice.network, _quiet, choice.other_build)
    elif choice.target == reasons.NETNS:
        from qm.drill.namespace_target import NamespaceTarget

        spaces = NamespaceTarget(reasons.NETNS, choice.folder, _quiet, choice.other_build)
        try:
            yield spaces
        finally:
            spaces.remove()
    elif choice.target.endswith(HOSTS_SUFFIX):
        from qm.drill.hosts_file import load_hosts
        from qm.drill.hosts_target import HostsTarget

        yield HostsTarget(load_hosts(Path(choice.target)), choice.folder)
    else:
        raise click.UsageError(
            f"no target {choice.target!r}: give dev, netns, or a file of hosts (*{HOSTS_SUFFIX})"
        )


def acts_on_others(choice: Choice) -> bool:
    """Return whether the target is a cluster that somebody else may use."""
    from qm.drill import reasons

    return choice.target not in (reasons.DEV, reasons.NETNS)


def _quiet(text: str) -> None:
    del text
