"""JSON lines with stable fields, and lines that repeat are held back and counted."""

import json
import logging

import pytest

from qm.observe.logs import REPEAT_AFTER_S, JsonFormatter, LimitedLog


def test_a_line_is_one_json_object() -> None:
    record = logging.LogRecord("qm.edge", logging.WARNING, "", 0, "bytes of %s", ("x",), None)
    record.fields = {"peer": "127.0.0.1"}
    line = json.loads(JsonFormatter("n1").format(record))
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "warning",
        "logger": "qm.edge",
        "message": "bytes of x",
        "node": "n1",
        "peer": "127.0.0.1",
    }


def test_repeated_lines_are_held_back_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    limited = LimitedLog(logging.getLogger("qm.test"), lambda: now)
    for _ in range(3):
        limited.warning("malformed", "a peer sent nonsense")
    limited.warning("other", "something else")
    now = REPEAT_AFTER_S
    limited.warning("malformed", "a peer sent nonsense")
    fields = [record.__dict__["fields"] for record in caplog.records]
    assert fields == [
        {"kind": "malformed"},
        {"kind": "other"},
        {"kind": "malformed", "held_back": 2},
    ]
