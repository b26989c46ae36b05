"""The nouns that ask a cluster, against a real node, as a script sees them."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from qm.api.control import definitions as control_definitions
from qm.api.convert.definitions import Document, write_document
from qm.cli.lib.connection import EXIT_NOT_ALLOWED, EXIT_REFUSED, EXIT_UNAVAILABLE
from qm.cli.main import main
from qm.client import calls
from qm.client.blocking import BlockingClient
from qm.client.calls import Tls
from qm.model.values.limits import APPLY_VERSION
from qm.names.guid import guid_text
from qm.node.config.schema import MSMQ_PORT
from qm.observe.service_counters import SERVICE
from qm.session import AcksReceived, Established, Role, Session, SessionConfig
from qm.wire.structures.queue_name import DirectQueueFormatName
from tests.drills.processes import until
from tests.unit.client.threaded import threaded_node
from tests.unit.model.world import packet

ORDERS = ".\\private$\\orders"
USAGE = 2
WAIT_S = 30.0


class Qm:
    """`qm` with the environment of a cluster."""

    def __init__(self, endpoint: str, tls: Tls) -> None:
        self.endpoint, self.tls = endpoint, tls
        self.environment = {
            "QM_ENDPOINT": endpoint,
            "QM_TLS_AUTHORITY": str(tls.authority),
            "QM_TLS_CERTIFICATE": str(tls.certificate),
            "QM_TLS_KEY": str(tls.key),
        }

    def __call__(self, *arguments: str, exit_code: int = 0, stdin: str = "") -> Result:
        result = CliRunner().invoke(
            main, list(arguments), env=self.environment, input=stdin, catch_exceptions=False
        )
        assert result.exit_code == exit_code, (arguments, result.output)
        return result

    def json(self, *arguments: str, exit_code: int = 0) -> Any:
        return json.loads(self(*arguments, "-o", "json", exit_code=exit_code).stdout)


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
    qm("queue", "create", ORDERS, "--journal", "--if-not-exists")
    yield ORDERS
    qm("queue", "delete", ORDERS, "--yes")


def send(qm: Qm, queue: str, *bodies: str, **options: str) -> list[int]:
    places = []
    for body in bodies:
        extra = [part for name, value in options.items() for part in (f"--{name}", value)]
        (sent,) = qm.json("message", "send", queue, "--body", body, *extra)
        places += sent["lookup_id"]
    return places


def bodies(rows: list[dict[str, Any]]) -> list[str]:
    return [row["body"] for row in rows]


# Queues ----------------------------------------------------------------------------------------


def test_a_queue_s_life(qm: Qm) -> None:
    path = ".\\private$\\life"
    made = qm.json("queue", "create", path, "--transactional", "--label", "L", "--quota", "9")
    assert (made["transactional"], made["label"], made["attributes"]["quota"]) == (True, "L", 9)
    qm("queue", "create", path, exit_code=EXIT_REFUSED)
    qm("queue", "create", path, "--transactional", "--label", "L", "--quota", "9",
       "--if-not-exists")  # fmt: skip
    qm("queue", "set", path, "--label", "M", "--privacy", "body", "--authenticate")
    shown = qm.json("queue", "show", path)
    assert (shown["label"], shown["attributes"]["privacy_level"]) == ("M", 2)
    assert shown["attributes"]["authentication"]
    (listed,) = qm.json("queue", "list", "--pattern", "*life")
    assert listed["path_name"] == "QUORATE\\private$\\life"
    assert listed["format_name"] == shown["format_name"]
    qm("queue", "set", path, exit_code=USAGE)
    assert "0 messages" in qm("queue", "delete", path, "--dry-run").stderr
    qm("queue", "delete", path, exit_code=1, stdin="n\n")
    qm("queue", "delete", path, stdin="y\n")
    qm("queue", "show", path, exit_code=EXIT_REFUSED)


def test_many_queues_are_purged_by_a_pattern(qm: Qm) -> None:
    for name in ("p1", "p2", "other"):
        qm("queue", "create", f".\\private$\\{name}")
        send(qm, f".\\private$\\{name}", "x")
    purged = qm("queue", "purge", ".\\private$\\p*", "--yes")
    assert "other" not in purged.stderr
    counts = {row["path_name"][-2:]: row["messages"] for row in qm.json("queue", "list")}
    assert (counts["p1"], counts["p2"], counts["er"]) == (0, 0, 1)
    qm("queue", "purge", "*nothing*", exit_code=1)
    qm("queue", "delete", ".\\private$\\p*", ".\\private$\\other", "--yes")


def test_yaml_and_tables_say_the_same(qm: Qm, orders: str) -> None:
    rows = qm.json("queue", "list")
    assert yaml.safe_load(qm("queue", "list", "-o", "yaml").stdout) == rows
    table = qm("queue", "list").stdout
    assert table.splitlines()[0].startswith("PATH NAME")
    assert any("orders" in line for line in table.splitlines())


def test_no_output_turns_the_terminal_s_text_around(qm: Qm) -> None:
    label = "gr\xfc\xdfe \u202egpj.exe"
    qm("queue", "create", ".\\private$\\turned", "--label", label)
    try:
        for output in ("table", "json", "yaml"):
            shown = qm("queue", "show", ".\\private$\\turned", "-o", output).stdout
            assert "gpj.exe" in shown
            assert "\u202e" not in shown
        assert yaml.safe_load(shown)["attributes"]["label"] == label
    finally:
        qm("queue", "delete", ".\\private$\\turned", "--yes")


# Messages --------------------------------------------------------------------------------------


def test_messages_are_sent_looked_at_and_received(qm: Qm, orders: str) -> None:
    send(qm, orders, "one", label="L1", priority="5")
    qm("message", "send", orders, "--as", "utf16", "--body", "zwölf", "--count", "2")
    found = qm.json("message", "peek", orders, "--count", "9")
    assert bodies(found) == ["one", "zwölf", "zwölf"]
    assert (found[0]["label"], found[0]["priority"], found[1]["body_type"]) == ("L1", 5, 8)
    (taken,) = qm.json("message", "receive", orders)
    assert taken["message_id"] == found[0]["message_id"]
    (exact,) = qm.json("message", "receive", orders, "--lookup-id", str(found[2]["lookup_id"]))
    assert exact["lookup_id"] == found[2]["lookup_id"]
    assert len(qm.json("message", "receive", orders, "--count", "9")) == 1
    qm("message", "receive", orders, exit_code=1)
    qm("message", "receive", orders, "--timeout", "0.05", exit_code=1)


def test_more_messages_than_one_call_gives(qm: Qm, orders: str) -> None:
    qm("message", "send", orders, "--body", "x", "--count", "1100")
    assert len(qm.json("message", "peek", orders, "--count", "1090")) == 1090
    assert len(qm.json("message", "receive", orders, "--count", "2000")) == 1100


@pytest.mark.parametrize(
    ("form", "given", "body_type", "shown"),
    [
        ("text", "plain", 0x2011, "plain"),
        ("utf16", "weit", 8, "weit"),
        ("xml", "a<b", 0, "<string>a&lt;b</string>"),
        ("xml", "<order><id>7</id></order>", 0, "<order>\n  <id>7</id>\n</order>"),
        ("hex", "00ff10", 0x2011, "00ff10"),
        ("hex", "00ff1020deadbeef42", 0x2011, "00ff1020 deadbeef 42"),
    ],
)
def test_bodies_of_every_form(
    qm: Qm, orders: str, form: str, given: str, body_type: int, shown: str
) -> None:
    qm("message", "send", orders, "--as", form, "--body", given)
    (found,) = qm.json("message", "receive", orders)
    assert (found["body_type"], found["body"]) == (body_type, shown)


def test_a_body_from_a_file_and_from_standard_input(qm: Qm, orders: str, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(bytes(range(256)))
    qm("message", "send", orders, "--as", "hex", "--file", str(tmp_path / "body"))
    qm("message", "send", orders, "--file", "-", stdin="from stdin")
    found = qm.json("message", "receive", orders, "--count", "2", "--body", "hex")
    assert found[0]["body"].replace(" ", "") == bytes(range(256)).hex()
    assert bytes.fromhex(found[1]["body"].replace(" ", "")) == b"from stdin"
    qm("message", "send", orders, exit_code=USAGE)
    qm("message", "send", orders, "--as", "hex", "--body", "xyz", exit_code=USAGE)
    qm("message", "send", "no queue", "--body", "x", exit_code=USAGE)


def test_a_transactional_queue_wants_transactions(qm: Qm, orders: str, tmp_path: Path) -> None:
    path = ".\\private$\\tx"
    qm("queue", "create", path, "--transactional")
    refused = qm("message", "send", path, "--body", "x", exit_code=EXIT_REFUSED)
    assert "MQ_ERROR_TRANSACTION_USAGE" in refused.stderr
    qm("message", "send", path, "--body", "x", "--transactional")
    (found,) = qm.json("message", "peek", path)
    assert found["transactional"]
    place, file = str(found["lookup_id"]), str(tmp_path / "message")
    refused = qm("message", "copy", path, place, "--to", orders, exit_code=EXIT_REFUSED)
    assert "MQ_ERROR_TRANSACTION_USAGE: transactional queues" in refused.stderr
    qm("message", "copy", path, place, "--to", path)
    qm("message", "save", path, place, file)
    qm("message", "load", path, file)
    assert bodies(qm.json("message", "receive", path, "--count", "9")) == ["x", "x", "x"]
    assert qm.json("message", "peek", orders, exit_code=1) == []
    qm("queue", "delete", path, "--yes")


@pytest.mark.parametrize(
    "name",
    [
        "DIRECT=HTTP://host/msmq/orders",
        "DL=11111111-1111-1111-1111-111111111111",
        "MULTICAST=224.1.1.1:9000",
    ],
)
def test_what_is_not_delivered_yet_is_refused_with_its_code(qm: Qm, name: str) -> None:
    for verb in (("send", name, "--body", "x"), ("receive", name)):
        refused = qm("message", *verb, exit_code=EXIT_REFUSED)
        assert "MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION: " in refused.stderr


def test_messages_move_are_copied_returned_and_traced(qm: Qm, orders: str) -> None:
    (place,) = send(qm, orders, "x")
    (found,) = qm.json("message", "peek", orders)
    retry = orders + ";retry"
    qm("message", "move", orders, str(place), "--to", retry)
    where = qm.json("message", "trace", found["message_id"])[-1]
    assert where["queue"].endswith("orders;retry")
    qm("message", "copy", retry, str(where["lookup_id"]), "--to", orders)
    assert bodies(qm.json("message", "receive", orders)) == ["x"]
    (returned,) = qm.json("message", "return", retry, str(where["lookup_id"]))
    assert "orders" in returned["target"] or returned["target"].startswith("PRIVATE=")
    assert bodies(qm.json("message", "receive", orders)) == ["x"]
    qm("message", "trace", found["message_id"].split("\\")[0] + "\\999", exit_code=1)
    qm("message", "trace", "nothing", exit_code=USAGE)
    qm("message", "move", orders, "12345", "--to", retry, exit_code=EXIT_REFUSED)
    qm("message", "return", orders, exit_code=USAGE)


def test_a_message_is_saved_and_loaded(qm: Qm, orders: str, tmp_path: Path) -> None:
    (place,) = send(qm, orders, "kept", label="L", tag="7")
    file = tmp_path / "message"
    qm("message", "save", orders, str(place), str(file))
    assert "UserMessage" in qm("packet", "decode", str(file)).stdout
    qm("message", "receive", orders)
    qm("message", "load", orders, str(file))
    (found,) = qm.json("message", "receive", orders)
    assert (found["body"], found["label"], found["tag"]) == ("kept", "L", 7)
    file.write_bytes(b"no packet")
    qm("message", "load", orders, str(file), exit_code=USAGE)
    qm("message", "save", orders, "12345", str(file), exit_code=EXIT_REFUSED)


def test_the_queue_manager_is_shown_and_set(qm: Qm) -> None:
    shown = qm.json("manager", "show")
    assert shown["computer_name"] == "QUORATE"
    assert {"aliases", "journal_quota"} <= set(shown["settable"])
    qm("manager", "set", "journal_quota=4321", "aliases=one.example,two.example")
    attributes = qm.json("manager", "show")["attributes"]
    assert attributes["identifier"] == shown["identifier"]
    assert attributes["create_time"].endswith("Z")
    assert attributes["journal_quota"] == 4321
    assert attributes["aliases"] == ["one.example", "two.example"]
    for wrong in ("journal_quota=many", "nothing=1", "journal_quota"):
        qm("manager", "set", wrong, exit_code=USAGE)


def test_counters_of_the_service_are_shown_with_rates(qm: Qm, orders: str) -> None:
    with BlockingClient([qm.endpoint], tls=qm.tls, client_id="counted") as client:
        client.open_queue("QUORATE\\private$\\orders")
        found = qm.json("manager", "counters", "--seconds", "1")
    rows = {row["counter"]: row for row in found}
    assert list(rows) == list(SERVICE.values())
    assert rows["Sessions of API clients"]["value"] >= 1
    assert rows["Sessions of API clients"]["per_s"] is None
    assert rows["Incoming messages"]["per_s"] == 0.0
    both = f"{qm.endpoint},127.0.0.1:1"
    *_, dead = qm.json("manager", "counters", "--seconds", "1", "--endpoint", both)
    assert (dead["node"], dead["value"]) == ("127.0.0.1:1", None)
    assert "connection refused" in dead["counter"]
    qm("manager", "counters", "--seconds", "1e9", exit_code=USAGE)


def test_locked_messages_are_listed_with_who_holds_them(qm: Qm, orders: str) -> None:
    send(qm, orders, "held", "free")
    assert qm.json("message", "peek", orders, "--locked", exit_code=1) == []
    with BlockingClient([qm.endpoint], tls=qm.tls, client_id="holder") as client:
        queue = client.open_queue("QUORATE\\private$\\orders")
        held = queue.receive_two_phase(5)
        assert held is not None
        (row,) = qm.json("message", "peek", orders, "--locked")
        assert (row["lookup_id"], row["body"]) == (held.lookup_identifier, "held")
        assert "holder" in row["lock_owner"]
        queue.give_back(held)


def test_a_journal_is_browsed_and_replayed(qm: Qm, orders: str) -> None:
    send(qm, orders, "kept")
    qm("message", "receive", orders)
    (copy,) = qm.json("journal", "list", orders)
    assert (copy["body"], copy["bytes"]) == ("kept", len("kept"))
    assert copy["packet_bytes"] > copy["bytes"]
    qm("journal", "replay", orders, str(copy["lookup_id"]))
    assert bodies(qm.json("message", "receive", orders)) == ["kept"]
    assert isinstance(qm.json("journal", "list"), list)
    qm("journal", "replay", orders, exit_code=USAGE)


def test_dead_letters_say_why_and_go_back(qm: Qm, orders: str) -> None:
    qm("message", "send", orders, "--body", "dead", "--dead-letter", "--receive-s", "4")
    # It gets as long again where it is returned to, which is enough for the rest.
    dead = "DIRECT=OS:QUORATE\\SYSTEM$;DEADLETTER"
    qm("message", "peek", dead, "--timeout", "20")
    (letter,) = qm.json("deadletter", "list", "--reason", "receive-timeout")
    assert (letter["body"], bool(letter["reason"])) == ("dead", True)
    (count,) = qm.json("deadletter", "reasons", exit_code=1)
    assert (count["class"], count["count"]) == ("c002", 1)
    assert qm.json("deadletter", "list", "--reason", "q-purged") == []
    qm("deadletter", "list", "--reason", "whatever!", exit_code=USAGE)
    target = ".\\private$\\second-try"
    qm("queue", "create", target)
    name = qm.json("queue", "show", target)["format_name"]
    qm("deadletter", "return", "--all", "--yes", "--to", name)
    assert len(qm.json("queue", "list", "--pattern", "*second-try")) == 1
    assert qm.json("deadletter", "reasons") == []
    qm("queue", "delete", target, "--yes")


# The rest --------------------------------------------------------------------------------------


def test_outgoing_queues_are_listed_paused_and_resumed(qm: Qm) -> None:
    far = "DIRECT=TCP:127.255.255.253\\private$\\x"
    send(qm, far, "x")
    (row,) = qm.json("outgoing", "list")
    assert (row["waiting"], row["unacknowledged"]) == (1, 0)
    assert until(lambda: qm.json("outgoing", "show", far)["last_error"], bool, WAIT_S)
    qm("outgoing", "pause", far)
    assert qm.json("outgoing", "show", far)["state"] == "on_hold"
    qm("outgoing", "resume", far)
    qm("outgoing", "resend", far)
    assert qm.json("outgoing", "show", far)["state"] != "on_hold"
    assert qm.json("outgoing", "show", far)["base_priority"] == 0
    qm("outgoing", "priority", far, "--", "-7")
    assert qm.json("outgoing", "show", far)["base_priority"] == -7
    qm("outgoing", "show", "DIRECT=TCP:127.255.255.252\\private$\\y", exit_code=EXIT_REFUSED)


def test_access_lists_are_read_added_to_and_replaced(qm: Qm, orders: str) -> None:
    before = qm.json("acl", "get", orders)
    qm("acl", "set", "--queue", orders, "--add", "allow:alice:receive_message")
    after = qm.json("acl", "get", orders)
    assert len(after) == len(before) + 1
    (alice,) = [row for row in after if row not in before]
    assert (alice["type"], alice["rights"]) == ("allow", ["receive_message"])
    keep = ["allow:Administrators:queue_generic_all", "deny:S-1-5-7:0x4"]
    qm("acl", "set", "--queue", orders, *keep, "--yes")
    types = [row["type"] for row in qm.json("acl", "get", orders)]
    assert types == ["owner", "deny", "allow"]
    qm("acl", "set", "--queue", orders, "allow:nobody", exit_code=USAGE)
    qm("acl", "set", "--queue", orders, exit_code=USAGE)
    assert qm.json("acl", "get")[0]["type"] == "owner"


def test_definitions_go_out_and_in(qm: Qm, orders: str, tmp_path: Path) -> None:
    file = tmp_path / "defs.yaml"
    qm("queue", "set", orders, "--label", "first")
    qm("defs", "export", "-f", str(file))
    assert qm("defs", "export").stdout == file.read_text(encoding="utf-8")
    assert qm.json("defs", "diff", str(file)) == []
    qm("queue", "set", orders, "--label", "changed")
    (change,) = qm.json("defs", "diff", str(file), exit_code=1)
    assert change["change"] == "change"
    qm("defs", "import", str(file), "--dry-run")
    assert qm.json("queue", "show", orders)["label"] == "changed"
    qm("defs", "import", str(file))
    assert qm.json("queue", "show", orders)["label"] == "first"
    qm("queue", "create", ".\\private$\\surplus")
    qm("defs", "import", str(file), "--prune", exit_code=1, stdin="n\n")
    qm("defs", "import", str(file), "--prune", "--yes")
    assert qm.json("queue", "list", "--pattern", "*surplus") == []


def test_definitions_may_take_a_while(qm: Qm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of thousands of queues took longer than a node may be silent, and were given up."""

    def slow(document: Document) -> str:
        time.sleep(2.0)
        return write_document(document)

    monkeypatch.setattr(calls, "ATTEMPT_S", 1.0)
    monkeypatch.setattr(calls, "DEADLINE_S", 5.0)
    monkeypatch.setattr(control_definitions, "write_document", slow)
    assert qm("defs", "export").stdout.startswith("version: 1")


