"""Queues and messages with everything that can be set, kinds of queues, and poison messages."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from qm.client.blocking import BlockingClient
from qm.model.values.limits import APPLY_VERSION
from tests.unit.cli.test_nouns import ORDERS, USAGE, WAIT_S, Qm, bodies, send
from tests.unit.client.threaded import threaded_node

FAR = "DIRECT=TCP:127.255.255.253\\private$\\far"


@pytest.fixture(scope="module")
def qm() -> Iterator[Qm]:
    with threaded_node() as (endpoint, tls):
        made = Qm(endpoint, tls)
        end = time.monotonic() + WAIT_S
        while made.json("cluster", "status")["apply_version"] < APPLY_VERSION:
            assert time.monotonic() < end, "the newest apply version is not in force"
        yield made


@pytest.fixture
def orders(qm: Qm) -> Iterator[str]:
    qm("queue", "create", ORDERS, "--journal")
    yield ORDERS
    qm("queue", "delete", ORDERS, "--yes")


def test_a_queue_is_created_and_changed_with_all_its_attributes(qm: Qm) -> None:
    path = ".\\private$\\whole"
    given = {
        "label": "whole",
        "quota": 700,
        "journal_quota": 600,
        "multicast_address": "239.1.1.1:8001",
        "base_priority": -5,
        "max_deliveries": 3,
        "retry_delay_ms": 250,
    }
    options = [
        part
        for name, value in given.items()
        for part in (f"--{name.removesuffix('_ms').removesuffix('_address').replace('_', '-')}",
                     str(value))
    ]  # fmt: skip
    qm("queue", "create", path, *options, "--journal", "--authenticate", "--privacy", "body",
       "--poison-action", "reject")  # fmt: skip

    def shown() -> dict[str, object]:
        attributes: dict[str, object] = qm.json("queue", "show", path)["attributes"]
        return attributes

    found = shown()
    assert {name: found[name] for name in given} == given
    flags = ("journaling", "authentication", "privacy_level", "poison_action", "transactional")
    assert [found[name] for name in flags] == [True, True, 2, 2, False]
    qm("queue", "set", path, "--no-journal", "--no-authenticate", "--base-priority", "7",
       "--poison-action", "dead-letter", "--privacy", "none", "--retry-delay", "0")  # fmt: skip
    changed = shown()
    assert [changed[name] for name in flags] == [False, False, 0, 1, False]
    assert (changed["base_priority"], changed["retry_delay_ms"]) == (7, 0)
    assert (changed["quota"], changed["max_deliveries"]) == (700, 3)
    qm("queue", "delete", path, "--yes")


def test_a_message_is_sent_with_what_a_sender_can_set(qm: Qm, orders: str) -> None:
    admin, answers = ".\\private$\\admin", ".\\private$\\answers"
    for name in (admin, answers):
        qm("queue", "create", name)
    qm("message", "send", orders, "--body", "all", "--label", "L", "--priority", "6", "--express",
       "--reach-queue-s", "60", "--receive-s", "3600", "--ack", "reach-queue", "--admin-queue",
       admin, "--response-queue", answers, "--journal", "--dead-letter", "--correlation-id",
       "ab" * 20, "--tag", "77")  # fmt: skip
    with BlockingClient([qm.endpoint], tls=qm.tls) as client:
        found = client.open_queue("QUORATE\\private$\\orders").peek()
    assert found is not None
    assert (found.body, found.label, found.priority) == (b"all", "L", 6)
    assert (found.is_recoverable, found.application_tag) == (False, 77)
    assert found.correlation_id == b"\xab" * 20
    assert found.administration_queue.lower() == "direct=os:quorate\\private$\\admin"
    assert found.response_queue.lower() == "direct=os:quorate\\private$\\answers"
    assert found.wire.user_header.time_to_be_received == 3_600
    assert found.wire.user_header.has_positive_journaling
    assert found.wire.user_header.has_negative_journaling
    (acknowledged,) = qm.json("message", "peek", admin, "--timeout", str(WAIT_S))
    assert acknowledged["label"] == "L"
    qm("queue", "delete", admin, answers, "--yes")
    qm("message", "send", orders, "--body", "x", "--priority", "8", exit_code=USAGE)


def test_queues_are_listed_by_kind_with_what_they_hold(qm: Qm, orders: str) -> None:
    taken, later = send(qm, orders, "taken", "later")
    qm("message", "receive", orders, "--lookup-id", str(taken))
    qm("message", "move", orders, str(later), "--to", orders + ";later")
    send(qm, orders, "kept")
    send(qm, FAR, "away")

    def held(kind: str) -> dict[str, int]:
        rows = qm.json("queue", "list", "--kind", kind)
        assert {row["kind"] for row in rows} <= {kind}
        assert all((row["bytes"] > 0) == (row["messages"] > 0) for row in rows)
        return {row["path_name"].rpartition("\\")[2].lower(): row["messages"] for row in rows}

    assert held("application") == {"orders": 1}
    assert held("journal")["orders;journal"] == 1
    assert held("subqueue") == {"orders;later": 1}
    assert held("outgoing") == {"far": 1}
    for kind in ("dead_letter", "transactional_dead_letter", "system_journal"):
        assert list(held(kind).values()) == [0], kind
    assert bodies(qm.json("message", "peek", orders + ";later")) == ["later"]
    qm("queue", "purge", FAR, "--yes")


def test_a_purge_that_is_only_tried_purges_nothing(qm: Qm, orders: str) -> None:
    _, second = send(qm, orders, "a", "b")
    said = qm("queue", "purge", ".\\private$\\o*", "--dry-run").stderr
    assert "orders: 2 messages" in said
    assert "would purge 1 queue(s)" in said
    qm("queue", "purge", orders, exit_code=1, stdin="n\n")
    assert len(qm.json("message", "peek", orders, "--count", "9")) == 2
    assert bodies(qm.json("message", "peek", orders, "--lookup-id", str(second))) == ["b"]
    qm("queue", "purge", orders, stdin="y\n")
    assert qm.json("message", "peek", orders, exit_code=1) == []


def test_a_message_that_came_back_too_often_is_set_aside_and_returned(qm: Qm, orders: str) -> None:
    qm("queue", "set", orders, "--max-deliveries", "2")
    send(qm, orders, "poison")
    with BlockingClient([qm.endpoint], tls=qm.tls) as client:
        queue = client.open_queue("QUORATE\\private$\\orders")
        (found,) = qm.json("message", "peek", orders)
        for returns in (0, 1):
            row = qm.json("message", "trace", found["message_id"])[-1]
            assert row["returns"] == returns
            message = queue.receive_two_phase(5)
            assert message is not None
            queue.give_back(message)
    assert qm.json("message", "peek", orders, exit_code=1) == []
    (aside,) = qm.json("message", "peek", orders + ";poison")
    assert aside["body"] == "poison"
    qm("message", "return", orders + ";poison", str(aside["lookup_id"]))
    assert bodies(qm.json("message", "receive", orders)) == ["poison"]


def test_a_message_that_could_not_be_shown_is_not_lost(qm: Qm, orders: str) -> None:
    send(qm, orders, "precious")
    command = "from qm.cli.main import main; main()"
    files = (qm.tls.authority, qm.tls.certificate, qm.tls.key)
    options = zip(
        ("--tls-authority", "--tls-certificate", "--tls-key"), map(str, files), strict=True
    )
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", command, "message", "receive", orders, "-o", "json",
             "--endpoint", qm.endpoint, *chain.from_iterable(options)],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode != 0
    assert "No space left" in done.stderr
    assert bodies(qm.json("deadletter", "list")) == ["precious"]
    qm("deadletter", "return", "--all", "--yes")
    assert bodies(qm.json("message", "receive", orders)) == ["precious"]


def test_the_queue_manager_stops_sending_and_goes_on(qm: Qm) -> None:
    qm("manager", "set", "connection_active=false")
    send(qm, FAR, "x")
    assert not qm.json("manager", "show")["attributes"]["connection_active"]
    assert qm.json("outgoing", "show", FAR)["last_error"] == ""
    qm("manager", "set", "connection_active=true")
    end = time.monotonic() + WAIT_S
    while not qm.json("outgoing", "show", FAR)["last_error"]:
        assert time.monotonic() < end, "it tries to send again"
    qm("queue", "purge", FAR, "--yes")
