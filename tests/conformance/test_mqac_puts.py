"""Properties of an MSMQQueueInfo are put without a check of any kind [MC-MQAC 3.10.4.1]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from qm.client.errors import MqError
from qm.client.mqac import MSMQQueueInfo, MSMQService
from tests.conformance.mqac_world import fresh_path, info_of, made, serving

SEVERAL = "DIRECT=OS:QUORATE\\private$\\a,DIRECT=OS:QUORATE\\private$\\b"
NONE = "DIRECT=OS:QUORATE\\private$\\none"
DEAD_LETTERS = "DIRECT=OS:QUORATE\\SYSTEM$;DEADLETTER"
KIND = "01020304-0506-0708-090A-0B0C0D0E0F10"


@pytest.fixture(scope="module")
def service() -> Iterator[MSMQService]:
    with serving() as running:
        yield running


def is_put_anywhere(service: MSMQService, name: str, values: Sequence[tuple[Any, Any]]) -> None:
    """No queue is asked when it is put, and none is needed; a queue that is made later has it."""
    for value, shown in values:
        for info in (
            info_of(service, name=NONE), info_of(service, name=SEVERAL),
            info_of(service, name=DEAD_LETTERS), info_of(service, path="no path at all"),
        ):  # fmt: skip
            setattr(info, name, value)
        info = MSMQQueueInfo(service)
        setattr(info, name, value)
        path = fresh_path()
        info.PathName = path
        info.Create()
        assert getattr(info_of(service, path=path), name) == shown


@pytest.mark.spec("AC-3.10.4.1.3-01", "AC-3.10.4.1.5-01", "AC-3.10.4.1.38-01")
@pytest.mark.parametrize(
    ("name", "values", "wrong"),
    [
        ("ServiceTypeGuid", [(KIND, KIND), (f"{{{KIND}}}", KIND)], "no GUID"),
        ("Label", [("", ""), ("l" * 124, "l" * 124)], "l" * 125),
        ("MulticastAddress", [("234.1.1.1:8001", "234.1.1.1:8001"), ("", "")], "no address"),
    ],
)
def test_texts_are_put_as_they_are(
    service: MSMQService, name: str, values: Sequence[tuple[str, str]], wrong: str
) -> None:
    is_put_anywhere(service, name, values)
    # What no queue can have is refused when it is written, and the queue keeps what it had.
    info = made(service)
    before = getattr(info, name)
    nowhere = MSMQQueueInfo(service)
    for each in (info, nowhere):
        setattr(each, name, wrong)
        assert getattr(each, name) == wrong
    with pytest.raises(MqError):
        info.Update()
    assert getattr(info_of(service, name=info.FormatName or ""), name) == before


@pytest.mark.spec(
    "AC-3.10.4.1.12-01", "AC-3.10.4.1.14-01", "AC-3.10.4.1.16-01", "AC-3.10.4.1.22-01"
)
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("PrivLevel", [(0, 0), (1, 1), (2, 2)]),
        ("Journal", [(0, 0), (1, 1), (-1, 1), (0x7FFF_FFFF, 1)]),
        ("Quota", [(0, 0), (1, 1), (0x7FFF_FFFF, 0x7FFF_FFFF), (-1, -1)]),
        ("Authenticate", [(0, 0), (1, 1), (-1, 1), (0x7FFF_FFFF, 1)]),
    ],
)
def test_numbers_are_put_as_they_are(
    service: MSMQService, name: str, values: Sequence[tuple[int, int]]
) -> None:
    is_put_anywhere(service, name, values)
    # Each replaces what the queue had.
    info = made(service)
    for value, shown in (*values, *values[:-1]):
        setattr(info, name, value)
        info.Update()
        assert getattr(info_of(service, name=info.FormatName or ""), name) == shown
