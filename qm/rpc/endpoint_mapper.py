"""The endpoint mapper: which port serves an interface [MS-RPCE 2.2.1.2, C706 App. L and O].

It answers with one tower: the port of this node, and the address at which it was asked. Clients
dial the name that they have and take only the port from the answer.
"""

from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, ip_address
from struct import Struct, error
from typing import Final

import msgspec
from typing_extensions import override

from qm.rpc.association.groups import HeldObject
from qm.rpc.interface import Fault, Interface, Operation, interface_syntax
from qm.rpc.ndr.streams import BadStub, Reader, Writer
from qm.rpc.ndr.types import (
    BYTES,
    GUID,
    HANDLE,
    NIL,
    U16,
    U32,
    Full,
    Parameters,
    Ranged,
    Structure,
    Type,
    Varying,
    VaryingArray,
)
from qm.rpc.pdu.bind import NDR20, Syntax
from qm.rpc.pdu.codes import FaultStatus
from qm.rpc.server.call import Call
from qm.wire.guid import Guid

TOWER_MAX_BYTES: Final = 2_000
TOWERS_MAX: Final = 500
ANNOTATION_MAX_CHARS: Final = 64
FLOORS_COUNT: Final = 5
NOT_REGISTERED: Final = 0x16C9_A0D6
_UUID_FLOOR, _CONNECTION_FLOOR, _TCP_FLOOR, _IP_FLOOR = 0x0D, 0x0B, 0x07, 0x09
_LENGTH: Final = Struct("<H")
_INTERFACE_LEFT: Final = Struct("<B16sH")


class Tower(msgspec.Struct):
    """twr_t: a protocol tower."""

    length: int
    octets: bytes


TOWER: Final = Structure(
    Tower, {"length": U32, "octets": BYTES}, lambda it: it.length == len(it.octets)
)


class MapIn(msgspec.Struct):
    """Parameters of ept_map."""

    object_uuid: Guid | None
    tower: Tower | None
    handle: bytes
    towers_max: int


class MapOut(msgspec.Struct):
    """Results of ept_map."""

    handle: bytes
    count: int
    towers: Varying[Tower | None]
    status: int


class LookupIn(msgspec.Struct):
    """Parameters of ept_lookup."""

    inquiry: int
    object_uuid: Guid | None
    interface: "VersionedUuid | None"
    version_option: int
    handle: bytes
    entries_max: int


class VersionedUuid(msgspec.Struct):
    """RPC_IF_ID."""

    uuid: Guid
    major: int
    minor: int


class Entry(msgspec.Struct):
    """ept_entry_t."""

    object_uuid: Guid
    tower: Tower | None
    annotation: bytes


class LookupOut(msgspec.Struct):
    """Results of ept_lookup."""

    handle: bytes
    count: int
    entries: Varying[Entry]
    status: int


class HandleOnly(msgspec.Struct):
    """ept_lookup_handle_free: the handle."""

    handle: bytes


class HandleStatus(msgspec.Struct):
    """ept_lookup_handle_free: the nil handle and a status."""

    handle: bytes
    status: int


class _Annotation(Type[bytes]):
    """[string] char annotation[64]: a varying string in a fixed room, with its NUL."""

    alignment = 4
    size_min = 9

    @override
    def read(self, reader: Reader) -> bytes:
        offset, actual = reader.u32(), reader.u32()
        if offset or not 1 <= actual <= ANNOTATION_MAX_CHARS:
            raise BadStub("an annotation without its NUL, or too long")
        return reader.take(actual)[:-1]

    @override
    def write(self, writer: Writer, value: bytes) -> None:
        writer.u32(0)
        writer.u32(len(value) + 1)
        writer.put(value + b"\0")


