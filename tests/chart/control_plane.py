"""An API server to which the real kubectl speaks; the chart's pods are processes.

It stands for Kubernetes where the suite for a real one (tests/kubernetes) is tried. Beside what
`Controller` does, it restarts a container that ends, keeps a budget of one, runs `qm` in the
toolbox, and one more pod. The Service of the API is every pod that runs.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from qm.node.config.schema import API_PORT, HTTP_PORT
from qm.node.leader.kubernetes import LABEL
from tests.chart.controller import Controller
from tests.chart.pods import DOMAIN, NAMESPACE, Pod, PodEnded
from tests.chart.rendering import Object, one
from tests.cluster.test_kubernetes import APPS, CORE, TOKEN

RESTARTS_MAX = 3
PROBE_S = 2.0
READY = {"type": "Ready", "status": "True"}
POLICY = f"/apis/policy/v1/namespaces/{NAMESPACE}"
KINDS = {
    "v1": {"pods": "Pod", "pods/eviction": "Eviction", "nodes": "Node"},
    "apps/v1": {
        "statefulsets": "StatefulSet",
        "statefulsets/scale": "Scale",
        "deployments": "Deployment",
    },
    "policy/v1": {"poddisruptionbudgets": "PodDisruptionBudget"},
}


class ControlPlane(Controller):
    """Speaks of the namespace in which the release was rendered."""

    def start(self) -> None:
        super().start()
        self._generation = 1
        self._ending: set[str] = set()
        self._extra: dict[str, asyncio.subprocess.Process] = {}
        self._said: dict[str, bytes] = {}

    def kubeconfig(self) -> Path:
        """Write what KUBECONFIG names."""
        cluster = {"server": self.url, "certificate-authority": str(self.account / "ca.crt")}
        found = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": TOKEN}}],
        }
        file = self.account / "config"
        file.write_text(json.dumps(found))
        return file

    def routes(self) -> list[web.RouteDef]:
        core, apps = (path.replace("messaging", NAMESPACE) for path in (CORE, APPS))
        known = [
            (r.method, r.path.replace("messaging", NAMESPACE), r.handler) for r in super().routes()
        ]
        own = [
            ("GET", "/api", self._versions),
            ("GET", "/apis", self._groups),
            *(("GET", path, self._kinds) for path in ("/api/{v}", "/apis/{group}/{v}")),
            ("GET", f"{core}/pods", self._pods),
            ("GET", "/api/v1/pods", self._pods),
            ("POST", f"{core}/pods", self._create_pod),
            ("GET", f"{core}/pods/{{pod}}/exec", self._exec),
            ("GET", f"{core}/pods/{{pod}}/log", self._log),
            ("POST", f"{core}/pods/{{pod}}/eviction", self._evict),
            *((method, "/api/v1/nodes/{node}", self._node) for method in ("GET", "PATCH")),
            ("GET", f"{apps}/deployments/{{name}}", self._deployment),
            ("GET", f"{POLICY}/poddisruptionbudgets/{{name}}", self._budget),
        ]
        # The nodes themselves ask in the namespace of their account.
        return [*(web.route(*route) for route in [*own, *known]), *super().routes()]

    # What there is to ask for

    async def _versions(self, _: web.Request) -> web.Response:
        return web.json_response({"kind": "APIVersions", "versions": ["v1"]})

    async def _groups(self, _: web.Request) -> web.Response:
        versions = [{"groupVersion": each, "version": "v1"} for each in KINDS if "/" in each]
        groups = [
            {
                "name": each["groupVersion"].partition("/")[0],
                "versions": [each],
                "preferredVersion": each,
            }
            for each in versions
        ]
        return web.json_response({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})

    async def _kinds(self, request: web.Request) -> web.Response:
        version = request.path.removeprefix("/api/").removeprefix("/apis/")
        resources = [
            {
                "name": name,
                "singularName": kind.lower(),
                "kind": kind,
                "namespaced": name != "nodes",
                "verbs": ["get", "list", "create", "delete", "patch"],
                **({"group": "policy", "version": "v1"} if kind == "Eviction" else {}),
            }
            for name, kind in KINDS[version].items()
        ]
        return web.json_response(
            {"kind": "APIResourceList", "groupVersion": version, "resources": resources}
        )

    # Pods

    async def run(self, ordinal: int) -> None:
        name = f"{self.release.name}-{ordinal}"
        for _ in range(RESTARTS_MAX):
            try:
                return await super().run(ordinal)
            except PodEnded:
                continue
        raise AssertionError(f"{name} ends again and again")

    async def _replace(self, name: str, *, is_killed: bool) -> None:
        self._ending.add(name)
        try:
            await super()._replace(name, is_killed=is_killed)
        finally:
            self._ending.discard(name)

    async def _pods(self, request: web.Request) -> web.Response:
        self._check(request)
        wanted = dict(
            part.split("=") for part in request.query.get("labelSelector", "").split(",") if part
        )
        worker = request.query.get("fieldSelector", "").removeprefix("spec.nodeName=")
        found = [await self._described(name) for name in sorted(self._uids)]
        found.append(self._toolbox())
        items = [
            pod
            for pod in found
            if wanted.items() <= pod["metadata"]["labels"].items()
            and worker in ("", pod["spec"]["nodeName"])
        ]
        return web.json_response({"apiVersion": "v1", "kind": "PodList", "items": items})

    async def _pod(self, request: web.Request) -> web.Response:
        self._check(request)
        name = request.match_info["pod"]
        if name in self._extra:
            found = self._bare(name, {})
        elif name in self._uids:
            found = await self._described(name)
        else:
            return self._refused(404, "NotFound", f'pods "{name}" not found')
        found["status"]["podIP"] = self.pods[name].address if name in self.pods else ""
        return web.json_response(found)

    async def _described(self, name: str) -> Object:
        labels = {
            **self._spec["template"]["metadata"]["labels"],
            "statefulset.kubernetes.io/pod-name": name,
            **({LABEL: self.labels[name]} if name in self.labels else {}),
        }
        found = self._bare(name, labels)
        found["metadata"]["uid"] = self._uids[name]
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": self.release.name}
        found["metadata"]["ownerReferences"] = [{**owner, "uid": "s", "controller": True}]
        found["spec"]["nodeName"] = f"worker-{name}"
        if name in self._ending:
            found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        if await self._is_ready(self.pods[name]):
            found["status"]["conditions"] = [READY]
        return found

    async def _is_ready(self, pod: Pod) -> bool:
        timeout = aiohttp.ClientTimeout(total=PROBE_S)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"http://{pod.address}:{HTTP_PORT}/readyz") as response,
            ):
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    def _toolbox(self) -> Object:
        made = one(self.release.objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
        found = self._bare(f"{self.release.name}-toolbox-0", made)
        found["status"]["conditions"] = [READY]
        return found

    def _bare(self, name: str, labels: dict[str, str]) -> Object:
        meta = {"name": name, "namespace": NAMESPACE, "uid": name, "labels": labels}
        spec = {"containers": [{"name": "qm"}], "nodeName": "worker"}
        status = {"phase": "Running"}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}

    # One more pod

    async def _create_pod(self, request: web.Request) -> web.Response:
        self._check(request)
        made = await request.json()
        (container,) = made["spec"]["containers"]
        name = made["metadata"]["name"]
        process = await asyncio.create_subprocess_exec(
            *container["command"], stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        self._extra[name], self._said[name] = process, b""
        self._begin(self._listen(name, process))
        return web.json_response(made, status=201)

    async def _listen(self, name: str, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self._said[name] += line

    async def _log(self, request: web.Request) -> web.Response:
        self._check(request)
        return web.Response(body=self._said[request.match_info["pod"]])

    async def _delete_pod(self, request: web.Request) -> web.Response:
        name = request.match_info["pod"]
        if name not in self._extra:
            return await super()._delete_pod(request)
        self._extra[name].terminate()
        await self._extra[name].wait()
        del self._extra[name]
        return web.json_response({"kind": "Status", "apiVersion": "v1", "status": "Success"})

    # Programs in pods

    async def _exec(self, request: web.Request) -> web.WebSocketResponse:
        """Speak Kubernetes' channels: 1 is standard output, 2 the errors, 3 the outcome."""
        self._check(request)
        socket = web.WebSocketResponse(protocols=["v5.channel.k8s.io"])
        await socket.prepare(request)
        program, *arguments = request.query.getall("command")
        assert program == "qm"
        pipe = asyncio.subprocess.PIPE
        process = await self.release.run(arguments, self._tool_environment(), pipe, pipe)
        for channel, text in enumerate(await process.communicate(), 1):
            if text:
                await socket.send_bytes(bytes([channel]) + text)
        outcome: Object = {"metadata": {}, "status": "Success"}
        if process.returncode:
            causes = [{"reason": "ExitCode", "message": str(process.returncode)}]
            outcome |= {"status": "Failure", "message": "", "reason": "NonZeroExitCode"}
            outcome["details"] = {"causes": causes}
        await socket.send_bytes(b"\x03" + json.dumps(outcome).encode())
        await socket.close()
        return socket

    def _tool_environment(self) -> dict[str, str]:
        spec = one(self.release.objects, "Deployment")["spec"]["template"]["spec"]
        secret = f"{self.release.name}-admin-tls"
        assert secret in str(spec["volumes"])
        (container,) = spec["containers"]
        found = {
            each["name"]: self.release.local(each["value"], "", "admin-tls")
            for each in container["env"]
        }
        service = f"{self.release.name}-nodes.{NAMESPACE}.{DOMAIN}"
        names = sorted(self._uids.keys() - self._ending)
        return found | {"QM_ENDPOINT": ",".join(f"{n}.{service}:{API_PORT}" for n in names)}

    # The set, its budget, its workers

    async def _stateful_set(self, request: web.Request) -> web.Response:
        self._check(request)
        ready = [name for name in self._uids if await self._is_ready(self.pods[name])]
        meta = {"name": self.release.name, "namespace": NAMESPACE, "generation": self._generation}
        status = {
            "observedGeneration": self._generation,
            "replicas": len(self._uids),
            "readyReplicas": len(ready),
            "currentRevision": "1",
            "updateRevision": "1",
        }
        spec = {**self._spec, "replicas": self.replicas}
        found = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta}
        return web.json_response({**found, "spec": spec, "status": status})

    async def _set_scale(self, request: web.Request) -> web.Response:
        self._generation += 1
        answer = await super()._set_scale(request)
        found = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {}}
        return web.json_response(found | json.loads(answer.text or ""))

    async def _deployment(self, request: web.Request) -> web.Response:
        self._check(request)
        return web.json_response(one(self.release.objects, "Deployment"))

    async def _budget(self, request: web.Request) -> web.Response:
        self._check(request)
        found = one(self.release.objects, "PodDisruptionBudget")
        return web.json_response({**found, "status": {"disruptionsAllowed": await self._allowed()}})

    async def _allowed(self) -> int:
        budget: int = one(self.release.objects, "PodDisruptionBudget")["spec"]["maxUnavailable"]
        present = self._uids.keys() - self._ending
        ready = [name for name in present if await self._is_ready(self.pods[name])]
        assert self.replicas is not None
        return max(budget - self.replicas + len(ready), 0)

    async def _evict(self, request: web.Request) -> web.Response:
        name, eviction = request.match_info["pod"], await self._record(request)
        assert eviction["metadata"]["name"] == name
        if not await self._allowed():
            why = "Cannot evict pod as it would violate the pod's disruption budget."
            return self._refused(429, "TooManyRequests", why)
        self._ending.add(name)
        self._begin(self._replace(name, is_killed=False))
        return web.json_response(
            {"kind": "Status", "apiVersion": "v1", "status": "Success"}, status=201
        )

    async def _node(self, request: web.Request) -> web.Response:
        self._check(request)
        if request.method == "PATCH":
            self.asked.append(("PATCH", request.path, json.loads(await request.text())))
        meta = {"name": request.match_info["node"]}
        cordons = [b["spec"] for m, path, b in self.asked if (m, path) == ("PATCH", request.path)]
        spec: Any = cordons[-1] if cordons else {}
        return web.json_response(
            {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec}
        )

    def _refused(self, code: int, reason: str, message: str) -> web.Response:
        found = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
        return web.json_response(found | {"reason": reason, "message": message}, status=code)
