"""An API server whose pods are processes: what a StatefulSet does when pods and claims are deleted.

It stands for Kubernetes in drills, and records what it was asked. What it does not imitate:
scheduling, volumes that are slow to attach, kube-proxy, and a kubelet that ends a container later
than the API server forgets its pod.
"""

import asyncio
import shutil
import uuid
from typing import Any

from aiohttp import web

from tests.chart.pods import Pod, Release
from tests.chart.rendering import one
from tests.cluster.test_kubernetes import APPS, CORE, TOKEN, ApiServer


class Controller(ApiServer):
    """Takes what a drill asks; `release` is set before it is asked anything."""

    release: Release

    def start(self) -> None:
        """Begin with nothing running."""
        self.asked: list[tuple[str, str, Any]] = []
        """Method, path, body, but for questions."""
        self.called: set[tuple[str, str]] = set()
        """Method and path of everything but what the nodes themselves ask."""
        self.pods: dict[str, Pod] = {}
        self._uids: dict[str, str] = {}
        self._claims_deleted: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._spec = one(self.release.objects, "StatefulSet")["spec"]

    def routes(self) -> list[web.RouteDef]:
        claim = f"{CORE}/persistentvolumeclaims/{{claim}}"
        scale = f"{APPS}/statefulsets/{{name}}/scale"
        return [
            *super().routes(),
            web.get(f"{CORE}/pods/{{pod}}", self._pod),
            web.delete(f"{CORE}/pods/{{pod}}", self._delete_pod),
            web.delete(claim, self._delete_claim),
            web.get(f"{CORE}/services/{{name}}", self._service),
            web.get(scale, self._scale),
            web.patch(scale, self._set_scale),
        ]

    async def run(self, ordinal: int) -> None:
        """Start a pod of the set and wait until it serves, as no set does."""
        name = f"{self.release.name}-{ordinal}"
        if name in self._claims_deleted:
            shutil.rmtree(self.release.folder / "data" / name)
            self._claims_deleted.remove(name)
        pod = self.pods.setdefault(name, Pod(self.release, ordinal))
        await pod.start()
        self._uids[name] = uuid.uuid4().hex
        await pod.ready()

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(pod.kill() for pod in self.pods.values()))

    # Answers

    async def _stateful_set(self, request: web.Request) -> web.Response:
        self._check(request)
        return web.json_response({"spec": {**self._spec, "replicas": self.replicas}})

    async def _scale(self, request: web.Request) -> web.Response:
        self._check(request)
        return web.json_response({"spec": {"replicas": self.replicas}})

    async def _service(self, request: web.Request) -> web.Response:
        self._check(request)
        ingress = [{"ip": self.pods[f"{self.release.name}-0"].address}]
        return web.json_response({"spec": {}, "status": {"loadBalancer": {"ingress": ingress}}})

    async def _pod(self, request: web.Request) -> web.Response:
        self._check(request)
        name = request.match_info["pod"]
        if name not in self._uids:
            return web.json_response({"message": "not found"}, status=404)
        meta = {"name": name, "namespace": "messaging", "uid": self._uids[name]}
        status = {"podIP": self.pods[name].address}
        return web.json_response({"metadata": meta, "status": status})

    async def _delete_pod(self, request: web.Request) -> web.Response:
        name, options = request.match_info["pod"], await self._record(request)
        is_killed = options.get("gracePeriodSeconds") == 0
        if is_killed:
            del self._uids[name]
        self._begin(self._replace(name, is_killed=is_killed))
        return web.json_response({})

    async def _delete_claim(self, request: web.Request) -> web.Response:
        await self._record(request)
        claim = request.match_info["claim"]
        template = self._spec["volumeClaimTemplates"][0]["metadata"]["name"]
        assert claim.startswith(f"{template}-"), claim
        self._claims_deleted.add(claim.removeprefix(f"{template}-"))
        return web.json_response({}, status=202)

    async def _set_scale(self, request: web.Request) -> web.Response:
        change = await self._record(request)
        before, after = self.replicas, int(change["spec"]["replicas"])
        assert before is not None
        assert abs(after - before) == 1, change
        self.replicas = after
        if after > before:
            self._begin(self.run(before))
        else:
            self._begin(self._replace(f"{self.release.name}-{after}", is_killed=False))
        return web.json_response({"spec": {"replicas": after}})

    async def _replace(self, name: str, *, is_killed: bool) -> None:
        pod, ordinal = self.pods[name], int(name.rpartition("-")[2])
        if is_killed:
            await pod.kill()
        else:
            await pod.stop()
            del self._uids[name]
        assert self.replicas is not None
        if ordinal < self.replicas:
            await self.run(ordinal)

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)

    async def _record(self, request: web.Request) -> Any:
        self._check(request)
        body = await request.json()
        self.asked.append((request.method, request.path, body))
        return body

    def _check(self, request: web.Request) -> None:
        self.called.add((request.method, request.path))
        assert request.headers["Authorization"] == f"Bearer {TOKEN}"
