"""Hypothesis strategies for every value of qm.wire's packets; import them wherever one is needed.

Each produces only what `parse` can return, which is exactly what `write` accepts.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from qm.wire.headers.base_header import BaseHeader
from qm.wire.headers.debug_header import DebugHeader
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.multi_queue_format import DistributionQueueFormatName, MultiQueueFormatHeader
from qm.wire.headers.security_header import ProviderInfo, SecurityHeader
from qm.wire.headers.session_header import SessionHeader
from qm.wire.headers.soap_header import SoapHeader
from qm.wire.headers.transaction_header import TransactionHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.message_class import MessageClass
from qm.wire.packets.ack import ORDER_QUEUE, FinalAck, OrderAck
from qm.wire.packets.internal import ConnectionParameters, EstablishConnection, SessionAck
from qm.wire.packets.packet import Packet
from qm.wire.packets.ping import Ping
from qm.wire.packets.user_message import UserMessage
from qm.wire.structures.identifiers import TxSequenceId
from qm.wire.structures.queue_name import (
    DirectQueueFormatName,
    PrivateQueueFormatName,
    PrivateQueueFormatNameId,
    PublicQueueFormatName,
    QueueHost,
    SameAsAdminQueue,
)

u8 = st.integers(0, 0xFF)
u16 = st.integers(0, 0xFFFF)
u32 = st.integers(0, 0xFFFF_FFFF)
guids = st.binary(min_size=16, max_size=16)
priorities = st.integers(0, 7)


def _is_canonical(text: str) -> bool:
    encoded = text.encode("utf-16-le", "surrogatepass")
    return encoded.decode("utf-16-le", "surrogatepass") == text


def wide_texts(max_units: int) -> st.SearchStrategy[str]:
    """Any WCHARs but NUL: unpaired surrogates too, but no pair spelled as two."""
    characters = st.characters(min_codepoint=1, exclude_categories=())
    return st.text(characters, max_size=max_units // 2).filter(_is_canonical)


tx_sequence_ids = st.builds(TxSequenceId, time_stamp=u32, ordinal=u32)

public_names = st.builds(PublicQueueFormatName, guids)
private_names = st.builds(PrivateQueueFormatName, guids, u32)
direct_names = st.builds(
    DirectQueueFormatName,
    st.one_of(
        wide_texts(40), st.sampled_from(["OS:host\\q", "TCP:10.0.0.5\\private$\\orders", "x" * 200])
    ),
)


def private_ids(host: QueueHost) -> st.SearchStrategy[PrivateQueueFormatNameId]:
    return st.builds(PrivateQueueFormatNameId, st.just(host), u32)


destinations = st.one_of(st.none(), private_ids(QueueHost.DESTINATION), public_names, direct_names)
admin_queues = st.one_of(
    st.none(),
    private_ids(QueueHost.SOURCE),
    private_ids(QueueHost.DESTINATION),
    public_names,
    private_names,
    direct_names,
)
response_queues = st.one_of(admin_queues, private_ids(QueueHost.ADMIN), st.builds(SameAsAdminQueue))

base_headers = st.builds(
    BaseHeader,
    packet_size=st.integers(20, 0x40_0000),
    time_to_reach_queue=u32,
    priority=priorities,
    has_session_header=st.booleans(),
    has_debug_header=st.just(True),
    is_traced=st.booleans(),
    reserved=u8,
) | st.builds(
    BaseHeader,
    packet_size=st.integers(20, 0x40_0000),
    time_to_reach_queue=u32,
    priority=priorities,
    is_internal=st.booleans(),
    has_session_header=st.booleans(),
    reserved=u8,
)

user_headers = st.builds(
    UserHeader,
    source_queue_manager=guids,
    destination_queue=destinations,
    queue_manager_address=guids,
    time_to_be_received=u32,
    sent_time=u32,
    message_id=u32,
    admin_queue=admin_queues,
    response_queue=response_queues,
    connector_type=st.none() | guids,
    hop_count=st.integers(0, 31),
    is_recoverable=st.booleans(),
    has_negative_journaling=st.booleans(),
    has_positive_journaling=st.booleans(),
)

transaction_headers = st.builds(
    TransactionHeader,
    tx_sequence_id=tx_sequence_ids,
    tx_sequence_number=st.integers(1, 0xFFFF_FFFF),
    previous_tx_sequence_number=st.integers(0, 0xFFFF_FFFE),
    transaction_id=st.integers(0, 0xF_FFFF),
    is_final_ack_wanted=st.booleans(),
    is_first=st.booleans(),
    is_last=st.booleans(),
    connector_qm_guid=st.none() | guids,
)

_items = st.binary(max_size=40)
security_headers = st.builds(
    SecurityHeader,
    sender_id_type=st.integers(1, 2),
    is_body_encrypted=st.booleans(),
    is_default_provider=st.booleans(),
    security_id=st.binary(min_size=1, max_size=40),
    encryption_key=_items,
    signature=_items,
    sender_cert=_items,
    provider_info=_items,
) | st.builds(
    SecurityHeader,
    sender_id_type=st.integers(0, 2),
    encryption_key=_items,
    signature=st.binary(min_size=1, max_size=40),
    provider_info=_items,
)

provider_infos = st.builds(ProviderInfo, u32, wide_texts(60))


@st.composite
def _properties(draw: st.DrawFn) -> MessagePropertiesHeader:
    return MessagePropertiesHeader(
        message_body=draw(st.binary(max_size=80)),
        label=draw(st.none() | wide_texts(60)),
        message_class=draw(u16),
        flags=draw(st.integers(0, 15)),
        correlation_id=draw(st.binary(min_size=20, max_size=20)),
        body_type=draw(u32),
        application_tag=draw(u32),
        allocation_surplus_bytes=draw(st.sampled_from([0, 0, 1, 16, 1000])),
        privacy_level=draw(u32),
        hash_algorithm=draw(u32),
        encryption_algorithm=draw(u32),
        extension_data=draw(st.binary(max_size=40)),
    )


message_properties = _properties()

debug_headers = st.builds(DebugHeader, st.none() | guids)
soap_headers = st.builds(SoapHeader, st.none() | wide_texts(40), st.none() | wide_texts(40))

format_name_elements = st.one_of(
    public_names,
    private_names,
    direct_names,
    st.builds(DistributionQueueFormatName, guids),
)
_lists = st.lists(format_name_elements, max_size=4).map(tuple)
multi_queue_format_headers = st.builds(
    MultiQueueFormatHeader, _lists, _lists, _lists, st.binary(max_size=30)
)

session_headers = st.builds(SessionHeader, u16, u16, u32, u16, u16, st.integers(1, 0xFFFF), u16)


@st.composite
def _user_messages(draw: st.DrawFn) -> UserMessage:
    transaction = draw(st.none() | transaction_headers)
    debug = draw(st.none() | debug_headers)
    user_header = draw(user_headers)
    if transaction is not None and not user_header.is_recoverable:
        user_header = draw(user_headers.filter(lambda header: header.is_recoverable))
    return UserMessage(
        user_header=user_header,
        properties=draw(message_properties),
        transaction=transaction,
        security=draw(st.none() | security_headers),
        debug=debug,
        soap=draw(st.none() | soap_headers),
        multi_queue_format=draw(st.none() | multi_queue_format_headers),
        session=draw(st.none() | session_headers),
        priority=0 if transaction is not None else draw(priorities),
        time_to_reach_queue=draw(u32),
        is_traced=debug is not None and draw(st.booleans()),
        base_reserved=draw(u8),
    )


user_messages = _user_messages()

establish_connections = st.builds(
    EstablishConnection,
    client_guid=guids,
    server_guid=guids,
    time_stamp=u32,
    is_ping_skipped=st.booleans(),
    is_server_class=st.booleans(),
    has_quality_of_service=st.booleans(),
    is_refused=st.booleans(),
    padding=st.sampled_from([b"\x5a" * 512, bytes(range(256)) * 2]),
    priority=priorities,
    base_reserved=u8,
)

connection_parameters = st.builds(
    ConnectionParameters,
    recoverable_ack_timeout=st.integers(500, 120_000),
    ack_timeout=st.integers(20_000, 120_000),
    window_size=u16,
    is_refused=st.booleans(),
    priority=priorities,
    base_reserved=u8,
)

session_acks = st.builds(SessionAck, session_headers, priorities, u8)

_order_queues = st.just(ORDER_QUEUE) | st.sampled_from(
    ["TCP:10.0.0.5\\PRIVATE$\\order_queue$", "os:host\\private$\\ORDER_QUEUE$"]
).map(DirectQueueFormatName)


def _acks(
    of: Callable[..., OrderAck] | Callable[..., FinalAck], **more: st.SearchStrategy[object]
) -> st.SearchStrategy[object]:
    return st.builds(
        of,
        source_queue_manager=guids,
        queue_manager_address=guids,
        destination_queue=_order_queues,
        sent_time=u32,
        message_id=u32,
        tx_sequence_id=tx_sequence_ids,
        tx_sequence_number=st.integers(1, 0xFFFF_FFFF),
        tx_previous_sequence_number=st.integers(0, 0xFFFF_FFFE),
        time_to_be_received=u32,
        hop_count=st.integers(0, 31),
        is_recoverable=st.booleans(),
        base_reserved=u8,
        **more,
    )


order_acks = _acks(OrderAck)
final_acks = _acks(
    FinalAck,
    message_class=st.integers(0x4000, 0xFFFF)
    | st.sampled_from([MessageClass.ACK_RECEIVE, MessageClass.NACK_Q_PURGED]),
    acknowledged_source=guids,
    acknowledged_message_id=u32,
)

pings = st.builds(Ping, u32, guids, st.booleans(), st.booleans(), st.integers(0, 0x3FFF))

packets: st.SearchStrategy[Packet] = st.one_of(
    user_messages,
    order_acks,
    final_acks,
    session_acks,
    establish_connections,
    connection_parameters,
)
