"""Every method of the ports 1811, 1812 and 1813, asked by every kind of caller.

Who is refused is refused before its request is decoded; so each sends nonsense, and whoever is let
in hears that it is malformed.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import msgspec
import pytest

from qm.api.gate.identity import Role
from qm.api.gate.roles import PUBLIC_SERVICES, RULES
from qm.node.config.addresses import host_and_port
from qm.node.config.schema import API_PORT, RAFT_PORT, RELAY_PORT, NodeConfig
from qm.node.relay.peer_gate import METHODS
from qm.node.upkeep.pki import (
    AUTHORITY_CERTIFICATE,
    PEERS_FOLDER,
    REVOKED_LIST,
    create_authority,
    issue,
    revoke,
)
from qm.pb import control_pb2, control_pb2_grpc, relay_pb2
from raft.pb import peer_pb2
from raft.transport.grpc_transport import METADATA_CLUSTER, METADATA_FROM, METADATA_TO
from tests.cluster.harness import Harness, HarnessNode, cluster, run, until
from tests.unit.raft.transport.direct_caller import calling_at

NONSENSE = b"\xff" * 9
CODE = grpc.StatusCode
NO_HANDSHAKE = frozenset({CODE.UNAVAILABLE})
DENIED = frozenset({CODE.PERMISSION_DENIED})
UNKNOWN = frozenset({CODE.UNAUTHENTICATED})
MALFORMED = frozenset({CODE.INVALID_ARGUMENT})
STREAMING = ("StreamReceive", "StreamEvents", "Exchange", "SendSnapshot", "Watch")


@dataclass(frozen=True)
class Who:
    """A caller: files of a certificate, and the authority that it trusts."""

    authority: Path
    stem: Path | None

    def credentials(self) -> grpc.ChannelCredentials:
        authority = self.authority.read_bytes()
        if self.stem is None:
            return grpc.ssl_channel_credentials(authority)
        key = self.stem.with_suffix(".key").read_bytes()
        return grpc.ssl_channel_credentials(
            authority, key, self.stem.with_suffix(".pem").read_bytes()
        )


def separate(config: NodeConfig) -> NodeConfig:
    """Give a node a certificate of the nodes' own authority."""
    pki = config.tls.authority.parent
    peers = pki / PEERS_FOLDER
    if not peers.exists():
        create_authority(peers, "peers")
    certificate, key = issue(peers, config.name, Role.NODE, [config.host])
    tls = msgspec.structs.replace(
        config.tls,
        peer_authority=peers / AUTHORITY_CERTIFICATE,
        peer_certificate=certificate,
        peer_key=key,
        revoked=pki / REVOKED_LIST,
        peer_revoked=peers / REVOKED_LIST,
    )
    return msgspec.structs.replace(config, tls=tls)


def shared(config: NodeConfig) -> NodeConfig:
    """One authority for all, as it was before there were two."""
    tls = msgspec.structs.replace(config.tls, revoked=config.tls.authority.parent / REVOKED_LIST)
    return msgspec.structs.replace(config, tls=tls)


def callers(nodes: Harness, *, is_separate: bool) -> Mapping[str, tuple[Who, Who]]:
    """Return who calls: as the API's listener sees it, and as those between nodes do."""
    pki = nodes.folder / "pki"
    folders = (pki, pki / PEERS_FOLDER if is_separate else pki)
    foreign = nodes.folder / "foreign"
    create_authority(foreign, "test authority")  # of the same name
    issue(foreign, "n1", Role.NODE)
    for folder in dict.fromkeys(folders):
        for role in (Role.CLIENT, Role.OPERATOR, Role.ADMIN):
            issue(folder, role.value, role)
        issue(folder, "stranger", Role.NODE)
        issue(folder, "expired", Role.NODE, days=-1)
        issue(folder, "taken", Role.NODE, ["n1"])
        revoke(folder, folder / "taken.pem")

    def who(make: Callable[[Path], Path | None]) -> tuple[Who, Who]:
        api, peers = (Who(folder / AUTHORITY_CERTIFICATE, make(folder)) for folder in folders)
        return api, peers

    made = {
        "no certificate": who(lambda _: None),
        "expired": who(lambda folder: folder / "expired"),
        "revoked": who(lambda folder: folder / "taken"),
        "foreign authority": who(lambda _: foreign / "n1"),
        "node, no member": who(lambda folder: folder / "stranger"),
        "member": who(lambda folder: folder / "n2"),
    }
    for kind in ("client", "operator", "admin"):
        made[kind] = who(lambda folder, kind=kind: folder / kind)  # type: ignore[misc]
    if is_separate:
        # What callers' authority signs is worth nothing between nodes, a node's name included.
        for name in ("n2", "admin"):
            api = Who(folders[0] / AUTHORITY_CERTIFICATE, folders[0] / name)
            made[f"{name} of the callers' authority"] = (
                api,
                Who(folders[1] / AUTHORITY_CERTIFICATE, folders[0] / name),
            )
    return made


