"""Messages that clients send to queues of their own cluster, signed and encrypted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from grpc import StatusCode
from msgspec.structs import replace

from qm.api.gate.identity import Role, principal_sid
from qm.client.calls import Tls
from qm.client.client import Client
from qm.client.errors import MqError
from qm.client.message import Message, PacketSigner, ReceivedMessage
from qm.client.signing import AuthenticationLevel, Signer, new_signer
from qm.model.messages.packets import deserialize_message_from_buffer
from qm.model.queries import security_policy
from qm.node.config.schema import API_PORT, MsmqSection
from qm.pb import control_pb2 as pb
from qm.pb import data_pb2
from qm.security.providers import Provider
from qm.security.signature_input import SignatureVersion
from qm.wire.codes import ErrorCode
from qm.wire.headers.security_header import (
    SENDER_ID_NONE,
    SENDER_ID_SID,
    ProviderInfo,
    SecurityHeader,
    write_provider_info,
)
from qm.wire.packets.user_message import UserMessage, parse_user_message, write_user_message
from tests.cluster.harness import Harness, cluster, run, until, with_sections
from tests.cluster.messages import create_queue
from tests.unit.api.world import refused
from tests.unit.api.world import world as api_world
from tests.unit.edge.security.people import BOB, encrypted
from tests.unit.model.world import packet

LEVELS = {
    AuthenticationLevel.SIG10: 1,
    AuthenticationLevel.SIG20: 3,
}
"""With what AS is then."""
SIGNER = new_signer("alice", 2048, 30)
SIGNED, SECRET, OPEN = (f".\\private$\\{name}" for name in ("signed", "secret", "open"))
Change = Callable[[UserMessage], UserMessage]


class Meddler:
    """Signs, and then changes the packet."""

    def __init__(self, change: Change, signer: Signer = SIGNER) -> None:
        self._change = change
        self._signer = signer

    @property
    def certificate(self) -> bytes:
        return self._signer.certificate

    def signed(self, packet: bytes, message: Message) -> bytes:
        made = self._signer.signed(packet, message)
        return write_user_message(self._change(parse_user_message(made, 0, len(made))[0]))


def client(nodes: Harness, name: str, role: Role) -> Client:
    files = nodes.certificate(name, role)
    endpoints = [f"{node.host}:{API_PORT}" for node in nodes.nodes.values()]
    return Client(endpoints, tls=Tls(files.authority, files.certificate, files.key))


@asynccontextmanager
async def alice(trusts: bool = False) -> AsyncIterator[tuple[Client, Harness]]:
    """A client whose certificate is registered, of a cluster of one node."""
    change = with_sections(msmq=MsmqSection(trust_sender_id=trusts))
    async with cluster(1, change=change) as nodes, client(nodes, "alice", Role.CLIENT) as made:
        leader = await nodes.leader()
        await create_queue(leader, "signed", authentication=True)
        await create_queue(leader, "secret", privacy_level=2)
        await create_queue(leader, "open")
        request = pb.RegisterCertificateRequest(certificate=SIGNER.certificate)
        await made.main.wire.call(lambda stubs: stubs.certificates.Register, request)
        yield made, nodes


def message(level: int = AuthenticationLevel.SIG20, **fields: object) -> Message:
    signer: PacketSigner = SIGNER
    return Message(body=b"x", authentication_level=level, **({"signer": signer} | fields))  # type: ignore[arg-type]


async def received(client: Client, queue: str) -> ReceivedMessage:
    found = await (await client.open_queue(queue)).receive(timeout_s=10)
    assert found is not None
    return found


@pytest.mark.spec("QB-3.1.5.8.3-02", "QB-3.1.5.8.3-03", "QB-3.1.5.8.3-04")
def test_a_signed_message_reaches_a_queue_that_asks_for_signatures() -> None:
    async def scenario() -> None:
        async with alice() as (sender, _):
            for level, version in LEVELS.items():
                await sender.send(SIGNED, message(level))
                found = await received(sender, SIGNED)
                assert found.authentication_level == version
                assert found.sender_id == principal_sid("alice")
                assert found.sender_certificate == SIGNER.certificate
            await sender.send([SIGNED, OPEN], message(AuthenticationLevel.SIG30))
            for queue in (SIGNED, OPEN):
                found = await received(sender, queue)
                assert found.authentication_level == 5
            with pytest.raises(MqError) as unsigned:
                await sender.send(SIGNED, Message(body=b"x"))
            assert unsigned.value.code == ErrorCode.MQ_ERROR_MESSAGE_NOT_AUTHENTICATED

    run(scenario())


def signed_twice(found: UserMessage) -> UserMessage:
    """A good signature of the lists, and another one beside it that is none."""
    assert found.security is not None
    assert found.multi_queue_format is not None
    size = len(found.multi_queue_format.signature)
    return replace(found, security=replace(found.security, signature=bytes(size)))


@pytest.mark.spec("QB-3.1.5.8.3-04")
def test_the_signature_of_the_lists_counts_only_if_it_is_the_only_one() -> None:
    async def scenario() -> None:
        async with alice() as (sender, _):
            for signer in (Meddler(signed_twice), SIGNER):
                await sender.send([OPEN, OPEN], message(AuthenticationLevel.SIG30, signer=signer))
                for _copy in range(2):
                    found = await received(sender, OPEN)
                    assert found.authentication_level == (5 if signer is SIGNER else 0)

    run(scenario())


def altered(found: UserMessage) -> UserMessage:
    return replace(found, properties=replace(found.properties, message_body=b"y"))


@pytest.mark.parametrize(
    "signer",
    [Meddler(altered), new_signer("mallory", 1024, 30)],
    ids=["altered", "another certificate"],
)
def test_a_bad_signature_is_refused_where_one_is_asked_for(signer: PacketSigner) -> None:
    """Elsewhere it is worth nothing, like none."""

    async def scenario() -> None:
        async with alice() as (sender, _):
            with pytest.raises(MqError) as refused:
                await sender.send(SIGNED, message(signer=signer))
            assert refused.value.code == ErrorCode.MQ_ERROR_CORRUPTED_SECURITY_DATA
            assert await (await sender.open_queue(SIGNED)).receive(timeout_s=0) is None
            await sender.send(OPEN, message(signer=signer))
            assert (await received(sender, OPEN)).authentication_level == 0

    run(scenario())


def test_a_signature_by_a_hash_that_does_not_count_authenticates_nothing() -> None:
    async def scenario() -> None:
        async with alice() as (sender, _):
            with pytest.raises(MqError) as refused:
                await sender.send(SIGNED, message(hash_algorithm=0x8004))
            assert refused.value.code == ErrorCode.MQ_ERROR_MESSAGE_NOT_AUTHENTICATED
            await sender.send(OPEN, message(hash_algorithm=0x8004))
            assert (await received(sender, OPEN)).authentication_level == 0

    run(scenario())


def test_a_body_that_a_client_encrypted_for_this_queue_manager_is_stored_in_clear() -> None:
    async def scenario() -> None:
        async with alice() as (sender, nodes):
            keys = (await nodes.leader()).service.keys
            await until(lambda: keys.exchange_keys(Provider.ADVANCED))
            own = keys.exchange_keys(Provider.ADVANCED)[0]
            signer = Meddler(lambda made: encrypted(made, own))
            await sender.send(SECRET, message(signer=signer))
            found = await received(sender, SECRET)
            assert (found.body, found.was_encrypted) == (b"x", True)
            assert found.authentication_level == SignatureVersion.MSMQ_2

    run(scenario())


@pytest.mark.spec("DM-3.1.1.12-46")
def test_a_connector_application_brings_signature_and_key_of_its_own() -> None:
    """Nobody else may, and nobody takes them for proven."""
    own = {"signature": b"its signature", "destination_symmetric_key": b"its key"}

    async def scenario() -> None:
        async with api_world() as made:
            node = await made.leader()
            await create_queue(node.node, "open")
            async with made.client(node) as sender:
                for name, value in own.items():
                    with refused(StatusCode.FAILED_PRECONDITION, "MQ_ERROR_MISSING_CONNECTOR_TYPE"):
                        await sender.send(OPEN, b"x", privacy_level=3, **{name: value})
                results = await sender.send(
                    OPEN, b"x", connector_type=b"c" * 16, privacy_level=3, **own
                )
                assert [one.status for one in results] == [0]
                reply = await sender.receive(await sender.open(OPEN))
                (found,) = reply.messages.properties
                assert found.signature == own["signature"]
                assert found.destination_symmetric_key == own["destination_symmetric_key"]
                assert found.authentication_level == 0

    run(scenario())


@pytest.mark.spec("DM-3.1.1.12-46")
def test_a_connector_application_names_a_provider_of_its_own() -> None:
    own = SecurityHeader(
        signature=b"its signature.",
        sender_cert=b"its certificate.",
        provider_info=write_provider_info(ProviderInfo(77, "Provider of its own")),
    )
    given = packet(0, to="private$\\open", security=own, connector_type=b"c" * 16)

    async def scenario() -> None:
        async with api_world() as made:
            node = await made.leader()
            await create_queue(node.node, "open")
            async with made.client(node) as sender:
                outgoing = data_pb2.OutgoingMessage(targets=[OPEN], packet=given)
                await sender.data.Send(
                    data_pb2.SendRequest(request=sender.next(), messages=[outgoing])
                )
                reply = await sender.receive(await sender.open(OPEN))
                found = deserialize_message_from_buffer(reply.messages.packets)
                assert found.authentication_provider_type == 77
                assert found.authentication_provider_name == "Provider of its own"
                assert (found.signature, found.connector_type_identifier) == (
                    own.signature,
                    b"c" * 16,
                )
                (properties,) = reply.messages.properties
                assert properties.authentication_level == 0

    run(scenario())


def as_bob(found: UserMessage) -> UserMessage:
    return replace(found, security=SecurityHeader(SENDER_ID_SID, security_id=BOB))


def unsigned(found: UserMessage) -> UserMessage:
    assert found.security is not None
    return replace(found, security=replace(found.security, signature=b""))


def test_a_client_cannot_name_another_sender_where_names_are_believed() -> None:
    """Receivers that trust_sender_id would take the message for Bob's."""

    async def scenario() -> None:
        async with alice(trusts=True) as (sender, nodes):
            leader = await nodes.leader()
            await until(lambda: security_policy(leader.cluster.view) is not None)
            elsewhere = "DIRECT=TCP:127.9.9.9\\private$\\q"
            for queue in (OPEN, elsewhere):
                with pytest.raises(MqError) as refused:
                    await sender.send(queue, message(signer=Meddler(as_bob)))
                assert refused.value.code == ErrorCode.MQ_ERROR_ACCESS_DENIED
            await sender.send(OPEN, message(signer=Meddler(unsigned)))
            found = await received(sender, OPEN)
            assert (found.authentication_level, found.sender_id) == (0, principal_sid("alice"))

    run(scenario())


@pytest.mark.spec("DM-3.1.1.12-42")
def test_an_unsigned_message_names_its_sender_if_the_caller_wants_it() -> None:
    async def scenario() -> None:
        async with alice() as (sender, _):
            await sender.send(OPEN, Message(body=b"x", names_sender=True), Message(body=b"y"))
            named, plain = [await received(sender, OPEN) for _ in range(2)]
            assert (named.authentication_level, named.sender_id) == (0, principal_sid("alice"))
            assert plain.wire.security is None or (
                plain.wire.security.sender_id_type == SENDER_ID_NONE
            )

    run(scenario())
