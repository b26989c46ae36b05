"""Accounts of the cluster: made by `qm user`, valid at every node, sealed in the state."""

import asyncio
import secrets
import struct
import tempfile
import time
from functools import partial
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner, Result

from qm.api.gate.identity import USERS, principal_sid
from qm.cli.main import main
from qm.model.queries import AccountInfo, account
from qm.model.values.limits import APPLY_VERSION
from qm.pb import control_pb2 as pb
from qm.rpc.client import RpcClient
from qm.rpc.interface import Fault
from qm.rpc.pdu.codes import AuthLevel, AuthType
from qm.rpc.remote_read.interface import REMOTE_READ
from qm.rpc.security.ntlm import NtlmClient
from qm.rpc.security.ntlm_keys import nt_hash
from qm.rpc.users_file import User
from qm.security.passwords import SALT_BYTES, verifier_of
from qm.security.sid import ADMINISTRATORS
from tests.cluster.harness import HarnessNode, run, until
from tests.unit.rpc.reading import RPC_PORT, RemoteReader, rpc_world, with_orders
from tests.unit.rpc.users import write_users

WRONG = 5


async def status_of_logon(node: HarnessNode, user: str, password: str) -> int:
    """0 if the user may open the queue."""
    client = await RpcClient().connect(node.host, RPC_PORT)
    provider = NtlmClient(user, password, "", secrets.token_bytes)
    await client.bind(
        REMOTE_READ, provider=provider, auth_type=AuthType.NTLM, level=AuthLevel.PRIVACY
    )
    try:
        await RemoteReader(client).open()
    except Fault as fault:
        return fault.status
    finally:
        client.close()
    return 0


def is_applied(node: HarnessNode, user: str, wanted: AccountInfo | None) -> bool:
    return account(node.cluster.view, user) == wanted


@pytest.mark.spec("RP-OUR-auth-05", "RP-NLMP-2.2.1.2-02", "RP-NLMP-2.2.2.1-03")
def test_a_running_node_takes_what_its_file_says_now() -> None:
    async def scenario() -> None:
        async with rpc_world() as made:
            node = await made.harness.leader()
            path = node.config.rpc.users_file
            assert path is not None
            async with made.client(await made.leader()) as client:
                await with_orders(client, b"one")
            early = await made.reader()
            handle = await early.open()
            assert await status_of_logon(node, "bob", "pw") == 0
            assert await status_of_logon(node, "dora", "new") == WRONG
            hash_ = nt_hash("new").hex()
            write_users(path, [User("bob", hash_), User("dora", hash_)])
            assert await status_of_logon(node, "dora", "new") == 0
            assert await status_of_logon(node, "bob", "pw") == WRONG
            assert await status_of_logon(node, "bob", "new") == 0
            assert await status_of_logon(node, "alice", "pw") == WRONG
            assert await early.receive(handle) == b"one", "whoever has logged on goes on"
            # Each time it has challenged another way, and told what time it is.
            seen = [await challenged(node) for _ in range(8)]
            assert len({nonce for nonce, _ in seen}) == len(seen)
            assert all(
                len(set(places)) > 1 for places in zip(*(one for one, _ in seen), strict=True)
            )
            for _, filetime in seen:
                assert abs(filetime / 10**7 - 11_644_473_600 - time.time()) < 60

    run(scenario())


async def challenged(node: HarnessNode) -> tuple[bytes, int]:
    """ServerChallenge and MsvAvTimestamp of a node's CHALLENGE message."""
    heard: list[bytes] = []

    class Listening(NtlmClient):
        def step(self, token: bytes) -> bytes:
            heard.append(token)
            return super().step(token)

    client = await RpcClient().connect(node.host, RPC_PORT)
    provider = Listening("bob", "new", "", secrets.token_bytes)
    await client.bind(
        REMOTE_READ, provider=provider, auth_type=AuthType.NTLM, level=AuthLevel.PRIVACY
    )
    client.close()
    (challenge,) = (one for one in heard if one)
    length, _, at = struct.unpack_from("<HHI", challenge, 40)
    pairs = challenge[at : at + length]
    (begin,) = (k for k in range(len(pairs)) if pairs.startswith(b"\7\0\x08\0", k))
    return challenge[24:32], int.from_bytes(pairs[begin + 4 : begin + 12], "little")


