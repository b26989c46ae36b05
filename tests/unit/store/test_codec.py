"""Commands in a Raft entry: every op there and back, packets untouched, the unknown refused."""

from array import array
from typing import Any

import msgspec
import pytest

from qm.model.values import commands as model
from qm.model.values.columns import U32Column, U64Column
from qm.model.values.limits import APPLY_VERSION
from qm.pb import command_pb2
from qm.store.codec import (
    UnknownCommand,
    decode_entry,
    encode_command,
    encode_stamp,
    inspect,
    inspect_foreign,
    packet_spans,
)
from raft.batch import BatchBuilder

STAMP = model.Stamp(1_700_000_000_123, "n1.1")
PACKETS = b"first packet" + b"second" + b"the third one"
EDGE = model.EdgeBatch(
    edge="n2",
    number=7,
    packets=memoryview(PACKETS),
    body_offset=0,
    offsets=array("I", [0, 12, 18, 31]),
    checksums=array("I", [1, 2, 0xFFFF_FFFF]),
    facts_of=b"\x00\x01\x00",
    facts=(
        model.Facts(9, bytes(16), "127.0.0.12", ()),
        model.Facts(
            10, bytes(range(16)), "::1", (b"\x01\x02",), model.SignatureFact.VALID, b"digest", True
        ),
    ),
    body_index=9,
    first_ordinal=0,
)
SEND = model.Send.of(
    model.Request("client", 3, 2),
    [("DIRECT=OS:a\\q", b"a packet"), ("PUBLIC=" + "0" * 8, b"another")],
    (b"sid",),
    transaction=b"",
)


def entry(*commands: model.Command) -> bytes:
    builder = BatchBuilder()
    builder.add(encode_stamp(STAMP))
    for command in commands:
        builder.add(encode_command(command))
    return builder.build()


def sample(kind: Any) -> Any:
    """Return a value of a field's type that differs from its default."""
    samples: dict[Any, Any] = {
        U32Column: array("I", [1, 1 << 31]),
        U64Column: array("Q", [1, 1 << 63]),
        int: 7,
        str: "text",
        bytes: b"bytes",
        bool: True,
        model.Request: model.Request("c", 1, 0, call=model.ControlCall("n", "p", "m", {"a": "b"})),
        model.Selector: model.Selector(model.SelectorKind.SEEK_NEXT, 5),
        tuple[bytes, ...]: (b"a", b""),
        tuple[str, ...]: ("a", "b"),
        tuple[int, ...]: (1, 1 << 31),
        bytes | None: b"x",
        int | None: 0,
        dict[str, bytes]: {"a": b"1", "b": b"2"},
        dict[str, bytes] | None: {},
        tuple[model.SeenEvent, ...]: (model.SeenEvent(1, 2, "n", "p", "t", {"a": "b", "c": "d"}),),
    }
    return samples[kind]


def sampled(kind: Any) -> model.Command:
    command: model.Command = kind(
        **{field.name: sample(field.type) for field in msgspec.structs.fields(kind)}
    )
    return command


LEGAL: dict[Any, model.Command] = {
    model.RaiseApplyVersion: model.RaiseApplyVersion(APPLY_VERSION),
}
"""Instead of samples, where not every value may be in a log."""
PLAIN = [kind for kind in model.DECLARATIONS if kind not in (model.EdgeBatch, model.Send)]


@pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind.__name__)
def test_every_op_there_and_back(kind: Any) -> None:
    command = LEGAL.get(kind) or sampled(kind)
    assert decode_entry(5, entry(command)) == model.CommandBatch(5, STAMP, (command,))


OPS = {
    field.name: {*field.message_type.fields_by_name} if field.message_type else set()
    for field in command_pb2.Command.DESCRIPTOR.oneofs_by_name["op"].fields
}
"""The fields of each op in command.proto."""
FROM_PLACE = {"packets", "body_index", "body_offset", "first_ordinal"}


@pytest.mark.parametrize("declared", model.DECLARATIONS.values(), ids=lambda one: one.op)
def test_each_command_has_a_message_of_the_same_fields(declared: model.Declaration) -> None:
    fields = {field.name for field in msgspec.structs.fields(declared.kind)}
    assert OPS.get(declared.op) == fields - FROM_PLACE


