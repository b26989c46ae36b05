"""Outcomes of commands between nodes, as the leader sends them to the node that proposed them."""

import sys
from array import array
from struct import Struct
from typing import Any, Final

import msgspec

from qm.model.values.effects import Outcome
from qm.model.values.results import RequestResult, ResultRow, unpack_results
from qm.pb import relay_pb2

_RESULT_ROW: Final = 1
"""Extension type: results of consecutive numbers in their packed form, after _BODY_BYTES."""
_RESULT: Final = 2
"""Extension type: one result, packed."""
_BODY_BYTES: Final = Struct("<Q")


def encode_outcome(outcome: Outcome) -> relay_pb2.OutcomeValue:
    """Return an outcome as a message."""
    verdicts = b""
    if outcome.verdicts is not None:
        columns = outcome.verdicts
        if sys.byteorder == "big":
            columns = array(columns.typecode, columns)
            columns.byteswap()
        verdicts = columns.tobytes()
    value = b"" if outcome.value is None else _ENCODER.encode(_plain(outcome.value))
    return relay_pb2.OutcomeValue(status=outcome.status, verdicts=verdicts, value=value)


def decode_outcome(message: relay_pb2.OutcomeValue) -> Outcome:
    """Return a message's outcome; sequences in its value are lists. Raises ValueError."""
    verdicts = None
    if message.verdicts:
        verdicts = array("H")
        verdicts.frombytes(message.verdicts)
        if sys.byteorder == "big":
            verdicts.byteswap()
    value = _DECODER.decode(message.value) if message.value else None
    return Outcome(message.status, verdicts, value)


def _plain(value: Any) -> Any:
    """Return a value that msgpack can encode: results become extensions."""
    if isinstance(value, ResultRow):
        return msgspec.msgpack.Ext(_RESULT_ROW, _BODY_BYTES.pack(value.body_bytes) + value.packed)
    if isinstance(value, RequestResult):
        return msgspec.msgpack.Ext(_RESULT, value.pack())
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value


def _result(code: int, data: memoryview) -> Any:
    if code == _RESULT_ROW:
        return ResultRow(bytes(data[_BODY_BYTES.size :]), *_BODY_BYTES.unpack_from(data))
    if code == _RESULT:
        return unpack_results(bytes(data))[0]
    raise ValueError(f"a value of kind {code}, which this build does not know: upgrade this node")


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(ext_hook=_result)
