"""What a range says of its entries."""

from hashlib import sha256
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from msgspec import structs

from qm.archive.columns import MarkReport
from qm.archive.destination import FolderDestination
from qm.archive.entry_facts import destination_text
from qm.archive.ranges import Policy, RangeExport, RangePlan
from qm.archive.schema import SCHEMA_VERSION, SCHEMAS, Part
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands.arrivals import Facts, SignatureFact
from qm.model.values.effects import EffectKind
from qm.store.audit import QueueContents
from qm.store.effects.effects_log import Exported
from qm.wire.headers.security_header import SecurityHeader
from qm.wire.packets.peek import peek_destination, peek_head
from qm.wire.structures.queue_name import (
    DirectQueueFormatName,
    PrivateQueueFormatNameId,
    PublicQueueFormatName,
    QueueHost,
)
from tests.unit.archive.world import (
    CONFIG,
    IDENTITY,
    StoreSource,
    check_chain,
    export,
    ranges,
    table,
)
from tests.unit.model.world import OWN, PEER, PEER_ADDRESS, packet, request
from tests.unit.store.test_store import Node, arrivals, receive, setup_commands, workload

QUEUE, TRANSACTIONAL = 6, 10
NAME = "vhost\\orders"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path / "node", keeps_effects=True)
    transactional = {"transactional": encode_attribute(True)}
    made = commands.CreateQueue(request(), b"t" * 16, b"u" * 16, ".\\paid", transactional, b"", ())
    node.put([*setup_commands(), made])
    return node


def test_operations_say_what_was_signed_and_encrypted(node: Node, tmp_path: Path) -> None:
    known = Facts(
        1,
        PEER,
        PEER_ADDRESS,
        (),
        SignatureFact.VALID,
        was_encrypted=True,
        signature_version=3,
        hash_algorithm=0x800E,
    )
    security = SecurityHeader(is_body_encrypted=True, encryption_key=b"key")
    signed = structs.replace(arrivals(packet(1, security=security)), facts=(known,))
    node.put([signed, arrivals(packet(2))])
    node.put([receive(2, 2)])
    export(node, tmp_path / "archive")
    rows = table(tmp_path / "archive", Part.OPERATIONS)
    assert [
        (row["operation"], row["message_ordinal"], row["is_authenticated"], row["was_encrypted"])
        for row in rows
        if row["operation"] != "journaled"
    ] == [
        ("arrived", 1, True, True),
        ("arrived", 2, False, False),
        ("received", 1, True, True),
        ("received", 2, False, False),
    ]


def test_operations_are_what_apply_said(node: Node, tmp_path: Path) -> None:
    (arrived,) = node.put([arrivals(packet(1), packet(2, priority=7))])
    node.put([receive(2, 1)], [commands.ClockTick(1)])
    export(node, tmp_path / "archive")
    rows = table(tmp_path / "archive", Part.OPERATIONS)
    assert [(row["index"], row["ordinal"], row["operation"]) for row in rows] == [
        (2, 0, "arrived"), (2, 1, "arrived"), (3, 0, "received"),
    ]  # fmt: skip
    assert [row["lookup_identifier"] for row in rows[:2]] == list(
        arrived.effects.lookup_identifiers
    )
    first = rows[0]
    assert first == {
        "group": 1, "index": 2, "term": 1, "time_ms": arrived.now_ms, "ordinal": 0,
        "operation": "arrived", "queue_id": QUEUE, "queue": NAME,
        "lookup_identifier": arrived.effects.lookup_identifiers[0],
        "source_queue_manager": PEER, "message_ordinal": 1, "sender_sequence_id": None,
        "sender_sequence": None, "sender_previous": None, "destination": None,
        "transaction": None, "reason": 0, "size_bytes": len(packet(1)), "body_index": 2,
        "body_ordinal": 0, "body_sha256": None, "is_authenticated": False, "was_encrypted": False,
    }  # fmt: skip
    assert (rows[2]["body_index"], rows[2]["body_ordinal"]) == (2, 1), "priority 7 comes first"
    entries = table(tmp_path / "archive", Part.ENTRIES)
    assert [row["operations"] for row in entries] == [0, 2, 1, 0]
    assert [row["commands"] for row in entries] == [7, 1, 1, 1]
    assert {row["leader"] for row in entries} == {"n1.1"}


