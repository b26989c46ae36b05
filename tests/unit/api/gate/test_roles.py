"""Who may do what: certificates, roles, SIDs, access lists, the insecure mode."""

import re
from pathlib import Path

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from prometheus_client import CollectorRegistry

from qm.api.gate.delegation import Delegation
from qm.api.gate.events import EventLog
from qm.api.gate.identity import (
    Role,
    Unauthenticated,
    authenticate,
    principal_of,
    principal_sid,
    role_uri,
)
from qm.api.gate.operations import NoConsole
from qm.api.gate.roles import RULES, rule_of
from qm.api.server import ApiConfig, ApiServer, is_loopback
from qm.node.membership.birth import protection
from qm.observe.metrics import Metrics
from qm.pb import control_pb2, data_pb2
from qm.security.sid import ADMINISTRATORS, sid_text
from tests.cluster.harness import run
from tests.unit.api.test_control import Operator
from tests.unit.api.test_data import ORDERS, PATH, create
from tests.unit.api.world import bodies, refused, world

DENIED = grpc.StatusCode.PERMISSION_DENIED
ROOT = Path(__file__).resolve().parents[4]
_CLUSTER_CONTROL = "/quorate.control.v1.ClusterControl/"


def names(common_name: str, *alternative: str) -> dict[str, list[bytes]]:
    return {
        "x509_common_name": [common_name.encode()],
        "peer_uri": [name.encode() for name in alternative],
    }


def test_every_method_has_a_row_and_no_row_is_without_method() -> None:
    files = (data_pb2.DESCRIPTOR, control_pb2.DESCRIPTOR)
    methods = {
        f"/{service.full_name}/{method.name}"
        for file in files
        for service in file.services_by_name.values()
        for method in service.methods
    }
    assert methods == RULES.keys()
    assert rule_of("/somebody.else/Call") is None


def test_nodes_may_call_what_the_page_says_and_nothing_else() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| node \| (.+) \|$", page, re.MULTILINE)
    allowed = {name for name, rule in RULES.items() if Role.NODE in rule.roles}
    assert {f"{_CLUSTER_CONTROL}{method}" for method in re.findall(r"`(\w+)`", row)} == allowed


def test_a_certificate_names_a_principal_and_one_role() -> None:
    who = authenticate(names("alice", "n1", role_uri(Role.CLIENT)))
    assert (who.name, who.role) == ("alice", Role.CLIENT)
    assert who.sids == (principal_sid("alice"),)
    assert ADMINISTRATORS in authenticate(names("root", role_uri(Role.ADMIN))).sids
    for wrong in (
        names("alice"),
        names("alice", role_uri(Role.CLIENT), role_uri(Role.ADMIN)),
        names("alice", "quorate:role/king"),
        names("", role_uri(Role.CLIENT)),
        names("x" * 65, role_uri(Role.CLIENT)),
        names("a\nb", role_uri(Role.CLIENT)),
        {},
    ):
        with pytest.raises(Unauthenticated):
            authenticate(wrong)


def test_a_principals_sid_never_changes() -> None:
    sid = "S-1-5-21-735577801-2131624111-438289202-2410112913"
    assert sid_text(principal_sid("alice")) == sid
    assert principal_of("alice", Role.CLIENT).sids == (principal_sid("alice"),)


def test_loopback_is_told_from_the_world() -> None:
    assert is_loopback("127.3.4.5")
    assert is_loopback("::1")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("example.org")


def test_an_insecure_server_is_refused_outside_of_loopback() -> None:
    async def scenario() -> None:
        async with world() as made:
            node = (await made.leader()).node
            for config, reason in (
                (ApiConfig("0.0.0.0", 0, is_insecure=True), "loopback"),
                (ApiConfig("127.0.0.1", 0), "certificates"),
            ):
                with pytest.raises(ValueError, match=reason):
                    ApiServer(
                        config,
                        node.cluster,
                        node.service.members,
                        node.service.operations,
                        Metrics(CollectorRegistry()),
                        EventLog(lambda: 0),
                        NoConsole(),
                        Delegation(),
                        node.service.msmq,
                    )

    run(scenario())


def test_roles_open_and_close_calls() -> None:
    async def scenario() -> None:
        async with world(is_secure=True) as made:
            leader = await made.leader()
            async with made.channel(leader, "carol", Role.CLIENT) as channel:
                operator = Operator(channel)
                await operator.create(PATH)
                with refused(DENIED):
                    await operator.cluster.GetStatus(control_pb2.GetStatusRequest())
                with refused(DENIED):
                    await operator.messages.ReturnToSource(control_pb2.ReturnToSourceRequest())
                with refused(DENIED):
                    await operator.queues.SetAcl(control_pb2.SetAclRequest())
                with refused(DENIED):
                    async for _ in operator.node.StreamEvents(control_pb2.StreamEventsRequest()):
                        pass
            async with made.channel(leader, "oscar", Role.OPERATOR) as channel:
                operator = Operator(channel)
                await operator.cluster.GetStatus(control_pb2.GetStatusRequest())
                with refused(DENIED):
                    await operator.cluster.RemoveMember(control_pb2.RemoveMemberRequest(name="n1"))
            async with made.channel(leader, "n7", Role.NODE) as channel:
                with refused(DENIED):
                    await Operator(channel).queues.ListQueues(control_pb2.ListQueuesRequest())
                with refused(DENIED):
                    promotion = control_pb2.PromoteMemberRequest(name="n1")
                    await Operator(channel).cluster.PromoteMember(promotion)
                can_stop = control_pb2.CanStopRequest(node=leader.name)
                assert "are needed" in (await Operator(channel).cluster.CanStop(can_stop)).reason
                health = health_pb2_grpc.HealthStub(channel)
                answer = await health.Check(health_pb2.HealthCheckRequest())
                assert answer.status == health_pb2.HealthCheckResponse.SERVING
            denied = leader.metrics.counter("quorate_api_calls_total").labels(
                "/quorate.control.v1.ClusterControl/RemoveMember", "PERMISSION_DENIED"
            )
            assert denied._value.get() == 1
            async with made.channel(leader) as channel:
                stream = Operator(channel).node.StreamEvents(control_pb2.StreamEventsRequest())
                removal = [event async for event in stream if event.name == "RemoveMember"]
            assert [(one.principal, one.details["code"]) for one in removal] == [
                ("oscar", "PERMISSION_DENIED")
            ]

    run(scenario())


