"""The nouns that look after a cluster: bundle, log levels, backups, sessions; on a real node."""

import csv
import json
import logging
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from qm.cli.lib.connection import EXIT_REFUSED
from qm.client.blocking import BlockingClient
from qm.client.message import Message
from tests.unit.cli.test_nouns import USAGE, Qm
from tests.unit.client.threaded import threaded_node


@pytest.fixture(scope="module")
def qm() -> Iterator[Qm]:
    with threaded_node() as (endpoint, tls):
        yield Qm(endpoint, tls)


def read_bundle(path: Path) -> dict[str, bytes]:
    """Return the files of a bundle, without its own folder."""
    with tarfile.open(path) as archive:
        files = {}
        for member in archive.getmembers():
            file = archive.extractfile(member)
            assert file is not None
            folder, _, name = member.name.partition("/")
            assert folder == path.name.removesuffix(".tar.gz")
            files[name] = file.read()
    return files


def test_a_bundle_holds_what_support_needs_and_no_secret(qm: Qm, tmp_path: Path) -> None:
    path = tmp_path / "case.tar.gz"
    qm("queue", "create", ".\\private$\\orders")
    qm("message", "send", ".\\private$\\orders", "--body", "a body that nobody may see")
    assert qm.json("bundle", str(path))["failures"] == {}
    files = read_bundle(path)
    assert json.loads(files["cluster/status.json"])["leader"] == "n1"
    assert "orders" in files["cluster/queues.json"].decode()
    assert "events" in json.loads(files["cluster/events.json"])
    assert b"quorate_is_leader 1.0" in files["nodes/n1/metrics.prom"]
    node: dict[str, Any] = json.loads(files["nodes/n1/node.json"])
    assert node["memory_bytes"] > 1 << 20
    assert node["platform"]["python"].startswith("3.")
    assert json.loads(files["nodes/n1/configuration.json"])["name"] == "n1"
    assert b"CreateQueue" in files["nodes/n1/events.jsonl"]
    assert "nodes/n1/log.jsonl" in files
    everything = b"".join(files.values())
    assert b"PRIVATE KEY" not in everything
    assert b"nobody may see" not in everything
    qm("bundle", str(path), exit_code=USAGE)


def test_a_log_level_is_changed_on_the_nodes(qm: Qm) -> None:
    logger = logging.getLogger("qm.test.cli")
    rows = qm.json("node", "loglevel", "debug", "--logger", "qm.test.cli", "--node", "n1")
    assert [(row["node"], row["level"]) for row in rows] == [("n1", "debug")]
    assert logger.level == logging.DEBUG
    (row,) = qm.json("node", "loglevel", "error", "--logger", "qm.test.cli")
    assert row["before"] == "debug"
    qm("node", "loglevel", "loud", exit_code=USAGE)
    assert (
        "members are n1" in qm("node", "loglevel", "info", "--node", "n9", exit_code=USAGE).stderr
    )


def test_a_backup_says_what_is_wrong_with_it(qm: Qm, tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    made = qm.json("backup", "create", str(folder))
    assert made["source"] == "n1"
    assert "not empty" in qm("backup", "create", str(folder), exit_code=1).stderr
    assert qm.json("backup", "verify", str(folder), "--scratch", str(tmp_path))["sound"]
    signed = ("backup", "verify", str(folder), "--signer")
    assert qm.json(*signed, made["signer"])["signer"] == made["signer"]
    assert "was signed by" in qm(*signed, "00" * 32, exit_code=1).stderr
    assert "not a public key" in qm(*signed, "00", exit_code=USAGE).stderr
    state = folder / "state.qsnap"
    state.write_bytes(state.read_bytes()[:-1])
    assert "state.qsnap" in qm("backup", "verify", str(folder), exit_code=1).stderr
    assert "no backup" in qm("backup", "verify", str(tmp_path), exit_code=1).stderr
    nowhere = ("backup", "restore", str(folder), "-c", str(tmp_path / "none.toml"), "--yes")
    assert "No such file" in qm(*nowhere, exit_code=1).stderr


def test_a_key_for_signing_is_made_once(qm: Qm, tmp_path: Path) -> None:
    file = tmp_path / "signing.key"
    made = qm("backup", "signing-key", str(file)).stdout.strip()
    assert qm("backup", "signer", "--key-file", str(file)).stdout.strip() == made
    assert file.stat().st_mode & 0o777 == 0o600
    assert "exists" in qm("backup", "signing-key", str(file), exit_code=1).stderr
    nowhere = qm("backup", "signer", "-c", str(tmp_path / "none.toml"), exit_code=1)
    assert "none.toml" in nowhere.stderr


def test_a_bench_measures_and_leaves_nothing(qm: Qm, tmp_path: Path) -> None:
    for kind in ((), ("--transactional",)):
        found = qm.json("bench", "--seconds", "2", "--senders", "2", "--rate", "200", *kind)
        assert found["holds"]
        assert found["received"] == found["acknowledged"] == found["sent"] > 0
        assert found["acknowledged_p99_ms"] > 0
        for end in ("acknowledged", "delivered"):
            assert sum(row[end] for row in found["histogram"]) == found["sent"]
    assert qm.json("queue", "list", "--pattern", "*bench-*") == []
    qm("bench", "--node", "n9", exit_code=USAGE)
    table = tmp_path / "bench.csv"
    table.write_text("of the last run\n" * 99)
    text = qm("bench", "--seconds", "2", "--rate", "100", "--csv", str(table)).stdout
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row for row in rows if int(row["acknowledged"])]
    shown = [line for line in text.splitlines() if line.endswith("#")]
    assert len(shown) == sum(int(row["acknowledged"]) > 0 for row in rows)
    missing = tmp_path / "none" / "bench.csv"
    assert "--csv" in qm("bench", "--csv", str(missing), exit_code=1).stderr