_IF_ID: Final = Structure(VersionedUuid, {"uuid": GUID, "major": U16, "minor": U16})
_ENTRY: Final = Structure(
    Entry, {"object_uuid": GUID, "tower": Full(TOWER), "annotation": _Annotation()}
)
MAPPER: Final = Interface(
    "epmapper",
    interface_syntax("e1af8308-5d1f-11c9-91a4-08002b14a0fa", 3),
    {
        0: Operation("refused"),
        1: Operation("refused"),
        2: Operation(
            "lookup",
            Parameters(
                LookupIn,
                {
                    "inquiry": U32,
                    "object_uuid": Full(GUID),
                    "interface": Full(_IF_ID),
                    "version_option": U32,
                    "handle": HANDLE,
                    "entries_max": Ranged(U32, 0, TOWERS_MAX),
                },
            ),
            Parameters(
                LookupOut,
                {"handle": HANDLE, "count": U32, "entries": VaryingArray(_ENTRY), "status": U32},
            ),
        ),
        3: Operation(
            "map",
            Parameters(
                MapIn,
                {
                    "object_uuid": Full(GUID),
                    "tower": Full(TOWER),
                    "handle": HANDLE,
                    "towers_max": Ranged(U32, 0, TOWERS_MAX),
                },
            ),
            Parameters(
                MapOut,
                {
                    "handle": HANDLE,
                    "count": U32,
                    "towers": VaryingArray(Full(TOWER)),
                    "status": U32,
                },
            ),
        ),
        4: Operation(
            "free",
            Parameters(HandleOnly, {"handle": HANDLE}),
            Parameters(HandleStatus, {"handle": HANDLE, "status": U32}),
        ),
        5: Operation("refused"),
        6: Operation("refused"),
    },
)


class Registration(msgspec.Struct, frozen=True):
    """An interface, and where this node serves it."""

    interface: Interface
    port: int


class EndpointMapper:
    """Implements the mapper; `registered` is asked at each call."""

    def __init__(self, registered: Callable[[], Sequence[Registration]]) -> None:
        self._registered = registered

    def refused(self, call: Call, given: object) -> None:
        """Nobody registers or removes endpoints from afar, nor asks for objects."""
        raise Fault(FaultStatus.ENTRY_NOT_ALLOWED)

    def map(self, call: Call, given: MapIn) -> MapOut:
        """ept_map: one tower of the first interface that fits (RP-A20, RP-A21, RP-A22)."""
        if given.tower is None:
            raise Fault(FaultStatus.BAD_STUB_DATA, "ept_map without a tower")
        if given.tower.length > TOWER_MAX_BYTES:
            raise Fault(FaultStatus.BAD_STUB_DATA, f"a tower of {given.tower.length} bytes")
        asked = parse_tower(given.tower.octets)
        found = None if asked is None else self._find(asked)
        if found is None or not given.towers_max:
            return MapOut(NIL, 0, Varying(given.towers_max, []), NOT_REGISTERED)
        tower = tower_of(found.interface.syntax, found.port, call.local[0])
        return MapOut(NIL, 1, Varying(given.towers_max, [tower]), 0)

    def _find(self, asked: Syntax) -> Registration | None:
        for one in self._registered():
            syntax = one.interface.syntax
            if (syntax.uuid, syntax.major) == (asked.uuid, asked.major):
                return one if asked.minor <= syntax.minor else None
        return None

    def lookup(self, call: Call, given: LookupIn) -> LookupOut:
        """ept_lookup: all entries, in portions; the last one comes with the nil handle."""
        association = call.association
        search = _Search()
        if given.handle != NIL:
            held = association.find(MAPPER, given.handle)
            assert isinstance(held, _Search)
            search = held
        entries = [
            Entry(
                bytes(16),
                tower_of(one.interface.syntax, one.port, call.local[0]),
                one.interface.name.encode()[: ANNOTATION_MAX_CHARS - 1],
            )
            for one in self._registered()
            if _matches(given, one.interface.syntax)
        ]
        portion = entries[search.begin : search.begin + given.entries_max]
        search.begin += len(portion)
        handle = given.handle
        if search.begin < len(entries):
            handle = association.open(MAPPER, search) if handle == NIL else handle
        elif handle != NIL:
            association.close(MAPPER, handle)
            handle = NIL
        status = 0 if portion else NOT_REGISTERED
        return LookupOut(handle, len(portion), Varying(given.entries_max, portion), status)

    def free(self, call: Call, given: HandleOnly) -> HandleStatus:
        """ept_lookup_handle_free: a search ends before it has found everything."""
        if given.handle != NIL:
            call.association.close(MAPPER, given.handle)
        return HandleStatus(NIL, 0)


