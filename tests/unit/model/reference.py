"""A slow and obvious queue manager: lists of messages, nothing cached, nothing encoded.

It knows two queues (`plain`, `exact`: the second transactional), the dead-letter queues, numbered
clients, two-phase reads, transactions, purges, moves and expiry, and says after each command what
every queue holds, in order. Written from the guide alone; shares no code with `qm.model`.
"""

from dataclasses import dataclass, field

AVAILABLE, LOCKED = "available", "locked"


@dataclass(eq=False)
class Message:
    """One message in one queue."""

    ordinal: int
    priority: int
    place: int
    deadline_ms: int | None = None
    state: str = AVAILABLE
    owner: object = None
    is_pending: bool = False
    is_transactional: bool = False
    was_received: bool = False
    """By a plain read: its result is the only place where it is."""

    def order(self) -> tuple[int, int]:
        return (7 - self.priority, self.place)


@dataclass
class Client:
    """What a client was answered and has not confirmed: number -> message that left its queue."""

    is_open: bool = True
    answered: dict[int, Message | None] = field(default_factory=dict)
    confirmed: int = 0


@dataclass
class Transaction:
    owner: str
    operations: list[tuple[str, str, Message]] = field(default_factory=list)
    outcome: str = ""


class Reference:
    """The queue manager."""

    def __init__(self) -> None:
        self.queues: dict[str, list[Message]] = {
            name: [] for name in ("plain", "exact", "other", "dead", "dead_exact")
        }
        self.purged_upto = dict.fromkeys(self.queues, 0)
        self.clients: dict[str, Client] = {}
        self.transactions: dict[str, Transaction] = {}
        self.seen: set[int] = set()
        self.accepted_number = 0
        self.place = 0
        self.now_ms = 0

    # Inside ------------------------------------------------------------------------------

    def next_place(self) -> int:
        self.place += 1
        return self.place

    def insert(self, queue: str, message: Message) -> None:
        self.queues[queue].append(message)
        self.queues[queue].sort(key=Message.order)

    def remove(self, message: Message) -> None:
        for messages in self.queues.values():
            if message in messages:
                messages.remove(message)

    def queue_of(self, message: Message) -> str:
        return next(name for name, messages in self.queues.items() if message in messages)

    def visible(self, queue: str) -> list[Message]:
        upto = self.purged_upto[queue]
        return [m for m in self.queues[queue] if m.state == AVAILABLE and m.place > upto]

    def dead_letter(self, message: Message) -> None:
        target = "dead_exact" if message.is_transactional else "dead"
        copy = Message(message.ordinal, message.priority, self.next_place())
        copy.is_transactional = message.is_transactional
        self.insert(target, copy)

    def give_back(self, message: Message) -> None:
        message.state, message.owner = AVAILABLE, None
        queue = self.queue_of(message)
        is_over = message.deadline_ms is not None and message.deadline_ms <= self.now_ms
        if message.place <= self.purged_upto[queue] or is_over:
            self.remove(message)

    # Arrivals ----------------------------------------------------------------------------

    def arrive(self, ordinal: int, priority: int, lifetime_ms: int | None) -> bool:
        """A plain message from the network; whether it was new."""
        if ordinal in self.seen:
            return False
        self.seen.add(ordinal)
        deadline = None if lifetime_ms is None else self.now_ms // 1000 * 1000 + lifetime_ms
        message = Message(ordinal, priority, self.next_place(), deadline)
        if deadline is None or deadline > self.now_ms:
            self.insert("plain", message)
        return True

    def arrive_exact(self, number: int, previous: int) -> str:
        """A transactional message from the network."""
        if previous <= self.accepted_number < number:
            self.accepted_number = number
            message = Message(number, 0, self.next_place(), is_transactional=True)
            self.insert("exact", message)
            return "accepted"
        return "duplicate" if number <= self.accepted_number else "out of order"

    # Clients -----------------------------------------------------------------------------

    def receive(
        self, client: str, queue: str, first: int, count: int, mode: str
    ) -> list[tuple[int, int]]:
        """Numbered reads; `mode` is plain, lend, or a transaction's name. (number, ordinal)."""
        session = self.clients[client]
        answers = []
        for number in range(first, first + count):
            if number <= session.confirmed:
                continue
            if number in session.answered:
                known = session.answered[number]
                if known is not None:
                    answers.append((number, known.ordinal))
                continue
            found = self.visible(queue)[:1]
            if not found:
                continue
            (message,) = found
            session.answered[number] = message
            answers.append((number, message.ordinal))
            if mode == "plain":
                message.was_received = True
                self.remove(message)
            else:
                message.state = LOCKED
                message.owner = (client, "lent") if mode == "lend" else mode
                if mode != "lend":
                    self.transactions[mode].operations.append(("read", queue, message))
        return answers

    def confirm(self, client: str, upto: int) -> None:
        session = self.clients[client]
        upto = min(upto, max(session.answered, default=session.confirmed))
        if upto <= session.confirmed:
            return
        session.confirmed = upto
        session.answered = {n: m for n, m in session.answered.items() if n > upto}

    def end_read(self, client: str, message: Message, delete: bool) -> bool:
        """Second phase; whether the client held it."""
        if message.owner != (client, "lent"):
            return False
        if delete:
            self.remove(message)
            message.owner = None
        else:
            self.give_back(message)
        return True

    def close(self, client: str) -> None:
        """The session ends: what was lent goes back, transactions abort, the rest dies letters."""
        session = self.clients[client]
        session.is_open = False
        for messages in list(self.queues.values()):
            for message in list(messages):
                if message.owner == (client, "lent"):
                    self.give_back(message)
        for _, answer in sorted(session.answered.items()):
            is_out = answer is not None and not any(answer in q for q in self.queues.values())
            if answer is not None and is_out and answer.was_received:
                self.dead_letter(answer)
        session.answered = dict.fromkeys(session.answered)

    # Transactions ------------------------------------------------------------------------

    def send(self, name: str, ordinal: int) -> None:
        transaction = self.transactions[name]
        message = Message(ordinal, 0, self.next_place(), state=LOCKED, owner=name)
        message.is_pending = message.is_transactional = True
        self.insert("exact", message)
        transaction.operations.append(("send", "exact", message))

    def end(self, name: str, outcome: str) -> None:
        transaction = self.transactions[name]
        transaction.outcome = outcome
        for kind, queue, message in transaction.operations:
            if message.owner != name:
                continue
            message.owner = None
            if kind == "send" and outcome == "commit":
                message.state, message.is_pending = AVAILABLE, False
                if message.place <= self.purged_upto[queue]:
                    message.place = self.next_place()
                    self.queues[queue].sort(key=Message.order)
            elif kind == "send" or outcome == "commit":
                self.remove(message)
                message.state = LOCKED
            else:
                self.give_back(message)

    # Administration ----------------------------------------------------------------------

    def purge(self, queue: str) -> int:
        """Hide and settle; how many went."""
        doomed = self.visible(queue)
        self.purged_upto[queue] = self.place
        for message in doomed:
            self.remove(message)
        return len(doomed)

    def move(self, message: Message, target: str) -> None:
        self.remove(message)
        if message.place <= self.purged_upto[target]:
            message.place = self.next_place()
        self.insert(target, message)

    def tick(self, now_ms: int) -> None:
        self.now_ms = now_ms
        for name in self.queues:
            for message in self.visible(name):
                if message.deadline_ms is not None and message.deadline_ms <= now_ms:
                    self.remove(message)

    def holds(self, queue: str) -> list[tuple[int, str]]:
        return [(m.ordinal, m.state) for m in self.queues[queue]]
