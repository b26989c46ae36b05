"""GUIDs on the wire: 16 raw bytes in packet order (MS-DTYP 2.3.4.2, MS-MQMQ 2.2.18.1.1).

The codec never swaps them: Data1..Data3 are little-endian in the bytes, and only text shows them as
numbers. Section 4 of MS-MQQB prints its GUIDs fully reversed; the bytes are what counts.
"""

from typing import Final

from qm.names.guid import GUID_SIZE_BYTES

Guid = bytes
"""16 raw bytes in MS-DTYP packet order."""

GUID_NULL: Final[Guid] = bytes(GUID_SIZE_BYTES)
