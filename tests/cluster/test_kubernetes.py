"""A leader's label and a pod scaled away, at an API server that speaks as Kubernetes' does."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from qm.api.gate.identity import Role
from qm.cli.cluster.prestop import leave
from qm.client.calls import Calls, Tls
from qm.node.config.schema import API_PORT, KubernetesSection, NodeConfig
from qm.node.leader.kubernetes import LABEL, ApiServerRefused, is_scaled_away
from qm.node.leader.pod_events import REMOVED, TEXT_MAX_CHARS, WAITS, PodEvents
from qm.node.upkeep.pki import AUTHORITY_CERTIFICATE, create_authority, issue
from tests.cluster.harness import cluster, run, until
from tests.cluster.test_membership import members, propose

TOKEN = "a-token"
CORE = "/api/v1/namespaces/messaging"
APPS = "/apis/apps/v1/namespaces/messaging"
ROLES = ("leader", "follower")


class ApiServer:
    """Accepts patches of pods' labels from any holder of the token."""

    def __init__(self, folder: Path) -> None:
        create_authority(folder, "kubernetes")
        certificate, key = issue(folder, "api-server", Role.NODE, ["127.0.0.1"])
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(certificate, key)
        self.account = folder / "account"
        self.account.mkdir()
        (self.account / "ca.crt").write_bytes((folder / AUTHORITY_CERTIFICATE).read_bytes())
        (self.account / "namespace").write_text("messaging")
        (self.account / "token").write_text("not-yet-the-token")
        self.url = ""
        self.labels: dict[str, str] = {}
        self.refused = 0
        self.events: list[Any] = []
        """What pods had to say."""
        self.replicas: int | None = None
        """Of every StatefulSet; None: there is none."""

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        app = web.Application()
        app.add_routes(self.routes())
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self._tls)
            await site.start()
            self.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
            yield
        finally:
            await runner.cleanup()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.patch(f"{CORE}/pods/{{pod}}", self._patch),
            web.post(f"{CORE}/events", self._add_event),
            web.get(f"{APPS}/statefulsets/{{name}}", self._stateful_set),
        ]

    async def _stateful_set(self, _: web.Request) -> web.Response:
        if self.replicas is None:
            return web.json_response({"message": "not found"}, status=404)
        return web.json_response({"spec": {"replicas": self.replicas}})

    async def _add_event(self, request: web.Request) -> web.Response:
        self.events.append(await request.json())
        return web.json_response({}, status=201)

    async def _patch(self, request: web.Request) -> web.Response:
        if request.headers["Authorization"] != f"Bearer {TOKEN}":
            self.refused += 1
            return web.json_response({"message": "Unauthorized"}, status=401)
        assert request.content_type == "application/merge-patch+json"
        change = await request.json()
        ((key, value),) = change["metadata"]["labels"].items()
        assert key == LABEL
        self.labels[request.match_info["pod"]] = value
        return web.json_response({})


def test_exactly_the_leaders_pod_has_the_label(tmp_path: Path) -> None:
    server = ApiServer(tmp_path)

    def labelled(config: NodeConfig) -> NodeConfig:
        section = KubernetesSection(
            label_leader=True, api_server=server.url, service_account=server.account
        )
        return msgspec.structs.replace(config, kubernetes=section)

    async def scenario() -> None:
        async with server.serving(), cluster(3, change=labelled) as nodes:
            await until(lambda: server.refused >= 3, lambda: server.refused)
            assert server.labels == {}
            (server.account / "token").write_text(TOKEN)  # renewed in place

            async def settled() -> str:
                leader = (await nodes.leader()).name
                expected = {name: ROLES[name != leader] for name in nodes.nodes}
                await until(lambda: server.labels == expected, lambda: server.labels)
                return leader

            before = await settled()
            heir, _ = await nodes.followers()
            await heir.service.members.transfer(heir.name)
            await until(lambda: nodes.serving() is heir, nodes.serving)
            assert await settled() == heir.name != before
            await nodes.kill(heir.name)
            await until(lambda: server.labels[heir.name] == "follower", lambda: server.labels)

    run(scenario())


def test_a_pod_is_scaled_away_when_its_stateful_set_has_fewer_but_some(tmp_path: Path) -> None:
    server = ApiServer(tmp_path)

    async def scenario() -> None:
        async with server.serving():
            section = KubernetesSection(
                stateful_set="n", api_server=server.url, service_account=server.account
            )
            with pytest.raises(ApiServerRefused, match="404"):
                await is_scaled_away(section, "n-3")
            for replicas, expected in ((4, False), (3, True), (1, True), (0, False)):
                server.replicas = replicas
                assert await is_scaled_away(section, "n-3") is expected, replicas
            assert not await is_scaled_away(section, "other-3")
            assert not await is_scaled_away(KubernetesSection(), "n-3")
        with pytest.raises(ApiServerRefused, match="ClientConnector"):
            await is_scaled_away(section, "n-3")

    run(scenario())


def test_a_pod_says_once_what_it_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qm.node.leader.pod_events.TELL_AFTER_S", 0.01)
    server = ApiServer(tmp_path)

    async def scenario() -> None:
        async with server.serving():
            section = KubernetesSection(
                pod_uid="a-uid", api_server=server.url, service_account=server.account
            )
            reason = "n-1 does not answer"
            watching = asyncio.create_task(PodEvents(section, "n-0").watch(lambda: reason))
            await until(lambda: server.events, lambda: server.events)
            reason = "x" * (TEXT_MAX_CHARS + 1)
            await until(lambda: len(server.events) == 2, lambda: server.events)
            watching.cancel()
            await PodEvents(section, "n-0").tell(REMOVED, "n-0.1 was removed")
            first, second, last = server.events
            assert (first["reason"], first["message"]) == (WAITS, "n-1 does not answer")
            assert second["message"] == "x" * TEXT_MAX_CHARS
            assert last["reason"] == REMOVED
            pod = {"apiVersion": "v1", "kind": "Pod", "name": "n-0", "uid": "a-uid"}
            assert first["involvedObject"] == pod | {"namespace": "messaging"}
            # Elsewhere than in Kubernetes there is nobody to tell.
            nowhere = KubernetesSection(api_server=server.url, service_account=tmp_path / "none")
            await PodEvents(nowhere, "n-0").watch(lambda: reason)
            await PodEvents(nowhere, "n-0").tell(REMOVED, "n-0.1 was removed")
            refused = msgspec.structs.replace(nowhere, pod_uid="a-uid")
            await PodEvents(refused, "n-0").tell(REMOVED, "n-0.1 was removed")
            assert len(server.events) == 3

    run(scenario())


def test_a_node_that_leaves_is_no_member_and_the_others_go_on() -> None:
    async def scenario() -> None:
        async with cluster(3) as nodes:
            leaving = await nodes.leader()
            files = nodes.certificate(leaving.name)
            wire = Calls(
                [f"{leaving.host}:{API_PORT}"],
                Tls(files.authority, files.certificate, files.key, server_name=leaving.name),
            )
            said: list[str] = []
            try:
                await leave(wire, leaving.config, said.append)
            finally:
                await wire.close()
            assert said == [f"{leaving.name} is no longer a member"]
            await leaving.stop()
            assert leaving.name + ".1" not in await members(nodes)
            for node in nodes.up:
                await propose(node)

    run(scenario())
