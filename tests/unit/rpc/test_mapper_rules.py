"""Rules of the endpoint mapper and of the management interface, each on its own."""

import struct
from typing import Any

import pytest

from qm.node.config import schema
from qm.rpc.dcom.mqac.wire import object_interfaces
from qm.rpc.endpoint_mapper import (
    MAPPER,
    EndpointMapper,
    HandleOnly,
    LookupIn,
    MapIn,
    Registration,
    parse_tower,
    tower_of,
)
from qm.rpc.interface import Interface, interface_syntax
from qm.rpc.mgmt import MGMT, Mgmt, NameIn, StatisticsIn
from qm.rpc.ndr.streams import BadStub
from qm.rpc.ndr.types import NIL, Nothing
from qm.rpc.pdu.bind import Syntax
from qm.rpc.pdu.codes import AuthLevel
from qm.rpc.remote_management.interface import QMMGMT
from qm.rpc.remote_read.interface import REMOTE_READ
from tests.unit.rpc.test_endpoint_mapper import CALL, READ, changed, mapper, principal

NDR20_FLOOR = bytes.fromhex("045d888aeb1cc9119fe808002b104860") + b"\2\0"


@pytest.mark.spec("RP-RPCE-2.2.1.2.5-07")
@pytest.mark.parametrize(
    ("at", "new"), [(64, b"\0\0"), (64, b"\xff\xff"), (71, bytes(4)), (71, b"\x0a\1\2\3")]
)
def test_the_asked_port_and_address_do_not_matter(at: int, new: bytes) -> None:
    plain = mapper().map(CALL, changed(64, b"\0\x87"))
    found = mapper().map(CALL, changed(at, new))
    assert (found.count, found.status) == (1, 0)
    assert found.towers.items == plain.towers.items
    tower = found.towers.items[0]
    assert tower is not None
    assert tower.octets[64:66] == (2105).to_bytes(2, "big")
    assert tower.octets[71:75] == bytes((192, 0, 2, 10))


@pytest.mark.spec("RP-RPCE-2.2.1.2.5-11")
def test_an_older_revision_of_an_interface_is_served_by_the_newer_one() -> None:
    served = Interface("newer", interface_syntax("12345678-1234-abcd-ef00-0123456789ab", 2, 3), {})
    mapper = EndpointMapper(lambda: [Registration(MGMT, 2105), Registration(served, 2105)])
    for major, minor, is_served in (
        *((2, minor, minor <= 3) for minor in (0, 1, 2, 3, 4, 0xFFFF)),
        *((major, 0, False) for major in (0, 1, 3)),
    ):
        tower = tower_of(Syntax(served.syntax.uuid, major, minor), 0, "0.0.0.0")
        found = mapper.map(CALL, MapIn(None, tower, NIL, 4))
        assert found.count == is_served, (major, minor)
        for one in found.towers.items:
            assert one is not None
            assert parse_tower(one.octets) == served.syntax


@pytest.mark.spec("RP-C706-O-01", "RP-RPCE-2.2.1.3-01")
def test_the_interfaces_of_every_port_have_their_numbers() -> None:
    mapper = bytes.fromhex("0883afe11f5dc91191a408002b14a0fa")
    assert (MAPPER.syntax.uuid, MAPPER.syntax.major, MAPPER.syntax.minor) == (mapper, 3, 0)
    names = {number: one.name for number, one in MAPPER.operations.items()}
    assert (names[2], names[3], names[4]) == ("lookup", "map", "free")
    mgmt = bytes.fromhex("80bda8af8a7dc911bef408002b102989")
    assert (MGMT.syntax.uuid, MGMT.syntax.major, MGMT.syntax.minor) == (mgmt, 1, 0)


@pytest.mark.spec("RP-RPCE-2.2.1.2.5-06")
def test_who_asks_for_ndr64_is_told_of_ndr20() -> None:
    ndr64 = bytes.fromhex("33057171babe37498319b5dbef9ccc36") + b"\1\0"
    (tower,) = mapper().map(CALL, changed(30, ndr64)).towers.items
    assert tower is not None
    assert tower.octets[30:48] == NDR20_FLOOR
    assert parse_tower(tower.octets) == READ.syntax


@pytest.mark.spec("RP-RPCE-2.2.1.2.8-01", "RP-RPCE-2.2.1.2.4-02")
def test_a_lookup_handle_is_given_back() -> None:
    first = mapper().lookup(CALL, LookupIn(0, None, None, 1, NIL, 1))
    assert first.handle != NIL
    freed = mapper().free(CALL, HandleOnly(first.handle))
    assert (freed.handle, freed.status) == (NIL, 0)
    # With the nil handle a lookup begins anew.
    again = mapper().lookup(CALL, LookupIn(0, None, None, 1, freed.handle, 1))
    assert [one.annotation for one in again.entries.items] == [b"RemoteRead"]


