"""An encoded command's op distinguishes new messages from everything else."""

from array import array

from qm.model.values.commands import (
    ClockTick,
    Command,
    Confirm,
    EdgeBatch,
    Facts,
    OrderAcked,
    Request,
    Send,
    TransferVerdict,
)
from qm.model.values.limits import COPIES_PER_SEND_MAX_BYTES, TARGETS_PER_SEND_MAX
from qm.node.relay.disk_admission import is_edge_batch, is_send, refusal
from qm.store.codec import Inspected, encode_command, inspect
from raft.core.state import CoreConfig

FACTS = Facts(1, bytes(16), "192.0.2.1", ())
BATCH = EdgeBatch(
    "n1", 1, memoryview(b"abcdef"), 0, array("I", [0, 2, 4, 6]), array("I", [1, 2, 3]),
    bytes(3), (FACTS,), 0, 0,
)  # fmt: skip
SEND = Send.of(Request("client", 1, 0), [("DIRECT=OS:a\\b", b"packet")])


def inspected(command: Command) -> Inspected:
    return inspect(encode_command(command))


OTHERS: tuple[Command, ...] = (
    ClockTick(1),
    Confirm("client", 3),
    OrderAcked(array("Q", [1]), array("Q", [2])),
)


def test_the_longest_message_to_several_queues_fits_an_entry() -> None:
    packet = bytes(COPIES_PER_SEND_MAX_BYTES // TARGETS_PER_SEND_MAX)
    copies = [("DIRECT=OS:" + "n" * 1_000, packet)] * TARGETS_PER_SEND_MAX
    send = Send.of(Request("client", 1, 0), copies)
    assert len(encode_command(send)) + (1 << 16) < CoreConfig("n1.1", 1).entry_bytes_max


def test_only_messages_are_new_messages() -> None:
    assert is_edge_batch(inspected(BATCH))
    assert is_send(inspected(SEND))
    assert not is_send(inspected(BATCH))
    assert not is_edge_batch(inspected(SEND))
    for command in OTHERS:
        assert not is_send(inspected(command))
        assert not is_edge_batch(inspected(command))


def test_a_refused_batch_ends_its_sessions_message_by_message() -> None:
    outcome = refusal(inspected(BATCH))
    assert outcome.status == 0
    assert outcome.verdicts == array("H", [TransferVerdict.CLOSE_SESSION] * 3)