@pytest.mark.spec("RP-OUR-auth-01", "RP-OUR-auth-05", "RP-NLMP-3.2.5.1.2-10")
def test_an_account_is_valid_at_every_node_until_it_is_removed() -> None:
    async def scenario() -> None:
        async with rpc_world(3) as made:
            leader, api = await made.harness.leader(), await made.leader()
            nodes = list(made.harness.nodes.values())

            async def qm(*words: str, stdin: str = "") -> Result:
                result = await asyncio.to_thread(
                    CliRunner().invoke,
                    main,
                    ["user", *words, "--endpoint", api.address],
                    stdin,
                )
                assert result.exit_code == 0, result.output
                return result

            async def everywhere(user: str, password: str, status: int) -> None:
                wanted = account(leader.cluster.view, user)
                for node in nodes:
                    await until(partial(is_applied, node, user, wanted))
                    assert await status_of_logon(node, user, password) == status

            view = leader.cluster.view
            await until(lambda: view.counters().apply_version == APPLY_VERSION)
            async with made.client(api) as client:
                await with_orders(client)
            await everywhere("carol", "S3cret!", WRONG)
            await qm("add", "Carol", "--group", "S-1-5-32-544", stdin="S3cret!\nS3cret!\n")
            await everywhere("carol", "S3cret!", 0)
            await everywhere("carol", "s3cret!", WRONG)
            shown = (await qm("list")).output
            assert "Carol" in shown
            found = account(nodes[0].cluster.view, "carol")
            assert found is not None
            assert (found.sid, found.groups) == (principal_sid("Carol"), (ADMINISTRATORS,))
            hash_ = nt_hash("S3cret!")
            assert hash_ not in found.sealed_password
            assert hash_.hex() not in shown
            await qm("add", "carol", "--password", "other", "--disabled")
            await everywhere("carol", "other", WRONG)
            with tempfile.TemporaryDirectory() as folder:
                old = Path(folder) / "users.toml"
                write_users(old, [User("carol", hash_.hex(), groups=("S-1-5-32-544",))])
                assert (await qm("import", str(old))).output == "carol\n"
            await everywhere("carol", "S3cret!", 0)
            await qm("add", "carol", "--password", "S3cret!", "--console-only", "--role", "client")
            await everywhere("carol", "S3cret!", WRONG)
            kept = account(leader.cluster.view, "carol")
            assert kept is not None
            assert kept.groups == (USERS,)
            assert kept.sealed_password != found.sealed_password
            assert "client" in (await qm("list")).output
            await qm("remove", "CAROL")
            await everywhere("carol", "S3cret!", WRONG)
            assert "arol" not in (await qm("list")).output

    run(scenario())


def test_a_password_is_given_as_its_hash_to_a_user_alone() -> None:
    sid, raw = principal_sid("carol"), bytes(16)
    good = {"security_identifier": pb.Value(data=sid), "password_hash": pb.Value(data=raw)}

    async def scenario() -> None:
        async with rpc_world() as made, made.client(await made.leader()) as client:
            view = (await made.harness.leader()).cluster.view
            await until(lambda: view.counters().apply_version == APPLY_VERSION)

            async def refusal(kind: str, **values: pb.Value) -> grpc.StatusCode | None:
                request = pb.PutObjectRequest(object_class=kind, attributes=values)
                try:
                    await client.directory.PutObject(request)
                except grpc.aio.AioRpcError as error:
                    return error.code()
                return None

            invalid = grpc.StatusCode.INVALID_ARGUMENT
            short, sealed = pb.Value(data=b"short"), pb.Value(data=b"x")
            assert await refusal("user", password_hash=pb.Value(data=raw)) is invalid
            assert await refusal("user", **(good | {"password_hash": short})) is invalid
            assert await refusal("user", **good, sealed_password=sealed) is invalid
            dear = b"\x01\x1f" + verifier_of("x", bytes(SALT_BYTES))[2:]
            assert (
                await refusal("user", **(good | {"password_hash": pb.Value(data=dear)})) is invalid
            )
            assert await refusal("site", **good) is invalid
            assert await refusal("user", **good) is None
            listed = await client.directory.ListObjects(pb.ListObjectsRequest(object_class="user"))
            (shown,) = listed.objects
            assert not {"password_hash", "sealed_password"} & set(shown.attributes)

    run(scenario())