def test_the_cluster_says_how_it_is(qm: Qm, orders: str) -> None:
    status = qm.json("cluster", "status")
    assert (status["computer_name"], status["leader"]) == ("QUORATE", "n1")
    (member,) = qm.json("cluster", "members")
    assert (member["name"], member["role"], member["leader"]) == ("n1", "voter", True)
    (health,) = qm.json("check", "cluster")
    assert health["problems"] == []
    checks = {row["check"]: row for row in qm.json("check", "--only", "quorum", "--only", "disk",
                                                   "--limit", "disk=0:0")}  # fmt: skip
    assert [row["level"] for row in checks.values()] == ["ok", "ok"]
    assert checks["quorum"]["text"] == "1 of 1 voters are reachable, n1 leads"
    said = qm("check", "--only", "certificate", "--limit", "certificate=99999:7", exit_code=1)
    assert said.stdout.startswith("QUORATE WARNING - QUORATE: certificate: ")
    for wrong in ("disk", "disk=1", "disk=a:b", "speed=1:2"):
        qm("check", "--limit", wrong, exit_code=USAGE)
    assert not qm.json("cluster", "can-stop", "n1", exit_code=1)["can_stop"]
    (scrub,) = qm.json("cluster", "scrub", "start")
    assert (scrub["node"], scrub["asked"], scrub["damage_left"]) == ("n1", True, 0)
    (scrub,) = qm.json("cluster", "scrub", "status", "n1")
    assert scrub["live_bytes"] > 0
    for verb in (("remove", "--yes"), ("promote",), ("replace", "--yes")):
        qm("cluster", verb[0], "n9", *verb[1:], exit_code=USAGE)
    qm("cluster", "remove", "n1", exit_code=1, stdin="n\n")
    assert any(row["path_name"].endswith("orders") for row in qm.json("top", "--once"))
    lines = [json.loads(line) for line in qm("events", "-o", "json").stdout.splitlines()]
    assert any(event["name"].endswith("CreateQueue") for event in lines)
    assert all(event["time"].startswith("20") for event in lines)
    assert "CreateQueue by admin: OK (path_name=QUORATE\\private$\\orders)" in qm("events").stdout


