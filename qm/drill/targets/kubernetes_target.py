"""A release of the chart: a drill uses Kubernetes' API server and runs nothing in pods."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from typing_extensions import override

from qm.client.calls import Tls
from qm.client.errors import ClientError
from qm.drill.targets.ability import Ability, Refused
from qm.drill.targets.limited import LimitedTarget
from qm.drill.targets.readiness import check_members, members_of, until_ready
from qm.drill.targets.reasons import KUBERNETES
from qm.drill.targets.target import DrillNode, TargetFailed
from qm.drill.targets.workers import is_usable, needs_one_each
from qm.node.config.addresses import host_and_port
from qm.node.config.schema import API_PORT, HTTP_PORT
from qm.node.leader.kubernetes import ApiServer, ApiServerRefused, NotFound
from qm.pb import control_pb2

logger = logging.getLogger(__name__)

WAIT_S: Final = 300.0
"""Time for a pod to be scheduled, to get its volume, and to serve."""
POLL_S: Final = 0.2
_CORE: Final = "api/v1"
_APPS: Final = "apis/apps/v1"
_SHARED: Final = frozenset({Ability.PROCESSES, Ability.DISKS, Ability.SCALE})


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """Which release, and how to reach its nodes."""

    stateful_set: str
    pod_host: str
    """Host of a node; `{pod}`, `{service}`, `{namespace}` and `{ip}` are the pod's."""
    msmq_service: str = ""
    """Service for MSMQ peers; its address must be among the queue manager's aliases."""


