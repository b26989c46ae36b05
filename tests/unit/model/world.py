"""A queue manager in memory for tests: commands in, outcomes and rows out.

Every entry is applied as the store would apply it, and `World.settings` may drop all derived state
between entries, so that each test also proves that rows alone carry the state.
"""

import zlib
from array import array
from typing import Any

from msgspec import structs

from qm.model.machine import Machine
from qm.model.state.ledger import META_COUNTERS, QueueInHand
from qm.model.state.tables import BODY_ORDINAL_SYNTHETIC_FIRST, MemoryState, Table
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import Command, CommandBatch, EdgeBatch, Facts, Request, Stamp
from qm.model.values.effects import Applied, EffectKind, Outcome
from qm.model.values.limits import APPLY_VERSION
from qm.model.values.records import Counters, Queue, SyntheticPacket, decode
from qm.model.values.results import RequestResult, ResultRow
from qm.model.values.rows import BODY_KEY, POSITION_KEY, QUEUE_KEY, Position, unpack_position
from qm.wire.headers.debug_header import DebugHeader
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.security_header import SecurityHeader
from qm.wire.headers.transaction_header import TransactionHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.packets.user_message import UserMessage, parse_user_message, write_user_message
from qm.wire.structures.identifiers import TxSequenceId
from qm.wire.structures.queue_name import DirectQueueFormatName, QueueName

OWN = bytes(range(16))
PEER = b"PEER" * 4
NOW_MS = 1_700_000_000_000
NOW_S = NOW_MS // 1000
HOST = "vhost"
PEER_ADDRESS = "127.0.0.99"


def request(number: int = 1, client: str = "", confirmed_upto: int = 0) -> Request:
    return Request(client, number, confirmed_upto)


def direct(queue: str) -> DirectQueueFormatName:
    return DirectQueueFormatName(f"OS:{HOST}\\{queue}")


def packet(
    message_id: int,
    *,
    to: QueueName | str = "orders",
    body: bytes = b"body",
    sequence: tuple[int, int, int] | None = None,
    final_ack: bool = False,
    report_to: bytes | None = None,
    properties: dict[str, Any] | None = None,
    priority: int = 3,
    time_to_reach_queue: int = 0xFFFF_FFFF,
    security: SecurityHeader | None = None,
    **header: Any,
) -> bytes:
    """Return a UserMessage; `sequence` = (TxSequenceID as u64, number, previous)."""
    fields = {
        "source_queue_manager": PEER,
        "destination_queue": direct(to) if isinstance(to, str) else to,
        "sent_time": NOW_S,
        "message_id": message_id,
        "is_recoverable": sequence is not None,
    } | header
    transaction = None
    if sequence is not None:
        identifier = TxSequenceId(time_stamp=sequence[0] >> 32, ordinal=sequence[0] & 0xFFFF_FFFF)
        transaction = TransactionHeader(identifier, sequence[1], sequence[2])
        if final_ack:
            transaction = TransactionHeader(
                identifier, sequence[1], sequence[2], is_final_ack_wanted=True
            )
    return write_user_message(
        UserMessage(
            UserHeader(**fields),
            MessagePropertiesHeader(body, **(properties or {})),
            transaction,
            security=security,
            priority=0 if sequence else priority,
            time_to_reach_queue=time_to_reach_queue,
            is_traced=report_to is not None,
            debug=None if report_to is None else DebugHeader(report_to),
        )
    )


BIRTH = commands.Provision(OWN, HOST, f"{HOST}.example", ("127.0.0.11",), bytes(16), 7, b"", b"")


