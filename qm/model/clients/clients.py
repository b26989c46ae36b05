"""Clients: leased sessions with numbered requests (DESIGN section 4, Clients).

A number is answered once: its first result is a row, and a retry, after a failover or a restart of
the client, gets that row. Rows are removed only when the client confirms that it holds them. A
message that was read destructively and whose result was never confirmed goes to the dead-letter
queue when the session ends, in that same apply.
"""

from collections.abc import Callable, Iterator
from typing import Final

from msgspec.structs import replace

from qm.model.clients.control_requests import ControlResults
from qm.model.messages.enqueue import Enqueue, NewMessage
from qm.model.state.events import Events
from qm.model.state.ledger import Ledger
from qm.model.state.principals import Principals
from qm.model.state.tables import State, Table
from qm.model.values.commands import (
    CancelRequests,
    CloseClient,
    Confirm,
    OpenClient,
    RenewClients,
    Request,
)
from qm.model.values.effects import EffectKind, Outcome
from qm.model.values.elements import EventKind
from qm.model.values.limits import (
    ALARM_JOURNAL_DROPPED,
    CLIENTS_FEW_COUNT,
    CLIENTS_MAX,
    CLIENTS_SHARED_MAX,
    POSITIONS_PER_ENTRY_MAX,
    QUOTA_SESSIONS,
    UNCONFIRMED_PER_CLIENT_MAX_BYTES,
    UNCONFIRMED_RESULTS_PER_CLIENT_MAX,
    VERSION_OF_BINDINGS,
    VERSION_OF_REFUSALS,
)
from qm.model.values.records import Client, ClientHolder
from qm.model.values.results import (
    RequestResult,
    ResultRow,
    consecutive_runs,
    count_of,
    held_upto,
    number_of,
    unpack_results,
    without_first,
)
from qm.model.values.rows import LEASE_KEY, REQUEST_KEY, LeaseKind, PositionFlag, ResultKind
from qm.wire.codes import ErrorCode
from qm.wire.message_class import MessageClass

MQ_OK: Final = 0
CLIENT_FENCED: Final = 0xE00E_0001
"""A code of this product, as its customer bit says: another opener took the session over."""
INSTANCE_MAX_BYTES: Final = 64
ADDRESS_MAX_CHARS: Final = 64
_HOLDER: Final = b"\x03"
_KEPT_FLAGS: Final = (
    PositionFlag.RECOVERABLE
    | PositionFlag.TRANSACTIONAL
    | PositionFlag.WAS_ENCRYPTED
    | PositionFlag.AUTHENTICATED
)
"""Flags that an undelivered result keeps as a dead letter."""
CLIENT_ID_MAX_BYTES: Final = 128
CLIENTS_IN_HAND_MAX: Final = 4_096
"""Decoded records kept between runs of entries."""
LEASE_MAX_MS: Final = 24 * 3600 * 1000
_NUMBER_MAX: Final = (1 << 64) - 1


def client_key(client_id: str) -> bytes:
    """Return the prefix of a client's keys; no client's is a prefix of another's."""
    return client_id.encode() + b"\0"


def holder_key(client_id: str) -> bytes:
    """Return the OPEN key of a client's ClientHolder record."""
    return _HOLDER + client_key(client_id)


def is_range(first: int, count: int) -> bool:
    """Whether one command may cover `count` request numbers from `first` on."""
    return (
        1 <= first <= _NUMBER_MAX - POSITIONS_PER_ENTRY_MAX
        and 1 <= count <= POSITIONS_PER_ENTRY_MAX
    )


def request_result(state: State, client_id: str, number: int) -> RequestResult | None:
    """Return the committed result of a client's number, None if there is none (any more)."""
    prefix = client_key(client_id)
    end = prefix + REQUEST_KEY.pack(number) + b"\0"
    for _, row in state.scan(Table.RESULT, prefix, end, 1, backward=True):
        for result in unpack_results(row):
            if result.number == number:
                return result
    return None


