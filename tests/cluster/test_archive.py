"""Real nodes that export what they apply, while their leader dies."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from qm.archive.carried import CarriedMessages
from qm.archive.checkpoints import CHECKPOINT_NAME, CHECKPOINTS_FOLDER, decode_checkpoint
from qm.archive.reader import ArchiveReader, Wanted
from qm.archive.schema import Part
from qm.load.verdict import Verdict
from qm.model.values.limits import VERSION_OF_ENTRY_HASH
from qm.store.codec import decode_entry
from qm.store.digest import digest_bytes
from qm.store.effects.chain import CHAIN_START, chained, hash_of
from qm.store.replay import Replay
from tests.cluster.archives import QUEUES, archived_load, manifests, table
from tests.cluster.harness import run

NODES = ("n1.1", "n2.1", "n3.1")
BEGINS = {"arrived", "pending", "moved_in", "dead_lettered", "journaled"}
ENDS = {"received", "moved_out", "expired", "purged", "rejected", "rolled_back", "delivered"}
Rows = list[dict[str, Any]]


class Archived:
    """The archive of a load, and what its clients saw."""

    def __init__(self, root: Path, verdict: Verdict) -> None:
        self.root = root
        self.verdict = verdict

    def rows(self, node: str, part: Part) -> Rows:
        rows: Rows = table(self.root, node, part).to_pylist()
        return rows

    def rows_with_data(self) -> Rows:
        """One row per entry, in order, from any node that has it with its data."""
        rows = {
            row["index"]: row
            for node in NODES
            for row in self.rows(node, Part.ENTRIES)
            if row["data"] is not None
        }
        return [rows[index] for index in sorted(rows)]


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Archived:
    folder = tmp_path_factory.mktemp("archived")
    verdicts: list[Verdict] = []

    async def scenario() -> None:
        verdicts.append(await archived_load(folder / "archive", folder))

    run(scenario())
    assert verdicts[0].holds, verdicts[0]
    return Archived(folder / "archive", verdicts[0])


@pytest.mark.parametrize("node", NODES)
def test_each_node_has_every_entry_once_in_one_chain(archived: Archived, node: str) -> None:
    end = 0
    for manifest, _ in manifests(archived.root)[node]:
        assert manifest.first == end + 1
        assert (manifest.is_gap_before, manifest.restored_at) == (False, 0)
        end = manifest.last
    previous, value = 0, CHAIN_START
    for row in archived.rows(node, Part.ENTRIES):
        assert (row["previous_index"], row["chain_before"]) == (previous, value)
        is_blake3 = row["data_blake3"] is not None
        digest = row["data_blake3" if is_blake3 else "data_sha256"]
        if row["data"] is not None:
            assert hash_of(row["data"], is_blake3=is_blake3) == digest
        previous = row["index"]
        value = chained(value, previous, row["term"], digest)
        assert row["chain"] == value
    assert len(manifests(archived.root)[node]) > 2


def test_leaders_hash_what_they_propose_and_their_stamps_say_it(archived: Archived) -> None:
    rows = archived.rows_with_data()
    stamps = [decode_entry(row["index"], row["data"]).stamp for row in rows]
    newer = [k for k, stamp in enumerate(stamps) if stamp.version >= VERSION_OF_ENTRY_HASH]
    assert newer
    assert all(stamps[k].entry_hash == rows[k]["data_blake3"] for k in newer)


def test_every_entry_has_its_data_in_the_archive_of_one_node_at_least(archived: Archived) -> None:
    rows = archived.rows_with_data()
    assert [row["previous_index"] for row in rows] == [0, *(row["index"] for row in rows[:-1])]
    last = max(ranges[-1][0].last for ranges in manifests(archived.root).values())
    assert rows[-1]["index"] == last
    copies = sum(
        row["data"] is not None for node in NODES for row in archived.rows(node, Part.ENTRIES)
    )
    assert copies < 2 * len(rows), "and not in that of every node"


def test_what_nodes_exported_agrees(archived: Archived) -> None:
    upto = min(ranges[-1][0].last for ranges in manifests(archived.root).values())
    for part, alone in (
        (Part.ENTRIES, ("digest", "data")),
        (Part.OPERATIONS, ()),
        (Part.QUEUES, None),
    ):
        found: list[Rows] = []
        for node in NODES:
            rows = [row for row in archived.rows(node, part) if row["index"] <= upto]
            for row in rows:
                for name in alone or ():
                    del row[name]
            found.append(rows)
        whole = max(found, key=len)
        assert whole
        for rows in found:
            # A node that died before it had read its state at a mark reports nothing of it.
            assert rows == whole or (alone is None and all(row in whole for row in rows))


def test_nodes_took_turns_to_add_whole_states(archived: Archived) -> None:
    """Each state is the one at its entry: those who rebuild it from their own log say the same."""
    found = sorted(archived.root.glob(f"*/{CHECKPOINTS_FOLDER}/*/{CHECKPOINT_NAME}"))
    checkpoints = [decode_checkpoint(path.read_bytes()) for path in found]
    assert checkpoints
    replayed, digests = Replay(archived.root.parent / "replay"), {}
    for row in archived.rows_with_data():
        replayed.apply([(row["index"], row["term"], row["data"])])
        digests[row["index"]] = digest_bytes(replayed.applied.digest).hex()
    replayed.close()
    for checkpoint in checkpoints:
        assert checkpoint.digest == digests[checkpoint.index]


def test_totals_are_those_of_the_clients(archived: Archived) -> None:
    rows = [row for row in archived.rows("n1.1", Part.OPERATIONS) if row["queue"] in QUEUES]
    begun = {(row["queue"], row["lookup_identifier"]) for row in rows if row["operation"] in BEGINS}
    verdict, counts = archived.verdict, Counter(row["operation"] for row in rows)
    assert len(begun) == verdict.sent == verdict.acknowledged
    assert counts["received"] == verdict.received == verdict.sent
    assert counts["refused"] == 0
    senders = {(row["source_queue_manager"], row["message_ordinal"]) for row in rows}
    assert len(senders) == verdict.sent


def test_one_copy_of_every_operation_is_read_with_its_message(archived: Archived) -> None:
    reader = ArchiveReader(str(archived.root))
    found = [each.row for each in reader.operations(Wanted())]
    assert found == max((archived.rows(node, Part.OPERATIONS) for node in NODES), key=len)
    for row in [row for row in found if row["operation"] == "arrived"][::50]:
        identifier = row["source_queue_manager"], row["message_ordinal"]
        own = [each.row for each in reader.operations(Wanted(message=identifier))]
        assert own == [
            each
            for each in found
            if (each["source_queue_manager"], each["message_ordinal"]) == identifier
        ]
        data = reader.entry(row["body_index"])
        assert data is not None
        origin = CarriedMessages(row["body_index"], data).origin(row["body_ordinal"])
        assert origin is not None
        assert origin.peer_queue_manager == row["source_queue_manager"]
    assert not reader.problems


def test_streams_go_on_in_order(archived: Archived) -> None:
    last: dict[tuple[bytes, str], tuple[int, int]] = {}
    accepted = [
        row
        for row in archived.rows("n2.1", Part.OPERATIONS)
        if row["operation"] == "arrived" and row["sender_sequence"] is not None
    ]
    for row in accepted:
        stream = (row["source_queue_manager"], row["destination"])
        sequence, number = last.get(stream, (row["sender_sequence_id"], 0))
        if sequence == row["sender_sequence_id"]:
            assert row["sender_previous"] <= number < row["sender_sequence"]
        last[stream] = row["sender_sequence_id"], row["sender_sequence"]
    assert len(last) == 2, "two senders, one transactional queue"


def test_marks_say_what_is_in_the_queues(archived: Archived) -> None:
    digests: dict[int, set[bytes]] = {}
    for node in NODES:
        for row in archived.rows(node, Part.ENTRIES):
            if row["digest"] is not None:
                digests.setdefault(row["audit_mark"], set()).add(row["digest"])
    assert {number: len(found) for number, found in digests.items()} == {1: 1, 2: 1}
    operations = archived.rows("n1.1", Part.OPERATIONS)
    reports = [row for node in NODES for row in archived.rows(node, Part.QUEUES)]
    assert {row["queue"] for row in reports} >= set(QUEUES)
    for report in reports:
        inside: dict[int, int] = {}
        for row in operations:
            if row["queue_id"] != report["queue_id"] or row["index"] > report["index"]:
                continue
            if row["operation"] in BEGINS:
                inside[row["lookup_identifier"]] = row["size_bytes"]
            elif row["operation"] in ENDS:
                del inside[row["lookup_identifier"]]
        assert (report["messages"], report["bytes"]) == (len(inside), sum(inside.values())), report


def test_no_acknowledgement_left_before_its_commit(archived: Archived) -> None:
    acks = [row for node in NODES for row in archived.rows(node, Part.ACKS)]
    indexes = {row["index"] for row in archived.rows("n1.1", Part.ENTRIES)}
    assert acks
    for ack in acks:
        assert ack["depends_on_index"] <= ack["commit_index_known"]
        assert ack["depends_on_index"] in indexes
