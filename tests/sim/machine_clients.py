"""Users of the simulated queue manager: clients with numbered requests, a peer that sends over the
network, and an administrator.

Each is a script: it yields commands and gets their answers. Its runner repeats a command, under
the same numbers, until it is answered, through crashes and changes of leader, and compares the
answers of all attempts with each other.
"""

import random
import zlib
from array import array
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qm.model.queries import browse, find_by_format_name
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import Command, EdgeBatch, Facts, Request, Send, Stamp
from qm.model.values.commands import TransferVerdict as Verdict
from qm.model.values.elements import QueueAccessType
from qm.model.values.limits import APPLY_VERSION
from qm.model.values.results import RequestResult
from qm.model.values.rows import PositionState, ResultKind
from qm.store.codec import encode_command, encode_stamp
from qm.wire.codes import ErrorCode
from qm.wire.message_class import MESSAGE_CLASS_NEGATIVE_BIT as NEGATIVE_BIT
from qm.wire.structures.queue_name import DirectQueueFormatName
from tests.sim.checkers import Violation
from tests.sim.clients import ClientFaults, Clients, Operation, Outcome
from tests.sim.machine_account import ACKS, OWN, Ident, Life
from tests.sim.machine_far import Sending
from tests.sim.machine_model import KEYS, QueueModel
from tests.sim.machine_rows import Answer, QueueMachine
from tests.sim.slots import Result
from tests.unit.model.world import HOST, PEER, PEER_ADDRESS, packet

if TYPE_CHECKING:
    from tests.sim.host import Host
    from tests.sim.world import World

EPOCH_MS = 1_700_000_000_000
PLAIN, EXACT, OTHER, PASSING = (
    f"DIRECT=OS:{HOST}\\{name}" for name in ("plain", "exact", "other", "passing")
)
FAR = "DIRECT=OS:far\\in"
RECEIVE = QueueAccessType.RECEIVE_ACCESS
RETRY_MAX_US = 60_000
SKEW_MAX_MS = 300
"""How far the clocks of proposers are apart; apply never goes back."""
Script = Generator[list[Command], list[Answer], None]
Asking = Generator[list[Command], list[Answer], Any]


@dataclass(slots=True)
class Actor:
    """One user: its script, and the commands that wait for their answers."""

    name: str
    script: Script
    commands: list[Command]
    answers: list[Answer] | None = None
    round: int = 0
    """Counts what it asked; answers to an earlier round are compared and else ignored."""


