"""The certificates of a node: how long they are good for, and that it is said in time."""

import asyncio
import logging
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from qm.api.gate.identity import Role
from qm.node.upkeep.housekeeping import CERTIFICATES_EVERY_S, Certificates
from qm.node.upkeep.pki import create_authority, issue
from qm.observe.metrics import Metrics

DAY_S = 86_400


def test_a_certificate_s_end_is_measured_each_minute_and_said_once_a_day(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    create_authority(tmp_path, "test")
    ending, _ = issue(tmp_path, "ending", Role.ADMIN, days=20)
    fresh, _ = issue(tmp_path, "fresh", Role.ADMIN, days=300)
    registry = CollectorRegistry()
    certificates = Certificates((ending, fresh, tmp_path / "absent.pem"), Metrics(registry))

    def days(file: Path) -> float:
        left = registry.get_sample_value("quorate_certificate_expiry_seconds", {"file": file.name})
        return round((left or 0) / DAY_S)

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            asyncio.run(certificates.look())
    assert (days(ending), days(fresh)) == (20, 300)
    said = [record.message for record in caplog.records if "ending.pem" in record.message]
    assert len(said) == 1
    assert "`qm pki renew`" in said[0]
    issue_again = tmp_path / "again"
    create_authority(issue_again, "test")
    renewed, _ = issue(issue_again, "ending", Role.ADMIN, days=90)
    ending.write_bytes(renewed.read_bytes())
    asyncio.run(certificates.look())
    assert days(ending) == 90
    assert CERTIFICATES_EVERY_S <= 60