@contextlib.asynccontextmanager
async def channel(node: HarnessNode, port: int, who: Who) -> AsyncIterator[Any]:
    options = (
        ("grpc.ssl_target_name_override", node.name),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_retries", 0),
    )
    address = host_and_port(node.host, port)
    opened: Any = grpc.aio.secure_channel(address, who.credentials(), options=options)
    try:
        yield opened
    finally:
        await opened.close(None)


ASKED_MAX = 3
STATUS_LOST = "Internal error from Core"
WRITE_ERRORS = (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError)


async def ask(
    opened: Any, path: str, metadata: tuple[tuple[str, str], ...] = (), body: bytes = NONSENSE
) -> grpc.StatusCode:
    """Make one call with a body that is no message; return how it ended.

    A write that meets the refusal of its stream loses the server's status in the client's library:
    such a call is made again.
    """
    is_stream = path.rpartition("/")[2] in STREAMING or "Reflection" in path
    kind = opened.stream_stream if is_stream else opened.unary_unary
    async with asyncio.timeout(20):
        for _ in range(ASKED_MAX):
            if not is_stream:
                call = kind(path, None, None)(body, metadata=metadata)
            else:
                call = kind(path, None, None)(metadata=metadata)
                with contextlib.suppress(*WRITE_ERRORS):
                    await call.write(body)
            code: grpc.StatusCode = await call.code()
            if await call.details() != STATUS_LOST:
                break
    return code


def api_codes(kind: str, path: str) -> frozenset[grpc.StatusCode]:
    if kind in ("no certificate", "expired", "foreign authority"):
        return NO_HANDSHAKE
    if kind == "revoked":
        return UNKNOWN
    role = Role(kind if kind in ("client", "operator", "admin") else "node")
    if kind.startswith("admin"):
        role = Role.ADMIN
    if path[1:].partition("/")[0] in PUBLIC_SERVICES:
        return MALFORMED
    return MALFORMED if role in RULES[path].roles else DENIED


def relay_codes(kind: str, method: str) -> frozenset[grpc.StatusCode]:
    if kind in ("no certificate", "expired", "foreign authority") or "callers'" in kind:
        return NO_HANDSHAKE
    if kind == "member" or (kind == "node, no member" and method in ("Inspect", "Lead")):
        return MALFORMED
    return DENIED


def raft_codes(kind: str, method: str) -> frozenset[grpc.StatusCode]:
    if kind in ("no certificate", "expired", "foreign authority") or "callers'" in kind:
        return NO_HANDSHAKE
    if kind == "member":
        return MALFORMED if method == "SendSnapshot" else frozenset({CODE.CANCELLED})
    return DENIED


def test_the_lists_of_methods_are_whole() -> None:
    assert set(METHODS) == set(relay_pb2.DESCRIPTOR.services_by_name["Relay"].methods_by_name)
    methods = peer_pb2.DESCRIPTOR.services_by_name["Peer"].methods_by_name
    assert set(methods) == {"Exchange", "SendSnapshot"}


async def api_matrix(node: HarnessNode, kind: str, who: Who) -> list[str]:
    wrong = []
    public = ("/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch")
    reflection = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    async with channel(node, API_PORT, who) as opened:
        for path in (*RULES, *public, reflection):
            code = await ask(opened, path)
            if code not in api_codes(kind, path):
                wrong.append(f"{kind} {path}: {code.name}")
    return wrong


async def relay_matrix(node: HarnessNode, kind: str, who: Who) -> list[str]:
    wrong = []
    async with channel(node, RELAY_PORT, who) as opened:
        for method in METHODS:
            code = await ask(opened, f"/qm.pb.Relay/{method}")
            if code not in relay_codes(kind, method):
                wrong.append(f"{kind} {method}: {code.name}")
    return wrong


async def raft_matrix(node: HarnessNode, kind: str, who: Who) -> list[str]:
    wrong = []
    metadata = (
        (METADATA_CLUSTER, node.cluster.config.cluster.hex()),
        (METADATA_FROM, "stranger.1" if kind == "node, no member" else "n2.1"),
        (METADATA_TO, node.cluster.config.node),
    )
    async with channel(node, RAFT_PORT, who) as opened:
        for method in ("Exchange", "SendSnapshot"):
            if (kind, method) == ("member", "Exchange"):
                continue  # nonsense of a member is dropped frame by frame, and the stream goes on
            code = await ask(opened, f"/raft.pb.Peer/{method}", metadata)
            if code not in raft_codes(kind, method):
                wrong.append(f"{kind} {method}: {code.name}")
    return wrong