class QueueClients(Clients):
    """All users of a world."""

    def __init__(self, world: "World", chance: random.Random, faults: ClientFaults) -> None:
        super().__init__(world, chance, faults)
        self.leapt_ms = 0
        """Time without any activity: deadlines, leases and memories end."""
        self.is_ready = False
        """The queues exist."""
        self.received: dict[Ident, str] = {}
        """What some client holds for good, and which."""
        self.acknowledged_sends: set[Ident] = set()
        self.aborted_sends: set[Ident] = set()
        self._attempts: dict[int, tuple[Actor, int, list[Command]]] = {}
        self._answers: dict[tuple[str, int], object] = {}
        self._actors = [self._actor("admin", Administration(self).run())]
        self._actors.append(self._actor("peer", Peer(self).run()))
        self._sending = Sending(self)
        self._actors.append(self._actor("sending", self._sending.run()))
        for number in range(max(2, faults.count)):
            client = Client(self, f"c{number}")
            self._actors.append(self._actor(client.client_id, client.run()))

    def _actor(self, name: str, script: Script) -> Actor:
        return Actor(name, script, next(script))

    def start(self) -> None:
        for actor in self._actors:
            self._later(actor)
        if self.faults.read_share:
            self._plan_read()

    def _later(self, actor: Actor) -> None:
        wait_us = self.chance.randint(1, self.faults.think_us)
        self.world.at(self.world.now_us + wait_us, lambda: self._try(actor, actor.round))

    # Asking -------------------------------------------------------------------------------

    def _try(self, actor: Actor, of_round: int) -> None:
        """Propose what the actor asks, and plan to do so again without an answer."""
        if actor.round != of_round:
            return
        wait_us = self.chance.randint(RETRY_MAX_US // 2, 4 * RETRY_MAX_US)
        if not actor.commands:
            self._go_on(actor, [])
            return
        host = self._choose()
        if host is not None and (self.is_ready or actor.name == "admin"):
            number = len(self.history) + 1
            self.history.append(Operation(number, 0, self.world.now_us))
            self._attempts[number] = (actor, of_round, actor.commands)
            payloads = [(0, encode_stamp(self._stamp(host)))]
            payloads += [(number, encode_command(command)) for command in actor.commands]
            if host.propose(payloads):
                names = [type(command).__name__ for command in actor.commands]
                self.world.say("propose", host.node, actor.name, number, *names)
            else:
                self._close((number,), Outcome.REFUSED)
                wait_us = self.chance.randint(1, RETRY_MAX_US)
        self.world.at(self.world.now_us + wait_us, lambda: self._try(actor, of_round))

    def _stamp(self, host: "Host") -> Stamp:
        skew_ms = self.chance.randint(-SKEW_MAX_MS, SKEW_MAX_MS)
        return Stamp(self.now_ms() + skew_ms, host.node, APPLY_VERSION)

    def now_ms(self) -> int:
        """Return what clocks show, about."""
        return EPOCH_MS + self.leapt_ms + self.world.now_us // 1_000

    def acknowledged(
        self,
        host: "Host",
        index: int,
        term: int,
        numbers: tuple[int, ...],
        result: tuple[Result, ...],
    ) -> None:
        self.world.checker.acknowledged(index, term, result)
        number = numbers[-1]
        self.world.say("done", host.node, index, number)
        self.history[number - 1].index = index
        self._close((number,), Outcome.DONE)
        actor, of_round, asked = self._attempts[number]
        answers = [Answer(*one) for one in result]
        self._compare(asked, answers)
        if actor.round == of_round:
            self._go_on(actor, answers)

    def _compare(self, commands_of: list[Command], answers: list[Answer]) -> None:
        """A numbered request has one answer, however often it was asked."""
        for command, answer in zip(commands_of, answers, strict=True):
            if answer.status == 0:
                for number, said in answered_numbers(command, answer):
                    known = self._answers.setdefault(number, said)
                    if known != said:
                        raise Violation(f"{number} is answered {known} and {said}")

    def _go_on(self, actor: Actor, answers: list[Answer]) -> None:
        actor.round += 1
        actor.commands = actor.script.send(answers)
        self._later(actor)

    def lost(self, numbers: tuple[int, ...]) -> None:
        self._close(numbers, Outcome.LOST)

    def unknown(self, numbers: tuple[int, ...]) -> None:
        self._close(numbers, Outcome.UNKNOWN)

    def _close(self, numbers: tuple[int, ...], outcome: Outcome) -> None:
        for number in set(numbers) - {0}:
            operation = self.history[number - 1]
            if operation.outcome in (Outcome.OPEN, Outcome.UNKNOWN):
                operation.outcome = outcome

    # Reading ------------------------------------------------------------------------------

    def _plan_read(self) -> None:
        wait_us = self.chance.randint(1, int(2 * self.faults.think_us / self.faults.read_share))
        self.world.at(self.world.now_us + wait_us, self._read_once)

    def _read_once(self) -> None:
        self._plan_read()
        host = self._choose()
        if host is None:
            return
        floor = self.world.checker.acknowledged_index
        key = self.chance.randrange(KEYS)

        def serve() -> None:
            index = self.world.checker.read(host, key, floor)
            self.world.say("read", host.node, key, index)
            self.reads_served += 1

        host.read(serve)

    # The end ------------------------------------------------------------------------------

    def check(self) -> None:
        model = self.world.checker.model
        assert isinstance(model, QueueModel)
        life = model.account.life
        for ident in sorted(self.acknowledged_sends - model.account.refused):
            if life.get(ident) in (None, Life.PENDING, Life.ROLLED_BACK):
                raise Violation(f"{ident} was acknowledged and is {life.get(ident)}")
        for ident in sorted(self.aborted_sends):
            if life[ident] not in (Life.ROLLED_BACK, Life.PENDING):
                raise Violation(f"{ident} was never committed and is {life[ident]}")
        delivered = {one[1] for one, how in life.items() if how is Life.DELIVERED}
        self._sending.check(delivered)
        for ident, who in sorted(self.received.items()):
            if life[ident] is not Life.RECEIVED:
                raise Violation(f"{who} received {ident}, which is {life[ident]}")

    def holds(self, client_id: str, ident: Ident) -> None:
        """A client has a message for good."""
        if self.received.setdefault(ident, client_id) != client_id:
            raise Violation(f"{ident} is received by {self.received[ident]} and {client_id}")

    def some_machine(self) -> QueueMachine | None:
        """Return the state machine of a running process."""
        running = [host for host in self.world.hosts.values() if host.is_running]
        machine = self.chance.choice(running).machine if running else None
        return machine if isinstance(machine, QueueMachine) else None


class Client:
    """One client: it sends, reads in every way, and lives in transactions."""

    def __init__(self, users: QueueClients, client_id: str) -> None:
        self._users = users
        self._chance = users.chance
        self.client_id = client_id
        self._number = 0
        self._confirmed = 0
        self._begun = 0
        self._handles: dict[str, tuple[int, int]] = {}

    def _request(self, count: int = 1) -> Request:
        first = self._number + 1
        self._number += count
        return Request(self.client_id, first, self._confirmed)

    def run(self) -> Script:
        """Live forever."""
        yield from self._open()
        while True:
            do: Callable[[], Asking] = self._chance.choice(
                (self._send, self._send, self._receive, self._lend, self._transact, self._transact)
            )
            yield from do()
            if self._chance.random() < 0.7:
                self._confirmed = self._number
            if self._chance.random() < 0.03:
                yield [commands.CloseClient(self.client_id)]

    def _ask(self, command: Command) -> Asking:
        """Ask until the session is open; the answer is of this very request."""
        while True:
            (answer,) = yield [command]
            if answer.status != ErrorCode.MQ_ERROR_STALE_HANDLE or not self._is_closed():
                return answer
            yield from self._open()

    def _is_closed(self) -> bool:
        """A session ended by its lease answers STALE_HANDLE, as do results it no longer has."""
        client = self._users.world.checker.model
        assert isinstance(client, QueueModel)
        row = client.account.client(self.client_id)
        return row is None or not row.is_open

    def _open(self) -> Asking:
        lease_ms = self._chance.choice((1_500, 60_000))
        yield [commands.OpenClient(self.client_id, "somebody", lease_ms)]
        self._handles.clear()

    def _handle(self, name: str) -> Asking:
        while name not in self._handles:
            command = commands.OpenQueue(self._request(), name, RECEIVE, 0, ())
            answer = yield from self._ask(command)
            if answer.status == 0:
                self._handles[name] = tuple(answer.value)
        return self._handles[name]

    # What it does -------------------------------------------------------------------------

    def _packet(self, *, is_transactional: bool) -> bytes:
        size = self._chance.choice(self._users.faults.value_bytes)
        return packet(
            0,
            body=bytes(size),
            priority=self._chance.randrange(8),
            sequence=(1, 1, 0) if is_transactional else None,
            has_negative_journaling=self._chance.random() < 0.2,
            has_positive_journaling=self._chance.random() < 0.1,
            time_to_be_received=self._chance.choice((0xFFFF_FFFF, 0xFFFF_FFFF, 1)),
            final_ack=is_transactional and self._chance.random() < 0.3,
            **acknowledged(self._chance),
        )

    def _put(self, transaction: bytes | None = None) -> Asking:
        raw = self._packet(is_transactional=transaction is not None)
        names = (EXACT, EXACT, FAR) if transaction is not None else (PLAIN, PLAIN, FAR, PASSING)
        name = self._chance.choice(names)
        answer = yield from self._ask(
            Send.of(self._request(), [(name, raw)], transaction=transaction)
        )
        return (OWN, answer.value[0]) if answer.status == 0 else None

    def _send(self) -> Asking:
        ident = yield from self._put()
        if ident is not None:
            self._users.acknowledged_sends.add(ident)

    def _take(self, name: str, **how: Any) -> Asking:
        """Read a few messages; what is not answered is cancelled, and that is an answer."""
        handle, queue_id = yield from self._handle(name)
        count = self._chance.randint(1, 4)
        request = self._request(count)
        first = request.number
        (answer,) = yield [
            commands.ReceiveRun(
                self.client_id, handle, queue_id, first, count, self._confirmed, **how
            )
        ]
        results = answer.value or ()
        if answer.status or len(results) < count:
            if answer.status:
                self._handles.pop(name, None)
            cancel = commands.CancelRequests(
                self.client_id, first, count, ErrorCode.MQ_ERROR_IO_TIMEOUT
            )
            answer = yield from self._ask(cancel)
            results = answer.value or ()
        numbers = [one.number for one in results]
        if answer.status == 0 and numbers != list(range(first, first + count)):
            raise Violation(f"{self.client_id} asked {count} from {first} and got {numbers}")
        return [one for one in results if one.kind is not ResultKind.NONE]

    def _receive(self) -> Asking:
        for result in (yield from self._take(self._chance.choice((PLAIN, EXACT, OTHER, ACKS)))):
            if result.kind is ResultKind.RECEIVED:
                self._users.holds(self.client_id, ident_of(result))

    def _lend(self) -> Asking:
        lent = yield from self._take(self._chance.choice((PLAIN, EXACT)), is_two_phase=True)
        for result in lent:
            is_wanted = self._chance.random() < 0.6
            answer = yield from self._ask(
                commands.ReadEnd(
                    self._request(), result.queue_id, result.lookup_identifier, is_wanted
                )
            )
            if answer.status == 0 and is_wanted:
                self._note_ended(result)

    def _note_ended(self, result: RequestResult) -> None:
        """It is the client's unless a purge had overtaken the lock."""
        model = self._users.world.checker.model
        assert isinstance(model, QueueModel)
        if model.account.life[ident_of(result)] is Life.RECEIVED:
            self._users.holds(self.client_id, ident_of(result))

    def _transact(self) -> Asking:
        self._begun += 1
        transaction = f"{self.client_id}/{self._begun}".encode().ljust(16, b"-")
        is_single = self._chance.random() < 0.6
        begin = commands.TxBegin(self._request(), transaction, is_single, "", 4_000)
        if (yield from self._ask(begin)).status:
            return
        sent: list[Ident] = []
        taken: list[RequestResult] = []
        for _ in range(self._chance.randint(1, 4)):
            if self._chance.random() < 0.6:
                ident = yield from self._put(transaction)
                sent += [ident] if ident is not None else []
            else:
                taken += yield from self._take(EXACT, transaction=transaction)
        if not is_single:
            yield from self._ask(commands.TxPrepare(self._request(), transaction))
        if self._chance.random() < 0.7:
            answer = yield from self._ask(commands.TxCommit(self._request(), transaction))
            if answer.status == 0:
                self._users.acknowledged_sends |= set(sent)
                for result in taken:
                    self._note_ended(result)
                return
            # A session that ended took its transaction with it.
            answer = yield from self._ask(commands.TxAbort(self._request(), transaction))
        else:
            answer = yield from self._ask(commands.TxAbort(self._request(), transaction))
        if answer.status == 0:
            self._users.aborted_sends |= set(sent)


class Peer:
    """Another queue manager: two streams over one session, and repeats of what was acknowledged."""

    def __init__(self, users: QueueClients) -> None:
        self._users = users
        self._chance = users.chance
        self._ordinal = 0
        self._number = 0
        self._waiting: list[tuple[int, bytes]] = []
        self._old: list[tuple[int, bytes]] = []

    def run(self) -> Script:
        """Send forever; what is not acknowledged is sent again before anything new."""
        while True:
            for _ in range(self._chance.randint(0, 4)):
                self._waiting.append(self._message())
            again = self._chance.sample(self._old, min(len(self._old), self._chance.randrange(3)))
            batch = sorted(again) + self._waiting
            if not batch:
                yield []
                continue
            (answer,) = yield [edge_batch([raw for _, raw in batch])]
            self._heard([ordinal for ordinal, _ in batch], answer.verdicts)

    def _message(self) -> tuple[int, bytes]:
        self._ordinal += 1
        size = self._chance.choice(self._users.faults.value_bytes)
        if self._chance.random() < 0.4:
            self._number += 1
            sequence = (1 << 32, self._number, self._number - 1)
            return self._ordinal, packet(
                self._ordinal,
                to="exact",
                body=bytes(size),
                sequence=sequence,
                final_ack=self._chance.random() < 0.3,
                **acknowledged(self._chance),
            )
        return self._ordinal, packet(
            self._ordinal,
            to=self._chance.choice(("plain", "plain", "passing")),
            body=bytes(size),
            priority=self._chance.randrange(8),
            has_negative_journaling=self._chance.random() < 0.2,
            sent_time=self._users.now_ms() // 1_000,
            time_to_reach_queue=self._chance.choice((0xFFFF_FFFF, 20)),
            time_to_be_received=self._chance.choice((0xFFFF_FFFF, 0xFFFF_FFFF, 2)),
            **acknowledged(self._chance),
        )

    def _heard(self, ordinals: list[int], verdicts: tuple[int, ...]) -> None:
        done = {
            ordinal
            for ordinal, verdict in zip(ordinals, verdicts, strict=True)
            if verdict in (Verdict.ACCEPTED, Verdict.DUPLICATE)
        }
        self._users.acknowledged_sends |= {(PEER, ordinal) for ordinal in done}
        refused = {
            ordinal
            for ordinal, verdict in zip(ordinals, verdicts, strict=True)
            if verdict & NEGATIVE_BIT
        }
        self._old += [one for one in self._waiting if one[0] in done]
        self._waiting = [one for one in self._waiting if one[0] not in done | refused]


class Administration:
    """Makes the queues, lets time pass, purges, moves, and tells the machine of new leaders."""

    def __init__(self, users: QueueClients) -> None:
        self._users = users
        self._chance = users.chance
        self._told = 0

    def run(self) -> Script:
        """Work forever."""
        yield setup_commands()
        self._users.is_ready = True
        while True:
            leader = self._users.world.current_leader()
            if leader is not None and leader.replica_now.term > self._told:
                self._told = leader.replica_now.term
                yield [commands.LeaderActivated(self._told, leader.node)]
            do: Callable[[], Asking] = self._chance.choice(
                (
                    self._tick,
                    self._tick,
                    self._tick,
                    self._purge,
                    self._move,
                    self._leap,
                    self._come_and_go,
                )
            )
            yield from do()

    def _leap(self) -> Asking:
        if self._chance.random() < 0.1:
            self._users.leapt_ms += 90_000
        yield []

    def _tick(self) -> Asking:
        while (yield [commands.ClockTick(self._chance.choice((1, 50)))])[0].value:
            pass

    def _queue_id(self, name: str) -> int:
        machine = self._users.some_machine()
        return 0 if machine is None else find_by_format_name(machine.machine.view, name).queue_id

    def _purge(self) -> Asking:
        if self._chance.random() < 0.6:
            return
        queue_id = self._queue_id(self._chance.choice((PLAIN, EXACT, OTHER, FAR, ACKS)))
        yield [commands.PurgeQueue(control(), queue_id, ())]
        yield from self._settle(queue_id)

    def _come_and_go(self) -> Asking:
        queue_id = self._queue_id(PASSING)
        if self._chance.random() < 0.5:
            yield [create_queue("passing")]
        elif queue_id:
            yield [commands.DeleteQueue(control(), queue_id, ())]
            yield from self._settle(queue_id)

    def _settle(self, queue_id: int) -> Asking:
        while True:
            (answer,) = yield [commands.PurgeStep(queue_id, self._chance.choice((1, 7)))]
            if answer.status or not answer.value[1]:
                return

    def _move(self) -> Asking:
        machine = self._users.some_machine()
        source, target = self._queue_id(PLAIN), self._queue_id(OTHER)
        if machine is None or not source or not target:
            return
        page = browse(machine.machine.view, source, limit=20)
        keys = [one.lookup_identifier for one in page.items if one.state == PositionState.AVAILABLE]
        if keys:
            yield [commands.Move(control(), source, self._chance.choice(keys), target, ())]


def answered_numbers(command: Command, answer: Answer) -> list[tuple[tuple[str, int], object]]:
    """Return what a client's numbers were answered."""
    if isinstance(command, commands.ReceiveRun | commands.CancelRequests):
        results = answer.value or ()
        return [
            ((command.client_id, one.number), one)
            for one in results
            if one.status != ErrorCode.MQ_ERROR_STALE_HANDLE
        ]
    request: Request | None = getattr(command, "request", None)
    if request is None or not request.client_id:
        return []
    return [((request.client_id, request.number), answer)]


def control() -> Request:
    """Return a request that has no number and is done each time."""
    return Request("", 0, 0)


def setup_commands() -> list[Command]:
    """Return the birth of the cluster and its queues."""
    made: list[Command] = [
        commands.LeaderActivated(1, "n1", is_archived=True),
        commands.Provision(OWN, HOST, "", (), bytes(16), 7, b"", b""),
    ]
    made.append(create_queue("plain"))
    made.append(create_queue("exact", transactional=True))
    made.append(create_queue("other", journaling=True))
    made.append(create_queue("acks"))
    return made


def create_queue(name: str, **attributes: bool) -> Command:
    """Return the creation of a queue."""
    identifier = name.encode().ljust(16, b"\0")
    encoded = {key: encode_attribute(value) for key, value in attributes.items()}
    path = f".\\{name}"
    return commands.CreateQueue(control(), identifier, identifier[::-1], path, encoded, b"", ())


def acknowledged(chance: random.Random) -> dict[str, Any]:
    """Return header fields by which a sender asks for acknowledgements, now and then."""
    flags = chance.choice((0, 0, 0, 1, 5, 10, 15))
    if not flags:
        return {}
    return {"admin_queue": DirectQueueFormatName(ACKS[7:]), "properties": {"flags": flags}}


def edge_batch(packets: list[bytes]) -> EdgeBatch:
    """Return packets as an edge would hand them on."""
    offsets = [0]
    for raw in packets:
        offsets.append(offsets[-1] + len(raw))
    return EdgeBatch(
        "n1",
        1,
        memoryview(b"".join(packets)),
        0,
        array("I", offsets),
        array("I", [zlib.crc32(raw) for raw in packets]),
        bytes(len(packets)),
        (Facts(1, PEER, PEER_ADDRESS, ()),),
        0,
        0,
    )


def ident_of(result: RequestResult) -> Ident:
    """Return which message a result holds."""
    return (result.source_queue_manager, result.message_ordinal)
