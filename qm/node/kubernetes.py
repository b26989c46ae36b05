"""The label that says which pod leads, for a Service that reaches the leader alone.

A pod's name is its node's. The label is set when leadership comes or goes; a pod that dies with it
is not ready, so its Service leaves it out.
"""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

import aiohttp

from qm.node.config import KubernetesSection

LABEL: Final = "quorate.io/role"
LOOK_EVERY_S: Final = 0.5
PATCH_TIMEOUT_S: Final = 5.0
_ANSWER_BYTES_MAX: Final = 1024
_OK: Final = 200
_MERGE_PATCH: Final = "application/merge-patch+json"


class LabelRefused(Exception):
    """The API server did not set the label; says what it answered."""


class LeaderLabel:
    """Keeps one pod's label as its node's leadership is."""

    def __init__(self, config: KubernetesSection, pod: str, leads: Callable[[], bool]) -> None:
        self._config = config
        self._pod = pod
        self._leads = leads
        self._label = ""
        """As it was set last; empty = by whoever ran here before."""

    async def look(self) -> None:
        """Set the label if it is not what it should be.

        Raises LabelRefused, OSError, and what aiohttp raises.
        """
        label = "leader" if self._leads() else "follower"
        if label != self._label:
            await self._patch(label)
            self._label = label

    async def _patch(self, label: str) -> None:
        # Kubernetes renews the token, and sometimes the authority, in place.
        account = self._config.service_account
        token, namespace = _line(account / "token"), _line(account / "namespace")
        tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
        url = f"{self._config.api_server}/api/v1/namespaces/{namespace}/pods/{self._pod}"
        headers = {"Authorization": f"Bearer {token}", "Content-Type": _MERGE_PATCH}
        change = {"metadata": {"labels": {LABEL: label}}}
        timeout = aiohttp.ClientTimeout(total=PATCH_TIMEOUT_S)
        async with (
            aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
            session.patch(url, json=change, ssl=tls, allow_redirects=False) as response,
        ):
            if response.status != _OK:
                answer = await response.content.read(_ANSWER_BYTES_MAX)
                raise LabelRefused(
                    f"{response.status} {answer.decode('utf-8', 'replace')!r}: may the service"
                    f" account patch the pod {self._pod}?"
                )


def _line(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip()
