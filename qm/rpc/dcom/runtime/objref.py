"""Object references: OBJREF, STDOBJREF, DUALSTRINGARRAY [MS-DCOM 2.2.18, 2.2.19]. Pure.

An OBJREF is opaque to NDR: little-endian bytes inside an MInterfacePointer.
"""

from collections.abc import Sequence
from struct import Struct, error
from typing import Final

import msgspec
from typing_extensions import override

from qm.rpc.dcom.limits import OBJREF_MAX_BYTES, STRING_BINDINGS_MAX
from qm.rpc.ndr.streams import BadStub, Reader, Writer
from qm.rpc.ndr.types import Type
from qm.wire.guid import Guid

SIGNATURE: Final = b"MEOW"
STANDARD, HANDLER, CUSTOM, EXTENDED = 1, 2, 4, 8
"""Values of flags."""
NO_PING: Final = 0x1000
"""Of STDOBJREF.flags: its object is not pinged (RP-A66)."""
_HEAD: Final = Struct("<4sI16s")
_STANDARD: Final = Struct("<IIQQ16s")
_CUSTOM: Final = Struct("<16sII")
_DUAL_HEAD: Final = Struct("<HH")
_SECURITY_HEAD: Final = Struct("<HH")
_EXTENDED_SIGNATURE: Final = Struct("<I")
_TCP: Final = 7
_NO_NAME: Final = 0xFFFF
_UNIT: Final = Struct("<H")
_UNIT_BYTES: Final = 2
_CLSID_BYTES: Final = 16


class BadObjref(Exception):
    """Bytes that are no OBJREF."""


class Bindings(msgspec.Struct, frozen=True):
    """A DUALSTRINGARRAY: where something is reached over TCP, and how callers may log on."""

    addresses: tuple[str, ...]
    """Hosts, with `[port]` behind them in bindings of object exporters."""
    services: tuple[int, ...] = ()
    """Authentication services: 9 SPNEGO, 10 NTLM, 16 Kerberos."""

    @property
    def units(self) -> tuple[int, bytes]:
        """Where security bindings begin, and all units as bytes."""
        found = bytearray()
        for address in self.addresses:
            found += _UNIT.pack(_TCP) + address.encode("utf-16-le") + bytes(_UNIT_BYTES)
        found += bytes(_UNIT_BYTES * (1 if self.addresses else 2))
        security = len(found) // _UNIT_BYTES
        for service in self.services:
            found += _SECURITY_HEAD.pack(service, _NO_NAME) + bytes(_UNIT_BYTES)
        found += bytes(_UNIT_BYTES * (1 if self.services else 2))
        return security, bytes(found)


class Objref(msgspec.Struct, frozen=True):
    """A standard object reference: an interface pointer that can be sent."""

    iid: Guid
    oxid: int
    oid: int
    ipid: Guid
    public_refs: int
    flags: int = 0
    resolver: Bindings = Bindings(())
    """Where its OXID is resolved, without ports."""


class CustomRef(msgspec.Struct, frozen=True):
    """An object that travels by value: a blob for the unmarshaler of `clsid`."""

    iid: Guid
    clsid: Guid
    data: bytes


def write_objref(ref: Objref) -> bytes:
    """Return the bytes of a standard reference."""
    standard = _STANDARD.pack(ref.flags, ref.public_refs, ref.oxid, ref.oid, ref.ipid)
    return _HEAD.pack(SIGNATURE, STANDARD, ref.iid) + standard + _dual(ref.resolver)


def write_custom(ref: CustomRef) -> bytes:
    """Return the bytes of a reference by value."""
    head = _HEAD.pack(SIGNATURE, CUSTOM, ref.iid)
    return head + _CUSTOM.pack(ref.clsid, 0, len(ref.data)) + ref.data


def standard_bytes(ref: Objref) -> bytes:
    """Return the STDOBJREF alone."""
    return _STANDARD.pack(ref.flags, ref.public_refs, ref.oxid, ref.oid, ref.ipid)