class KubernetesTarget(LimitedTarget):
    """A cluster that exists before and after a drill, with the same number of pods.

    Killing a node deletes its pod without a grace period, stopping it deletes the pod with its own
    grace period; the StatefulSet starts it again.
    """

    nodes: tuple[DrillNode, ...] = ()

    def __init__(self, server: ApiServer, release: Release, tls: Tls, folder: Path) -> None:
        """`folder`: for histories and reports."""
        super().__init__(KUBERNETES)
        self.folder = folder
        self._tls = tls
        self._server = server
        self._release = release
        self._service = ""
        self._claim = ""
        self._replicas_before: int | None = None
        self._deleted: dict[str, str] = {}
        """Pods that a drill has deleted since the last heal, with their old uid."""
        self._lost: dict[str, str] = {}
        """Consensus ids of nodes that lost their disks."""

    @property
    @override
    def tls(self) -> Tls:
        return self._tls

    @property
    @override
    def abilities(self) -> frozenset[Ability]:
        has_service = bool(self._release.msmq_service)
        return _SHARED | ({Ability.VIRTUAL_ADDRESS} if has_service else set())

    # Life

    @override
    async def up(self) -> None:
        """Find the release. Raises Refused, TargetFailed, ClientError."""
        try:
            found = await self._get(_APPS, f"statefulsets/{self._release.stateful_set}")
            spec = found["spec"]
            self._service = spec["serviceName"]
            self._claim = spec["volumeClaimTemplates"][0]["metadata"]["name"]
        except (ApiServerRefused, LookupError, TypeError) as error:
            raise Refused(f"no StatefulSet {self._release.stateful_set}: {error!r}") from error
        await self.heal()
        self._replicas_before = len(self.nodes)
        await check_members(self.nodes, self.tls)

    @override
    async def down(self) -> None:
        """Restore the number of pods, all of them serving."""
        if self._replicas_before is None:
            return
        while len(self.nodes) > self._replicas_before:
            await self.shrink(self.nodes[-1].name)
        if self._deleted:
            await self.heal()

    @override
    async def heal(self) -> None:
        for pod, uid in list(self._deleted.items()):
            await self._until(partial(self._is_new, pod, uid), f"{pod} is not back")
            del self._deleted[pod]
        await self._look()
        await until_ready(self.nodes, WAIT_S)

    async def _look(self) -> None:
        """Look up the pods, since their addresses change."""
        replicas = (await self._get(_APPS, self._scale))["spec"]["replicas"]
        names = [f"{self._release.stateful_set}-{ordinal}" for ordinal in range(replicas)]
        for name in names:
            await self._until(partial(self._has_address, name), f"{name} is not running")
        self.nodes = tuple([self._node(await self._get(_CORE, f"pods/{name}")) for name in names])

    def _node(self, pod: Any) -> DrillNode:
        meta = pod["metadata"]
        host = self._release.pod_host.format(
            pod=meta["name"],
            service=self._service,
            namespace=meta["namespace"],
            ip=pod["status"]["podIP"],
        )
        http = f"http://{host_and_port(host, HTTP_PORT)}"
        return DrillNode(meta["name"], host, host_and_port(host, API_PORT), http)

    # Pods

    @override
    async def kill(self, *nodes: str) -> None:
        await asyncio.gather(*(self._delete(node, {"gracePeriodSeconds": 0}) for node in nodes))

    @override
    async def stop(self, node: str) -> None:
        await self._delete(node, {})
        uid = self._deleted[node]
        await self._until(lambda: self._is_gone(node, uid), f"{node} does not end")

    @override
    async def start(self, *nodes: str) -> None:
        """Do nothing: the StatefulSet starts pods."""

    async def _delete(self, pod: str, options: dict[str, object]) -> None:
        self._deleted[pod] = (await self._get(_CORE, f"pods/{pod}"))["metadata"]["uid"]
        await self._call("DELETE", _CORE, f"pods/{pod}", _delete_options(options))

    async def _is_gone(self, pod: str, uid: str) -> bool:
        found = await self._find(f"pods/{pod}")
        return found is None or found["metadata"]["uid"] != uid

    async def _is_new(self, pod: str, uid: str) -> bool:
        found = await self._find(f"pods/{pod}")
        return found is not None and found["metadata"]["uid"] != uid

    async def _has_address(self, pod: str) -> bool:
        found = await self._find(f"pods/{pod}")
        return found is not None and bool(found["status"].get("podIP"))

    # Disks and members

    @override
    async def lose_disk(self, node: str) -> None:
        """Delete the claim; it disappears when no pod uses it any more."""
        self._lost[node] = (await members_of(self.nodes, self.tls))[node].raft_id
        await self._call("DELETE", _CORE, self._claim_of(node), _delete_options({}))
        await self._until(lambda: self._exists(node), f"{node} is not back")
        await self.kill(node)

    async def _exists(self, pod: str) -> bool:
        return await self._find(f"pods/{pod}") is not None

    @override
    async def rejoin(self, node: str) -> None:
        lost = self._lost.pop(node)
        await self._until(lambda: self._votes(node, lost), f"{node} is no voter again")

    @override
    async def check_room(self, count: int) -> None:
        found = await self._get(_APPS, f"statefulsets/{self._release.stateful_set}")
        pod = found["spec"].get("template", {}).get("spec") or {}
        if not needs_one_each(pod):
            return
        needed = len(self.nodes) + count
        try:
            workers = await self._server.workers()
        except ApiServerRefused as error:
            logger.warning("workers cannot be counted before growing: %s", error)
            return
        usable = sum(is_usable(worker, pod) for worker in workers)
        if usable < needed:
            raise TargetFailed(
                f"{needed} workers are needed, one for each member, and {usable} of {len(workers)}"
                " admit such a pod: add workers, or set `scheduling.antiAffinity`; nothing was"
                " changed"
            )

    @override
    async def grow(self) -> str:
        name = f"{self._release.stateful_set}-{len(self.nodes)}"
        await self._set_replicas(len(self.nodes) + 1)
        await self._until(lambda: self._is_placed(name), f"{name} is not scheduled")
        await self._until(lambda: self._votes(name, ""), f"{name} is no voter")
        await self.heal()
        return name

    async def _is_placed(self, pod: str) -> bool:
        """Return whether a worker was found.

        Raises TargetFailed, after taking the pod back, when there is none: every member has a
        worker of its own unless `scheduling.antiAffinity` says less.
        """
        found = await self._find(f"pods/{pod}")
        status = {} if found is None else found["status"]
        for condition in status.get("conditions") or ():
            if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
                await self._set_replicas(len(self.nodes))
                raise TargetFailed(
                    f"no worker for {pod}, and it was taken back: {condition.get('message')}"
                )
        return bool(status.get("podIP") or status.get("conditions"))

    @override
    async def shrink(self, node: str) -> None:
        """Remove a member and delete its claim: the disk belongs to a member that is gone."""
        if node != self.nodes[-1].name:
            raise Refused(f"a StatefulSet removes {self.nodes[-1].name} before {node}")
        uid = (await self._get(_CORE, f"pods/{node}"))["metadata"]["uid"]
        await self._set_replicas(len(self.nodes) - 1)
        await self._until(lambda: self._is_gone(node, uid), f"{node} does not end")
        self.nodes = self.nodes[:-1]
        await self._until(lambda: self._is_no_member(node), f"{node} is still a member")
        # A StatefulSet may be configured to delete claims itself.
        with contextlib.suppress(NotFound):
            await self._call("DELETE", _CORE, self._claim_of(node), _delete_options({}))

    async def _votes(self, node: str, lost: str) -> bool:
        member = await self._member(node)
        return member is not None and member.role == control_pb2.VOTER and member.raft_id != lost

    async def _is_no_member(self, node: str) -> bool:
        return await self._member(node) is None

    async def _member(self, node: str) -> control_pb2.Member | None:
        return (await members_of(self.nodes, self.tls)).get(node)

    async def _set_replicas(self, count: int) -> None:
        await self._call("PATCH", _APPS, self._scale, {"spec": {"replicas": count}})

    # Fronts

    @override
    async def front(self, kind: Ability) -> str:
        name = self._release.msmq_service
        if kind is not Ability.VIRTUAL_ADDRESS or not name:
            self.refuse(kind)
        service = await self._get(_CORE, f"services/{name}")
        for ingress in service.get("status", {}).get("loadBalancer", {}).get("ingress") or ():
            if "ip" in ingress:
                return str(ingress["ip"])
        address = str(service["spec"].get("clusterIP") or "None")
        if address == "None":
            raise TargetFailed(f"services/{name} has no address")
        return address

    # Calls

    @property
    def _scale(self) -> str:
        return f"statefulsets/{self._release.stateful_set}/scale"

    def _claim_of(self, node: str) -> str:
        return f"persistentvolumeclaims/{self._claim}-{node}"

    async def _get(self, api: str, name: str) -> Any:
        return await self._call("GET", api, name)

    async def _find(self, name: str) -> Any:
        """Return a core object, None if it does not exist."""
        try:
            return await self._get(_CORE, name)
        except NotFound:
            return None

    async def _call(self, method: str, api: str, name: str, change: object = None) -> Any:
        """Call the API server. Raises NotFound, TargetFailed."""
        try:
            return await self._server.call(method, api, name, change)
        except NotFound:
            raise
        except ApiServerRefused as error:
            raise TargetFailed(str(error)) from error

    async def _until(self, ask: Callable[[], Awaitable[bool]], otherwise: str) -> None:
        """Wait until a condition holds. Raises TargetFailed."""
        loop = asyncio.get_running_loop()
        end = loop.time() + WAIT_S
        last: object = ""
        while True:
            try:
                if await ask():
                    return
            except ClientError as error:
                last = f": {error}"
            if loop.time() > end:
                raise TargetFailed(f"{otherwise} within {WAIT_S:.0f} s{last}")
            await asyncio.sleep(POLL_S)


def _delete_options(options: dict[str, object]) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "DeleteOptions", **options}
