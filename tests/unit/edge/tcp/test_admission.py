"""Limits count what one host can have many of."""

from __future__ import annotations

from typing import Any

from qm.edge.limits import FEW_SESSIONS_COUNT
from qm.edge.settings import EdgeSettings
from qm.edge.tcp.admission import Admission


def admission(**limits: int) -> Admission:
    settings: dict[str, Any] = {"sessions_max": 10, "sessions_per_address_max": 2} | limits
    return Admission(EdgeSettings(addresses=("127.0.0.1",), **settings))


def test_an_ipv4_address_stands_for_itself() -> None:
    counts = admission()
    for address in ("10.0.0.1", "10.0.0.1", "10.0.0.2"):
        assert counts.refusal(address) is None
        counts.enter(address)
    assert counts.refusal("10.0.0.1") == "sessions_per_address_max"
    assert counts.refusal("10.0.0.2") is None
    counts.leave("10.0.0.1")
    assert counts.refusal("10.0.0.1") is None


def test_ipv6_addresses_of_one_network_count_as_one() -> None:
    counts = admission()
    counts.enter("2001:db8::1")
    counts.enter("2001:db8:0:0:ffff::2")
    counts.enter("fe80::1%eth0")
    assert counts.refusal("2001:db8::3") == "sessions_per_address_max"
    assert counts.refusal("2001:db8:0:1::3") is None
    assert counts.refusal("fe80::2%eth0") is None


def test_all_together_are_limited_too() -> None:
    counts = admission(sessions_max=3)
    for number in range(3):
        counts.enter(f"10.0.0.{number}")
    assert counts.refusal("10.0.0.9") == "sessions_max"


def test_a_few_addresses_cannot_take_all() -> None:
    counts = admission(sessions_max=200, sessions_per_address_max=140)
    for address in ("10.0.0.1", "10.0.0.2"):
        while counts.refusal(address) is None:
            counts.enter(address)
    assert counts.refusal("10.0.0.1") == "sessions_per_address_max"
    assert counts.refusal("10.0.0.2") == "sessions_kept"
    for _ in range(FEW_SESSIONS_COUNT):
        assert counts.refusal("10.0.0.3") is None
        counts.enter("10.0.0.3")
    assert counts.refusal("10.0.0.3") == "sessions_kept"
    assert counts.refusal("10.0.0.4") is None


def test_a_queue_manager_is_counted_once_its_session_is_open() -> None:
    counts = admission(sessions_per_queue_manager_max=1)
    first, second = b"1" * 16, b"2" * 16
    assert counts.admit(first, False)
    assert counts.join(first)
    assert not counts.admit(first, True)
    assert not counts.join(first)
    assert counts.join(second)
    counts.part(first)
    assert counts.admit(first, False)


def test_an_address_may_have_one_session_if_that_is_its_limit() -> None:
    counts = admission(sessions_per_address_max=1)
    assert counts.refusal("10.0.0.1") is None
    counts.enter("10.0.0.1")
    assert counts.refusal("10.0.0.1") == "sessions_per_address_max"