def parse_standard(raw: bytes, iid: Guid) -> Objref:
    """Return the reference of a STDOBJREF of the interface `iid`. Raises BadObjref."""
    try:
        flags, refs, oxid, oid, ipid = _STANDARD.unpack_from(raw)
    except error:
        raise BadObjref("it is too short") from None
    return Objref(iid, oxid, oid, ipid, refs, flags)


def parse_objref(raw: bytes) -> Objref | CustomRef:
    """Return what an OBJREF refers to; handler and extended ones count as standard.

    Raises BadObjref.
    """
    try:
        signature, flags, iid = _HEAD.unpack_from(raw)
        if signature != SIGNATURE:
            raise BadObjref("its signature is not MEOW")
        if flags == CUSTOM:
            clsid, extension, _ = _CUSTOM.unpack_from(raw, _HEAD.size)
            at = _HEAD.size + _CUSTOM.size
            if extension > len(raw) - at:
                raise BadObjref("its extension is longer than itself")
            return CustomRef(iid, clsid, raw[at + extension :])
        if flags not in (STANDARD, HANDLER, EXTENDED):
            raise BadObjref(f"its flags are {flags:#x}")
        if len(raw) > OBJREF_MAX_BYTES:
            raise BadObjref(f"it has {len(raw)} bytes; {OBJREF_MAX_BYTES} are allowed")
        standard = parse_standard(raw[_HEAD.size :], iid)
        at = _HEAD.size + _STANDARD.size
        at += {HANDLER: _CLSID_BYTES, EXTENDED: _EXTENDED_SIGNATURE.size}.get(flags, 0)
        entries, security = _DUAL_HEAD.unpack_from(raw, at)
        units = raw[at + _DUAL_HEAD.size :][: entries * _UNIT_BYTES]
        if len(units) < entries * _UNIT_BYTES:
            raise BadObjref("its bindings are cut short")
    except error:
        raise BadObjref("it is too short") from None
    return msgspec.structs.replace(standard, resolver=parse_units(units, security))


def parse_units(units: bytes, security: int) -> Bindings:
    """Return the bindings in the units of a DUALSTRINGARRAY. Raises BadObjref."""
    at = security * _UNIT_BYTES
    if at > len(units):
        raise BadObjref("its security bindings begin behind its end")
    addresses = [
        text
        for tower, text in _entries(units[:at], _UNIT)
        if tower == _TCP and text and text.isprintable()
    ]
    services = [service for service, _ in _entries(units[at:], _SECURITY_HEAD)]
    return Bindings(tuple(addresses), tuple(services))


def _entries(units: bytes, head: Struct) -> Sequence[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    at = 0
    while at + head.size <= len(units):
        number = head.unpack_from(units, at)[0]
        if not number or len(found) >= STRING_BINDINGS_MAX:
            break
        at += head.size
        end = at
        while end + _UNIT_BYTES <= len(units) and units[end : end + _UNIT_BYTES] != b"\0\0":
            end += _UNIT_BYTES
        found.append((number, units[at:end].decode("utf-16-le", "replace")))
        at = end + _UNIT_BYTES
    return found


def _dual(bindings: Bindings) -> bytes:
    security, units = bindings.units
    return _DUAL_HEAD.pack(len(units) // _UNIT_BYTES, security) + units


class DualStringArray(Type[Bindings]):
    """DUALSTRINGARRAY as NDR carries it: a conformant structure."""

    alignment = 4
    size_min = 8

    @override
    def read(self, reader: Reader) -> Bindings:
        count = reader.u32()
        entries, security = _DUAL_HEAD.unpack(reader.take(_DUAL_HEAD.size))
        if entries != count:
            raise BadStub(f"{entries} units in an array of {count}")
        try:
            return parse_units(reader.take(count * _UNIT_BYTES), security)
        except BadObjref as bad:
            raise BadStub(str(bad)) from None

    @override
    def write(self, writer: Writer, value: Bindings) -> None:
        raw = _dual(value)
        writer.u32((len(raw) - _DUAL_HEAD.size) // _UNIT_BYTES)
        writer.put(raw)


DUAL_STRING_ARRAY: Final = DualStringArray()