async def direct_matrix(node: HarnessNode, kind: str, who: Who) -> list[str]:
    """Call for a direct stream; members other than a borrowed name's are let in elsewhere."""
    if kind == "member":
        return []
    files = None
    if who.stem is not None:
        files = who.stem.with_suffix(".pem"), who.stem.with_suffix(".key")
    config, address = node.cluster.config, host_and_port(node.host, RAFT_PORT)
    sender = "stranger.1" if kind == "node, no member" else "n2.1"
    answer = None
    async with asyncio.timeout(20):
        with contextlib.suppress(OSError):
            async with calling_at(address, node.name, who.authority, files) as caller:
                answer = await caller.hello(sender, config.node, config.cluster)
    # An empty answer would be an acceptance, none is a refused handshake.
    is_shaken = raft_codes(kind, "Exchange") != NO_HANDSHAKE
    is_right = answer not in (None, b"") if is_shaken else answer is None
    return [] if is_right else [f"{kind}, direct stream: {answer!r}"]


def is_late(record: logging.LogRecord) -> bool:
    """Whether gRPC's poller told the event loop of an earlier test, closed since, of an event."""
    error = record.exc_info[1] if record.exc_info else None
    return "PollerCompletionQueue" in record.getMessage() and isinstance(error, RuntimeError)


@pytest.mark.parametrize("is_separate", [False, True], ids=["one authority", "two authorities"])
def test_every_method_by_every_caller(
    is_separate: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "qm.node.upkeep.pki.CLOCK_SKEW", timedelta(days=3)
    )  # so that one can be over

    async def scenario() -> None:
        async with cluster(3, change=separate if is_separate else shared) as nodes:
            leader = await nodes.leader()
            # Another one may lead: whoever is asked is not the one whose name is borrowed.
            node = nodes["n1"] if leader.name != "n1" else leader
            term = leader.cluster.leadership.term
            wrong: list[str] = []
            for kind, (api, peer) in callers(nodes, is_separate=is_separate).items():
                wrong += await api_matrix(node, kind, api)
                wrong += await relay_matrix(node, kind, peer)
                wrong += await raft_matrix(node, kind, peer)
                wrong += await direct_matrix(node, kind, peer)
            assert not wrong, "\n".join(wrong)
            assert (await nodes.leader()).cluster.leadership.term == term

    run(scenario())
    traces = [one.getMessage() for one in caplog.records if one.exc_info and not is_late(one)]
    assert not traces


def test_a_node_that_is_no_member_may_only_ask_to_enter() -> None:
    async def scenario() -> None:
        async with cluster(1) as nodes:
            node = await nodes.leader()
            issue(nodes.folder / "pki", "n9", Role.NODE)
            pki = nodes.folder / "pki"
            who = Who(pki / AUTHORITY_CERTIFICATE, pki / "n9")
            other = relay_pb2.MemberChange(kind="remove", node="n1")
            own = relay_pb2.MemberChange(kind="remove", node="n9")
            transfer = relay_pb2.LeadRequest(transfer_to="n1")
            async with channel(node, RELAY_PORT, who) as opened:
                for request, code in (
                    (relay_pb2.LeadRequest(change_members=other), CODE.PERMISSION_DENIED),
                    (transfer, CODE.PERMISSION_DENIED),
                    (relay_pb2.LeadRequest(change_members=own), CODE.INVALID_ARGUMENT),
                ):
                    body = request.SerializeToString()
                    assert await ask(opened, "/qm.pb.Relay/Lead", (), body) is code
                assert await ask(opened, "/qm.pb.Relay/Inspect", (), b"") is CODE.OK

    run(scenario())


async def drain(call: Any) -> None:
    with contextlib.suppress(grpc.aio.AioRpcError):
        while await call.read() is not grpc.aio.EOF:  # type: ignore[attr-defined]
            pass


def test_what_runs_ends_when_its_certificate_is_revoked() -> None:
    """A stream that was opened before must not outlive it."""

    async def scenario() -> None:
        async with cluster(3, change=shared) as nodes:
            node = await nodes.leader()
            pki = nodes.folder / "pki"
            for name in ("oscar", "olga"):
                issue(pki, name, Role.OPERATOR)
            whos = [Who(pki / AUTHORITY_CERTIFICATE, pki / name) for name in ("oscar", "olga")]
            async with (
                channel(node, API_PORT, whos[0]) as first,
                channel(node, API_PORT, whos[1]) as second,
            ):
                calls = [
                    control_pb2_grpc.NodeControlStub(opened).StreamEvents(
                        control_pb2.StreamEventsRequest(follow=True)
                    )
                    for opened in (first, second)
                ]
                reads = [asyncio.ensure_future(drain(call)) for call in calls]
                await asyncio.wait(reads, timeout=0.5)
                revoke(pki, pki / "oscar.pem")
                assert await calls[0].code() is CODE.UNAUTHENTICATED
                assert not calls[1].done()
                for task in reads:
                    task.cancel()
            # A member's streams end as well: the others go on without it.
            (follower, other) = await nodes.followers()
            revoke(pki, pki / f"{follower.name}.pem")
            raft = node.cluster.driver.transport.metrics  # type: ignore[attr-defined]
            await until(lambda: raft.revoked_total > 0)
            assert (await nodes.leader()).name in (node.name, other.name)

    run(scenario())
