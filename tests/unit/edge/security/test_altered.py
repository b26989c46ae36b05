"""A message that was altered in any signed field is refused, from the socket to the queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from qm.model.values import commands
from qm.model.values.limits import APPLY_VERSION
from qm.security.signature_input import SignatureVersion
from qm.wire.packets.user_message import UserMessage
from qm.wire.structures.queue_name import DirectQueueFormatName
from tests.unit.edge.security.people import ALICE, Keys, Table, certificate, plain, signed, written
from tests.unit.edge.world import run
from tests.unit.edge.world import world as edge_world
from tests.unit.model.world import HOST

Alteration = Callable[[UserMessage], UserMessage]
ELSEWHERE = DirectQueueFormatName("OS:evil\\answers")
OTHER_NAME = DirectQueueFormatName(f"OS:{HOST}.example\\orders")
"""Of the same queue."""


def of_header(**fields: Any) -> Alteration:
    return lambda message: replace(message, user_header=replace(message.user_header, **fields))


def of_properties(**fields: Any) -> Alteration:
    return lambda message: replace(message, properties=replace(message.properties, **fields))


def of_list(message: UserMessage) -> UserMessage:
    lists = message.multi_queue_format
    assert lists is not None
    return replace(message, multi_queue_format=replace(lists, destination=(ELSEWHERE,)))


def without_list(message: UserMessage) -> UserMessage:
    """Move the signature to where versions 1.0 and 2.0 have it, over other fields."""
    lists, security = message.multi_queue_format, message.security
    assert lists is not None
    assert security is not None
    security = replace(security, signature=lists.signature)
    return replace(message, multi_queue_format=None, security=security)


COMMON = {
    "CorrelationID": of_properties(correlation_id=bytes(19) + b"\1"),
    "ApplicationTag": of_properties(application_tag=77),
    "MessageBody": of_properties(message_body=b"Pay 900 to Bob."),
    "MessageBody, longer": of_properties(message_body=b"Pay 100 to Bob.\0"),
    "Label": of_properties(label="another"),
    "Label, absent": of_properties(label=None),
    "ResponseQueue": of_header(response_queue=ELSEWHERE),
    "ResponseQueue, absent": of_header(response_queue=None),
    "AdminQueue": of_header(admin_queue=ELSEWHERE),
}
OPTIONS = {
    "SourceQueueManager": of_header(source_queue_manager=b"EVIL" * 4),
    "DM": of_header(is_recoverable=True),
    "PR": lambda message: replace(message, priority=7),
    "JP": of_header(has_positive_journaling=True),
    "JN": of_header(has_negative_journaling=True),
    "Flags": of_properties(flags=3),
    "MessageClass": of_properties(message_class=1),
    "BodyType": of_properties(body_type=8),
    "ConnectorType": of_header(connector_type=b"\1" * 16),
}
SIGNED_FIELDS: dict[SignatureVersion, dict[str, Alteration]] = {
    SignatureVersion.MSMQ_1: COMMON,
    SignatureVersion.MSMQ_2: COMMON
    | OPTIONS
    | {"DestinationQueue": of_header(destination_queue=OTHER_NAME)},
    SignatureVersion.MSMQ_3: COMMON
    | OPTIONS
    | {
        "ExtensionData": of_properties(extension_data=b"more"),
        "FormatNameList": of_list,
        "the list itself": without_list,
    },
}


def whole(ordinal: int) -> UserMessage:
    """Return a message that has every field that is signed."""
    return plain(
        ordinal,
        properties={"label": "a payment", "application_tag": 5, "flags": 0, "body_type": 0x2011},
        response_queue=DirectQueueFormatName("OS:alice\\answers"),
        admin_queue=DirectQueueFormatName("OS:alice\\acks"),
    )


def altered(version: SignatureVersion) -> Iterator[UserMessage]:
    for ordinal, alter in enumerate(SIGNED_FIELDS[version].values(), 1):
        yield alter(signed(whole(ordinal), version))


@pytest.mark.parametrize("version", SignatureVersion, ids=lambda version: version.name)
@pytest.mark.parametrize("authentication", [True, False])
def test_a_message_altered_in_any_signed_field_is_refused(
    version: SignatureVersion, authentication: bool
) -> None:
    """Also where a queue asks for no signature: one that is there must be right."""

    async def scenario() -> None:
        directory = Table()
        directory.register(ALICE, certificate())
        async with edge_world(directory=directory, keys=Keys()) as w:
            w.consensus.one(commands.RaiseApplyVersion(APPLY_VERSION))
            queue = w.consensus.create("orders", authentication=authentication)
            peer = await w.peer()
            bad = [written(message) for message in altered(version)]
            last = len(bad) + 1
            peer.send(*bad, written(signed(whole(last), version)))
            await peer.acknowledged(*range(1, last + 1))
            assert w.consensus.ids(queue) == [last]
            assert w.metric("quorate_signatures_total", result="invalid") == len(bad)
            assert w.metric("quorate_signatures_total", result="valid") == 1

    run(scenario())
