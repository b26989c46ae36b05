"""An operator's description of a cluster on machines: its nodes, and what a drill may do there.

A command is a program and its arguments, run on the machine of the drill without a shell. `{name}`
and `{host}` are the node's.
"""

from collections.abc import Iterator
from pathlib import Path
from string import Formatter
from typing import Annotated, Final

import msgspec

from qm.drill.targets.ability import Ability, Refused
from qm.node.config.addresses import host_and_port
from qm.node.config.loading import ConfigError, read_text, section
from qm.node.config.schema import API_PORT, HTTP_PORT, Name, Port, Section, TlsSection

SOURCES: Final = "{sources}"
"""An argument of `cut` that stands for one argument per address."""
_PLACEHOLDERS: Final = frozenset({"name", "host"})

Command = tuple[str, ...]


class HostSection(Section, frozen=True, kw_only=True):
    """`[[nodes]]`, `[[spares]]`: a machine."""

    name: Name
    """Name of its node."""
    host: str
    """Address at which MSMQ peers, clients and this drill reach it."""
    api_port: Port = API_PORT
    http_port: Port = HTTP_PORT

    @property
    def api(self) -> str:
        """`host:port` of its API."""
        return host_and_port(self.host, self.api_port)

    @property
    def http(self) -> str:
        """Base URL of its health endpoint."""
        return f"http://{host_and_port(self.host, self.http_port)}"


class CommandsSection(Section, frozen=True, kw_only=True):
    """`[commands]`: exit code 0 means success. Each may be repeated when its effect is in place."""

    kill: Command
    """Kill the node's process at once (SIGKILL)."""
    stop: Command
    """Stop it cleanly; return when it is gone."""
    start: Command
    """Start it again."""
    pause: Command = ()
    """SIGSTOP."""
    resume: Command = ()
    """SIGCONT."""
    lose_disk: Command = ()
    """Remove the data folder of a node that is not running."""
    rejoin: Command = ()
    """`qm node join` on a machine whose node runs with an empty folder; return when it votes."""
    upgrade: Command = ()
    """Install the other build; the node is not running."""
    downgrade: Command = ()
    """Install the first build again; the node is not running."""
    cut: Command = ()
    """Make the machine drop every packet from the addresses `{sources}`, replacing earlier ones. It
    must not affect the connection that `heal` uses."""
    heal: Command = ()
    """Make the machine stop dropping packets."""
    has_address: Command = ()
    """Exit code 0 on the machine that has the virtual address, another elsewhere."""


class HostsFile(Section, frozen=True, kw_only=True):
    """The whole file."""

    tls: TlsSection
    """An admin's authority, certificate and key; relative paths start at the file's folder."""
    nodes: Annotated[tuple[HostSection, ...], msgspec.Meta(min_length=3)]
    """Every member of the cluster."""
    commands: CommandsSection
    spares: tuple[HostSection, ...] = ()
    """Machines with an installed node and an empty data folder, for growth and replacement."""
    clients: str = ""
    """Address of this machine as the nodes see it, for `cut`."""
    virtual_address: str = ""
    """Address to which MSMQ peers connect and which moves between the nodes."""
    proxy_address: str = ""
    """Address at which a proxy before the nodes accepts MSMQ peers."""

    @property
    def abilities(self) -> frozenset[Ability]:
        """What the given commands and addresses allow."""
        commands = self.commands
        can_lose = bool(commands.lose_disk and commands.rejoin)
        can_grow = can_lose and bool(self.spares)
        can_cut = bool(commands.cut and commands.heal and self.clients)
        given = {
            Ability.PAUSE: bool(commands.pause),
            Ability.DISKS: can_lose,
            Ability.SCALE: can_grow and len(self.spares) > 1,
            Ability.REPLACE: can_grow,
            Ability.BUILDS: bool(commands.upgrade),
            Ability.NETWORK: can_cut,
            Ability.UNPLUG: can_cut and bool(commands.has_address),
            Ability.VIRTUAL_ADDRESS: bool(self.virtual_address),
            Ability.PROXY: bool(self.proxy_address),
        }
        return frozenset({Ability.PROCESSES, *(a for a, is_given in given.items() if is_given)})


def load_hosts(path: Path) -> HostsFile:
    """Return the contents of a file. Raises Refused, with one line that names the key."""
    try:
        hosts = section(read_text(path), HostsFile)
        _check(hosts)
    except ConfigError as error:
        text = str(error)
        raise Refused(text if text.startswith(f"{path}:") else f"{path}: {text}") from error
    folder, tls = path.absolute().parent, hosts.tls
    at = msgspec.structs.replace(
        tls,
        authority=folder / tls.authority,
        certificate=folder / tls.certificate,
        key=folder / tls.key,
    )
    return msgspec.structs.replace(hosts, tls=at)


_PAIRS: Final = (("pause", "resume"), ("lose_disk", "rejoin"), ("upgrade", "downgrade"))


def _check(hosts: HostsFile) -> None:
    """Check what types cannot express. Raises ConfigError."""
    names = [host.name for host in (*hosts.nodes, *hosts.spares)]
    if len(set(names)) != len(names):
        raise ConfigError("`nodes` and `spares` name a node twice")
    for one, other in (*_PAIRS, ("cut", "heal")):
        if bool(getattr(hosts.commands, one)) != bool(getattr(hosts.commands, other)):
            raise ConfigError(f"`commands` must give `{one}` and `{other}` together, or neither")
    if hosts.commands.cut and SOURCES not in hosts.commands.cut:
        raise ConfigError(f"`commands.cut` has no argument '{SOURCES}'")
    if hosts.commands.cut and not hosts.clients:
        raise ConfigError("`commands.cut` needs `clients`, the address of this machine")
    for key, argument in _arguments(hosts.commands):
        if key == "cut" and argument == SOURCES:
            continue
        try:
            used = {field for _, field, _, _ in Formatter().parse(argument) if field is not None}
        except ValueError:
            used = {argument}
        if not used <= _PLACEHOLDERS:
            raise ConfigError(
                f"`commands.{key}`: {argument!r}: known are {{name}} and {{host}}; `{{{{` is a `{{`"
            )


def _arguments(commands: CommandsSection) -> Iterator[tuple[str, str]]:
    for key in commands.__struct_fields__:
        for argument in getattr(commands, key):
            yield key, argument