def test_the_history_is_told(qm: Qm, orders: str) -> None:
    (term,) = qm.json("cluster", "history")
    assert (term["leader"], term["seconds"]) == ("n1", None)
    assert "n1" in qm("cluster", "history").stdout
    qm("queue", "set", orders, "--label", "x")

    def told(*options: str) -> list[dict[str, Any]]:
        return [
            json.loads(line) for line in qm("events", "-o", "json", *options).stdout.splitlines()
        ]

    until(told, lambda found: "started" in {event["name"] for event in found}, WAIT_S)
    first, second = told("--kind", "control", "--since", "1h")[:2]
    assert told("--after", str(first["number"]), "--limit", "1", "--kind", "control") == [second]
    assert {event["kind"] for event in told("--kind", "control")} == {"control"}
    assert told("--since", "2999-01-01") == []
    for wrong in ("yesterday", "-1h", "9" * 400, "h", "٣h"):
        qm("events", "--since", wrong, exit_code=USAGE)
    assert len(told("--limit", "1")) == 1
    qm("events", "--kind", "rumour", exit_code=USAGE)


def test_completion_is_a_script(qm: Qm) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "_QM_COMPLETE" in qm("completion", shell).stdout


# Where the cluster is not ----------------------------------------------------------------------


def test_errors_have_exit_codes_of_their_own(qm: Qm, tmp_path: Path) -> None:
    runner = CliRunner()
    nowhere = runner.invoke(main, ["queue", "list"], env={"QM_DEV_FOLDER": str(tmp_path)})
    assert nowhere.exit_code == USAGE
    assert "qm dev up" in nowhere.output
    half = {"QM_ENDPOINT": "127.0.0.1:1", "QM_TLS_KEY": "x"}
    assert runner.invoke(main, ["queue", "list"], env=half).exit_code == USAGE
    dead = runner.invoke(main, ["check", "cluster"], env={"QM_ENDPOINT": "127.0.0.1:1"})
    assert dead.exit_code == 1
    assert "127.0.0.1 port 1: connection refused" in dead.output
    dead = runner.invoke(main, ["check"], env={"QM_ENDPOINT": "127.0.0.1:1"})
    assert dead.exit_code == 2
    assert dead.output.startswith("QUORATE CRITICAL - cluster: quorum: no node is reached")
    begun = time.monotonic()
    refused = runner.invoke(main, ["queue", "list"], env={"QM_ENDPOINT": "127.0.0.1:1"})
    assert refused.exit_code == EXIT_UNAVAILABLE
    assert "127.0.0.1 port 1: connection refused" in refused.stderr
    assert time.monotonic() - begun < WAIT_S
    assert {EXIT_REFUSED, EXIT_UNAVAILABLE, EXIT_NOT_ALLOWED} == {3, 4, 5}


