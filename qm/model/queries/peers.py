"""Other queue managers, as far as anything of them is remembered (3.1.1.5)."""

from ipaddress import ip_network

import msgspec

from qm.model.arrivals.duplicates import ADDRESS_PREFIX, SOURCE_ADDRESS, SOURCE_PREFIX
from qm.model.arrivals.message_security import META_SECURITY
from qm.model.queries.incoming import IncomingSequence, sequences_of
from qm.model.queries.view import Page, View, Walk, page_size
from qm.model.state.bindings import BINDING, META_BINDINGS, Bindings
from qm.model.state.outgoing_queues import claims_of, peers_of
from qm.model.state.tables import Table
from qm.model.values.elements import BindingMode
from qm.model.values.limits import SETTLED_PER_COMMAND_MAX
from qm.model.values.records import (
    AddressUse,
    Binding,
    BindingPolicy,
    FinalClaim,
    SecurityPolicy,
    Source,
    decode,
)
from qm.names.guid import GUID_SIZE_BYTES, guid_text

_SOURCES_END = bytes((SOURCE_PREFIX[0] + 1,))


class PeerInfo(msgspec.Struct, frozen=True):
    """One queue manager of which messages are remembered."""

    queue_manager: bytes
    address: str
    """Where its GUID is bound to, "" if it is not."""
    since_ms: int
    """Cluster time since which it is bound there."""
    heard_ms: int
    """Cluster time at which it was heard from there last, in steps of BINDING_GRAIN_MS."""
    pins: tuple[str, ...]
    """Networks that the configuration pins it to."""
    counted_at: str
    """Address against whose quotas it counts, "" if it is older than these."""
    stream_count: int
    """Destination names that it sent to."""
    history_row_count: int


class AddressUseInfo(msgspec.Struct, frozen=True):
    """What is remembered because of sessions from one address."""

    address: str
    source_count: int
    stream_count: int


def list_address_uses(
    view: View, *, after: str = "", limit: int = 100
) -> Page[AddressUseInfo, str]:
    """Return addresses in order, and what counts there."""
    low = ADDRESS_PREFIX + after.encode() + (b"\0" if after else b"")
    end = bytes((ADDRESS_PREFIX[0] + 1,))
    rows, has_more = view.rows_after(Table.STREAM, low, end, page_size(limit))
    items = []
    for key, row in rows:
        use = decode(AddressUse, row)
        items.append(AddressUseInfo(key[1:].decode(), use.source_count, use.stream_count))
    return Page(items, items[-1].address if has_more else None)


def binding_policy(view: View) -> BindingPolicy | None:
    """Return how GUIDs are bound to addresses, None if no leader has said so yet."""
    return view.ledger.record(Table.META, META_BINDINGS, BindingPolicy)


def claims_that_hold(view: View, above: int) -> tuple[list[tuple[int, FinalClaim]], int]:
    """Return final acks that were kept and can be believed by now, with the ordinals of their
    messages, and the ordinal above which to look next: 0 when all were looked at.
    """
    state, bindings = view.ledger.state, Bindings(view.ledger)
    claims = claims_of(state, above, SETTLED_PER_COMMAND_MAX)
    hold = [
        (ordinal, claim)
        for ordinal, claim in claims
        if bindings.may_answer(peers_of(state, claim.queue_id), claim.queue_manager, claim.address)
    ]
    return hold, claims[-1][0] if len(claims) == SETTLED_PER_COMMAND_MAX else 0


def security_policy(view: View) -> SecurityPolicy | None:
    """Return what signatures, claims and ciphers are worth, None if no leader has said so yet."""
    return view.ledger.record(Table.META, META_SECURITY, SecurityPolicy)


def list_peers(
    view: View, *, after: bytes = b"", limit: int = 100, address: str = ""
) -> Page[PeerInfo, bytes]:
    """Return queue managers by ascending GUID, only those bound to or counted at an address if one
    is given. A page may be short and still have a next one.
    """
    pins = _pins(view)
    low = SOURCE_PREFIX + after + b"\0" if after else SOURCE_PREFIX
    walk = Walk(view.ledger.state, Table.STREAM, low, _SOURCES_END)
    items: list[PeerInfo] = []
    last = after
    for key, row in walk:
        if len(items) == page_size(limit):
            return Page(items, last)
        last = key[1:]
        info = _info(view, last, decode(Source, row), pins)
        if not address or address in (info.address, info.counted_at):
            items.append(info)
    return Page(items, last if walk.is_cut else None)


def get_peer(view: View, queue_manager: bytes) -> PeerInfo | None:
    """Return one queue manager, None if nothing of it is remembered."""
    if len(queue_manager) != GUID_SIZE_BYTES:
        return None
    source = view.ledger.record(Table.STREAM, SOURCE_PREFIX + queue_manager, Source)
    return None if source is None else _info(view, queue_manager, source, _pins(view))


def peer_sequences(
    view: View, queue_manager: bytes, *, after: bytes = b"", limit: int = 100
) -> Page[IncomingSequence, bytes]:
    """Return the incoming sequences of a queue manager, by destination name; a page may be short
    and still have a next one.
    """
    return sequences_of(view, queue_manager, after=after, limit=limit)


def _pins(view: View) -> dict[str, tuple[str, ...]]:
    """Return the networks of each pinned GUID, by its text."""
    policy = binding_policy(view)
    found: dict[str, tuple[str, ...]] = {}
    if policy is not None and policy.mode is not BindingMode.OFF:
        for pin in policy.pins:
            text, _, network = pin.partition(" ")
            found[text] = (*found.get(text, ()), str(ip_network(network)))
    return found


def _info(
    view: View, queue_manager: bytes, source: Source, pins: dict[str, tuple[str, ...]]
) -> PeerInfo:
    ledger = view.ledger
    binding = ledger.record(Table.STREAM, BINDING + queue_manager, Binding) or Binding("", 0, 0)
    counted_at = ledger.state.get(Table.STREAM, SOURCE_ADDRESS + queue_manager) or b""
    return PeerInfo(
        queue_manager,
        binding.address,
        binding.since_ms,
        binding.heard_ms,
        pins.get(guid_text(queue_manager), ()),
        counted_at.decode(),
        source.stream_count,
        source.history_row_count,
    )