class Clients:
    """Sessions and results."""

    def __init__(
        self, ledger: Ledger, enqueue: Enqueue, principals: Principals, events: Events
    ) -> None:
        self._ledger = ledger
        self._principals = principals
        self._events = events
        self._control_results = ControlResults(ledger, events)
        self._enqueue = enqueue
        self._in_hand: dict[str, Client] = {}
        self._holders: dict[str, ClientHolder | None] = {}
        self._dirty: dict[str, None] = {}
        self.on_close: list[Callable[[str], None]] = []
        """Other parts that settle what a closed client leaves: opens, reads, transactions."""

    # Sessions ----------------------------------------------------------------------------

    def apply_open_client(self, command: OpenClient) -> Outcome:
        """Begin a session, or resume a known one: results and numbers continue."""
        ledger = self._ledger
        length = len(command.client_id.encode())
        if not 1 <= length <= CLIENT_ID_MAX_BYTES or "\0" in command.client_id:
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        if not 1 <= command.lease_ms <= LEASE_MAX_MS:
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        if self.is_fenced(command.main_client_id, command.main_session_epoch):
            return Outcome(CLIENT_FENCED)
        client = self.client(command.client_id)
        if client is None:
            if ledger.counters.client_count >= CLIENTS_MAX:
                return Outcome(ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES)
            if self._is_greedy(command.principal):
                return Outcome(ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES, value=QUOTA_SESSIONS)
            ledger.counters.client_count += 1
            client = Client(command.principal, 0, 0)
        elif client.principal != command.principal:
            return Outcome(ErrorCode.MQ_ERROR_ACCESS_DENIED)
        self._principals.add_client(client_key(command.client_id), command.principal)
        self._delete_lease(command.client_id, client)
        was_open, client.is_open = client.is_open, True
        client.epoch = ledger.counters.epoch
        self._put_lease(command.client_id, client, LeaseKind.CLIENT, command.lease_ms)
        numbers = (client.epoch, client.confirmed_upto, client.highest_number)
        if ledger.behaviour < VERSION_OF_REFUSALS:
            return Outcome(MQ_OK, value=numbers)
        return Outcome(MQ_OK, value=(*numbers, self._hold(command, was_open=was_open)))

    def _is_greedy(self, principal: str) -> bool:
        """Whether what is left of all sessions is kept for principals that have fewer."""
        ledger = self._ledger
        if ledger.behaviour < VERSION_OF_BINDINGS:
            return False
        is_scarce = ledger.counters.client_count >= CLIENTS_SHARED_MAX
        return is_scarce and (
            self._principals.use(principal.encode()).client_count >= CLIENTS_FEW_COUNT
        )

    def _hold(self, command: OpenClient, *, was_open: bool) -> int:
        """Return the epoch of the opener's session; it is higher if the session was taken over."""
        if len(command.instance) > INSTANCE_MAX_BYTES or len(command.address) > ADDRESS_MAX_CHARS:
            command = replace(command, instance=b"", address="")
        holder = self.holder(command.client_id)
        if holder is None and not command.instance:
            return 0
        if holder is not None and command.instance and holder.instance == command.instance:
            return holder.session_epoch
        main_id = command.main_client_id if command.main_client_id != command.client_id else ""
        if len(main_id.encode()) > CLIENT_ID_MAX_BYTES:
            main_id = ""
        # Higher than all assigned before, also for an id that was forgotten meanwhile.
        epoch = self._ledger.index
        taken = ClientHolder(command.instance, epoch, command.address, self._ledger.now_ms)
        taken.main_client_id, taken.main_session_epoch = main_id, command.main_session_epoch
        if holder is not None:
            taken.session_epoch = max(epoch, holder.session_epoch + 1)
            taken.before_address, taken.before_since_ms = holder.address, holder.since_ms
            if was_open:
                self._tell_fenced(command, holder)
        self._holders[command.client_id] = taken
        self._ledger.put_record(Table.OPEN, holder_key(command.client_id), taken)
        return taken.session_epoch

    def _tell_fenced(self, command: OpenClient, before: ClientHolder) -> None:
        text = f"session {command.client_id} was taken over: the process that had it is fenced"
        details = {
            "client_id": command.client_id,
            "from_address": before.address,
            "to_address": command.address,
        }
        principal = command.principal
        self._events.add(EventKind.SESSION, "fenced", text, principal=principal, details=details)

    def holder(self, client_id: str) -> ClientHolder | None:
        """Return who opened a client's session last, None if unknown."""
        if client_id not in self._holders:
            if len(self._holders) > CLIENTS_IN_HAND_MAX:
                self._holders.clear()
            key = holder_key(client_id)
            self._holders[client_id] = self._ledger.record(Table.OPEN, key, ClientHolder)
        return self._holders[client_id]

    def is_fenced(self, client_id: str, session_epoch: int) -> bool:
        """Whether another opener has opened the session since."""
        if not session_epoch or self._ledger.behaviour < VERSION_OF_REFUSALS:
            return False
        holder = self.holder(client_id)
        if holder is None:
            return False
        if holder.session_epoch != session_epoch:
            return True
        main = self.holder(holder.main_client_id) if holder.main_session_epoch else None
        return main is not None and main.session_epoch != holder.main_session_epoch

    def apply_renew_clients(self, command: RenewClients) -> Outcome:
        """Keep sessions alive; those that have ended stay ended."""
        if not 1 <= command.lease_ms <= LEASE_MAX_MS:
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        renewed = []
        for client_id in command.client_ids:
            client = self.client(client_id)
            if client is not None and client.is_open:
                self._delete_lease(client_id, client)
                self._put_lease(client_id, client, LeaseKind.CLIENT, command.lease_ms)
                renewed.append(client_id)
        return Outcome(MQ_OK, value=renewed)

    def lease_due(self, client_id: str) -> None:
        """End a session that was not renewed.

        After a change of leader it gets its full time once more (DESIGN section 4, Time).
        """
        client = self.client(client_id)
        if client is None or not client.is_open:
            return
        full_term_ms = self._ledger.counters.leader_since_ms + client.lease_ms
        if client.lease_deadline_ms < full_term_ms and self._ledger.now_ms < full_term_ms:
            left_ms = full_term_ms - self._ledger.now_ms
            lease_ms = client.lease_ms
            self._put_lease(client_id, client, LeaseKind.CLIENT, left_ms)
            client.lease_ms = lease_ms
            self.put_client(client_id, client)
        else:
            self.close(client_id)

    def apply_close_client(self, command: CloseClient) -> Outcome:
        """End a session now."""
        if self.is_fenced(command.client_id, command.session_epoch):
            return Outcome(CLIENT_FENCED)
        client = self.client(command.client_id)
        if client is None or not client.is_open:
            return Outcome(ErrorCode.MQ_ERROR_STALE_HANDLE)
        self.close(command.client_id)
        return Outcome(MQ_OK)

    def close(self, client_id: str) -> None:
        """End a session: dead-letter unconfirmed results, settle the rest; keep its numbers."""
        client = self.client(client_id)
        if client is None or not client.is_open:
            return
        for collaborator in self.on_close:
            collaborator(client_id)
        client = self.client(client_id)
        assert client is not None
        self._delete_lease(client_id, client)
        client.is_open = False
        manager = self._ledger.manager
        retention_ms = manager.result_retention_ms if manager is not None else 0
        self._abandon_results(client_id, client)
        self._put_lease(client_id, client, LeaseKind.CLIENT_FORGOTTEN, retention_ms)

    def forget_client(self, client_id: str) -> None:
        """End the retention: later requests of this client are refused as unknown."""
        client = self.client(client_id)
        if client is None or client.is_open:
            return
        prefix = client_key(client_id)
        for key, _ in self._result_rows(prefix, _NUMBER_MAX):
            self._ledger.state.delete(Table.RESULT, key)
        self._delete_lease(client_id, client)
        self._ledger.state.delete(Table.CLIENT, prefix)
        self._ledger.state.delete(Table.OPEN, holder_key(client_id))
        self._principals.remove_client(prefix)
        self._holders.pop(client_id, None)
        self._in_hand.pop(client_id, None)
        self._dirty.pop(client_id, None)
        self._ledger.counters.client_count -= 1

    def client(self, client_id: str) -> Client | None:
        """Return a client's record, open or not; after changing it, call `put_client`."""
        client = self._in_hand.get(client_id)
        if client is None:
            client = self._ledger.record(Table.CLIENT, client_key(client_id), Client)
            if client is not None:
                self._in_hand[client_id] = client
        return client

    def put_client(self, client_id: str, client: Client) -> None:
        """Accept a changed record; `settle` writes it."""
        self._in_hand[client_id] = client
        self._dirty[client_id] = None

    def settle(self) -> None:
        """Write back what entries changed."""
        for client_id in self._dirty:
            self._ledger.put_record(Table.CLIENT, client_key(client_id), self._in_hand[client_id])
        self._dirty.clear()
        if len(self._in_hand) > CLIENTS_IN_HAND_MAX:
            self._in_hand.clear()

    def forget(self) -> None:
        """Drop everything derived; only after `settle`."""
        assert not self._dirty, "clients that were not written back"
        self._in_hand.clear()
        self._holders.clear()

    def _put_lease(self, client_id: str, client: Client, kind: LeaseKind, lease_ms: int) -> None:
        client.lease_ms = lease_ms
        client.lease_deadline_ms = self._ledger.now_ms + lease_ms
        self._ledger.put_lease(client.lease_deadline_ms, kind, client_key(client_id))
        self.put_client(client_id, client)

    def _delete_lease(self, client_id: str, client: Client) -> None:
        for kind in (LeaseKind.CLIENT, LeaseKind.CLIENT_FORGOTTEN):
            key = LEASE_KEY.pack(client.lease_deadline_ms, kind) + client_key(client_id)
            self._ledger.state.delete(Table.LEASE, key)

    # Requests ----------------------------------------------------------------------------

    def once(self, request: Request, work: Callable[[], Outcome]) -> Outcome:
        """Do a numbered request's work unless its number has a result; return the result.

        An empty client id denotes a control request, which has an id of its own instead, or none.
        """
        if not request.client_id:
            if not request.control_id:
                return work()
            return self._control_results.once(request.control_id, request.call, work)
        if self.is_fenced(request.client_id, request.session_epoch):
            return Outcome(CLIENT_FENCED)
        client = self.client(request.client_id)
        if client is None or not client.is_open:
            return Outcome(ErrorCode.MQ_ERROR_STALE_HANDLE)
        self._confirm(request.client_id, client, request.confirmed_upto)
        if not client.confirmed_upto < request.number <= _NUMBER_MAX:
            return Outcome(ErrorCode.MQ_ERROR_STALE_HANDLE)
        known = self.result(request.client_id, request.number)
        if known is not None:
            return Outcome(known.status, value=known.value)
        if not self.has_room(client):
            return Outcome(ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES)
        outcome = work()
        result = RequestResult(request.number, outcome.status, value=outcome.value)
        self.add_results(request.client_id, [result])
        return outcome

    def has_room(self, client: Client, count: int = 1, taken_bytes: int = 0) -> bool:
        """Whether the client may have `count` more unconfirmed results.

        `taken_bytes`: bytes of those found already. The last result may exceed the limit.
        """
        return (
            client.unconfirmed_count + count <= UNCONFIRMED_RESULTS_PER_CLIENT_MAX
            and client.unconfirmed_bytes + taken_bytes <= UNCONFIRMED_PER_CLIENT_MAX_BYTES
        )

    def result(self, client_id: str, number: int) -> RequestResult | None:
        """Return the committed result of a number, or None."""
        client = self.client(client_id)
        if client is None or number > client.highest_number:
            return None  # as for every request that is not repeated
        return request_result(self._ledger.state, client_id, number)

    def results(self, client_id: str, first: int, count: int) -> list[RequestResult]:
        """Return the committed results of a range of numbers, ascending."""
        client = self.client(client_id)
        if client is None or first > client.highest_number:
            return []
        prefix = client_key(client_id)
        state = self._ledger.state
        low = prefix + REQUEST_KEY.pack(first)
        before = state.scan(Table.RESULT, prefix, low, 1, backward=True)
        high = prefix + REQUEST_KEY.pack(min(first + count - 1, _NUMBER_MAX)) + b"\0"
        rows = before + state.scan(Table.RESULT, low, high, count)
        return [
            result
            for _, row in rows
            for result in unpack_results(row)
            if first <= result.number < first + count
        ]

    def add_results(self, client_id: str, results: list[RequestResult]) -> None:
        """Commit results, ascending by number, made by one command.

        The caller has retained the body of any message in them, until the result is confirmed.
        """
        if not results:
            return
        client = self.client(client_id)
        assert client is not None, "results for an unknown client"
        for result in results:
            client.unconfirmed_bytes += result.body_length
        client.unconfirmed_count += len(results)
        client.highest_number = max(client.highest_number, results[-1].number)
        for run in consecutive_runs(results):
            key = client_key(client_id) + REQUEST_KEY.pack(run[0].number)
            self._ledger.state.put(Table.RESULT, key, b"".join(result.pack() for result in run))
        self.put_client(client_id, client)

    def add_row(self, client_id: str, row: ResultRow) -> None:
        """Commit a packed row of results; see `add_results`."""
        client = self.client(client_id)
        assert client is not None, "results for an unknown client"
        client.unconfirmed_bytes += row.body_bytes
        client.unconfirmed_count += len(row)
        first = row.first_number()
        client.highest_number = max(client.highest_number, first + len(row) - 1)
        key = client_key(client_id) + REQUEST_KEY.pack(first)
        self._ledger.state.put(Table.RESULT, key, row.packed)
        self.put_client(client_id, client)

    def room(self, client: Client) -> tuple[int, int]:
        """Return how many more results, and about how many bytes, a client may leave open."""
        return (
            UNCONFIRMED_RESULTS_PER_CLIENT_MAX - client.unconfirmed_count,
            UNCONFIRMED_PER_CLIENT_MAX_BYTES - client.unconfirmed_bytes,
        )

    def apply_confirm(self, command: Confirm) -> Outcome:
        """Forget the results that the client confirms."""
        if self.is_fenced(command.client_id, command.session_epoch):
            return Outcome(CLIENT_FENCED)
        client = self.client(command.client_id)
        if client is None:
            return Outcome(ErrorCode.MQ_ERROR_STALE_HANDLE)
        self._confirm(command.client_id, client, command.confirmed_upto)
        return Outcome(MQ_OK)

    def confirm(self, client_id: str, upto: int) -> None:
        """Forget results that the client holds."""
        client = self.client(client_id)
        if client is not None:
            self._confirm(client_id, client, upto)

    def _confirm(self, client_id: str, client: Client, upto: int) -> None:
        """Confirm only what the client got: never beyond its highest answered number."""
        upto = min(upto, client.highest_number)
        if upto <= client.confirmed_upto:
            return
        first, client.confirmed_upto = client.confirmed_upto + 1, upto
        state, ledger, prefix = self._ledger.state, self._ledger, client_key(client_id)
        for number, row in self._rows_between(client, prefix, first, upto):
            held = held_upto(row, upto)
            client.unconfirmed_count -= held.results
            client.unconfirmed_bytes -= held.body_bytes
            ledger.release_bodies(held.body_indexes, held.body_ordinals)
            state.delete(Table.RESULT, prefix + REQUEST_KEY.pack(number))
            rest = without_first(row, held.results)
            if rest:
                state.put(Table.RESULT, prefix + REQUEST_KEY.pack(number_of(rest)), rest)
        self.put_client(client_id, client)

    def _rows_between(
        self, client: Client, prefix: bytes, first: int, upto: int
    ) -> Iterator[tuple[int, bytes]]:
        """Yield the RESULT rows that begin in [first, upto], ascending, by their first number.

        Numbers are mostly answered without a gap; then no row has to be searched for.
        """
        state, number = self._ledger.state, first
        while number <= upto and client.unconfirmed_count:
            row = state.get(Table.RESULT, prefix + REQUEST_KEY.pack(number))
            if row is None:
                low, high = REQUEST_KEY.pack(number), REQUEST_KEY.pack(upto) + b"\0"
                rows = state.scan(Table.RESULT, prefix + low, prefix + high, 1)
                if not rows:
                    return
                row = rows[0][1]
                number = number_of(row)
            yield number, row
            number += count_of(row)

    def _result_rows(self, prefix: bytes, upto: int) -> list[tuple[bytes, bytes]]:
        return self._ledger.state.scan(
            Table.RESULT,
            prefix,
            prefix + REQUEST_KEY.pack(upto) + b"\0",
            UNCONFIRMED_RESULTS_PER_CLIENT_MAX,
        )

    def apply_cancel_requests(self, command: CancelRequests) -> Outcome:
        """Give numbers without a result `status`; the others keep their result."""
        if self.is_fenced(command.client_id, command.session_epoch):
            return Outcome(CLIENT_FENCED)
        client = self.client(command.client_id)
        if client is None or not client.is_open:
            return Outcome(ErrorCode.MQ_ERROR_STALE_HANDLE)
        if not is_range(command.first_request, command.count):
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        first = max(command.first_request, client.confirmed_upto + 1)
        last = command.first_request + command.count - 1
        known = self.results(command.client_id, first, max(last - first + 1, 1))
        answered = {result.number for result in known}
        cancelled = [
            RequestResult(number, command.status)
            for number in range(first, last + 1)
            if number not in answered
        ]
        if not self.has_room(client, len(cancelled)):
            return Outcome(ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES)
        self.add_results(command.client_id, cancelled)
        results = sorted([*known, *cancelled], key=lambda result: result.number)
        return Outcome(MQ_OK, value=results)

    # The end of a session ----------------------------------------------------------------

    def _abandon_results(self, client_id: str, client: Client) -> None:
        """Dead-letter messages that left their queue for a result that was never confirmed.

        The rows stay as statuses, so that a late retry learns that its number was used.
        """
        state = self._ledger.state
        for key, row in self._result_rows(client_key(client_id), _NUMBER_MAX):
            kept = []
            for result in unpack_results(row):
                if result.kind is ResultKind.RECEIVED:
                    self._dead_letter(result)
                if result.kind is not ResultKind.NONE:
                    client.unconfirmed_bytes -= result.body_length
                    self._ledger.release_body(result.body_index, result.body_ordinal)
                    result = RequestResult(result.number, ErrorCode.MQ_ERROR_STALE_HANDLE)
                kept.append(result)
            state.put(Table.RESULT, key, b"".join(result.pack() for result in kept))

    def _dead_letter(self, result: RequestResult) -> None:
        manager = self._ledger.manager
        assert manager is not None, "a client without a queue manager"
        queue_id = manager.system_deadletter_queue
        if result.flags & PositionFlag.TRANSACTIONAL:
            queue_id = manager.system_transactional_deadletter_queue
        queue = self._ledger.queue(queue_id)
        assert queue is not None, "a queue manager without dead-letter queues"
        message = NewMessage(
            result.body_index,
            result.body_offset,
            result.body_length,
            result.body_ordinal,
            result.body_crc32,
            7 - (result.lookup_identifier >> 56),
            result.flags & _KEPT_FLAGS | PositionFlag.SYSTEM,
            result.source_queue_manager,
            result.message_ordinal,
            0,
            message_class=MessageClass.ACK_RECEIVE,
        )
        # Never dropped: a full dead-letter queue takes it all the same, with an alarm.
        if result.body_length > min(self._enqueue.room_bytes(queue)):
            self._ledger.applied.alarms.append(ALARM_JOURNAL_DROPPED)
        self._enqueue.insert(queue, message, kind=EffectKind.DEAD_LETTERED)
