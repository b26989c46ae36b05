"""Which names mean this queue manager: its virtual name, short name, FQDN and addresses.

Clients and peers may reach a cluster by any of them and by those of any node; all are local. A name
that is missing here would make the cluster send to itself through an outgoing queue.
"""

from collections.abc import Iterable

from qm.names.direct import AnyDirectName
from qm.names.errors import illegal_path_name
from qm.names.grammar import LOCAL_COMPUTER, check_computer_name, computer_key
from qm.names.path_name import PathName


class LocalAliases:
    """An immutable set of names and addresses of this queue manager.

    `.` is always one. Nothing is derived: an FQDN does not imply its short name, and loopback
    addresses are local only when listed, since several nodes may share a machine.
    """

    __slots__ = ("_keys",)

    def __init__(self, aliases: Iterable[str]) -> None:
        """Take computer names and IP literals (IPv6 with brackets or without).

        Any other text raises `PathNameError`.
        """
        keys = {LOCAL_COMPUTER}
        for alias in aliases:
            check_computer_name(alias, illegal_path_name)
            keys.add(computer_key(alias))
        self._keys = frozenset(keys)

    def is_local_computer(self, computer: str) -> bool:
        """Tell whether the computer part of a name, or a peer's address, is this queue manager."""
        return computer_key(computer) in self._keys

    def is_local_direct(self, name: AnyDirectName) -> bool:
        """Tell whether a direct name points here; a name over IPX never does."""
        address = name.address
        return not address.protocol.is_ipx and self.is_local_computer(address.host)

    def is_local_path(self, name: PathName) -> bool:
        """Tell whether a path name's queue is hosted here."""
        return self.is_local_computer(name.computer)