def test_entries_are_those_of_the_log(node: Node, tmp_path: Path) -> None:
    node.put(*workload()[1:])
    export(node, tmp_path / "archive")
    assert check_chain(tmp_path / "archive") == list(range(1, node.log.last_index() + 1))
    entries = node.log.entries(1, node.log.last_index() + 1, 1 << 30)
    rows = table(tmp_path / "archive", Part.ENTRIES)
    assert [row["data"] for row in rows] == [entry.data for entry in entries]
    assert [row["data_bytes"] for row in rows] == [len(entry.data) for entry in entries]


def test_senders_of_streams_are_told_apart(node: Node, tmp_path: Path) -> None:
    sequence = 5 << 32 | 7
    node.put(
        [
            arrivals(packet(1)),
            arrivals(
                packet(2, to="paid", sequence=(sequence, 1, 0)),
                packet(3),
                packet(4, to="paid", sequence=(sequence, 3, 1)),
                packet(5, sequence=(sequence, 1, 0)),
            ),
        ]
    )
    export(node, tmp_path / "archive")
    rows = table(tmp_path / "archive", Part.OPERATIONS)
    told = [
        (
            row["operation"], row["message_ordinal"], row["sender_sequence_id"],
            row["sender_sequence"], row["sender_previous"], row["destination"],
        )
        for row in rows
    ]  # fmt: skip
    paid, orders = "OS:vhost\\paid", "OS:vhost\\orders"
    assert told == [
        ("arrived", 1, None, None, None, None),
        ("arrived", 2, sequence, 1, 0, paid),
        ("arrived", 3, None, None, None, None),
        ("arrived", 4, sequence, 3, 1, paid),
        ("refused", 5, sequence, 1, 0, orders),
    ]
    assert rows[-1]["queue"] == ""
    assert rows[-1]["reason"] & 0x8000


def test_transactions_are_named_where_they_are_known(node: Node, tmp_path: Path) -> None:
    transaction = b"t" * 16
    raw = packet(0, to="paid", sequence=(1, 1, 0))
    send = commands.Send.of(
        request(3, "c"), [("DIRECT=OS:vhost\\paid", raw)], transaction=transaction
    )
    applied = node.put(
        [commands.TxBegin(request(2, "c"), transaction, True, "", 60_000)],
        [send],
        [commands.TxCommit(request(4, "c"), transaction)],
    )
    assert [one.outcomes[0].status for one in applied] == [0, 0, 0]
    export(node, tmp_path / "archive")
    rows = table(tmp_path / "archive", Part.OPERATIONS)
    assert [(row["operation"], row["transaction"]) for row in rows] == [
        ("pending", transaction), ("arrived", transaction),
    ]  # fmt: skip
    assert [row["source_queue_manager"] for row in rows] == [OWN, OWN]


@pytest.mark.parametrize("policy", Policy)
def test_bodies_are_exported_by_policy(node: Node, tmp_path: Path, policy: Policy) -> None:
    raw = packet(1)
    node.put([arrivals(packet(7), raw)], [receive(2, 2)])
    export(node, tmp_path / "archive", config=structs.replace(CONFIG, policy=policy))
    entries = table(tmp_path / "archive", Part.ENTRIES)
    has_data = [row["data"] is not None for row in entries]
    assert has_data == [policy is Policy.FULL] * len(entries)
    digests = [row["body_sha256"] for row in table(tmp_path / "archive", Part.OPERATIONS)]
    expected: list[bytes | None] = [None] * 4
    if policy is Policy.DIGEST:
        expected[:2] = [sha256(packet(7)).digest(), sha256(raw).digest()]
    assert digests == expected


def test_a_range_ends_at_its_limits(node: Node, tmp_path: Path) -> None:
    for n in range(1, 10):
        node.put([arrivals(packet(n, body=bytes(1000)))])
    export(node, tmp_path / "entries")
    assert [(m.first, m.last) for m, _ in ranges(tmp_path / "entries")] == [(1, 4), (5, 8), (9, 10)]


