"""The endpoint mapper and the management interface, by their bytes."""

import struct
from typing import Any
from unittest.mock import Mock

import pytest

from qm.rpc.endpoint_mapper import (
    MAPPER,
    EndpointMapper,
    HandleOnly,
    LookupIn,
    MapIn,
    Registration,
    Tower,
    parse_tower,
    port_of_tower,
    tower_of,
)
from qm.rpc.interface import Fault, Interface, interface_syntax
from qm.rpc.mgmt import MGMT, Mgmt, NameIn, StatisticsIn
from qm.rpc.ndr.streams import BadStub
from qm.rpc.ndr.types import NIL, Nothing
from qm.rpc.pdu.bind import Syntax
from tests.unit.rpc.dialogue import associations
from tests.unit.rpc.vectors import vector

READ = Interface("RemoteRead", interface_syntax("1a9134dd-7b39-45ba-ad88-44d01ca47f28", 1), {})
REGISTERED = [Registration(READ, 2105), Registration(MGMT, 2105)]
NOT_REGISTERED = 0x16C9A0D6
CALL: Any = Mock(local=("192.0.2.10", 135), association=associations().join(0, "192.0.2.9"))


def principal(auth_type: int) -> str | None:
    return "HOST/quorate" if auth_type in (9, 10, 16) else None


def mapper() -> EndpointMapper:
    return EndpointMapper(lambda: REGISTERED)


def asked(name: str = "epm_ept_map_request") -> MapIn:
    given, _ = MAPPER.operations[3].takes.unmarshal(vector(name))
    assert isinstance(given, MapIn)
    return given


def mapped(given: MapIn) -> bytes:
    return MAPPER.operations[3].gives.marshal(mapper().map(CALL, given))


def changed(at: int, new: bytes) -> MapIn:
    """The request of the vector with other bytes in its tower."""
    given = asked()
    assert given.tower is not None
    octets = bytearray(given.tower.octets)
    octets[at : at + len(new)] = new
    return MapIn(None, Tower(len(octets), bytes(octets)), NIL, 4)


@pytest.mark.spec(
    "RP-RPCE-2.2.1.2.5-01",
    "RP-RPCE-2.2.1.2.5-04",
    "RP-RPCE-2.2.1.2.5-07",
    "RP-RPCE-2.2.1.2.5-09",
    "RP-RPCE-2.2.1.2.5-10",
)
def test_ept_map_answers_as_in_the_vector() -> None:
    assert mapped(asked()) == vector("epm_ept_map_response")
    # The handle is nil, whichever came.
    again = MapIn(asked().object_uuid, asked().tower, bytes(range(16)), asked().towers_max)
    assert mapped(again) == vector("epm_ept_map_response")
    missed = MapIn(None, changed(5, b"\0").tower, bytes(range(16)), 4)
    assert mapper().map(CALL, missed).handle == NIL
    assert MAPPER.operations[3].takes.marshal(asked()) == vector("epm_ept_map_request")


@pytest.mark.spec("RP-RPCE-2.2.1.2.5-04")
@pytest.mark.parametrize("towers_max", [1, 2, 4, 500])
def test_the_towers_have_as_much_room_as_was_asked_for(towers_max: int) -> None:
    for given, count in ((asked(), 1), (changed(5, b"\0"), 0)):
        raw = mapped(MapIn(given.object_uuid, given.tower, NIL, towers_max))
        # Behind the handle: num_towers, then max_count, offset and actual count of the array.
        assert struct.unpack_from("<4I", raw, 20) == (count, towers_max, 0, count)


@pytest.mark.spec(
    "RP-RPCE-2.2.1.2.5-02",
    "RP-RPCE-2.2.1.2.5-05",
    "RP-RPCE-2.2.1.2.5-06",
    "RP-RPCE-2.2.1.2.5-08",
    "RP-RPCE-2.2.1.2.5-11",
)
def test_ept_map_judges_interface_protocol_and_version() -> None:
    ndr64 = bytes.fromhex("33057171babe37498319b5dbef9ccc36") + b"\1\0"
    found = mapper().map(CALL, changed(30, ndr64))
    assert (found.count, found.status) == (1, 0)
    tower = found.towers.items[0]
    assert tower is not None
    assert tower.octets[30:46] != ndr64[:16]
    # Another interface, a newer one, another major version; UDP, named pipes, HTTP.
    others = ((54, b"\x0a"), (61, b"\x08"), (61, b"\x0f"), (61, b"\x1f"))
    for at, new in ((5, b"\0"), (25, b"\1"), (21, b"\2"), *others):
        missed = mapper().map(CALL, changed(at, new))
        assert (missed.count, missed.towers.items, missed.status) == (0, [], NOT_REGISTERED), at


