"""What stands in blobs of activation properties and is not looked at [MS-DCOM 2.2.22]."""

from __future__ import annotations

from struct import pack

import pytest

from qm.rpc.dcom.runtime.identifiers import CLSID_SCM_REQUEST, IID_IUNKNOWN, guid
from qm.rpc.dcom.runtime.objref import DUAL_STRING_ARRAY
from qm.rpc.dcom.runtime.orpc import Listed
from qm.rpc.dcom.runtime.places import Places
from qm.rpc.dcom.runtime.properties import (
    _SCM_REQUEST,
    BadProperties,
    Wanted,
    parse_wanted,
    serialized,
)
from tests.unit.rpc.dcom.scripts import clsid
from tests.unit.rpc.dcom.test_references import blob, instantiation

WANTED = Wanted(clsid("MSMQQueue"), (IID_IUNKNOWN,))
CONTEXT = guid("000001a5-0000-0000-c000-000000000046")
LOCATION = guid("000001a4-0000-0000-c000-000000000046")


def typed(body: bytes) -> bytes:
    """A structure of little-endian members with the headers of type serialization."""
    padded = body + bytes(-len(body) % 8)
    return bytes.fromhex("01100800cccccccc") + pack("<II", len(padded), 0) + padded


def scm_request(level: int, *protocols: int) -> tuple[bytes, bytes]:
    value = [None, [level, len(protocols), list(protocols) or None]]
    return CLSID_SCM_REQUEST, serialized(_SCM_REQUEST, value)


@pytest.mark.spec("RP-DCOM-2.2.22.1-04")
@pytest.mark.parametrize("size", [0, 1, 7, 8, 40, 4_001])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_property_that_nobody_knows_is_skipped_by_its_size(size: int, place: int) -> None:
    properties = [instantiation(), scm_request(2, 7)]
    properties.insert(place, (b"\x77" * 16, b"\xee" * size))
    assert parse_wanted(blob(*properties)) == WANTED
    # It is not what it looks like: the next one stands behind all of it.
    disguised = (b"\x77" * 16, instantiation(number=1)[1])
    properties = [disguised, instantiation(), scm_request(2, 7)]
    assert parse_wanted(blob(*properties)) == WANTED
    with pytest.raises(BadProperties):
        parse_wanted(blob(disguised, scm_request(2, 7)))


@pytest.mark.spec("RP-DCOM-2.2.22.2.5-01")
@pytest.mark.parametrize("client", [b"", b"MEOW, and more"])
@pytest.mark.parametrize("prototype", [b"", b"MEOW"])
def test_the_context_of_a_client_is_not_looked_at(client: bytes, prototype: bytes) -> None:
    """ActivationContextInfoData: three numbers, a pointer, two contexts that may be NULL."""
    pointers = pack("<II", 0x20000 if client else 0, 0x20004 if prototype else 0)
    told = b"".join(
        pack("<II", len(each), len(each)) + each + bytes(-len(each) % 4)
        for each in (client, prototype)
        if each
    )
    for numbers in ((0, 0, 0), (1, 0xFFFF_FFFF, 7)):
        context = typed(pack("<IIII", *numbers, 0) + pointers + told)
        assert parse_wanted(blob((CONTEXT, context), instantiation())) == WANTED
        assert parse_wanted(blob(instantiation(), (CONTEXT, context))) == WANTED


@pytest.mark.spec("RP-DCOM-2.2.22.2.6-01")
@pytest.mark.parametrize("name", ["", "elsewhere"])
def test_the_place_that_a_client_names_is_not_looked_at(name: str) -> None:
    """LocationInfoData: a machine's name that may be NULL; process, apartment, context."""
    text = (name + "\0").encode("utf-16-le")
    units = len(text) // 2
    told = pack("<III", units, 0, units) + text if name else b""
    for numbers in ((0, 0, 0), (4_711, 3, 0xFFFF_FFFF)):
        location = typed(pack("<IIII", 0x20000 if name else 0, *numbers) + told)
        assert parse_wanted(blob((LOCATION, location), instantiation())) == WANTED
        assert parse_wanted(blob(instantiation(), (LOCATION, location))) == WANTED


@pytest.mark.spec("RP-DCOM-2.2.22.2.4-01")
@pytest.mark.parametrize("level", [0, 1, 2, 3, 4, 5, 0xFFFF_FFFF])
def test_no_level_of_impersonation_is_asked_for(level: int) -> None:
    for protocols in ((), (7,), (15, 7)):
        assert parse_wanted(blob(instantiation(), scm_request(level, *protocols))) == WANTED
    with pytest.raises(BadProperties):
        parse_wanted(blob(instantiation(), scm_request(level, 15)))
    nothing = CLSID_SCM_REQUEST, serialized(_SCM_REQUEST, [None, None])
    assert parse_wanted(blob(instantiation(), nothing)) == WANTED


@pytest.mark.spec("RP-DCOM-2.2.22.2.1-04")
@pytest.mark.parametrize("flags", [0, 0x04, 0x08, 0x0C, 0x10, 0xFFFF_FFFF])
def test_servers_of_any_width_are_this_one(flags: int) -> None:
    """ACTVFLAGS_ACTIVATE_32_BIT_SERVER is 4, that of 64 bits 8."""
    assert parse_wanted(blob(instantiation(flags=flags))) == WANTED


@pytest.mark.spec("RP-DCOM-2.2.19.3-01")
@pytest.mark.parametrize("names", [(), ("node3.example.test",)])
def test_an_exporter_is_a_host_and_a_port_over_tcp(names: tuple[str, ...]) -> None:
    places = Places(names, lambda: 2_103, lambda: 0.0)
    found = Listed((DUAL_STRING_ARRAY,)).marshal([places.exporter_at("192.0.2.13")])
    hosts = (*names, "192.0.2.13")
    told = b"".join(pack("<H", 7) + f"{one}[2103]\0".encode("utf-16-le") for one in hosts)
    assert found[8:].startswith(told + bytes(2))
