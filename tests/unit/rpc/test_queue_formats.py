"""Any name as a parameter of a call, and any bytes as a name."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qm.names import (
    DirectAddress,
    DirectName,
    DirectProtocol,
    FormatNameError,
    PublicName,
    SingleFormatName,
)
from qm.rpc.ndr.streams import BadStub
from qm.rpc.ndr.types import Parameters
from qm.rpc.queue_formats import QUEUE_FORMAT, NotAName, WireFormat, format_of, name_of
from tests.unit.names.strategies import single_names


class Held(msgspec.Struct):
    format: WireFormat


PARAMETER = Parameters(Held, {"format": QUEUE_FORMAT})


@given(single_names)
def test_every_format_name_has_a_structure_that_reads_back(name: SingleFormatName) -> None:
    stub = PARAMETER.marshal(Held(format_of(name)))
    found, end = PARAMETER.unmarshal(stub)
    assert (name_of(found.format), end) == (name, len(stub))


@given(st.integers(0, 8), st.integers(0, 0xFF), st.binary(max_size=80))
def test_any_bytes_end_in_a_name_or_a_refusal(kind: int, octet: int, rest: bytes) -> None:
    text = (len(rest) // 2).to_bytes(4, "little")
    for arm in (rest, b"\1\0\0\0" + text + bytes(4) + text + rest):
        try:
            found, _ = PARAMETER.unmarshal(bytes((kind, octet, 0, 0, kind, 0, 0, 0)) + arm)
            name = name_of(found.format)
        except (BadStub, NotAName):
            continue
        again, _ = PARAMETER.unmarshal(PARAMETER.marshal(Held(format_of(name))))
        assert name_of(again.format) == name


def test_a_name_without_a_text_has_no_structure() -> None:
    with pytest.raises(FormatNameError):
        format_of(PublicName(b"short"))
    with pytest.raises(FormatNameError):
        format_of(DirectName(DirectAddress(DirectProtocol.TCP, "host"), "q"))
