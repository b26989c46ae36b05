"""The machine against the reference, over random command sequences.

`MODEL_SEQUENCES` sets how many (200 here; `make model-check` runs 10,000).
"""

import os
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qm.model.values import commands
from qm.model.values.commands import TransferVerdict
from qm.model.values.elements import QueueAccessType
from qm.model.values.rows import PositionState
from tests.unit.model.reference import LOCKED, Client, Message, Reference, Transaction
from tests.unit.model.world import NOW_MS, ClientInWorld, World, packet, results_of

SEQUENCES = int(os.environ.get("MODEL_SEQUENCES", "200"))
CLIENTS = ("a", "b")
VERDICTS = {
    TransferVerdict.ACCEPTED: "accepted",
    TransferVerdict.DUPLICATE: "duplicate",
    TransferVerdict.OUT_OF_ORDER: "out of order",
}
client_names = st.sampled_from(CLIENTS)
steps = st.one_of(
    st.tuples(
        st.just("arrive"),
        st.lists(
            st.tuples(
                st.integers(1, 60), st.integers(0, 7), st.none() | st.sampled_from([0, 5_000])
            ),
            min_size=1,
            max_size=6,
        ),
    ),
    st.tuples(st.just("arrive_exact"), st.integers(1, 12), st.integers(1, 3)),
    st.tuples(
        st.just("receive"),
        client_names,
        st.sampled_from(["plain", "exact"]),
        st.integers(1, 4),
        st.sampled_from(["plain", "lend", "tx"]),
    ),
    st.tuples(st.just("again"), client_names, st.sampled_from(["plain", "exact"])),
    st.tuples(st.just("confirm"), client_names, st.integers(0, 30)),
    st.tuples(st.just("end_read"), client_names, st.integers(0, 5), st.booleans()),
    st.tuples(st.just("begin"), client_names),
    st.tuples(st.just("send"), client_names),
    st.tuples(st.just("finish"), client_names, st.sampled_from(["commit", "abort"])),
    st.tuples(st.just("purge"), st.sampled_from(["plain", "exact", "other"])),
    st.tuples(st.just("move"), st.integers(0, 9)),
    st.tuples(st.just("tick"), st.sampled_from([1_000, 3_000, 6_000])),
    st.tuples(st.just("close"), client_names),
)