def test_access_lists_hold_between_principals() -> None:
    async def scenario() -> None:
        client_role = Role.CLIENT
        async with world(is_secure=True) as made:
            leader = await made.leader()
            async with (
                made.client(leader, name="alice", role=client_role) as alice,
                made.client(leader, name="bob", role=client_role) as bob,
                made.client(leader, name="root") as root,
            ):
                await create(alice)
                await bob.send(ORDERS, b"everyone may send")
                with refused(DENIED, "MQ_ERROR_ACCESS_DENIED"):
                    await bob.open(ORDERS)
                with refused(DENIED, "MQ_ERROR_ACCESS_DENIED"):
                    await bob.queues.DeleteQueue(
                        control_pb2.DeleteQueueRequest(queue=control_pb2.QueueName(name=PATH))
                    )
                queue = await alice.open(ORDERS)
                assert bodies(await alice.receive(queue)) == [b"everyone may send"]
                await root.open(ORDERS)
                acl = await alice.queues.GetAcl(
                    control_pb2.GetAclRequest(queue=control_pb2.QueueName(name=PATH))
                )
                assert (acl.owner, acl.entries[-1].principal) == ("alice", "Administrators")
                entries = [
                    *acl.entries,
                    control_pb2.Ace(principal="bob", rights=["receive_message"]),
                ]
                for entry in entries:
                    if entry.sid:
                        entry.principal, entry.rights[:] = "", []
                await alice.queues.SetAcl(
                    control_pb2.SetAclRequest(
                        queue=control_pb2.QueueName(name=PATH), entries=entries
                    )
                )
                await bob.open(ORDERS)
                alone = [control_pb2.Ace(principal="alice", rights=["queue_generic_all"])]
                name = control_pb2.QueueName(name=PATH)
                await alice.queues.SetAcl(control_pb2.SetAclRequest(queue=name, entries=alone))
                with refused(DENIED, "MQ_ERROR_ACCESS_DENIED"):
                    await root.open(ORDERS)
                with refused(DENIED, "MQ_ERROR_ACCESS_DENIED"):
                    await bob.queues.SetAcl(control_pb2.SetAclRequest(queue=name, entries=entries))
                await root.queues.SetAcl(control_pb2.SetAclRequest(queue=name, entries=entries))
                await root.open(ORDERS)

    run(scenario())


def test_from_birth_dead_letters_are_for_operators_and_settings_for_admins() -> None:
    async def scenario() -> None:
        dead = r".\system$;DEADLETTER"
        async with world(is_secure=True) as made:
            leader = await made.leader()
            (outcome,) = await leader.node.cluster.propose(protection())
            assert outcome.status == 0
            async with (
                made.client(leader, name="alice", role=Role.CLIENT) as alice,
                made.client(leader, name="oscar", role=Role.OPERATOR) as oscar,
                made.client(leader, name="root", role=Role.ADMIN) as root,
            ):
                await create(alice)
                with refused(DENIED, "MQ_ERROR_ACCESS_DENIED"):
                    await alice.open(dead, data_pb2.PEEK_ACCESS)
                with refused(DENIED, "MQ_ERROR_ACCESS_DENIED"):
                    await alice.queues.PurgeQueue(
                        control_pb2.PurgeQueueRequest(queue=control_pb2.QueueName(name=dead))
                    )
                await oscar.open(dead)
                await root.open(dead)
                acl = await root.queues.GetAcl(control_pb2.GetAclRequest())
                assert [ace.principal for ace in acl.entries] == [
                    "Everyone",
                    "Authenticated Users",
                    "Operators",
                    "Administrators",
                ]
                change = control_pb2.SetQueueManagerRequest(
                    changes={"journal_quota": control_pb2.Value(number=9)}
                )
                await root.queues.SetQueueManager(change)

    run(scenario())


def test_a_session_is_its_principals() -> None:
    async def scenario() -> None:
        client_role = Role.CLIENT
        async with world(is_secure=True) as made:
            leader = await made.leader()
            async with (
                made.client(leader, "shared", name="alice", role=client_role) as alice,
                made.channel(leader, "bob", client_role) as channel,
            ):
                await create(alice)
                thief = type(alice)(channel, "shared")
                with refused(DENIED, "MQ_ERROR_ACCESS_DENIED"):
                    await thief.open_session()
                with refused(DENIED, "MQ_ERROR_ACCESS_DENIED"):
                    await thief.send(ORDERS, b"x")

    run(scenario())


def test_reflection_lists_the_services() -> None:
    async def scenario() -> None:
        async with world() as made, made.channel(await made.leader()) as channel:
            stub = reflection_pb2_grpc.ServerReflectionStub(channel)
            call = stub.ServerReflectionInfo()
            await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
            answer = await call.read()
            found = {one.name for one in answer.list_services_response.service}
            assert {"quorate.data.v1.Data", "quorate.control.v1.QueueControl"} <= found
            call.cancel()

    run(scenario())
