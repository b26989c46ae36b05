"""`qm message trace` and `qm search`: a real node, and the archive that it writes."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qm.cli.lib.connection import EXIT_UNAVAILABLE
from qm.cli.queues.archived import EXIT_UNUSABLE
from qm.client.blocking import BlockingClient
from qm.model.values.limits import APPLY_VERSION
from tests.cluster.archives import exported_upto, manifests, prompt
from tests.cluster.harness import with_sections
from tests.drills.processes import until
from tests.unit.cli.test_nouns import USAGE, WAIT_S, Qm
from tests.unit.client.threaded import threaded_node

ORDERS, PAID, ADMIN = (f".\\private$\\{name}" for name in ("orders", "paid", "admin"))
ORDERS_PATH, PAID_PATH, ADMIN_PATH = (f"QUORATE{name[1:]}" for name in (ORDERS, PAID, ADMIN))
UNKNOWN = "11111111-2222-3333-4444-555555555555\\7"


class Archiving(Qm):
    """`qm` with a cluster whose node archives."""

    archive: Path

    def exported(self) -> str:
        """Wait until everything up to now is in the archive; return where it is."""
        index = self.json("cluster", "status")["applied_index"]

        def last() -> int:
            return max(exported_upto(self.archive).values(), default=0)

        until(last, lambda upto: upto >= index, WAIT_S)
        return str(self.archive)

    def trace(self, message_id: str, *arguments: str, exit_code: int = 0) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.json(
            "message", "trace", message_id, *arguments, exit_code=exit_code
        )
        return rows


@pytest.fixture(scope="module")
def qm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archiving]:
    archive = tmp_path_factory.mktemp("traced") / "archive"
    with threaded_node(with_sections(archive=prompt(archive, range_entries=8))) as (endpoint, tls):
        made = Archiving(endpoint, tls)
        made.archive = archive
        end = time.monotonic() + WAIT_S
        while made.json("cluster", "status")["apply_version"] < APPLY_VERSION:
            assert time.monotonic() < end, "the newest apply version is not in force"
        made("queue", "create", ORDERS, "--journal")
        made("queue", "create", PAID, "--transactional")
        made("queue", "create", ADMIN)
        yield made


def sent(qm: Qm, queue: str, *arguments: str) -> str:
    """Send a message; return its identifier."""
    (row,) = qm.json("message", "send", queue, "--body", "b", *arguments)
    return str(row["message_id"])


def story(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(row["event"], row["queue"]) for row in rows]


def test_a_message_s_way_is_told_from_its_arrival_to_its_receipt(qm: Archiving) -> None:
    one = sent(
        qm, ORDERS, "--label", "way", "--ack", "receive", "--admin-queue", ADMIN, "--priority", "5"
    )
    queued = qm.trace(one)
    assert story(queued) == [
        ("sent", "DIRECT=OS:QUORATE\\PRIVATE$\\orders"),
        ("arrived", ORDERS_PATH),
        ("here", ORDERS_PATH),
    ]
    here = queued[-1]
    assert (here["state"], here["returns"], here["aborts"], here["moves"]) == ("available", 0, 0, 0)
    assert (here["label"], here["message_id"], here["priority"]) == ("way", one, 5)
    assert queued[1]["entry"] > 0
    guid, number = one.split("\\")
    assert qm.trace(f"{{{guid}}}\\{number}") == queued
    qm("message", "move", ORDERS, str(here["lookup_id"]), "--to", ORDERS + ";later")
    moved = qm.trace(one)
    assert story(moved)[1:] == [("arrived", ""), ("here", ORDERS_PATH + ";later")]
    assert moved[-1]["moves"] == 1
    assert "moved 1 times" in moved[1]["note"]
    qm("message", "move", ORDERS + ";later", str(here["lookup_id"]), "--to", ORDERS)
    qm("message", "receive", ORDERS)
    known = qm.trace(one)
    assert story(known)[1:] == [
        ("journaled", ORDERS_PATH + ";JOURNAL"),
        ("acknowledged", "DIRECT=OS:QUORATE\\PRIVATE$\\admin"),
        ("here", ORDERS_PATH + ";JOURNAL"),
    ]
    told = qm.trace(one, "--archive", qm.exported())
    assert story(told)[1:] == [
        ("arrived", ORDERS_PATH),
        ("moved_in", ORDERS_PATH + ";later"),
        ("moved_out", ORDERS_PATH),
        ("moved_in", ORDERS_PATH),
        ("moved_out", ORDERS_PATH + ";later"),
        ("journaled", ORDERS_PATH + ";JOURNAL"),
        ("received", ORDERS_PATH),
        ("acknowledged", ADMIN_PATH),
        ("here", ORDERS_PATH + ";JOURNAL"),
    ]
    arrived, acknowledged = told[1], told[-2]
    assert arrived["note"].startswith("from client ")
    assert (arrived["entry"], told[-3]["class"]) == (queued[1]["entry"], "ACK_RECEIVE")
    assert (acknowledged["class"], acknowledged["note"]) == (
        "ACK_RECEIVE",
        "the acknowledgment is there",
    )
    times = [row["time"] for row in told[1:-1]]
    assert times == sorted(times)
    qm("queue", "purge", ORDERS + ";JOURNAL", ADMIN, "--yes")
    ended = [("purged", ORDERS_PATH + ";JOURNAL"), ("gone", "")]
    until(
        lambda: story(qm.trace(one, "--archive", qm.exported()))[-2:],
        lambda found: found == ended,  # a purge is settled in steps
        WAIT_S,
    )


def test_a_purged_message_of_a_transaction_is_told_of_with_its_class(qm: Archiving) -> None:
    one = sent(qm, PAID, "--transactional", "--ack", "nack-receive", "--admin-queue", ADMIN)
    qm("queue", "purge", PAID, "--yes")
    until(
        lambda: int(qm.json("queue", "show", ADMIN)["messages"]), lambda found: found == 1, WAIT_S
    )
    expected = [("acknowledged", ADMIN_PATH), ("gone", "")]
    assert story(qm.trace(one)) == expected, "nothing else tells of it"
    told = qm.trace(one, "--archive", qm.exported(), "--archive-only")
    assert [row["event"] for row in told] == [
        "sent", "pending", "arrived", "purged", "acknowledged",
    ]  # fmt: skip
    assert told[3]["class"] == told[4]["class"] == "NACK_Q_PURGED"
    assert told[1]["transaction"]
    qm("queue", "purge", ADMIN, "--yes")
    assert qm.trace(one, exit_code=1) == []


def test_a_message_that_a_reader_has_says_so(qm: Archiving) -> None:
    one = sent(qm, ORDERS)
    with BlockingClient([qm.endpoint], tls=qm.tls, client_id="holder") as client:
        opened = client.open_queue(ORDERS)
        held = opened.receive_two_phase(5)
        assert held is not None
        here = qm.trace(one)[-1]
        assert (here["event"], here["state"]) == ("here", "locked")
        assert "holder" in here["lock_owner"]
        opened.give_back(held)
    table = qm("message", "trace", one).stdout.splitlines()
    assert table[0].split() == ["TIME", "EVENT", "QUEUE", "LOOKUP", "ID", "CLASS", "ENTRY", "NOTE"]
    assert table[-1].endswith("available, returns 1, aborts 0, moves 0")
    told = qm.trace(one, "--archive", qm.exported())
    assert [row["event"] for row in told[1:]] == ["arrived", "locked", "unlocked", "here"]
    qm("message", "receive", ORDERS)


def test_what_was_never_seen_is_one_line_and_an_exit_code(qm: Archiving) -> None:
    said = qm("message", "trace", UNKNOWN, exit_code=1)
    assert said.stdout == ""
    assert said.stderr == (
        "no queue holds it; an archive may know what happened to it: --archive FOLDER\n"
    )
    said = qm("message", "trace", UNKNOWN, "--archive", qm.exported(), exit_code=1)
    assert "no queue holds it\n" in said.stderr
    assert "the archive has the entries 1 to " in said.stderr
    qm("message", "trace", "nonsense", exit_code=USAGE)
    qm("message", "trace", UNKNOWN, "--archive-only", exit_code=USAGE)
    qm("search", exit_code=USAGE)


@pytest.mark.parametrize("verb", [("message", "trace", UNKNOWN), ("search", "x")])
def test_archives_and_nodes_that_are_not_there_are_named(
    qm: Archiving, verb: tuple[str, ...], tmp_path: Path
) -> None:
    nowhere = str(tmp_path / "nowhere")
    failed = qm(*verb, "--archive", nowhere, exit_code=EXIT_UNUSABLE)
    assert failed.stderr == f"Error: there is no archive in {nowhere}\n"
    failed = qm(*verb, "--archive", "nowhere://x/y", exit_code=EXIT_UNUSABLE)
    assert failed.stderr.count("\n") == 1
    gone = ("--endpoint", "127.0.0.1:1", "--archive", qm.exported())
    failed = qm(*verb, *gone, exit_code=EXIT_UNAVAILABLE)
    assert failed.stderr.count("\n") == 1
    qm(*verb, *gone, "--archive-only", exit_code=1)


def test_without_pyarrow_it_says_what_to_install(
    qm: Archiving, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("qm.archive.destination", "qm.archive.reader"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    failed = qm("message", "trace", UNKNOWN, "--archive", "x", exit_code=EXIT_UNUSABLE)
    assert "pip install 'quorate[server]'" in failed.stderr


def test_a_half_written_archive_tells_what_it_can(qm: Archiving, tmp_path: Path) -> None:
    """A copy whose last file is cut off."""
    one = sent(qm, ORDERS)
    copied = tmp_path / "copied"
    shutil.copytree(qm.exported(), copied)
    (folders,) = manifests(copied).values()
    damaged = folders[-1][1] / "operations.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    said = qm("message", "trace", one, "--archive", str(copied))
    assert "operations.parquet has" in said.stderr
    assert "no usable file has the entries" in said.stderr
    assert "here" in said.stdout
    archived = ("--archive", str(copied), "--archive-only")
    (folders[-1][1] / "manifest.json").unlink()
    said = qm("message", "trace", UNKNOWN, *archived, exit_code=1)
    assert "warning" not in said.stderr, "a range is there when its manifest is"
    qm("queue", "purge", ORDERS, "--yes")


def test_messages_are_found_in_queues_by_all_that_is_asked(qm: Archiving) -> None:
    one = sent(qm, ORDERS, "--label", "Rechnung 7", "--correlation-id", "ab" * 20)
    two = sent(qm, PAID, "--label", "rechnung 8", "--transactional", "--ack", "reach-queue",
               "--admin-queue", ADMIN)  # fmt: skip

    def found(*arguments: str, exit_code: int = 0) -> set[tuple[str, str]]:
        rows = qm.json("search", *arguments, exit_code=exit_code)
        return {(row["message_id"], row["queue"]) for row in rows}

    both = {(one, ORDERS_PATH), (two, PAID_PATH)}
    assert found("--label", "RECHNUNG", "--queue", "*d*s") == {(one, ORDERS_PATH)}
    assert found("--label", "rechnung", "--since", "1h") >= both
    assert found("--correlation-id", "ab" * 20) == {(one, ORDERS_PATH)}
    assert found("--message-id", two) == {(two, PAID_PATH)}
    assert found("rechnung", "--message-id", two, "--in", "label") == {(two, PAID_PATH)}
    assert {queue for _, queue in found("--class", "ACK_REACH_QUEUE")} == {ADMIN_PATH}
    assert found("--correlation-id", two) == found("--class", "ACK_REACH_QUEUE")
    assert found("--label", "rechnung", "--until", "2020-01-01", exit_code=1) == set()
    said = qm("search", "--label", "rechnung", "--limit", "1")
    assert len(said.stdout.splitlines()) == 2
    assert said.stderr == "there are more than 1: --limit\n"
    qm("queue", "purge", ORDERS, PAID, ADMIN, "--yes")


def test_messages_that_have_left_are_found_in_the_archive(qm: Archiving) -> None:
    one = sent(qm, ORDERS, "--label", "Bill 7", "--correlation-id", "cd" * 20)
    two = sent(qm, PAID, "--label", "bill 8", "--transactional")
    qm("message", "receive", ORDERS)
    qm("queue", "purge", PAID, ORDERS + ";JOURNAL", "--yes")
    archive = ("--archive", qm.exported())

    def found(*arguments: str, exit_code: int = 0) -> list[tuple[str, str, str]]:
        rows = qm.json("search", *arguments, *archive, exit_code=exit_code)
        return [(row["message_id"], row["queue"], row["state"]) for row in rows]

    first, second = (one, ORDERS_PATH, "arrived"), (two, PAID_PATH, "arrived")
    assert found("--label", "bill") == [first, second]
    assert found("BILL", "--in", "label", "--queue", PAID) == [second]
    assert found("--correlation-id", "cd" * 20) == [first]
    assert found("--message-id", one) == [first, (one, ORDERS_PATH + ";JOURNAL", "journaled")]
    until(
        lambda: story(qm.trace(two, "--archive", qm.exported())),
        lambda told: ("purged", PAID_PATH) in told,
        WAIT_S,
    )
    assert (two, PAID_PATH, "purged") in found("--class", "Q_PURGED")
    assert first in found("--since", "1h", "--limit", "1000")
    assert found("--until", "2020-01-01", exit_code=1) == []
    assert found("bill", "--since", "2120-01-01", exit_code=1) == []
    by_url = ("--archive", f"file://{qm.archive}", "--archive-only")
    said = qm("search", "--label", "bill", "--limit", "1", *by_url)
    assert "there are more than 1: --limit" in said.stderr
    said = qm("search", "--label", "nothing", "--look-at", "1", *archive, exit_code=1)
    assert "only 1 messages were looked at" in said.stderr
    heading = qm("search", "--label", "bill", *archive).stdout.splitlines()[0]
    assert heading.split()[:5] == ["FROM", "TIME", "STATE", "QUEUE", "LOOKUP"]


def test_an_archive_is_read_without_spark(qm: Archiving) -> None:
    one = sent(qm, ORDERS)
    program = (
        "import sys; from qm.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert not {'pyspark', 'spark'} & set(sys.modules)\n"
    )
    asked = ("message", "trace", one, "--archive", qm.exported(), "--archive-only")
    subprocess.run([sys.executable, "-c", program, *asked], check=True, stdout=subprocess.PIPE)
    qm("message", "receive", ORDERS)