class World:
    """One queue manager `vhost`, provisioned, with the queues that a test asks for."""

    def __init__(self, birth: commands.Provision = BIRTH, *, forgets: bool = False) -> None:
        self.state = MemoryState()
        self.machine = Machine(self.state)
        self.index = 0
        self.now_ms = NOW_MS
        self.forgets = forgets
        self.version = APPLY_VERSION
        self.settles = True
        """Whether rows are written back after every entry."""
        self.bodies: dict[tuple[int, int], bytes] = {}
        self.requests = 0
        self.one(birth)

    # Entries -----------------------------------------------------------------------------

    def apply(self, *batch: Command) -> Applied:
        """Apply one entry."""
        self.index += 1
        entry = CommandBatch(self.index, Stamp(self.now_ms, "n1.1", self.version), batch)
        applied = self.machine.apply(entry, settle=self.settles)
        if self.forgets:
            self.machine.forget()
        return applied

    def one(self, command: Command) -> Outcome:
        """Apply one command in its own entry."""
        (outcome,) = self.apply(command).outcomes
        return outcome

    def edge_batch(self, *packets: bytes, facts: Facts | None = None) -> EdgeBatch:
        """Return packets as the next entry's EdgeBatch."""
        offsets = [0]
        for number, raw in enumerate(packets):
            offsets.append(offsets[-1] + len(raw))
            self.bodies[self.index + 1, number] = raw
        return EdgeBatch(
            "n1",
            1,
            memoryview(b"".join(packets)),
            100,
            array("I", offsets),
            array("I", [zlib.crc32(raw) for raw in packets]),
            bytes(len(packets)),
            (facts or Facts(1, PEER, PEER_ADDRESS, ()),),
            self.index + 1,
            0,
        )

    def arrive(self, *packets: bytes, facts: Facts | None = None) -> list[int]:
        """Let packets arrive in one batch; return their verdicts."""
        return self.arrive_applied(*packets, facts=facts)[0]

    def arrive_applied(
        self, *packets: bytes, facts: Facts | None = None
    ) -> tuple[list[int], Applied]:
        """Let packets arrive in one batch; return their verdicts and what came of them."""
        applied = self.apply(self.edge_batch(*packets, facts=facts))
        verdicts = applied.outcomes[0].verdicts
        assert verdicts is not None
        return verdicts.tolist(), applied

    # Queues ------------------------------------------------------------------------------

    def create(self, name: str, security: bytes = b"", **attributes: Any) -> int:
        """Create a queue and return its queue_id; `private$\\x` for a private one."""
        identifier = name.encode().ljust(16, b"\0")[:16]
        outcome = self.one(
            commands.CreateQueue(
                request(),
                identifier,
                identifier[::-1],
                f".\\{name}",
                {key: encode_attribute(value) for key, value in attributes.items()},
                security,
                (),
            )
        )
        assert outcome.status == 0, hex(outcome.status)
        assert isinstance(outcome.value, int)
        return outcome.value

    def record(self, queue_id: int) -> Queue:
        """Return a queue's record from its row."""
        row = self.state.get(Table.QUEUE, QUEUE_KEY.pack(queue_id))
        assert row is not None, f"no queue {queue_id}"
        return decode(Queue, row)

    # Clients -----------------------------------------------------------------------------

    def client(self, client_id: str = "c", lease_ms: int = 60_000) -> "ClientInWorld":
        """Open a client's session."""
        outcome = self.one(commands.OpenClient(client_id, "principal", lease_ms))
        assert outcome.status == 0, hex(outcome.status)
        return ClientInWorld(self, client_id)

    def tick(self, ms: int = 0) -> None:
        """Let time pass, and settle everything that is due."""
        self.now_ms += ms
        while self.one(commands.ClockTick(100)).value:
            pass

    def settle(self, queue_id: int, count: int = 3) -> int:
        """Run PurgeStep until nothing is left; return the number of steps."""
        for steps in range(1, 1000):
            outcome = self.one(commands.PurgeStep(queue_id, count))
            if outcome.status or not outcome.value[1]:  # type: ignore[index]
                return steps
        raise AssertionError("a purge that does not end")

    def stats(self, queue_id: int) -> QueueInHand:
        """Return a queue's counts from its row."""
        row = self.state.get(Table.QUEUE_STATS, QUEUE_KEY.pack(queue_id))
        return QueueInHand(self.record(queue_id), row)

    def counters(self) -> Counters:
        """Return the counters from their row."""
        row = self.state.get(Table.META, META_COUNTERS)
        assert row is not None
        return decode(Counters, row)

    def positions(self, queue_id: int) -> dict[int, Position]:
        """Return key -> position of a queue, in order."""
        rows = self.state.scan(
            Table.POSITION,
            POSITION_KEY.pack(queue_id, 0),
            POSITION_KEY.pack(queue_id + 1, 0),
            1 << 30,
        )
        return {POSITION_KEY.unpack(key)[1]: unpack_position(row) for key, row in rows}

    def message(self, position: Position) -> UserMessage:
        """Return the packet at a position."""
        place = (position.body_index, position.body_ordinal)
        if position.body_ordinal >= BODY_ORDINAL_SYNTHETIC_FIRST:
            row = self.state.get(Table.SYNTHETIC, BODY_KEY.pack(*place))
            assert row is not None, "a position without its packet"
            raw = decode(SyntheticPacket, row).packet
        else:
            raw = self.bodies[place]
        return parse_user_message(raw, 0, len(raw))[0]

    def messages(self, queue_id: int) -> list[UserMessage]:
        """Return the messages of a queue, in order."""
        return [self.message(position) for position in self.positions(queue_id).values()]

    def manager_queue(self, which: str) -> int:
        """Return the queue_id of a system queue by its attribute of the queue manager."""
        manager = self.machine.manager
        assert manager is not None
        queue_id: int = getattr(manager, which)
        return queue_id