@pytest.mark.spec("RP-RPCE-2.2.1.2.4-01")
def test_a_lookup_gives_all_in_portions_of_500_at_most() -> None:
    takes, gives = MAPPER.operations[2].takes, MAPPER.operations[2].gives
    found = mapper().lookup(CALL, LookupIn(0, None, None, 500, NIL, 500))
    assert (found.count, found.handle, found.status) == (2, NIL, 0)
    assert gives.unmarshal(gives.marshal(found))[0] == found
    towers = [one.tower.octets for one in found.entries.items if one.tower is not None]
    assert [parse_tower(one) for one in towers] == [READ.syntax, MGMT.syntax]
    for tower in towers:
        assert tower[64:66] == (2105).to_bytes(2, "big")
        assert tower[71:75] == bytes((192, 0, 2, 10))
    raw = takes.marshal(LookupIn(0, None, None, 1, NIL, 500))
    assert takes.unmarshal(raw)[0] == LookupIn(0, None, None, 1, NIL, 500)
    with pytest.raises(BadStub):
        takes.unmarshal(raw[:-4] + struct.pack("<I", 501))


@pytest.mark.spec("RP-RPCE-2.2.1.2.4-01", "RP-RPCE-2.2.1.2.4-02")
@pytest.mark.parametrize(("portion", "counts"), [(1, [1] * 7), (2, [2, 2, 2, 1]), (7, [7])])
def test_a_lookup_goes_on_where_the_last_portion_ended(portion: int, counts: list[int]) -> None:
    syntaxes = [Syntax(bytes((k,)) * 16, 1, k) for k in range(7)]
    served = [Interface(f"i{k}", syntax, {}) for k, syntax in enumerate(syntaxes)]
    mapper = EndpointMapper(lambda: [Registration(one, 2105) for one in served])
    handle, told = NIL, []
    for number, count in enumerate(counts):
        found = mapper.lookup(CALL, LookupIn(0, None, None, 1, handle, portion))
        assert (found.count, found.status) == (count, 0)
        assert (found.handle == NIL) is (number == len(counts) - 1)
        assert number == 0 or found.handle in (handle, NIL)
        handle = found.handle
        told += [one.tower.octets for one in found.entries.items if one.tower is not None]
    assert [parse_tower(one) for one in told] == syntaxes


@pytest.mark.spec("RP-RPCE-2.1.1.1-02")
def test_the_mapper_is_at_port_135_unless_it_is_put_elsewhere() -> None:
    assert schema.MAPPER_PORT == 135
    assert schema.RpcSection().mapper_port == 135


@pytest.mark.spec("RP-RPCE-5.1.1-01")
def test_interfaces_of_messages_demand_protection() -> None:
    assert REMOTE_READ.level is AuthLevel.PRIVACY
    assert QMMGMT.level >= AuthLevel.INTEGRITY
    assert all(one.level >= AuthLevel.INTEGRITY for one in object_interfaces().values())
    by_default = schema.RpcSection()
    assert (by_default.level, by_default.anonymous_receive) == ("privacy", False)


@pytest.mark.spec("RP-RPCE-2.2.1.3.2-01", "RP-RPCE-2.2.1.3.4-01", "RP-RPCE-2.2.1.3-04")
def test_mgmt_counts_names_and_goes_on() -> None:
    mgmt = Mgmt(lambda: [READ, MGMT], principal)
    takes = MGMT.operations[1].takes
    for beyond in (51, 0x7FFF_FFFF, 0xFFFF_FFFF):
        with pytest.raises(BadStub):
            takes.unmarshal(struct.pack("<I", beyond))
    for asked, given in ((0, 0), (1, 1), (4, 4), (5, 4), (50, 4)):
        assert takes.unmarshal(struct.pack("<I", asked))[0] == StatisticsIn(asked)
        found = mgmt.statistics(CALL, StatisticsIn(asked))
        raw = MGMT.operations[1].gives.marshal(found)
        assert raw == struct.pack("<II", given, given) + bytes(4 * given) + bytes(4)
    for number in (9, 10, 16):
        named = mgmt.principal_name(CALL, NameIn(number, 100))
        assert (named.name.text, named.status) == ("HOST/quorate", 0)
    # The name and its NUL, or nothing.
    for size, text, status in ((0, "", 122), (12, "", 122), (13, "HOST/quorate", 0)):
        named = mgmt.principal_name(CALL, NameIn(9, size))
        assert (named.name.text, named.status) == (text, status)
    for number in (0, 1, 14, 68, 255):
        unknown = mgmt.principal_name(CALL, NameIn(number, 100))
        assert (unknown.name.text, unknown.status) == ("", 1747)  # RPC_S_UNKNOWN_AUTHN_SERVICE
    for call in (CALL, None):
        caller: Any = call
        assert mgmt.stop_listening(caller, Nothing()).status == 5
