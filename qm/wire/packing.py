"""Writing fixed fields; a value that does not fit is reported as an error of our caller."""

from struct import Struct, error

from qm.names.guid import GUID_SIZE_BYTES
from qm.wire.errors import ValueOutOfRange
from qm.wire.guid import Guid


def pack_fields(layout: Struct, field: str, section: str, *values: int | bytes) -> bytes:
    """Return the fields of `layout`; a value that is too wide is a `ValueOutOfRange`."""
    try:
        return layout.pack(*values)
    except error as overflow:
        numbers = [value for value in values if isinstance(value, int)]
        raise ValueOutOfRange(field, section, f"{overflow}: {numbers}") from None


def guid_bytes(raw: Guid, field: str, section: str) -> bytes:
    """Return the 16 bytes of a GUID; another length is a `ValueOutOfRange`."""
    if len(raw) != GUID_SIZE_BYTES:
        raise ValueOutOfRange(field, section, f"{len(raw)} bytes; a GUID has {GUID_SIZE_BYTES}")
    return raw
