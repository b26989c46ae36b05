"""Quotas of peers are seen before they are reached."""

import logging
from unittest import mock

import pytest
from prometheus_client import CollectorRegistry

from qm.model.values.commands import Facts
from qm.node.upkeep import peer_quotas as module
from qm.node.upkeep.peer_quotas import PeerQuotas
from qm.observe.metrics import Metrics
from tests.unit.model.world import World, packet

ADDRESSES = {"10.0.0.1": 1, "10.0.0.2": 8, "10.0.0.3": 2}


@pytest.fixture
def world() -> World:
    """Queue managers at a few addresses, one message of each."""
    made = World()
    made.create("plain")
    for address, count in ADDRESSES.items():
        for number in range(count):
            source = f"{address} {number}".encode().ljust(16)
            message = packet(1, to="plain", source_queue_manager=source)
            made.arrive(message, facts=Facts(1, source, address, ()))
    return made


def test_the_fullest_address_is_shown_and_named(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics(CollectorRegistry())

    def ratio(quota: str) -> float | None:
        labels = {"quota": quota}
        return metrics.registry.get_sample_value("quorate_peer_quota_ratio", labels)

    quotas = PeerQuotas(metrics, lambda: 0.0)
    with (
        mock.patch.object(module, "PAGE_ROWS", 2),
        mock.patch.object(module, "SOURCES_PER_ADDRESS_MAX", 10),
        mock.patch.object(module, "STREAMS_PER_ADDRESS_MAX", 100),
        mock.patch.object(module, "SOURCES_MAX", 22),
        caplog.at_level(logging.WARNING),
    ):
        for _ in range(5):  # rounds of two pages: what was found is shown meanwhile
            quotas.refresh(world.machine.view)
            assert ratio("sources_per_address") == 0.8
            assert ratio("streams_per_address") == 0.08
            assert ratio("sources") == 0.5
    (line,) = caplog.records
    assert line.__dict__["fields"]["address"] == "10.0.0.2"
