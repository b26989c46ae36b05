"""Hosts on one machine: a network namespace each, joined by a bridge, with faults by nft.

Every host has its own address, so MSMQ's fixed port is free on each, and a partition is a rule in a
namespace rather than a flag in the product. The machine itself is on the bridge too: load
generators run there, as clients do on a network. Needs root, `ip` and `nft`.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network
from types import TracebackType
from typing import Final

import msgspec

HOSTS_MAX: Final = 32
TAG_LENGTH_MAX: Final = 6
"""Interface names have at most 15 characters."""
COMMAND_TIMEOUT_S: Final = 20
INSIDE: Final = "eth0"
"""Name of the interface of every host."""
_TABLE: Final = "quorate_drill"
_NONLOCAL_BIND: Final = "/proc/sys/net/ipv4/ip_nonlocal_bind"


class NamespacesRefused(Exception):
    """This machine or user cannot create namespaces; the text says what is missing."""


class Host(msgspec.Struct, frozen=True):
    """One namespace."""

    name: str
    namespace: str
    address: str


class Namespaces:
    """A bridge with hosts; a context manager that leaves nothing behind.

    The machine has the network's last address; virtual addresses come from its middle.
    """

    def __init__(
        self, tag: str, hosts: Sequence[str], network: str = "10.177.0.0/24", *, first: int = 1
    ) -> None:
        """`tag` keeps rigs apart; `hosts` are unique names, with addresses from the network's
        `first` on. Raises ValueError.
        """
        if not tag.isalnum() or len(tag) > TAG_LENGTH_MAX:
            raise ValueError(f"a tag has one to {TAG_LENGTH_MAX} letters and digits, not {tag!r}")
        if not 1 <= len(hosts) <= HOSTS_MAX or len(set(hosts)) != len(hosts):
            raise ValueError(f"one to {HOSTS_MAX} hosts, each once, not {list(hosts)}")
        self.network: Final = IPv4Network(network)
        addresses = [str(address) for address in self.network.hosts()]
        self.machine_address: Final = addresses[-1]
        self.virtual_address: Final = addresses[len(addresses) // 2]
        self.hosts: Final = {
            name: Host(name, f"qm{tag}-{name}", addresses[number])
            for number, name in enumerate(hosts, first - 1)
        }
        self._bridge = f"qm{tag}br"
        self._links = {name: f"qm{tag}v{number}" for number, name in enumerate(hosts)}

    def __enter__(self) -> "Namespaces":
        """Create everything. Raises NamespacesRefused."""
        _require_tools()
        self._remove()
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove everything; processes inside must have ended."""
        self._remove()

    def _make(self) -> None:
        length = self.network.prefixlen
        _run("ip", "link", "add", self._bridge, "type", "bridge")
        _run("ip", "addr", "add", f"{self.machine_address}/{length}", "dev", self._bridge)
        _run("ip", "link", "set", self._bridge, "up")
        for name, host in self.hosts.items():
            link = self._links[name]
            _run("ip", "netns", "add", host.namespace)
            _run(
                "ip", "link", "add", link, "type", "veth",
                "peer", "name", INSIDE, "netns", host.namespace,
            )  # fmt: skip
            _run("ip", "link", "set", link, "master", self._bridge, "up")
            within = ("ip", "-n", host.namespace)
            _run(*within, "addr", "add", f"{host.address}/{length}", "dev", INSIDE)
            _run(*within, "link", "set", "lo", "up")
            _run(*within, "link", "set", INSIDE, "up")
            # A node listens on a virtual address before its host has it.
            _run(*self.command(name, "sh", "-c", f"echo 1 > {_NONLOCAL_BIND}"))

    def _remove(self) -> None:
        for name, host in self.hosts.items():
            _try("ip", "link", "del", self._links[name])
            _try("ip", "netns", "del", host.namespace)
        _try("ip", "link", "del", self._bridge)

    def command(self, host: str, *argv: str) -> list[str]:
        """Return the command line that runs `argv` on a host."""
        return ["ip", "netns", "exec", self.hosts[host].namespace, *argv]

    def who_has(self, address: str) -> str:
        """Return the first host with an address, "" if none has it."""
        for name, host in self.hosts.items():
            shown = _ask("ip", "-n", host.namespace, "-o", "addr", "show", "to", address)
            if shown.strip():
                return name
        return ""

    # Faults: each replaces the previous one on the hosts that it names ----------------------

    def cut(self, hosts: Iterable[str], sources: Iterable[str]) -> None:
        """Make `hosts` receive nothing from `sources`, names or addresses. One way only."""
        addresses = ", ".join(self._address(source) for source in sources)
        for host in hosts:
            self._rule(host, f"ip saddr {{ {addresses} }} drop")

    def partition(self, *sides: Sequence[str]) -> None:
        """Cut off the sides from each other."""
        for side in sides:
            others = [host for other in sides if other is not side for host in other]
            self.cut(side, others)

    def lose(self, host: str, percent: int) -> None:
        """Drop this share of the packets that reach a host."""
        self._rule(host, f"ip saddr {self.network} numgen random mod 100 < {percent} drop")

    def unplug(self, host: str) -> None:
        """Cut a host off from all others in both directions, as if it had lost power."""
        _run("ip", "link", "set", self._links[host], "down")

    def heal(self) -> None:
        """End every fault."""
        for name, host in self.hosts.items():
            _try("ip", "link", "set", self._links[name], "up")
            _try("ip", "netns", "exec", host.namespace, "nft", "delete", "table", "inet", _TABLE)

    def _rule(self, host: str, rule: str) -> None:
        table = (
            f"table inet {_TABLE} {{}}\n"
            f"delete table inet {_TABLE}\n"
            f"table inet {_TABLE} {{\n"
            "  chain input { type filter hook input priority 0; policy accept;\n"
            f"    {rule}\n"
            "  }\n"
            "}\n"
        )
        _run(*self.command(host, "nft", "-f", "-"), text=table)

    def _address(self, source: str) -> str:
        host = self.hosts.get(source)
        return host.address if host is not None else source


def _require_tools() -> None:
    if os.geteuid() != 0:
        raise NamespacesRefused(
            "network namespaces need root: run as root, or use the loopback target (--target dev)"
        )
    missing = [tool for tool in ("ip", "nft") if shutil.which(tool) is None]
    if missing:
        raise NamespacesRefused(f"missing: {', '.join(missing)}; install iproute2 and nftables")


def _run(*argv: str, text: str | None = None) -> None:
    done = subprocess.run(
        argv, input=text, capture_output=True, text=True, check=False, timeout=COMMAND_TIMEOUT_S
    )
    if done.returncode != 0:
        raise NamespacesRefused(f"{' '.join(argv)}: {done.stderr.strip() or done.returncode}")


def _ask(*argv: str) -> str:
    """Return the output of a command, "" if it fails."""
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, timeout=COMMAND_TIMEOUT_S
    )
    return done.stdout


def _try(*argv: str) -> None:
    """Run a command that may have nothing to do; ignore its failure."""
    subprocess.run(argv, capture_output=True, check=False, timeout=COMMAND_TIMEOUT_S)
