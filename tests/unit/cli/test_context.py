"""`qm context`: clusters by name, and which one a command speaks to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from qm.cli.lib.connection import EXIT_REFUSED, Connection, connected, exiting
from qm.cli.lib.names import hint_for
from qm.cli.main import main
from qm.client.errors import CallFailed, ClientError, InvalidArgument

USAGE = 2
FILES = ("--tls-authority", "a.pem", "--tls-certificate", "c.pem", "--tls-key", "c.key")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, the current one, in which the user's files lie, too."""
    for name in ("QM_ENDPOINT", "QM_CONTEXT", "QM_CONTEXTS", "QM_DEV_FOLDER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def qm(*arguments: str, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(main, list(arguments), catch_exceptions=False)
    assert result.exit_code == exit_code, (arguments, result.output)
    return result


def listed() -> list[Any]:
    found: list[Any] = json.loads(qm("context", "list", "-o", "json").stdout)
    return found


def connection(*arguments: str) -> Connection:
    """The connection that a command with these options gets."""
    found: list[Connection] = []

    @click.command()
    @connected
    def command(given: Connection) -> None:
        found.append(given)

    result = CliRunner().invoke(command, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return found[0]


def test_a_context_serves_in_any_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert listed() == []
    qm("context", "add", "prod", "--endpoint", "n1,n2:7", *FILES, "--server-name", "quorate")
    qm("context", "add", "lab", "--endpoint", "[::1]")
    (home / "elsewhere").mkdir()
    monkeypatch.chdir(home / "elsewhere")
    found = connection()
    assert found.endpoints == ("n1:1811", "n2:7")
    files = (found.authority, found.certificate, found.key)
    assert files == (home / "a.pem", home / "c.pem", home / "c.key")
    assert found.server_name == "quorate"
    assert [(row["name"], row["current"]) for row in listed()] == [("lab", False), ("prod", True)]
    qm("context", "use", "lab")
    assert connection().endpoints == ("[::1]:1811",)
    shown = json.loads(qm("context", "show", "-o", "json").stdout)
    assert (shown["name"], shown["certificate"]) == ("lab", "")
    qm("context", "remove", "lab")
    assert [row["name"] for row in listed()] == ["prod"]
    qm("context", "show", exit_code=USAGE)


def test_what_is_said_first_counts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        qm("context", "add", name, "--endpoint", name)
    assert connection().endpoints == ("one:1811",)
    assert connection("--context", "two").endpoints == ("two:1811",)
    monkeypatch.setenv("QM_ENDPOINT", "environment")
    assert connection().endpoints == ("environment:1811",)
    assert connection("--context", "two").endpoints == ("two:1811",)
    assert connection("--context", "two", "--endpoint", "here").endpoints == ("here:1811",)
    monkeypatch.delenv("QM_ENDPOINT")
    monkeypatch.setenv("QM_CONTEXT", "two")
    assert connection().endpoints == ("two:1811",)
    assert connection("--connect-timeout", "0.5").connect_s == 0.5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("context", "use", "none"), "there is no context 'none'"),
        (("context", "add", "x" * 65, "--endpoint", "n1"), "1 to 64 printable characters"),
        (("context", "add", "x", "--endpoint", "n1:port"), "is not an endpoint"),
        (("queue", "list", "--context", "none"), "there is no context 'none'"),
        (("queue", "list"), "no cluster: give --endpoint"),
        (("queue", "list", "--endpoint", "n1", "--tls-key", "k"), "give all three or none"),
        (("queue", "show", "orders", "--endpoint", "n1"), "did you mean '.\\private$\\orders'"),
    ],
)
def test_wrong_usage_says_what_to_do(home: Path, arguments: tuple[str, ...], said: str) -> None:
    assert said in qm(*arguments, exit_code=USAGE).stderr


def test_a_damaged_file_is_one_line(home: Path) -> None:
    file = home / "config" / "quorate" / "contexts.json"
    file.parent.mkdir(parents=True)
    for content in (b"{", b'{"contexts": 7}', b"\xff\xfe", b'{"contexts": {"a": {}}}'):
        file.write_bytes(content)
        said = qm("context", "list", exit_code=1).stderr
        assert f"{file} is not a file of contexts" in said
        assert said.count("\n") == 1
        assert file.read_bytes() == content


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("orders", "'.\\private$\\orders'"),
        (".private$orders", "'.\\private$\\orders'"),
        ("hostprivate$orders", "'host\\private$\\orders'"),
        (".\\orders", ""),
        ("DIRECT=OS:h\\q", ""),
        ("bestellungen-ü", "'.\\private$\\bestellungen-ü'"),
    ],
)
def test_a_name_without_its_backslashes_gets_a_hint(name: str, hint: str) -> None:
    assert hint in hint_for(name)
    assert bool(hint) == bool(hint_for(name))


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (InvalidArgument("changes[quota]", "changes[quota]: too large"), USAGE, "Error: too large"),
        (CallFailed("UNIMPLEMENTED", "Method not found!"), EXIT_REFUSED, "runs an older version"),
        (CallFailed("INTERNAL", "broken"), EXIT_REFUSED, "INTERNAL: broken"),
    ],
)
def test_an_error_speaks_of_what_the_caller_wrote(error: ClientError, code: int, said: str) -> None:
    def fail() -> None:
        raise error

    @click.command()
    def command() -> None:
        exiting(fail)

    result = CliRunner().invoke(command, [])
    assert result.exit_code == code
    assert said in result.stderr
    assert "changes" not in result.stderr
