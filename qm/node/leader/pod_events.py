"""Tells Kubernetes why this pod does not serve: events, which `kubectl describe pod` shows."""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from qm.node.config.schema import KubernetesSection
from qm.node.leader.kubernetes import ApiServer, ApiServerRefused, ServiceAccount

logger = logging.getLogger(__name__)

WAITS: Final = "NotAMemberYet"
REMOVED: Final = "MemberRemoved"
TELL_AFTER_S: Final = 30.0
"""For what is over sooner nobody looks at events."""
TEXT_MAX_CHARS: Final = 1024
"""As the API server has it."""


class PodEvents:
    """Events about this pod; nothing happens outside Kubernetes."""

    def __init__(self, config: KubernetesSection, pod: str) -> None:
        self._account = ServiceAccount(config)
        self._server = ApiServer(self._account)
        self._pod = pod
        self._uid = config.pod_uid

    async def watch(self, waits_for: Callable[[], str]) -> None:
        """Tell what the node waits for, each thing once, until cancelled."""
        told = ""
        while self._uid:
            before = waits_for()
            await asyncio.sleep(TELL_AFTER_S)
            if told != waits_for() == before:
                told = before
                await self.tell(WAITS, told)

    async def tell(self, reason: str, text: str) -> None:
        """Add an event. One that cannot be added is in the log alone."""
        if not self._uid:
            return
        try:
            await self._server.call("POST", "api/v1", "events", self._event(reason, text))
        except (ApiServerRefused, OSError, ValueError) as error:
            logger.warning("this pod has no event %s: %s", reason, error)

    def _event(self, reason: str, text: str) -> dict[str, object]:
        """Raises OSError, ValueError."""
        namespace = self._account().namespace
        now = datetime.now(UTC).isoformat(timespec="seconds")
        pod = {"apiVersion": "v1", "kind": "Pod", "name": self._pod, "uid": self._uid}
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{self._pod}.", "namespace": namespace},
            "involvedObject": pod | {"namespace": namespace},
            "type": "Warning",
            "reason": reason,
            "message": text[:TEXT_MAX_CHARS],
            "source": {"component": "quorate"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