# Peers -----------------------------------------------------------------------------------------


def deliver(host: str, source: bytes, raw: bytes) -> None:
    """Send one message as another queue manager, and wait until it is acknowledged."""
    session = Session(SessionConfig(), Role.INITIATOR, source, time.monotonic())
    with socket.create_connection((host, MSMQ_PORT), WAIT_S) as connection:
        is_done = False
        while not is_done:
            while data := session.take_outgoing(time.monotonic()):
                connection.sendall(data)
            session.receive(connection.recv(1 << 16), time.monotonic())
            while (event := session.next_event()) is not None:
                if isinstance(event, Established):
                    session.offer([1], [raw])
                is_done = is_done or isinstance(event, AcksReceived)


def test_a_peer_is_listed_shown_and_forgotten(qm: Qm, orders: str) -> None:
    source, text = b"CLIP" * 4, guid_text(b"CLIP" * 4)
    to = DirectQueueFormatName("OS:QUORATE\\private$\\orders")
    host = qm.endpoint.partition(":")[0]
    deliver(host, source, packet(1, to=to, source_queue_manager=source))
    (row,) = qm.json("peer", "list", "--address", "127.0.0.1")
    assert (row["queue_manager"], row["destinations"]) == (text, 1)
    shown = qm.json("peer", "show", text.lower())
    assert (shown["counted_at"], shown["sequences"]) == ("127.0.0.1", [])
    qm("peer", "forget", text, "--address-only", "--yes")
    qm("peer", "forget", text, exit_code=1, stdin="n\n")
    qm("peer", "forget", text, "--yes")
    assert qm.json("peer", "list") == []
    qm("peer", "show", text, exit_code=EXIT_REFUSED)
    qm("peer", "show", "nonsense", exit_code=USAGE)


