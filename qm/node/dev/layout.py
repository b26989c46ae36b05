"""The folder of a dev cluster: certificates, configurations, data, logs, process ids."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from qm.api.gate.identity import Role
from qm.node.config.schema import API_PORT, CONSOLE_PORT, HTTP_PORT, MSMQ_PORT
from qm.node.upkeep.pki import (
    AUTHORITY_CERTIFICATE,
    PEERS_FOLDER,
    REVOKED_LIST,
    create_authority,
    issue,
)

NODES_MAX: Final = 9
HOST_FIRST: Final = 11
"""Last number of the first node's address: 127.0.0.11."""
PRINCIPALS: Final = {"admin": Role.ADMIN, "operator": Role.OPERATOR, "client": Role.CLIENT}
"""Certificates for callers, by name."""

_TEMPLATE: Final = """\
# Made by `qm dev up`, which afterwards only adds [archive] if it is asked to.
name = "{name}"
host = "{host}"
data = "{name}"

[tls]
authority = "pki/{authority}"
certificate = "pki/{name}.pem"
key = "pki/{name}.key"
{peers}
[storage]
cache_mb = 64
reserve_mb = 64
sealing_key_file = "sealing.key"

[raft]
log_retain_mb = 256
"""
_PEERS: Final = """\
peer_authority = "pki/peers/{authority}"
peer_certificate = "pki/peers/{name}.pem"
peer_key = "pki/peers/{name}.key"
revoked = "pki/{revoked}"
peer_revoked = "pki/peers/{revoked}"
"""
"""Absent in a folder that an older build made: all nodes of a cluster must trust the same."""
_ARCHIVE: Final = """
[archive]
url = {url}
range_s = 10
busy_wait_s = 0
"""
_MEMBER: Final = """
[[members]]
name = "{name}"
host = "{host}"
"""


class DevNode(msgspec.Struct, frozen=True):
    """A node of the dev cluster."""

    name: str
    host: str

    @property
    def msmq(self) -> str:
        """Address for MSMQ peers."""
        return f"{self.host}:{MSMQ_PORT}"

    @property
    def api(self) -> str:
        """Address for gRPC clients."""
        return f"{self.host}:{API_PORT}"

    @property
    def console(self) -> str:
        """Address of the web console."""
        return f"https://{self.host}:{CONSOLE_PORT}"

    @property
    def http(self) -> str:
        """Address of health and metrics."""
        return f"http://{self.host}:{HTTP_PORT}"


class Layout(msgspec.Struct, frozen=True):
    """Paths of everything in the folder."""

    folder: Path

    @property
    def pki(self) -> Path:
        """Authority and certificates."""
        return self.folder / "pki"

    @property
    def born(self) -> Path:
        """A file that exists once the cluster was born."""
        return self.folder / "born"

    @property
    def manager_pid(self) -> Path:
        """Process id of the manager, which locks it."""
        return self.folder / "manager.pid"

    def config(self, node: str) -> Path:
        """Configuration of a node."""
        return self.folder / f"{node}.toml"

    def log(self, node: str) -> Path:
        """What a node writes to stderr."""
        return self.folder / f"{node}.log"

    def pid(self, node: str) -> Path:
        """Process id of a node, which locks it."""
        return self.folder / f"{node}.pid"

    def nodes(self) -> list[DevNode]:
        """Return the nodes that have a configuration."""
        found = []
        for path in sorted(self.folder.glob("n[1-9].toml")):
            for line in path.read_text().splitlines():
                if line.startswith("host = "):
                    found.append(DevNode(path.stem, line.partition("= ")[2].strip('"')))
                    break
        return found

    def make(self, count: int, network: str) -> list[DevNode]:
        """Make certificates and configurations for `count` nodes unless they exist.

        `network`: first three numbers of the nodes' addresses.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.nodes():
            return self.nodes()
        nodes = [DevNode(f"n{k + 1}", f"{network}.{HOST_FIRST + k}") for k in range(count)]
        create_authority(self.pki, "quorate dev authority")
        create_authority(self.pki / PEERS_FOLDER, "quorate dev authority, nodes")
        for node in nodes:
            self._issue(node)
        for name, role in PRINCIPALS.items():
            issue(self.pki, name, role)
        for node in nodes:
            self._configure(node, nodes)
        return nodes

    def archive_to(self, url: str) -> None:
        """Have all nodes that export nothing yet export to this folder or URL, from their next
        start on; "": a folder beside their data.
        """
        place = msgspec.json.encode(url or str(self.folder / "archive")).decode()
        for node in self.nodes():
            config = self.config(node.name)
            text = config.read_text()
            if "archive" not in msgspec.toml.decode(text):
                config.write_text(text + _ARCHIVE.format(url=place))

    def add(self, node: DevNode, seeds: Sequence[DevNode]) -> None:
        """Make a configuration for one more node, which knows its seeds, and a certificate unless
        it was a member before.
        """
        self._issue(node)
        self._configure(node, seeds)

    def _issue(self, node: DevNode) -> None:
        for folder in (self.pki, self.pki / PEERS_FOLDER):
            if folder.exists() and not (folder / f"{node.name}.pem").exists():
                issue(folder, node.name, Role.NODE, [node.host])

    def _configure(self, node: DevNode, members: Sequence[DevNode]) -> None:
        files = {"name": node.name, "authority": AUTHORITY_CERTIFICATE, "revoked": REVOKED_LIST}
        peers = _PEERS.format(**files) if (self.pki / PEERS_FOLDER).exists() else ""
        text = _TEMPLATE.format(host=node.host, peers=peers, **files)
        known = (_MEMBER.format(name=member.name, host=member.host) for member in members)
        self.config(node.name).write_text(text + "".join(known))