class Both:
    """The machine and the reference, driven in step."""

    def __init__(self, forgets: bool) -> None:
        self.world = World(forgets=forgets)
        self.reference = Reference()
        self.reference.now_ms = NOW_MS
        self.ids = {
            "plain": self.world.create("plain"),
            "other": self.world.create("other"),
            "exact": self.world.create("exact", transactional=True),
            "dead": self.world.manager_queue("system_deadletter_queue"),
            "dead_exact": self.world.manager_queue("system_transactional_deadletter_queue"),
        }
        self.clients: dict[str, ClientInWorld] = {}
        self.handles: dict[tuple[str, str], tuple[int, int]] = {}
        self.open_tx: dict[str, bytes | None] = {}
        self.lent: dict[str, list[tuple[str, int, Message]]] = {}
        self.begun = 0
        for name in CLIENTS:
            self.open(name)

    def open(self, name: str) -> None:
        client = self.world.client(name, lease_ms=1 << 25)
        previous = self.clients.get(name)
        client.number = previous.number if previous else 0
        self.clients[name] = client
        session = self.reference.clients.setdefault(name, Client())
        session.is_open = True
        self.open_tx[name] = None
        self.lent[name] = []
        for queue in ("plain", "exact"):
            self.handles[name, queue] = client.open(
                f"DIRECT=OS:vhost\\{queue}", QueueAccessType.RECEIVE_ACCESS
            )
            session.answered[client.number] = None

    def note(self, name: str) -> None:
        """A numbered command was answered with a status."""
        self.reference.clients[name].answered[self.clients[name].number] = None

    # Steps -------------------------------------------------------------------------------

    def arrive(self, messages: list[tuple[int, int, int | None]]) -> None:
        world, reference = self.world, self.reference
        raw = [
            packet(
                ordinal,
                to="plain",
                priority=priority,
                sent_time=NOW_MS // 1000,
                time_to_be_received=0xFFFF_FFFF
                if lifetime is None
                else (reference.now_ms - NOW_MS + lifetime) // 1000,
            )
            for ordinal, priority, lifetime in messages
        ]
        verdicts = world.arrive(*raw)
        expected = [
            TransferVerdict.ACCEPTED
            if reference.arrive(ordinal, priority, lifetime)
            else TransferVerdict.DUPLICATE
            for ordinal, priority, lifetime in messages
        ]
        assert verdicts == expected

    def arrive_exact(self, number: int, back: int) -> None:
        previous = max(number - back, 0)
        raw = packet(number, to="exact", sequence=(1 << 32, number, previous))
        (verdict,) = self.world.arrive(raw)
        assert VERDICTS[TransferVerdict(verdict)] == self.reference.arrive_exact(number, previous)

    def receive(self, name: str, queue: str, count: int, mode: str) -> None:
        client, transaction = self.clients[name], self.open_tx[name]
        if mode == "tx" and (transaction is None or queue == "plain"):
            mode = "plain"
        first = client.number + 1
        more: dict[str, Any] = {}
        if mode == "tx":
            assert transaction is not None
            more, mode = {"transaction": transaction}, transaction.decode()
        elif mode == "lend":
            more = {"is_two_phase": True}
        results = client.receive(self.handles[name, queue], count, **more)
        session = self.reference.clients[name]
        expected = self.reference.receive(name, queue, first, count, mode)
        assert [(r.number, r.message_ordinal) for r in results] == expected
        if mode == "lend":
            for result in results:
                message = session.answered[result.number]
                assert message is not None
                self.lent[name].append((queue, result.lookup_identifier, message))
        cancelled = commands.CancelRequests(name, first, count, 0xC00E001B)
        if self.world.one(cancelled).status == 0:
            for number in range(first, first + count):
                session.answered.setdefault(number, None)

    def again(self, name: str, queue: str) -> None:
        client = self.clients[name]
        first = max(client.number - 5, 1)
        count = client.number - first + 1
        results = client.receive_outcome(self.handles[name, queue], count, first=first)
        known = self.reference.clients[name]
        expected = [
            (number, message.ordinal)
            for number, message in sorted(known.answered.items())
            if message is not None and first <= number < first + count
        ]
        found = [
            (r.number, r.message_ordinal) for r in results_of(results.value) if r.message_ordinal
        ]
        assert found == expected

    def confirm(self, name: str, back: int) -> None:
        upto = max(self.clients[name].number - back, 0)
        self.world.one(commands.Confirm(name, upto))
        self.reference.confirm(name, upto)

    def end_read(self, name: str, which: int, delete: bool) -> None:
        if which >= len(self.lent[name]):
            return
        queue, key, message = self.lent[name].pop(which)
        end = commands.ReadEnd(self.clients[name].request(), self.ids[queue], key, delete)
        status = self.world.one(end).status
        assert (status == 0) == self.reference.end_read(name, message, delete)
        self.note(name)

    def begin(self, name: str) -> None:
        if self.open_tx[name] is not None:
            return
        self.begun += 1
        transaction = self.clients[name].begin(f"t{self.begun}")
        self.open_tx[name] = transaction
        self.reference.transactions[transaction.decode()] = Transaction(name)
        self.note(name)

    def send(self, name: str) -> None:
        transaction = self.open_tx[name]
        if transaction is None:
            return
        outcome = self.clients[name].send("DIRECT=OS:vhost\\exact", transaction=transaction)
        assert outcome.status == 0
        assert isinstance(outcome.value, tuple)
        self.reference.send(transaction.decode(), outcome.value[0])
        self.note(name)

    def finish(self, name: str, outcome: str) -> None:
        transaction = self.open_tx[name]
        if transaction is None:
            return
        self.open_tx[name] = None
        client = self.clients[name]
        status = client.commit(transaction) if outcome == "commit" else client.abort(transaction)
        assert status == 0
        self.reference.end(transaction.decode(), outcome)
        self.note(name)

    def purge(self, queue: str) -> None:
        outcome = self.world.one(
            commands.PurgeQueue(commands.Request("", 0, 0), self.ids[queue], ())
        )
        assert outcome.value == self.reference.purge(queue)
        self.world.settle(self.ids[queue])

    def move(self, which: int) -> None:
        visible = self.reference.visible("plain")
        if which >= len(visible):
            return
        message = visible[which]
        key = (7 - message.priority) << 56 | message.place
        move = commands.Move(
            commands.Request("", 0, 0), self.ids["plain"], key, self.ids["other"], ()
        )
        assert self.world.one(move).status == 0
        self.reference.move(message, "other")

    def tick(self, ms: int) -> None:
        self.world.tick(ms)
        self.reference.tick(self.world.now_ms)

    def close(self, name: str) -> None:
        self.world.one(commands.CloseClient(name))
        self.reference.close(name)
        self.world.tick()
        transaction = self.open_tx[name]
        if transaction is not None:
            self.reference.end(transaction.decode(), "abort")
        self.open(name)

    # What must be equal ------------------------------------------------------------------

    def compare(self) -> None:
        for name, queue_id in self.ids.items():
            positions = self.world.positions(queue_id)
            found = [
                (
                    position.message_ordinal,
                    LOCKED if position.state == PositionState.LOCKED else "available",
                )
                for position in positions.values()
            ]
            assert found == self.reference.holds(name), name
            stats = self.world.stats(queue_id)
            assert stats.count() == len(positions)
            assert sum(stats.locked) == sum(state == LOCKED for _, state in found)
            total = sum(position.stored_size_bytes for position in positions.values())
            assert stats.total_bytes == total
        assert self.world.counters().sequential_id == self.reference.place
        linked = sum(len(messages) for messages in self.reference.queues.values())
        held = sum(
            message is not None
            for client in self.reference.clients.values()
            for message in client.answered.values()
        )
        assert sum(self.world.state.references().values()) == linked + held


@given(st.booleans(), st.lists(steps, max_size=40))
@settings(
    max_examples=SEQUENCES,
    suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow],
)
def test_they_agree_after_every_command(forgets: bool, plan: list[tuple[str, ...]]) -> None:
    both = Both(forgets)
    for what, *arguments in plan:
        getattr(both, what)(*arguments)
        both.compare()