def test_a_range_ends_when_it_has_its_bytes(node: Node, tmp_path: Path) -> None:
    for n in range(1, 10):
        node.put([arrivals(packet(n, body=bytes(1000)))])
    config = structs.replace(CONFIG, range_entries=100, range_bytes=3000)
    export(node, tmp_path / "bytes", config=config)
    lasts = [manifest.last for manifest, _ in ranges(tmp_path / "bytes")]
    assert lasts == [4, 7, 10]
    assert check_chain(tmp_path / "bytes") == list(range(1, 11))


def test_marks_reports_and_acks_lie_beside_their_entries(node: Node, tmp_path: Path) -> None:
    node.put([arrivals(packet(1))], [commands.AuditMark(9)], [commands.ClockTick(1)])
    report = MarkReport(9, b"d" * 16, [QueueContents(QUEUE, NAME, 1, 200, 0xFFFF_FFFF)])
    plan = RangePlan(
        Exported(), 4, 100, 1 << 30, Policy.NONE, {3: report},
        [("n1", 5, 1, 2, 2), ("n1", 5, 2, 9, 9)],
    )  # fmt: skip
    destination = FolderDestination(tmp_path / "archive")
    done = RangeExport(plan, IDENTITY, StoreSource(node), destination, lambda: False).run()
    assert done is not None
    entries = table(tmp_path / "archive", Part.ENTRIES)
    marks = [(row["audit_mark"], row["digest"]) for row in entries]
    assert marks == [(None, None), (None, None), (9, b"d" * 16), (None, None)]
    assert table(tmp_path / "archive", Part.QUEUES) == [
        {
            "group": 1, "index": 3, "audit_mark": 9, "queue_id": QUEUE, "queue": NAME,
            "messages": 1, "bytes": 200, "quota_kb": 0xFFFF_FFFF,
        }
    ]  # fmt: skip
    acks = table(tmp_path / "archive", Part.ACKS)
    assert [(row["position"], row["depends_on_index"]) for row in acks] == [(1, 2)]


def test_files_have_the_schema_and_say_whose_they_are(node: Node, tmp_path: Path) -> None:
    node.put([arrivals(packet(1))])
    export(node, tmp_path / "archive")
    ((manifest, folder),) = ranges(tmp_path / "archive")
    assert (manifest.schema, manifest.cluster, manifest.node) == (
        SCHEMA_VERSION,
        IDENTITY.cluster,
        "n1.1",
    )
    for file in manifest.files:
        schema = pq.read_schema(folder / file.name)
        assert schema.remove_metadata() == SCHEMAS[Part(file.part)].remove_metadata()
        assert schema.metadata[b"quorate.node"] == b"n1.1"
        assert schema.metadata[b"quorate.schema"] == str(SCHEMA_VERSION).encode()


def test_every_kind_of_effect_has_a_name(node: Node, tmp_path: Path) -> None:
    node.put([arrivals(packet(1))], [commands.DeleteQueue(request(), QUEUE, ())])
    node.put([commands.PurgeStep(QUEUE, 10), commands.PurgeStep(QUEUE, 10)])
    export(node, tmp_path / "archive")
    rows = table(tmp_path / "archive", Part.OPERATIONS)
    assert [row["operation"] for row in rows] == ["arrived", EffectKind.QUEUE_DELETED.name.lower()]
    assert [row["queue"] for row in rows] == [NAME, NAME]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (DirectQueueFormatName("OS:host\\q"), "OS:host\\q"),
        (PublicQueueFormatName(bytes(16)), "PUBLIC=00000000-0000-0000-0000-000000000000"),
    ],
)
def test_names_as_on_the_wire(name: object, text: str) -> None:
    raw = packet(1, to=name)  # type: ignore[arg-type]
    assert destination_text(peek_destination(raw, 0, peek_head(raw, 0))) == text


def test_private_names_as_on_the_wire() -> None:
    raw = packet(1, to=PrivateQueueFormatNameId(QueueHost.DESTINATION, 0x2F))
    text = destination_text(peek_destination(raw, 0, peek_head(raw, 0)))
    assert text.startswith("PRIVATE=")
    assert "\\0000002F;" in text


def test_half_a_surrogate_is_still_text() -> None:
    key = bytes((7,)) + "OS:h\\q".encode("utf-16-le") + b"\x00\xd8"
    assert destination_text(key).startswith("OS:h\\q")
    destination_text(key).encode()