@pytest.mark.spec("RP-RPCE-3.1.3.5.3-01", "RP-C706-L-01", "RP-C706-L-02", "RP-RPCE-2.1.1.1-01")
def test_a_tower_has_five_floors() -> None:
    tower = tower_of(READ.syntax, 0x0839, "192.0.2.77").octets
    assert len(tower) == 75
    assert tower[:4] == b"\5\0\x13\0"
    assert tower[-16:] == b"\1\0\x07\2\0\x08\x39\1\0\x09\4\0\xc0\0\2\x4d"
    read = bytes.fromhex("dd34911a397bba45ad8844d01ca47f28")
    assert tower[4:27] == b"\x0d" + read + b"\1\0" + b"\2\0" + b"\0\0"
    ndr20 = bytes.fromhex("045d888aeb1cc9119fe808002b104860")
    assert tower[27:52] == b"\x13\0\x0d" + ndr20 + b"\2\0" + b"\2\0" + b"\0\0"
    assert tower[52:59] == b"\1\0\x0b\2\0\0\0"
    versioned = tower_of(Syntax(read, 0x0102, 0x0304), 0x0839, "192.0.2.77").octets
    assert versioned[2:27] == b"\x13\0\x0d" + read + b"\2\1" + b"\2\0" + b"\4\3"
    assert parse_tower(versioned) == Syntax(read, 0x0102, 0x0304)
    for left, right in (
        (b"\x0d" + read + b"\1", b"\0\0"),
        (b"\x0d" + read + b"\1\0\0", b"\0\0"),
        (b"\x0d" + read + b"\1\0", b"\0"),
        (b"\x0d" + read + b"\1\0", b"\0\0\0"),
        (b"\x0c" + read + b"\1\0", b"\0\0"),
    ):
        sides = [struct.pack("<H", len(one)) + one for one in (left, right)]
        assert parse_tower(tower[:2] + b"".join(sides) + tower[27:]) is None
    # The fourth is the port of TCP by its identifier, not by its place.
    for identifier in (0, 6, 8, 9, 0x0F, 0x10, 0x1F):
        found = mapper().map(CALL, changed(61, bytes((identifier,))))
        assert (found.count, found.status) == (0, NOT_REGISTERED), identifier
    assert mapper().map(CALL, changed(61, b"\x07")).count == 1
    for count in (0, 1, 4, 6, 7, 0xFFFF):
        found = mapper().map(CALL, changed(0, struct.pack("<H", count)))
        assert (found.count, found.status) == (0, NOT_REGISTERED), count
    for size in range(len(tower)):
        with pytest.raises(Fault) as cut:
            mapper().map(CALL, MapIn(None, Tower(size, tower[:size]), NIL, 4))
        assert cut.value.status == 0x6F7


@pytest.mark.spec(
    "RP-RPCE-2.2.1.2.2-01", "RP-RPCE-2.2.1.2.2-02", "RP-RPCE-2.2.1.2.5-03", "RP-RPCE-2.2.1.2.1-01"
)
def test_ept_map_refuses_what_is_out_of_bounds() -> None:
    long = MapIn(None, Tower(2001, bytes(2001)), NIL, 4)
    for bad in (long, MapIn(None, None, NIL, 4)):
        with pytest.raises(Fault) as caught:
            mapper().map(CALL, bad)
        assert caught.value.status == 0x6F7
    given = asked().tower
    assert given is not None
    longest = MapIn(None, Tower(2000, given.octets.ljust(2000, b"\0")), NIL, 4)
    assert (mapper().map(CALL, longest).count, mapper().map(CALL, longest).status) == (1, 0)
    # What is told: behind the handle, the counts and the pointer, both counts and the octets.
    told = mapped(longest)
    size, length = struct.unpack_from("<II", told, 40)
    assert size == length == len(told) - 48 - 4 - (-size % 4)
    assert port_of_tower(told[48 : 48 + size]) != 0
    raw = vector("epm_ept_map_request")
    with pytest.raises(BadStub):
        MAPPER.operations[3].takes.unmarshal(raw[:-4] + struct.pack("<I", 501))
    with pytest.raises(BadStub):
        MAPPER.operations[3].takes.unmarshal(raw[:28] + b"\x4a" + raw[29:])
    for opnum in (0, 1, 5, 6):
        assert MAPPER.operations[opnum].name == "refused"
    with pytest.raises(Fault) as refused:
        mapper().refused(CALL, None)
    assert refused.value.status == 0x6D8