def test_objects_of_the_directory_are_put_listed_and_deleted(qm: Qm) -> None:
    made = qm.json("directory", "put", "site", "name=North", "inter_site_replication_interval=30")
    (row,) = qm.json("directory", "list", "site", "--where", "name=North")
    assert (row["identifier"], row["inter_site_replication_interval"]) == (made["identifier"], 30)
    assert qm.json("directory", "list", "site", "--where", "name!=North") == []
    qm("directory", "list", "site", "--where", "name", exit_code=USAGE)
    qm("directory", "put", "site", "name", exit_code=USAGE)
    found = qm.json("directory", "path", "DIRECT=OS:far\\private$\\q")
    assert found == {"path_name": "far\\PRIVATE$\\q", "machine_name": "far"}
    qm("directory", "delete", "site", made["identifier"], "--yes")
    assert qm.json("directory", "list", "site") == []


# Manners ---------------------------------------------------------------------------------------


def test_queues_are_listed_by_any_column_with_ages(qm: Qm, orders: str) -> None:
    other = ".\\private$\\Bestellungen"
    qm("queue", "create", other, "--quota", "1")
    said = qm("queue", "create", ".\\private$\\für", exit_code=USAGE).stderr
    assert "Error: the queue name holds 'ü', which is not allowed there" in said
    for queue in (orders, orders, other):
        qm("message", "send", queue, "--body", "x")

    def listed(*options: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = qm.json("queue", "list", "--pattern", "*private*", *options)
        return rows

    names = [row["path_name"].rpartition("\\")[2] for row in listed("--sort", "-messages")]
    assert names[:2] == ["orders", "Bestellungen"]
    (last,) = listed("--sort", "oldest_s", "--pattern", "*bestell*")
    assert (last["opened"], last["oldest_s"] < WAIT_S, last["quota_percent"] > 0) == (0, True, True)
    shown = qm("queue", "list", "--columns", "path_name,arrived", "--pattern", "*orders").stdout
    assert [line.split() for line in shown.splitlines()] == [
        ["PATH", "NAME", "ARRIVED"],
        ["QUORATE\\private$\\orders", "2"],
    ]
    for wrong in (("--columns", "colour"), ("--sort", "-colour")):
        assert "'colour' is not a column" in qm("queue", "list", *wrong, exit_code=USAGE).stderr
    qm("queue", "delete", other, "--yes")


def test_bodies_of_any_bytes_go_in_and_out(qm: Qm, orders: str, tmp_path: Path) -> None:
    body = bytes(range(256)) * 4
    given, taken = tmp_path / "body.bin", tmp_path / "out.bin"
    given.write_bytes(body)
    qm("message", "send", orders, "--file", str(given))
    assert qm("message", "peek", orders, "--save-body", str(taken)).stdout == ""
    assert taken.read_bytes() == body
    taken.unlink()
    qm("message", "receive", orders, "--save-body", str(tmp_path / "none" / "x"), exit_code=1)
    qm("message", "receive", orders, "--save-body", str(taken))
    assert taken.read_bytes() == body, "what could not be written was not taken"
    qm("message", "receive", orders, "--save-body", str(taken), exit_code=1)
    said = qm("message", "send", orders, "--file", str(tmp_path / "none"), exit_code=1).stderr
    assert said == f"Error: {tmp_path / 'none'}: no such file or directory\n"
    said = qm("message", "send", orders, "--file", str(given), "--as", "xml", exit_code=1).stderr
    assert "is not UTF-8 text at byte 128" in said
    qm("message", "peek", orders, "--save-body", "-", "--count", "2", exit_code=USAGE)


def test_a_send_that_is_cut_short_says_how_far_it_came(qm: Qm) -> None:
    small = ".\\private$\\small"
    qm("queue", "create", small, "--quota", "2")
    said = qm("message", "send", small, "--body", "x" * 500, "--count", "9",
              exit_code=EXIT_REFUSED).stderr  # fmt: skip
    stored = len(qm.json("message", "peek", small, "--count", "9"))
    assert 0 < stored < 9
    assert f"{stored} of 9 messages are stored, the next was refused" in said
    assert "the queue's quota is 2048 bytes" in said
    assert f"--count {9 - stored}" in said
    qm("queue", "delete", small, "--yes")


def test_messages_are_found_by_what_is_in_them(qm: Qm, orders: str) -> None:
    other = ".\\private$\\other"
    qm("queue", "create", other)
    send(qm, orders, "an invoice", label="Rechnung 7")
    send(qm, other, "another", label="Invoice")
    qm("message", "send", other, "--body", "INVOICE wide", "--as", "utf16", "--correlation-id",
       "ab" * 20)  # fmt: skip

    def found(*arguments: str, exit_code: int = 0) -> list[tuple[str, list[str]]]:
        rows = qm.json("search", *arguments, exit_code=exit_code)
        return [(row["queue"].rpartition("\\")[2], row["found_in"]) for row in rows]

    assert sorted(found("invoice")) == [
        ("orders", ["body"]), ("other", ["body"]), ("other", ["label"]),
    ]  # fmt: skip
    assert found("invoice", "--in", "label") == [("other", ["label"])]
    assert found("rechnung", "--queue", "*other", exit_code=1) == []
    assert found("abab", "--in", "correlation") == [("other", ["correlation"])]
    (row,) = qm.json("search", "rechnung")
    assert found(row["message_id"], "--in", "id") == [("orders", ["id"])]
    said = qm("search", "invoice", "--limit", "1")
    assert "there are more than 1: --limit" in said.stderr
    assert "there are more" not in qm("search", "invoice", "--limit", "3").stderr
    said = qm("search", "nowhere", "--look-at", "2", exit_code=1)
    assert "only 2 messages were looked at" in said.stderr
    qm("search", "", exit_code=USAGE)
    qm("queue", "delete", other, "--yes")


def test_a_dry_run_says_what_would_be_done_and_does_nothing(qm: Qm, orders: str) -> None:
    def dry(*arguments: str) -> str:
        return qm(*arguments, "--dry-run").stderr

    assert "would CreateQueue" in dry("queue", "create", ".\\private$\\dry")
    assert '"path_name": "QUORATE\\\\private$\\\\dry"' in dry("queue", "create", ".\\private$\\dry")
    assert "would SetQueue" in dry("queue", "set", orders, "--label", "dry")
    assert "would SetLogLevel" in dry("node", "loglevel", "debug")
    assert "would Drain" in dry("cluster", "drain", "n1")
    assert "would PutObject" in dry("directory", "put", "site", "name=Dry")
    assert "would send a message of 1 bytes" in dry("message", "send", orders, "--body", "x")
    assert qm.json("queue", "list", "--pattern", "*dry") == []
    assert qm.json("queue", "show", orders)["label"] == ""
    assert qm.json("directory", "list", "site", "--where", "name=Dry") == []
    qm("message", "peek", orders, exit_code=1)


def test_names_are_completed(qm: Qm, orders: str) -> None:
    def completed(*words: str) -> list[str]:
        environment = qm.environment | {
            "_QM_COMPLETE": "zsh_complete",
            "COMP_WORDS": " ".join(("qm", *words)),
            "COMP_CWORD": str(len(words)),
        }
        result = CliRunner().invoke(main, [], env=environment, prog_name="qm")
        return result.stdout.splitlines()[1::3]

    assert ".\\private$\\orders" in completed("queue", "show", "")
    assert completed("cluster", "drain", "") == ["n1"]
    assert completed("drill", "run", "kill-l") == ["kill-leader"]
    gone = {"QM_ENDPOINT": "127.0.0.1:1"}
    qm.environment, kept = qm.environment | gone, qm.environment
    assert completed("cluster", "drain", "") == []
    qm.environment = kept
