"""What a node in a pod asks of Kubernetes' API server: its label, and how many pods there shall be.

A pod's name is its node's.
"""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import aiohttp

from qm.node.config import KubernetesSection

LABEL: Final = "quorate.io/role"
LOOK_EVERY_S: Final = 0.5
CALL_TIMEOUT_S: Final = 5.0
_ANSWER_CHARS_MAX: Final = 1024
_OK: Final = 200
_MERGE_PATCH: Final = "application/merge-patch+json"


class ApiServerRefused(Exception):
    """The API server did not do it, or cannot be asked; says what to look at."""


class ApiServer:
    """Calls with the pod's service account."""

    def __init__(self, config: KubernetesSection) -> None:
        self._config = config

    async def set_label(self, pod: str, label: str) -> None:
        """Set a pod's `quorate.io/role`. Raises ApiServerRefused."""
        change = {"metadata": {"labels": {LABEL: label}}}
        await self._call("PATCH", "api/v1", f"pods/{pod}", change)

    async def replicas(self, stateful_set: str) -> int:
        """Return how many pods a StatefulSet shall have. Raises ApiServerRefused."""
        answer = await self._call("GET", "apis/apps/v1", f"statefulsets/{stateful_set}")
        try:
            return int(answer["spec"]["replicas"])
        except (KeyError, TypeError, ValueError) as error:
            raise ApiServerRefused(f"statefulsets/{stateful_set} says no replicas") from error

    async def _call(self, method: str, api: str, name: str, change: object = None) -> Any:
        # Kubernetes renews the token, and sometimes the authority, in place.
        account = self._config.service_account
        timeout = aiohttp.ClientTimeout(total=CALL_TIMEOUT_S)
        try:
            token, namespace = _line(account / "token"), _line(account / "namespace")
            tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
            url = f"{self._config.api_server}/{api}/namespaces/{namespace}/{name}"
            headers = {"Authorization": f"Bearer {token}", "Content-Type": _MERGE_PATCH}
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
                session.request(
                    method, url, json=change, ssl=tls, allow_redirects=False
                ) as response,
            ):
                if response.status == _OK:
                    return await response.json()
                text = (await response.text())[:_ANSWER_CHARS_MAX]
        except (OSError, aiohttp.ClientError, ValueError) as error:
            raise ApiServerRefused(f"{method} {name}: {error!r}") from error
        raise ApiServerRefused(
            f"{method} {name}: {response.status} {text!r}: may the service account do that?"
        )


class LeaderLabel:
    """Keeps a pod's label as its node's leadership is, for a Service that reaches the leader alone.

    A pod that dies with the label is not ready, so its Service leaves it out.
    """

    def __init__(self, config: KubernetesSection, pod: str, leads: Callable[[], bool]) -> None:
        self._server = ApiServer(config)
        self._pod = pod
        self._leads = leads
        self._label = ""
        """As it was set last; empty = by whoever ran here before."""

    async def look(self) -> None:
        """Set the label if it is not what it should be. Raises ApiServerRefused."""
        label = "leader" if self._leads() else "follower"
        if label != self._label:
            await self._server.set_label(self._pod, label)
            self._label = label


async def is_scaled_away(config: KubernetesSection, pod: str) -> bool:
    """Return whether a pod's StatefulSet shall go on without it. Raises ApiServerRefused.

    No replicas at all is a cluster that is stopped, not one without members.
    """
    ordinal = pod.removeprefix(f"{config.stateful_set}-")
    if not config.stateful_set or not ordinal.isdecimal():
        return False
    return 0 < await ApiServer(config).replicas(config.stateful_set) <= int(ordinal)


def _line(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip()
