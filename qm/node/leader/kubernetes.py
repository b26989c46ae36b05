"""Calls of Kubernetes' API server, and what a node in a pod uses it for: the pod's label, and the
wanted number of pods.

A pod has the same name as its node.
"""

import contextlib
import ssl
from collections.abc import Callable, Collection
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from qm.cluster.cluster import Leadership
from qm.node.config.schema import KubernetesSection

LABEL: Final = "quorate.io/role"
LEADER: Final = "leader"
FOLLOWER: Final = "follower"
LOOK_EVERY_S: Final = 0.5
CALL_TIMEOUT_S: Final = 5.0
_ANSWER_MAX_CHARS: Final = 1024
_DONE: Final = (HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.ACCEPTED)
_JSON: Final = "application/json"
_MERGE_PATCH: Final = "application/merge-patch+json"


class ApiServerRefused(Exception):
    """The API server did not do it, or cannot be asked; the text says what to check."""


class NotFound(ApiServerRefused):
    """There is no such object."""


class Grant(msgspec.Struct, frozen=True):
    """Access to the API server at this moment."""

    url: str
    namespace: str
    token: str
    """Empty: the caller is identified by a certificate in `tls`."""
    tls: ssl.SSLContext


class ServiceAccount:
    """Credentials of a pod: Kubernetes renews the token, and sometimes the authority, in place."""

    def __init__(self, config: KubernetesSection, namespace: str = "") -> None:
        """`namespace`: used instead of the pod's own."""
        self._config = config
        self._namespace = namespace

    def __call__(self) -> Grant:
        """Read the files. Raises OSError, ValueError."""
        account = self._config.service_account
        return Grant(
            self._config.api_server,
            self._namespace or _line(account / "namespace"),
            _line(account / "token"),
            ssl.create_default_context(cafile=str(account / "ca.crt")),
        )


class ApiServer:
    """Calls about one namespace."""

    def __init__(self, grant: Callable[[], Grant]) -> None:
        """`grant` is called before each request, and may raise OSError and ValueError."""
        self._grant = grant

    async def set_label(self, pod: str, label: str) -> None:
        """Set a pod's `quorate.io/role`. Raises ApiServerRefused."""
        change = {"metadata": {"labels": {LABEL: label}}}
        await self.call("PATCH", "api/v1", f"pods/{pod}", change)

    async def replicas(self, stateful_set: str) -> int:
        """Return how many pods a StatefulSet should have. Raises ApiServerRefused."""
        answer = await self.call("GET", "apis/apps/v1", f"statefulsets/{stateful_set}")
        try:
            return int(answer["spec"]["replicas"])
        except (KeyError, TypeError, ValueError) as error:
            raise ApiServerRefused(f"statefulsets/{stateful_set} has no replicas") from error

    async def workers(self) -> list[Any]:
        """Return the cluster's nodes, as Kubernetes calls them. Raises ApiServerRefused."""
        answer = await self._call("GET", "api/v1/nodes", "nodes", None)
        try:
            return list(answer["items"])
        except (KeyError, TypeError) as error:
            raise ApiServerRefused("nodes have no items") from error

    async def call(self, method: str, api: str, name: str, change: object = None) -> Any:
        """Return the server's answer about an object of the namespace; `change` is a merge patch,
        the options of a deletion, or a new object. Raises NotFound, ApiServerRefused.
        """
        return await self._call(method, f"{api}/namespaces/{{namespace}}/{name}", name, change)

    async def _call(self, method: str, path: str, name: str, change: object) -> Any:
        timeout = aiohttp.ClientTimeout(total=CALL_TIMEOUT_S)
        try:
            grant = self._grant()
            url = f"{grant.url}/{path.format(namespace=grant.namespace)}"
            headers = {"Content-Type": _MERGE_PATCH if method == "PATCH" else _JSON}
            if grant.token:
                headers["Authorization"] = f"Bearer {grant.token}"
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
                session.request(
                    method, url, json=change, ssl=grant.tls, allow_redirects=False
                ) as response,
            ):
                if response.status in _DONE:
                    return await response.json()
                text = (await response.text())[:_ANSWER_MAX_CHARS]
        except (OSError, aiohttp.ClientError, ValueError) as error:
            raise ApiServerRefused(f"{method} {name}: {error!r}") from error
        if response.status == HTTPStatus.NOT_FOUND:
            raise NotFound(f"{method} {name}: {response.status} {text!r}")
        raise ApiServerRefused(
            f"{method} {name}: {response.status} {text!r}: may the caller do that?"
        )


class LeaderLabel:
    """Keeps pods' labels in step with leadership, for a Service for the leader alone.

    Each pod sets its own. A new leader also sets those of the others: one whose worker is lost
    would keep its label until Kubernetes gives it up, which takes minutes.
    """

    def __init__(
        self,
        config: KubernetesSection,
        pod: str,
        leadership: Callable[[], Leadership],
        members: Callable[[], Collection[str]],
    ) -> None:
        """`members` gives the names of all members."""
        self._server = ApiServer(ServiceAccount(config))
        self._pod = pod
        self._leadership = leadership
        self._members = members
        self._term = 0
        self._labels: dict[str, str] = {}
        """What was set in this term: another leader, or an earlier process, may have set others."""

    async def look(self) -> None:
        """Set the labels that are wrong. Raises ApiServerRefused."""
        leadership = self._leadership()
        if leadership.term != self._term:
            self._term = leadership.term
            self._labels.clear()
        await self._set(self._pod, LEADER if leadership.is_here else FOLLOWER)
        if leadership.is_here:
            for pod in self._members():
                if pod != self._pod:
                    with contextlib.suppress(NotFound):
                        await self._set(pod, FOLLOWER)

    async def _set(self, pod: str, label: str) -> None:
        if self._labels.get(pod) != label:
            await self._server.set_label(pod, label)
            self._labels[pod] = label


async def is_scaled_away(config: KubernetesSection, pod: str) -> bool:
    """Return whether a pod's StatefulSet is to go on without it. Raises ApiServerRefused.

    A StatefulSet with no replicas is a stopped cluster, not one without members.
    """
    ordinal = ordinal_of(config.stateful_set, pod)
    if ordinal is None:
        return False
    return 0 < await ApiServer(ServiceAccount(config)).replicas(config.stateful_set) <= ordinal


def ordinal_of(stateful_set: str, pod: str) -> int | None:
    """Return a pod's number in its StatefulSet; None if it belongs to another one."""
    ordinal = pod.removeprefix(f"{stateful_set}-")
    is_one = bool(stateful_set) and ordinal != pod and ordinal.isascii() and ordinal.isdecimal()
    return int(ordinal) if is_one else None


def _line(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip()
