"""Sends: a run of messages with consecutive request numbers, each answered once."""

from collections.abc import Iterator, Sequence
from typing import Final

from qm.client.errors import (
    AccessDenied,
    ClientError,
    MqError,
    QueueNotFound,
    QuotaExceeded,
    Subject,
    Unavailable,
    check_status,
    has_ended,
    mq_error,
)
from qm.client.message import Message, Sent
from qm.client.session import Session
from qm.pb import data_pb2
from qm.wire.codes import MQ_OK, ErrorCode
from qm.wire.errors import ProtocolError
from qm.wire.packets.user_message import parse_user_message

BATCH_MESSAGES_MAX: Final = 512
BATCH_MAX_BYTES: Final = 4 << 20
"""Bodies of one request, counted once per target; a single message alone may exceed it."""
_UTF16_BYTES: Final = 2
_WRITING: Final = "WRITE_MESSAGE"


class SendRefused(MqError):
    """One message of a run was refused, and those after it were not processed.

    It is an AccessDenied, QueueNotFound or QuotaExceeded as well where its code says so.
    """

    sent: list[Sent]
    """Results of the messages before it."""


class _SendDenied(SendRefused, AccessDenied):
    pass


class _NoQueueToSendTo(SendRefused, QueueNotFound):
    pass


class _NoRoomToSend(SendRefused, QuotaExceeded):
    pass


_REFUSALS: Final[tuple[tuple[type[MqError], type[SendRefused]], ...]] = (
    (AccessDenied, _SendDenied),
    (QueueNotFound, _NoQueueToSendTo),
    (QuotaExceeded, _NoRoomToSend),
)


def send_refused(code: int, sent: Sequence[Sent], about: Subject) -> SendRefused:
    """Return the error of a message that was refused after those that were `sent`."""
    plain = mq_error(code, about=about)
    kinds = [mine for kind, mine in _REFUSALS if isinstance(plain, kind)]
    refused = (kinds[0] if kinds else SendRefused)(plain.code, str(plain), about)
    refused.sent = list(sent)
    return refused


async def send(
    session: Session,
    targets: Sequence[str],
    messages: Sequence[Message],
    transaction: bytes = b"",
) -> list[Sent]:
    """Send messages in order, each to all targets (format names). Raises ClientError."""
    sent: list[Sent] = []
    for batch in _batches(messages, targets):
        outgoing = await _outgoing(session, targets, batch, transaction)
        first = session.numbers.take(len(batch))
        request = data_pb2.SendRequest(
            request=session.request(first), messages=outgoing, transaction=transaction
        )
        if not transaction:
            session.memory.begin_send(
                session.client_id, first, request.SerializeToString(deterministic=True)
            )
        sent += await ask(session, request, sent)
    return sent


async def _outgoing(
    session: Session, targets: Sequence[str], batch: Sequence[Message], transaction: bytes
) -> list[data_pb2.OutgoingMessage]:
    """Return messages as Send takes them; those that are to be signed as signed packets."""
    outgoing = [
        data_pb2.OutgoingMessage(
            targets=targets,
            properties=message.properties(),
            application_dead_letter_queue=message.application_dead_letter_queue,
        )
        for message in batch
    ]
    signed = [place for place, message in enumerate(batch) if message.authentication_level]
    if not signed:
        return outgoing
    request = data_pb2.ComposeRequest(
        messages=[outgoing[place] for place in signed], transaction=transaction
    )
    reply = await session.wire.call(lambda stubs: stubs.data.Compose, request)
    for place, packet in zip(signed, reply.packets, strict=True):
        signer = batch[place].signer
        if signer is None:
            raise MqError(ErrorCode.MQ_ERROR_CERTIFICATE_NOT_PROVIDED, "a signer is needed")
        outgoing[place].packet = signer.signed(packet, batch[place])
    return outgoing


async def ask(
    session: Session, request: data_pb2.SendRequest, before: Sequence[Sent] = ()
) -> list[Sent]:
    """Make a request with numbers of its own; it takes effect once, however often it is sent."""
    first, count = request.request.number, len(request.messages)
    session.interrupted.pop(first, None)
    is_known = False
    try:
        reply = await _call(session, request)
        is_known = True
    except ClientError as error:
        is_known = not isinstance(error, Unavailable)
        raise
    finally:
        if is_known:
            session.memory.end_send(session.client_id, first)
        if is_known or not session.memory.is_kept or request.transaction:
            session.numbers.finish(first, count)
        else:
            # This client repeats it, or its next process, and needs the result.
            session.interrupted[first] = request
    sent: list[Sent] = []
    for message, result in zip(request.messages, reply.results, strict=False):
        if result.status != MQ_OK:
            about = Subject(
                queue=message.targets[min(len(result.places), len(message.targets) - 1)],
                right=_WRITING,
                principal=session.principal,
                quota=result.quota,
            )
            raise send_refused(result.status, [*before, *sent], about)
        places = tuple((place.queue_id, place.lookup_identifier) for place in result.places)
        sent.append(Sent(result.message_id, places))
    return sent


async def _call(session: Session, request: data_pb2.SendRequest) -> data_pb2.SendReply:
    """Make the call; a session that ended meanwhile is reopened and knows its answered numbers."""
    try:
        return await session.wire.call(lambda stubs: stubs.data.Send, request)
    except MqError as error:
        if not has_ended(error) or request.transaction:
            raise
    await session.resume()
    return await session.wire.call(lambda stubs: stubs.data.Send, request)


def _batches(messages: Sequence[Message], targets: Sequence[str]) -> Iterator[list[Message]]:
    """Yield the messages of each call; every target gets a packet, which lists all targets."""
    batch: list[Message] = []
    size, copies = 0, len(targets)
    listed = _UTF16_BYTES * sum(map(len, targets)) if copies > 1 else 0
    for message in messages:
        more = copies * (listed + len(message.body))
        if batch and (len(batch) == BATCH_MESSAGES_MAX or size + more > BATCH_MAX_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += more
    if batch:
        yield batch


async def send_packet(
    session: Session, targets: Sequence[str], packet: bytes, transaction: bytes = b""
) -> None:
    """Send a packet as a new message with its properties. Raises ClientError."""
    reply = await session.once(
        lambda stubs: stubs.data.Send,
        lambda request: data_pb2.SendRequest(
            request=request,
            messages=[data_pb2.OutgoingMessage(targets=targets, packet=packet)],
            transaction=transaction,
        ),
    )
    for result in reply.results:
        check_status(result.status)


def is_transactional(packet: bytes) -> bool:
    """Whether a packet is a message of a transaction; not if it is none at all."""
    try:
        message, _ = parse_user_message(packet, 0, len(packet))
    except ProtocolError:
        return False  # the node reports what is wrong with it
    return message.transaction is not None
