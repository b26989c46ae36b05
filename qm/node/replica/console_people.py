"""What signs people in to this node's console, from its configuration and the replicated users."""

from collections.abc import Callable

from typing_extensions import override

from qm.api.gate.events import EventLog
from qm.api.gate.identity import Role, role_of_groups
from qm.cluster.cluster import Cluster, Unavailable
from qm.console.entry import Ways
from qm.console.id_tokens import Claims
from qm.console.passwords import User, Users, UsersUnknown
from qm.console.single_sign_on import SsoSettings
from qm.model.queries import account
from qm.model.values.directory_objects import password_label
from qm.node.config.addresses import host_and_port
from qm.node.config.schema import NodeConfig, OidcSection
from qm.store.sealing import SealingError

Opened = Callable[[bytes, bytes], bytes]
"""(sealed, label) -> the secret. Raises SealingError."""


class ClusterUsers(Users):
    """The directory's users with a password, as this node has applied them."""

    def __init__(self, cluster: Cluster, opened: Opened) -> None:
        self._cluster = cluster
        self._opened = opened

    @override
    def find(self, name: str, domain: str) -> User | None:
        try:
            found = account(self._cluster.view, name)
        except Unavailable as error:
            raise UsersUnknown(str(error)) from None
        if found is None or not found.sealed_password or not found.sid:
            return None
        if found.domain and found.domain.casefold() != domain.casefold():
            return None
        try:
            kept = self._opened(found.sealed_password, password_label(found.sid))
        except SealingError as error:
            raise UsersUnknown(str(error)) from None
        role = role_of_groups(found.groups)
        return User(found.name, found.sid, role, not found.is_disabled, kept)


def ways_of(config: NodeConfig, cluster: Cluster, opened: Opened, events: EventLog) -> Ways:
    """Return the ways into this node's console, beside codes and certificates."""

    def note(name: str, text: str, principal: str) -> None:
        events.add("session", name, text, principal=principal)

    console = config.console
    return Ways(
        ClusterUsers(cluster, opened) if console.passwords else None,
        None if console.oidc is None else _settings(config, console.oidc),
        note,
    )


def _settings(config: NodeConfig, oidc: OidcSection) -> SsoSettings:
    roles = {value: Role(role) for value, role in oidc.roles.items()}
    return SsoSettings(
        Claims(oidc.issuer, oidc.client_id, oidc.role_claim, roles, oidc.name_claim),
        oidc.client_secret_file,
        oidc.ca_file,
        oidc.scopes,
        oidc.url or f"https://{host_and_port(config.host, config.console.port)}",
    )
