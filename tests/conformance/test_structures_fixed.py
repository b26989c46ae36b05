"""OBJECTID, by which packets name private queues (MS-MQMQ 2.2.8)."""

import pytest

from qm.wire.errors import ProtocolError
from qm.wire.structures.identifiers import ObjectId, parse_object_id, write_object_id

GUID = bytes(range(0xA0, 0xB0))


@pytest.mark.spec("MQ-2.2.8-01")
def test_object_id() -> None:
    raw = GUID + bytes.fromhex("0f000080")
    value = ObjectId(lineage=GUID, uniquifier=0x8000_000F)
    assert write_object_id(value) == raw
    assert parse_object_id(b"\0" + raw, 1, 21) == (value, 21)
    for size in range(len(raw)):
        with pytest.raises(ProtocolError) as caught:
            parse_object_id(raw[:size], 0, size)
        assert caught.value.field == "OBJECTID"
