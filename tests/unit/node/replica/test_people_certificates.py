"""The metric of the next certificate of a user to expire."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry

from qm.client.signing import new_signer
from qm.node.replica.people_certificates import DIRECTORY, PeopleCertificates
from qm.observe.metrics import Metrics
from qm.security.certificates import described
from tests.unit.model.management.test_people import ALICE, BOB, register, remove
from tests.unit.model.world import World


def test_the_next_expiry_is_shown_until_its_certificate_is_gone() -> None:
    world, registry = World(), CollectorRegistry()
    watch = PeopleCertificates(Metrics(registry), time.monotonic)

    def shown(now_s: int) -> float | None:
        watch.refresh(world.machine.view, now_s)
        watch.refresh(world.machine.view, now_s)
        return registry.get_sample_value("quorate_certificate_expiry_seconds", {"file": DIRECTORY})

    assert shown(0) is None
    soon, late = new_signer("a", 1024, 3).certificate, new_signer("b", 1024, 300).certificate
    register(world, ALICE, late)
    register(world, BOB, soon)
    register(world, BOB, b"not X.509")
    ends = described(soon).not_after_s
    assert shown(ends - 100) == 100
    assert shown(ends + 5) == -5
    remove(world, BOB, soon)
    assert shown(ends) == described(late).not_after_s - ends
