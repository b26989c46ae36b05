"""What an attacker knows of the cluster, as its process gets it."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import msgspec

Count = Callable[[int], None]
"""Called with a number of inputs that have just been sent."""


class Victim(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster, and what is around it."""

    hosts: tuple[str, ...]
    """Addresses of the nodes."""
    computer_name: str
    pki: str
    """Folder with certificates of every role; those of `strangers` are beside them."""
    sources: tuple[str, ...]
    """Addresses that the attacker may bind."""
    silent: tuple[str, ...]
    """Addresses at which nothing answers, not even with a refusal."""
    queue: str
    """Path of a queue that takes everything, below the computer name."""
    transactional_queue: str
    seed: int
    seconds: float

    def name(self, queue: str) -> str:
        r"""Return what packets write for a queue of the cluster: `OS:computer\queue`."""
        return f"OS:{self.computer_name}\\{queue}"

    def host(self, number: int) -> str:
        """Return the node that attacker `number` goes to."""
        return self.hosts[number % len(self.hosts)]

    def source(self, number: int) -> str:
        """Return the address that attacker `number` comes from."""
        return self.sources[number % len(self.sources)]

    def certificate(self, stem: str) -> tuple[Path, Path]:
        """Return certificate and key by name, such as `client` or `peers/n1`."""
        path = Path(self.pki) / stem
        return path.with_suffix(".pem"), path.with_suffix(".key")


Attack = Callable[[Victim, Random, Count], Awaitable[None]]
"""Runs until it is cancelled. Connections that the victim ends are opened again."""