def test_sessions_are_listed_and_ended(qm: Qm) -> None:
    queue = ".\\private$\\sessions"
    qm("queue", "create", queue)
    with BlockingClient([qm.endpoint], tls=qm.tls, client_id="app-1") as client:
        client.open_queue(queue)
        (row,) = [row for row in qm.json("client", "list") if row["client_id"] == "app-1"]
        assert (row["principal"], row["open"], row["unconfirmed"]) == ("admin", True, 0)
        opens = qm.json("client", "opens")
        (opened,) = [row for row in opens if row["client_id"].startswith("app-1")]
        assert opened["access"] == "receive_access"
        assert qm.json("client", "opens", "--client", opened["client_id"]) == [opened]
        qm("client", "close", "app-1", exit_code=1, stdin="n\n")
        qm("client", "close", "app-1", "--yes")
        assert not [row for row in qm.json("client", "list") if row["client_id"] == "app-1"]
    known = [row for row in qm.json("client", "list", "--all") if row["client_id"] == "app-1"]
    assert [row["open"] for row in known] == [False]
    qm("client", "close", "nobody", "--yes", exit_code=EXIT_REFUSED)


def test_transactions_are_listed_and_decided(qm: Qm) -> None:
    queue = ".\\private$\\decided"
    qm("queue", "create", queue, "--transactional")
    with BlockingClient([qm.endpoint], tls=qm.tls) as client:
        transaction = client.begin_transaction()
        transaction.send(queue, Message(body=b"x"))
        (row,) = qm.json("transaction", "list", "--state", "active")
        assert (row["state"], row["operations"], row["in_doubt"]) == ("active", 1, False)
        identifier = row["identifier"]
        (done,) = qm.json("transaction", "show", identifier)
        assert (done["number"], done["operation"]) == (0, "enqueue")
        assert done["queue_id"] == qm.json("queue", "show", queue)["queue_id"]
        qm("transaction", "commit", identifier, "--yes", exit_code=EXIT_REFUSED)
        qm("transaction", "abort", identifier, "--yes")
        assert qm.json("transaction", "list") == []
        (row,) = qm.json("transaction", "list", "--state", "aborted")
        assert row["identifier"] == identifier
    assert qm.json("queue", "show", queue)["messages"] == 0
    qm("transaction", "abort", "no-guid", "--yes", exit_code=USAGE)
    qm("transaction", "show", "no-guid", exit_code=USAGE)
    qm("transaction", "show", str(UUID(int=1)), exit_code=EXIT_REFUSED)


def test_a_table_shows_what_is_inside_below_its_name(qm: Qm) -> None:
    lines = qm("cluster", "status").stdout.splitlines()
    at = lines.index("members")
    assert lines[at + 1].split()[:3] == ["NAME", "RAFT", "ID"]
    assert lines[at + 2].split()[:2] == ["n1", "n1.1"]
    created = qm("queue", "create", ".\\private$\\short").stdout
    assert "attributes" not in created
    shown = qm.json("queue", "show", ".\\private$\\short")["attributes"]
    assert len(shown["identifier"]) == 36
    assert shown["create_time"].endswith("Z")
    assert qm.json("acl", "get", "--queue", ".\\private$\\short")[0]["who"] == "admin"
    qm("acl", "get", "a", "--queue", "b", exit_code=USAGE)
