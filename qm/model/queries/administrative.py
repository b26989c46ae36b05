"""The queue manager itself, its clients, its directory, and pending work."""

from collections.abc import Sequence

import msgspec

from qm.model.clients.clients import client_key, holder_key
from qm.model.clients.opens import OPEN_RECORD, OPEN_RECORD_KEY
from qm.model.management.directory import DirectoryObject, Filter
from qm.model.management.manager_keys import META_KEYS
from qm.model.management.members import META_MEMBER, META_MEMBER_END
from qm.model.queries.view import Page, View, Walk, page_size
from qm.model.state.directory_rows import account_row, attribute
from qm.model.state.tables import Table
from qm.model.values.directory_objects import SEALED_PASSWORD
from qm.model.values.elements import DirectoryObjectType, OutboxKind
from qm.model.values.limits import MEMBERS_MAX
from qm.model.values.records import (
    Client,
    ClientHolder,
    Counters,
    ManagerKeys,
    MemberAddress,
    OpenQueueRow,
    OutboxRow,
    QueueManager,
    decode,
)
from qm.model.values.rows import BUCKET_BY_TIME_KEY, DEADLINE_KEY, LEASE_KEY, OUTBOX_KEY, QUEUE_KEY

_END = b"\xff" * 24


class QueueManagerInfo(msgspec.Struct, frozen=True):
    """LocalQueueManager (3.1.1.1)."""

    attributes: QueueManager
    """The record: all attributes by their names in the specification, keys sealed."""
    counters: Counters
    """High-water marks, byte totals, cluster time of the last entry."""


class ClientInfo(msgspec.Struct, frozen=True):
    """One client, known or open."""

    client_id: str
    principal: str
    is_open: bool
    epoch: int
    lease_deadline_ms: int
    """Cluster time at which its session, or the memory of it, ends."""
    lease_ms: int
    confirmed_upto: int
    highest_number: int
    unconfirmed_count: int
    unconfirmed_bytes: int


def get_client_holder(view: View, client_id: str) -> ClientHolder | None:
    """Return who opened a client's session last, None if unknown."""
    row = view.ledger.state.get(Table.OPEN, holder_key(client_id))
    return None if row is None else decode(ClientHolder, row)


class OpenInfo(msgspec.Struct, frozen=True):
    """One open queue (3.1.1.16, the replicated part)."""

    handle: int
    queue_id: int
    access: int
    """QueueAccessType."""
    share_mode: int
    """QueueShareMode."""
    client_id: str
    format_name: str
    epoch: int


class OutboxItem(msgspec.Struct, frozen=True):
    """Something to send to a peer until OutboxDone."""

    outbox_id: int
    kind: OutboxKind
    queue_manager: bytes
    address: str
    payload: bytes


def manager_keys(view: View) -> ManagerKeys:
    """Return which generation of the queue manager's key pairs is in use."""
    return view.ledger.record(Table.META, META_KEYS, ManagerKeys) or ManagerKeys()


class AccountInfo(msgspec.Struct, frozen=True):
    """A user of the directory who may log on by RPC."""

    name: str
    domain: str
    """Empty: any."""
    sid: bytes
    groups: tuple[bytes, ...]
    sealed_password: bytes
    """Empty: without one."""
    is_disabled: bool


def account(view: View, name: str) -> AccountInfo | None:
    """Return the account of a name, in any case; None if nobody has it."""
    row = account_row(view.ledger.state, name)
    if row is None:
        return None
    values = row.attributes
    return AccountInfo(
        attribute(values, "account_name", ""),
        attribute(values, "account_domain", ""),
        attribute(values, "security_identifier", b""),
        tuple(attribute(values, "groups", ())),
        attribute(values, SEALED_PASSWORD, b""),
        attribute(values, "account_disabled", False),
    )


def queue_manager(view: View) -> QueueManagerInfo | None:
    """Return the queue manager; None before Provision."""
    manager = view.ledger.manager
    if manager is None:
        return None
    return QueueManagerInfo(msgspec.structs.replace(manager), view.counters())


def member_addresses(view: View) -> dict[str, MemberAddress]:
    """Return the addresses of nodes, by name."""
    rows = view.ledger.state.scan(Table.META, META_MEMBER, META_MEMBER_END, MEMBERS_MAX)
    names = (key.removeprefix(META_MEMBER).decode() for key, _ in rows)
    return dict(zip(names, (decode(MemberAddress, row) for _, row in rows), strict=True))


def list_clients(view: View, *, after: str = "", limit: int = 100) -> Page[ClientInfo, str]:
    """Return clients by id."""
    low = client_key(after) + b"\0" if after else b""
    rows, has_more = view.rows_after(Table.CLIENT, low, _END, page_size(limit))
    items = [_client(key[:-1].decode(), decode(Client, row)) for key, row in rows]
    return Page(items, items[-1].client_id if has_more else None)


