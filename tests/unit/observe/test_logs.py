"""JSON lines with stable fields, and lines that repeat are held back and counted."""

import json
import logging

import pytest

from qm.observe.logs import REPEAT_AFTER_S, JsonFormatter, LimitedLog, set_up


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


class ExecuteBatchError(Exception):
    """Named as the one of gRPC that says that a call's other side is gone."""


def test_callers_that_go_cost_a_line_and_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    root, grpc = logging.getLogger(), logging.getLogger("grpc._cython.cygrpc")
    handlers, level = list(root.handlers), root.level
    try:
        set_up("n1", "info")
        root.handlers[:] = handlers
        for error in (ExecuteBatchError("gone"), ExecuteBatchError("gone"), KeyError("a bug")):
            try:
                raise error
            except (ExecuteBatchError, KeyError):
                grpc.exception("raised in core by servicer method [/qm.pb.Relay/Inspect]")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        grpc.filters.clear()
    unsent, bug = caplog.records
    assert unsent.exc_info is None
    assert unsent.__dict__["fields"] == {
        "kind": "answer_unsent",
        "detail": "raised in core by servicer method [/qm.pb.Relay/Inspect]",
    }
    assert bug.exc_info
    assert isinstance(bug.exc_info[1], KeyError)