class _Search(HeldObject):
    """How far an ept_lookup has come."""

    def __init__(self) -> None:
        self.begin = 0

    @override
    def run_down(self) -> None:
        """Nothing is kept for it."""


_ALL_ENTRIES: Final = 0
_BY_INTERFACE: Final = (1, 3)


def _matches(given: LookupIn, syntax: Syntax) -> bool:
    if given.inquiry == _ALL_ENTRIES:
        return True
    asked = given.interface
    return given.inquiry in _BY_INTERFACE and asked is not None and asked.uuid == syntax.uuid


def tower_of(syntax: Syntax, port: int, address: str) -> Tower:
    """Return the tower of an interface at a TCP port; port and IPv4 address are big-endian."""
    try:
        host = ip_address(address)
    except ValueError:
        host = IPv4Address(0)
    octets = host.packed if isinstance(host, IPv4Address) else bytes(4)
    floors = (
        (_INTERFACE_LEFT.pack(_UUID_FLOOR, syntax.uuid, syntax.major), _LENGTH.pack(syntax.minor)),
        (_INTERFACE_LEFT.pack(_UUID_FLOOR, NDR20.uuid, NDR20.major), _LENGTH.pack(NDR20.minor)),
        (bytes((_CONNECTION_FLOOR,)), bytes(2)),
        (bytes((_TCP_FLOOR,)), port.to_bytes(2, "big")),
        (bytes((_IP_FLOOR,)), octets),
    )
    parts = [_LENGTH.pack(FLOORS_COUNT)]
    for floor in floors:
        for side in floor:
            parts += (_LENGTH.pack(len(side)), side)
    octets = b"".join(parts)
    return Tower(len(octets), octets)


def parse_tower(octets: bytes) -> Syntax | None:
    """Return the interface of a tower over TCP; None for towers of other protocols."""
    floors = _floors(octets)
    if floors is None:
        return None
    (first, minor), _, (third, _), (fourth, _), *_ = floors
    if third != bytes((_CONNECTION_FLOOR,)) or fourth != bytes((_TCP_FLOOR,)):
        return None
    if len(first) != _INTERFACE_LEFT.size or len(minor) != _LENGTH.size:
        return None
    kind, uuid, major = _INTERFACE_LEFT.unpack(first)
    (number,) = _LENGTH.unpack(minor)
    return Syntax(uuid, major, number) if kind == _UUID_FLOOR else None


def port_of_tower(octets: bytes) -> int:
    """Return the TCP port of a tower, 0 for one of another protocol."""
    floors = _floors(octets)
    return 0 if floors is None else int.from_bytes(floors[3][1], "big")


def _floors(octets: bytes) -> list[tuple[bytes, bytes]] | None:
    """Return left and right sides of a tower's five floors; None for another number of floors."""
    try:
        (count,) = _LENGTH.unpack_from(octets)
        if count != FLOORS_COUNT:
            return None
        at, sides = _LENGTH.size, []
        for _ in range(2 * count):
            (length,) = _LENGTH.unpack_from(octets, at)
            at += _LENGTH.size
            side = octets[at : at + length]
            if len(side) < length:
                raise error("short")
            sides.append(side)
            at += length
    except error:
        raise Fault(FaultStatus.BAD_STUB_DATA, "a tower that ends inside a floor") from None
    return list(zip(sides[::2], sides[1::2], strict=True))