def get_client(view: View, client_id: str) -> ClientInfo | None:
    """Return one client, None if it is not known."""
    record = view.ledger.record(Table.CLIENT, client_key(client_id), Client)
    return None if record is None else _client(client_id, record)


def _client(client_id: str, record: Client) -> ClientInfo:
    return ClientInfo(
        client_id,
        record.principal,
        record.is_open,
        record.epoch,
        record.lease_deadline_ms,
        record.lease_ms,
        record.confirmed_upto,
        record.highest_number,
        record.unconfirmed_count,
        record.unconfirmed_bytes,
    )


def list_opens(
    view: View,
    *,
    after: int = 0,
    limit: int = 100,
    queue_id: int | None = None,
    client_id: str | None = None,
) -> Page[OpenInfo, int]:
    """Return open queues by handle: all, or those of a queue or of a client."""
    wanted = page_size(limit)
    low, high = OPEN_RECORD_KEY.pack(OPEN_RECORD, _following(after)), OPEN_RECORD + _END
    walk = Walk(view.ledger.state, Table.OPEN, low, high)
    items: list[OpenInfo] = []
    last = after
    for key, row in walk:
        if len(items) == wanted:
            return Page(items, last)
        last = OPEN_RECORD_KEY.unpack(key)[1]
        one = decode(OpenQueueRow, row)
        if queue_id not in (None, one.queue_id) or client_id not in (None, one.client_id):
            continue
        items.append(
            OpenInfo(
                last,
                one.queue_id,
                one.access,
                one.share_mode,
                one.client_id,
                one.format_name,
                one.epoch,
            )
        )
    return Page(items, last if walk.is_cut else None)


def list_outbox(view: View, *, after: int = 0, limit: int = 100) -> Page[OutboxItem, int]:
    """Return what is to be sent to peers, oldest first."""
    low = OUTBOX_KEY.pack(_following(after))
    rows, has_more = view.rows_after(Table.OUTBOX, low, _END, page_size(limit))
    items = []
    for key, row in rows:
        one = decode(OutboxRow, row)
        items.append(
            OutboxItem(
                OUTBOX_KEY.unpack(key)[0], one.kind, one.queue_manager, one.address, one.payload
            )
        )
    return Page(items, items[-1].outbox_id if has_more else None)


def _following(number: int) -> int:
    return min(max(number, 0) + 1, (1 << 64) - 1)


def purging_queue_ids(view: View, limit: int) -> list[int]:
    """Return queues that need a PurgeStep."""
    rows = view.ledger.state.scan(Table.PURGE, b"", _END, limit)
    return [QUEUE_KEY.unpack(key)[0] for key, _ in rows]


def is_due(view: View, since_ms: int, now_ms: int) -> bool:
    """Return whether a ClockTick at `now_ms` finds something that became due after `since_ms`.

    It reads no later times: their rows may be the tombstones of everything received before its
    deadline.
    """
    scan, counters, end = view.ledger.state.scan, view.counters(), now_ms + 1
    deadlines = DEADLINE_KEY.pack(max(since_ms, counters.deadlines_from_ms), 0, 0)
    leases = LEASE_KEY.pack(max(since_ms, counters.leases_from_ms), 0)
    memories = _bucket_due(max(since_ms, counters.memories_from_ms))
    return bool(
        scan(Table.DEADLINE, deadlines, DEADLINE_KEY.pack(end, 0, 0), 1)
        or scan(Table.LEASE, leases, LEASE_KEY.pack(end, 0), 1)
        or scan(Table.HISTORY_BUCKET, memories, _bucket_due(end), 1)
    )


def _bucket_due(at_ms: int) -> bytes:
    return BUCKET_BY_TIME_KEY.pack(b"\0", at_ms, 0, 0)


def default_time_to_reach_queue(view: View) -> int:
    """Return TimeToReachQueue in seconds for a message that sets none (3.1.1.6)."""
    return view.directory.default_time_to_live_s()


def read_directory(
    view: View,
    object_type: DirectoryObjectType,
    filters: Sequence[Filter] = (),
    *,
    attributes: Sequence[str] | None = None,
    after: bytes = b"",
    limit: int = 100,
) -> Page[DirectoryObject, bytes]:
    """Return directory objects that satisfy every filter, in the order of their rows
    (3.1.7.1.20 to .23). A page may be short, even empty, and still have a next one.
    """
    chosen = None if attributes is None else list(attributes)
    found, following = view.directory.page(
        object_type, list(filters), chosen, after, page_size(limit)
    )
    return Page(found, following)
