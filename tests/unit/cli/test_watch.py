"""`qm events` shows what others wrote without letting it control the terminal."""

import json

import click
import pytest
from click.testing import CliRunner

from qm.cli.cluster.watch import _print
from qm.pb import control_pb2

HOSTILE = "\x1b]0;owned\x07\u202e\r\n2026-01-01T00:00:00Z n9 control: forged"


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
def test_hostile_events_stay_one_harmless_line(output: str) -> None:
    event = control_pb2.Event(
        kind="control",
        name=HOSTILE,
        node=HOSTILE,
        principal=HOSTILE,
        text=HOSTILE,
        details={"path_name": HOSTILE, HOSTILE: HOSTILE},
    )

    @click.command()
    def show() -> None:
        _print(event, output)

    said = CliRunner().invoke(show, catch_exceptions=False).stdout
    assert not {"\x1b", "\x07", "\u202e", "\r"} & set(said)
    if output != "yaml":
        assert said.count("\n") == 1
    if output == "json":
        assert json.loads(said)["text"] == HOSTILE