@pytest.mark.spec("RP-RPCE-2.2.1.2.4-01", "RP-RPCE-2.2.1.2.4-02", "RP-RPCE-2.2.1.2.8-01")
def test_ept_lookup_gives_portions() -> None:
    first = mapper().lookup(CALL, LookupIn(0, None, None, 1, NIL, 1))
    assert (first.count, first.handle != NIL, first.status) == (1, True, 0)
    raw = MAPPER.operations[2].gives.marshal(first)
    again, _ = MAPPER.operations[2].gives.unmarshal(raw)
    assert again == first
    last = mapper().lookup(CALL, LookupIn(0, None, None, 1, first.handle, 500))
    assert (last.count, last.handle) == (1, NIL)
    assert [one.annotation for one in last.entries.items] == [b"mgmt"]


@pytest.mark.spec("RP-RPCE-2.2.1.2.8-01")
def test_a_search_belongs_to_its_association_until_it_is_freed() -> None:
    first = mapper().lookup(CALL, LookupIn(0, None, None, 1, NIL, 1))
    stranger: Any = Mock(local=CALL.local, association=associations().join(0, "192.0.2.7"))
    for call, handle in ((stranger, first.handle), (CALL, b"\1" * 16)):
        with pytest.raises(Fault) as unknown:
            mapper().lookup(call, LookupIn(0, None, None, 1, handle, 1))
        assert unknown.value.status == 0x1C00001A
    assert mapper().free(CALL, HandleOnly(first.handle)).handle == NIL
    assert mapper().free(CALL, HandleOnly(NIL)).status == 0
    with pytest.raises(Fault):
        mapper().lookup(CALL, LookupIn(0, None, None, 1, first.handle, 1))


@pytest.mark.spec(
    "RP-RPCE-2.2.1.3-02",
    "RP-RPCE-2.2.1.3-03",
    "RP-RPCE-2.2.1.3-04",
    "RP-RPCE-2.2.1.3.2-01",
    "RP-RPCE-2.2.1.3.4-01",
)
def test_mgmt_tells_what_is_served() -> None:
    mgmt = Mgmt(lambda: [READ, MGMT], principal)
    newer = Interface("newer", interface_syntax("12345678-1234-abcd-ef00-0123456789ab", 3, 7), {})
    ids = Mgmt(lambda: [READ, newer]).interfaces(CALL, Nothing())
    raw = MGMT.operations[0].gives.marshal(ids)
    assert MGMT.operations[0].gives.unmarshal(raw)[0] == ids
    assert struct.unpack_from("<III", raw, 0)[1:] == (2, 2)
    assert ids.vector is not None
    listed = [Syntax(one.uuid, one.major, one.minor) for one in ids.vector.ids if one is not None]
    assert listed == [READ.syntax, newer.syntax]
    listening = MGMT.operations[2].gives.marshal(mgmt.is_listening(CALL, Nothing()))
    assert listening == struct.pack("<II", 0, 1)
    assert MGMT.operations[3].gives.marshal(mgmt.stop_listening(CALL, Nothing())) == b"\5\0\0\0"
    assert len(mgmt.statistics(CALL, StatisticsIn(9)).statistics) == 4
    name = mgmt.principal_name(CALL, NameIn(10, 100))
    assert MGMT.operations[4].gives.unmarshal(MGMT.operations[4].gives.marshal(name))[0] == name
    assert mgmt.principal_name(CALL, NameIn(68, 100)).status != 0
