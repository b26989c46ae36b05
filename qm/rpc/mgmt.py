"""The management interface of every RPC port: what is served, and as whom [MS-RPCE 2.2.1.3]."""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from typing_extensions import override

from qm.rpc.interface import Interface, Operation, interface_syntax
from qm.rpc.ndr.streams import Reader, Writer
from qm.rpc.ndr.types import (
    GUID,
    U16,
    U32,
    Array,
    Full,
    Nothing,
    Parameters,
    Ranged,
    Structure,
    Type,
    read_bounds,
)
from qm.rpc.pdu.codes import FaultStatus
from qm.rpc.server.call import Call
from qm.wire.guid import Guid

STATISTICS_MAX: Final = 4
STATISTICS_ASKED_MAX: Final = 50
"""[MS-RPCE] 2.2.1.3.2."""
NAME_MAX_CHARS: Final = 4_096
UNKNOWN_AUTHENTICATION: Final = 0x0000_06D3
"""RPC_S_UNKNOWN_AUTHN_SERVICE."""
INSUFFICIENT_BUFFER: Final = 0x0000_007A
"""ERROR_INSUFFICIENT_BUFFER: the name and its NUL need more room."""


class InterfaceId(msgspec.Struct):
    """rpc_if_id_t."""

    uuid: Guid
    major: int
    minor: int


class InterfaceIds(msgspec.Struct):
    """rpc_if_id_vector_t."""

    count: int
    ids: list[InterfaceId | None]


class IdsOut(msgspec.Struct):
    """Results of inq_if_ids."""

    vector: InterfaceIds | None
    status: int


class StatisticsIn(msgspec.Struct):
    """Parameters of inq_stats."""

    count: int


class StatisticsOut(msgspec.Struct):
    """Results of inq_stats."""

    count: int
    statistics: list[int]
    status: int


class ListeningOut(msgspec.Struct):
    """Results of is_server_listening."""

    status: int
    is_listening: int


class Stopped(msgspec.Struct):
    """Results of stop_listening."""

    status: int


class NameIn(msgspec.Struct):
    """Parameters of inq_princ_name."""

    authentication: int
    size: int


class NameOut(msgspec.Struct):
    """Results of inq_princ_name."""

    name: "SizedName"
    status: int


class SizedName(msgspec.Struct):
    """A string in the room that the caller has for it."""

    size: int
    text: str


class _SizedName(Type[SizedName]):
    """[string, size_is] char: conformant and varying, with its NUL."""

    alignment = 4
    size_min = 12

    @override
    def read(self, reader: Reader) -> SizedName:
        size, actual = read_bounds(reader)
        raw, _, _ = reader.take(actual).partition(b"\0")
        return SizedName(size, raw.decode("utf-8", "replace"))

    @override
    def write(self, writer: Writer, value: SizedName) -> None:
        room = max(value.size - 1, 0)
        raw = value.text.encode()[:room] + b"\0" if value.size else b""
        for number in (value.size, 0, len(raw)):
            writer.u32(number)
        writer.put(raw)


_ID: Final = Structure(InterfaceId, {"uuid": GUID, "major": U16, "minor": U16})
_IDS: Final = Structure(InterfaceIds, {"count": U32, "ids": Array(Full(_ID))})
MGMT: Final = Interface(
    "mgmt",
    interface_syntax("afa8bd80-7d8a-11c9-bef4-08002b102989", 1),
    {
        0: Operation("interfaces", gives=Parameters(IdsOut, {"vector": Full(_IDS), "status": U32})),
        1: Operation(
            "statistics",
            Parameters(StatisticsIn, {"count": Ranged(U32, 0, STATISTICS_ASKED_MAX)}),
            Parameters(StatisticsOut, {"count": U32, "statistics": Array(U32), "status": U32}),
        ),
        2: Operation(
            "is_listening", gives=Parameters(ListeningOut, {"status": U32, "is_listening": U32})
        ),
        3: Operation("stop_listening", gives=Parameters(Stopped, {"status": U32})),
        4: Operation(
            "principal_name",
            Parameters(NameIn, {"authentication": U32, "size": Ranged(U32, 0, NAME_MAX_CHARS)}),
            Parameters(NameOut, {"name": _SizedName(), "status": U32}),
        ),
    },
)


class Mgmt:
    """Implements the management interface of one port."""

    def __init__(
        self,
        served: Callable[[], Sequence[Interface]],
        principal: Callable[[int], str | None] = lambda _: None,
    ) -> None:
        """`principal`: the name that clients ask tickets for, such as HOST/name, by the auth_type
        of a provider; None for one that is not offered.
        """
        self._served = served
        self._principal = principal

    def interfaces(self, call: Call, given: Nothing) -> IdsOut:
        """List what can be bound at this port."""
        ids: list[InterfaceId | None] = [
            InterfaceId(one.syntax.uuid, one.syntax.major, one.syntax.minor)
            for one in self._served()
        ]
        return IdsOut(InterfaceIds(len(ids), ids), 0)

    def statistics(self, call: Call, given: StatisticsIn) -> StatisticsOut:
        """Give as many of the four counters as are asked for; none is kept per port."""
        count = min(given.count, STATISTICS_MAX)
        return StatisticsOut(count, [0] * count, 0)

    def is_listening(self, call: Call, given: Nothing) -> ListeningOut:
        """It is, as it answers."""
        return ListeningOut(0, 1)

    def stop_listening(self, call: Call, given: Nothing) -> Stopped:
        """Nobody stops a server from afar."""
        return Stopped(FaultStatus.ACCESS_DENIED)

    def principal_name(self, call: Call, given: NameIn) -> NameOut:
        """Return the name of this server for a provider that it offers."""
        name = self._principal(given.authentication)
        if name is None:
            return NameOut(SizedName(given.size, ""), UNKNOWN_AUTHENTICATION)
        if len(name.encode()) >= given.size:
            return NameOut(SizedName(given.size, ""), INSUFFICIENT_BUFFER)
        return NameOut(SizedName(given.size, name), 0)
