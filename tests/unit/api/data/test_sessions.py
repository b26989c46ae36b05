"""Leases of clients that wait at a node whose state is away for a while."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from qm.api.data import sessions
from qm.api.data.sessions import Sessions
from qm.cluster.cluster import Unavailable
from tests.cluster.harness import run, until


class Away:
    """A cluster whose state cannot be read for some looks, and then holds no client."""

    def __init__(self, looks: int) -> None:
        self.left = looks
        self.looks = 0

    @property
    def view(self) -> object:
        self.looks += 1
        if self.looks <= self.left:
            raise Unavailable("this node's state is being replaced by a snapshot")
        return SimpleNamespace(client=lambda client_id: None)


def test_leases_are_renewed_again_once_the_state_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "RENEW_EVERY_S", 0.001)
    monkeypatch.setattr(sessions, "get_client", lambda view, client_id: view.client(client_id))

    async def scenario() -> None:
        cluster = Away(3)
        leases = Sessions(cast(Any, cluster), cast(Any, None))
        with leases.hold("c1"):
            await until(lambda: cluster.looks > 5)
        leases.stop()

    run(scenario())