def results_of(value: object) -> list[RequestResult]:
    """Return the results in a ReceiveRun's outcome."""
    if isinstance(value, ResultRow):
        return value.unpack()
    assert isinstance(value, list)
    return value


class ClientInWorld:
    """A client that numbers its requests."""

    def __init__(self, world: World, client_id: str) -> None:
        self.world = world
        self.client_id = client_id
        self.number = 0

    def request(self) -> Request:
        """Return the next number."""
        self.number += 1
        return Request(self.client_id, self.number, 0)

    def open(self, format_name: str, access: int, share_mode: int = 0) -> tuple[int, int]:
        """Open a queue; return (handle, queue_id)."""
        outcome = self.world.one(
            commands.OpenQueue(self.request(), format_name, access, share_mode, ())
        )
        assert outcome.status == 0, hex(outcome.status)
        assert isinstance(outcome.value, tuple)
        handle, queue_id = outcome.value
        return handle, queue_id

    def receive(
        self, opened: tuple[int, int], count: int = 1, *, first: int | None = None, **more: Any
    ) -> list[RequestResult]:
        """Read with the next `count` numbers, or again with those from `first`."""
        outcome = self.receive_outcome(opened, count, first=first, **more)
        assert outcome.status == 0, hex(outcome.status)
        return results_of(outcome.value)

    def receive_outcome(
        self, opened: tuple[int, int], count: int = 1, *, first: int | None = None, **more: Any
    ) -> Outcome:
        """Read and return the whole outcome."""
        if first is None:
            first = self.number + 1
            self.number += count
        confirmed = more.pop("confirmed_upto", 0)
        return self.world.one(
            commands.ReceiveRun(self.client_id, *opened, first, count, confirmed, **more)
        )

    def send(
        self,
        *format_names: str,
        raw: bytes | None = None,
        transaction: bytes | None = None,
        application_deadletter_queue: str = "",
        replaced: tuple[int, int] = (0, 0),
    ) -> Outcome:
        """Send a packet; `replaced`: handle and key of the message that it takes the place of."""
        if raw is None:
            raw = packet(0, sequence=(1, 1, 0) if transaction is not None else None)
        world = self.world
        send = commands.Send.of(
            self.request(),
            [(name, raw) for name in format_names],
            transaction=transaction,
            application_deadletter_queue=application_deadletter_queue,
            replaced_handle=replaced[0],
            replaced_lookup_identifier=replaced[1],
        )
        for k in range(len(format_names)):
            world.bodies[world.index + 1, k] = raw
        return world.one(structs.replace(send, body_index=world.index + 1, body_offset=100))

    def begin(self, name: str, *, is_single_phase: bool = True) -> bytes:
        """Begin a transaction."""
        transaction = name.encode().ljust(16, b"-")
        outcome = self.world.one(
            commands.TxBegin(self.request(), transaction, is_single_phase, "", 60_000)
        )
        assert outcome.status == 0, hex(outcome.status)
        return transaction

    def commit(self, transaction: bytes) -> int:
        """Commit; return the status."""
        return self.world.one(commands.TxCommit(self.request(), transaction)).status

    def abort(self, transaction: bytes) -> int:
        """Abort; return the status."""
        return self.world.one(commands.TxAbort(self.request(), transaction)).status


def effects(applied: Applied) -> list[tuple[EffectKind, int]]:
    """Return (kind, queue_id) of an entry's effects."""
    columns = applied.effects
    return [
        (EffectKind(kind), queue_id)
        for kind, queue_id in zip(columns.kinds, columns.queue_ids, strict=True)
    ]
