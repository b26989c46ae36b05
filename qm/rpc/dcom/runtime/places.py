"""Where this node is reached, as its callers see it, and who they are."""

from collections.abc import Callable, Sequence
from typing import Final

from qm.rpc.dcom.runtime.exporter import Owner
from qm.rpc.dcom.runtime.objref import Bindings
from qm.rpc.pdu.codes import AuthType
from qm.rpc.server.call import Call

SERVICES: Final = (int(AuthType.SPNEGO), int(AuthType.NTLM))
"""Ways to log on, the best one first; a node with a keytab has Kerberos, too."""


class Places:
    """Bindings of the node: the address that the caller dialled always is among them."""

    def __init__(
        self,
        names: Sequence[str],
        port: Callable[[], int],
        clock: Callable[[], float],
        *,
        has_kerberos: bool = False,
    ) -> None:
        """`names`: host names that clients dial, the first of them first. `port`: of the objects.

        `clock`: seconds, monotonic. `has_kerberos`: whether the node takes tickets.
        """
        self._services = (*SERVICES, int(AuthType.KERBEROS)) if has_kerberos else SERVICES
        self._names = tuple(names)
        self._port = port
        self.now: Final = clock

    def resolver(self, call: Call) -> Bindings:
        """Return where OXIDs are resolved: no ports, since it is the well-known one."""
        return Bindings((*self._names, call.local[0]), self._services)

    def exporter(self, call: Call) -> Bindings:
        """Return where objects are called."""
        return self.exporter_at(call.local[0])

    def exporter_at(self, dialled: str) -> Bindings:
        """As `exporter`, for who dialled an address."""
        port = self._port()
        hosts = (*self._names, dialled)
        return Bindings(tuple(f"{host}[{port}]" for host in hosts), self._services)

    def owner(self, call: Call) -> Owner:
        """Return who calls."""
        return Owner(call.identity.name, call.address)