@pytest.mark.parametrize("op", OPS)
def test_each_op_has_a_command(op: str) -> None:
    assert op in {declared.op for declared in model.DECLARATIONS.values()}


def test_a_command_is_inspected_as_it_was_encoded() -> None:
    inspected = inspect_foreign(encode_command(SEND))
    assert (inspected.op, inspected.declaration.kind) == ("send", model.Send)
    assert [target.packet_bytes for target in inspected.message.targets] == [8, 7]
    assert inspected.payload[inspected.blob_at :] == b"a packetanother"


def test_what_another_node_sent_must_fit_together() -> None:
    torn = encode_command(msgspec.structs.replace(EDGE, packets=memoryview(b"short")))
    assert inspect(torn).op == "edge_batch"
    newer = encode_command(model.RaiseApplyVersion(APPLY_VERSION + 1))
    for payload in (torn, newer, b"", b"\xff" * 40, encode_command(EDGE)[:-1]):
        with pytest.raises(UnknownCommand):
            inspect_foreign(payload)


def test_packets_stay_where_they_are() -> None:
    data = entry(sampled(model.Confirm), EDGE, SEND)
    _, edge, send = decode_entry(9, data).commands
    assert isinstance(edge, model.EdgeBatch)
    assert isinstance(send, model.Send)
    assert data[edge.body_offset : edge.body_offset + len(PACKETS)] == PACKETS
    assert data[send.body_offset :] == b"a packetanother"
    assert (edge.first_ordinal, send.first_ordinal) == (0, 3)
    spans = packet_spans(9, data)
    assert spans[3:] == [(send.body_offset, 8), (send.body_offset + 8, 7)]
    assert edge.packets.obj is data
    assert edge == msgspec.structs.replace(EDGE, body_offset=edge.body_offset, packets=edge.packets)
    assert edge.packets == PACKETS
    assert send.transaction == b""
    assert send.targets == SEND.targets


def test_absent_stays_absent() -> None:
    request = model.Request("c", 1, 0)
    (decoded,) = decode_entry(1, entry(model.DirectoryWrite(request, b"g", 1, None, ()))).commands
    assert isinstance(decoded, model.DirectoryWrite)
    assert decoded.attributes is None


def damaged() -> dict[str, bytes]:
    newer = BatchBuilder()
    newer.add(encode_stamp(msgspec.structs.replace(STAMP, version=APPLY_VERSION + 1)))
    unknown_op = BatchBuilder()
    unknown_op.add(encode_stamp(STAMP))
    unknown_op.add(b"\x04\x00\x00\x00" + b"\xa2\x7d\x01\x00")
    unknown_enum = entry(
        msgspec.structs.replace(sampled(model.ReceiveRun), selector=model.Selector(99))  # type: ignore[arg-type]
    )
    cut_header = BatchBuilder()
    cut_header.add(encode_stamp(STAMP))
    cut_header.add(b"\xff\x00\x00\x00abc")
    return {
        "newer version": newer.build(),
        "newer behaviour": entry(model.RaiseApplyVersion(APPLY_VERSION + 1)),
        "unknown op": unknown_op.build(),
        "unknown enum": unknown_enum,
        "cut header": cut_header.build(),
        "no stamp": BatchBuilder().build(),
        "not a batch": b"garbage",
        "offsets not covering": entry(msgspec.structs.replace(EDGE, packets=memoryview(b"short"))),
        "columns of different length": entry(msgspec.structs.replace(EDGE, facts_of=b"\x00")),
        "facts out of range": entry(msgspec.structs.replace(EDGE, facts_of=b"\x00\x01\x02")),
        "falling offsets": entry(
            msgspec.structs.replace(EDGE, offsets=array("I", [0, 18, 12, 31]))
        ),
    }


@pytest.mark.parametrize(
    "what",
    [
        "newer version",
        "unknown op",
        "unknown enum",
        "cut header",
        "no stamp",
        "not a batch",
        "offsets not covering",
        "columns of different length",
        "facts out of range",
        "falling offsets",
    ],
)
def test_what_this_build_does_not_know_stops_it(what: str) -> None:
    with pytest.raises(UnknownCommand, match="entry 4"):
        decode_entry(4, damaged()[what])
