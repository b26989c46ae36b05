"""What each revision of an interface adds, and where text and IDL of [MC-MQAC] disagree."""

from __future__ import annotations

import pytest

from qm.client.mqac.constants import MQCERT_REGISTER
from qm.rpc.dcom.mqac.definitions import Method, definitions
from qm.rpc.dcom.mqac.wire import object_interfaces


def opnums(name: str) -> list[int]:
    return sorted(one.opnum for one in definitions().methods(name))


def adds(*revisions: tuple[str, int]) -> None:
    """Assert the last opnum of each revision, and that earlier slots keep their wire form."""
    before: dict[int, int] = {}
    for name, last in revisions:
        assert opnums(name) == list(range(7, last + 1)), name
        served = object_interfaces()[definitions().named(name).guid]
        for opnum, count in before.items():
            assert len(served.operations[opnum].takes.types) == count, (name, opnum)  # type: ignore[attr-defined]
        before = {
            opnum: len(served.operations[opnum].takes.types)  # type: ignore[attr-defined]
            for opnum in opnums(name)
        }


def member(interface: str, opnum: int) -> Method:
    return next(one for one in definitions().methods(interface) if one.opnum == opnum)


@pytest.mark.spec("AC-3.2.4-01", "AC-3.9.4-01", "AC-3.10.4-01", "AC-3.11.4-08")
def test_revisions_add_slots_behind_those_of_the_one_before() -> None:
    names = [f"IMSMQApplication{number}" for number in ("", 2, 3)]
    adds(*zip(names, (7, 14, 24), strict=True))
    names = [f"IMSMQTransaction{number}" for number in ("", 2, 3)]
    adds(*zip(names, (9, 11, 12), strict=True))
    names = [f"IMSMQQueueInfo{number}" for number in ("", 2, 3, 4)]
    adds(*zip(names, (36, 40, 45, 45), strict=True))
    names = [f"IMSMQQueue{number}" for number in ("", 2, 3, 4)]
    adds(*zip(names, (19, 25, 38, 39), strict=True))


@pytest.mark.spec("AC-3.13.4-01", "AC-3.14.4-01", "AC-3.16.4-11", "AC-3.17.4-01")
def test_so_do_those_of_queries_events_and_messages() -> None:
    names = [f"IMSMQQuery{number}" for number in ("", 2, 3, 4)]
    adds(*zip(names, (7, 8, 9, 9), strict=True))
    assert [member(name, 7).name for name in names] == [
        "LookupQueue",
        "LookupQueue",
        "LookupQueue_v2",
        "LookupQueue_v2",
    ]
    names = [f"IMSMQQueueInfos{number}" for number in ("", 2, 3, 4)]
    adds(*zip(names, (8, 9, 9, 9), strict=True))
    names = [f"IMSMQEvent{number}" for number in ("", 2, 3)]
    adds(*zip(names, (6, 7, 7), strict=True))
    added = member("IMSMQEvent2", 7)
    assert (added.name, added.kind) == ("Properties", "get")
    assert member("IMSMQEvent3", 7) == added
    names = [f"IMSMQMessage{number}" for number in ("", 2, 3, 4)]
    adds(*zip(names, (55, 81, 97, 97), strict=True))


@pytest.mark.spec(
    "AC-3.11.4.1.3-02",
    "AC-3.14.4.1.2-05",
    "AC-3.17.4.1.16-02",
    "AC-3.17.4.1.77-02",
    "AC-6-10",
)
def test_where_the_text_prints_something_else_the_idl_counts() -> None:
    assert member("IMSMQQueue4", 9).parameters[0].type == "IMSMQQueueInfo4**"
    for revision in ("", "2", "3", "4"):
        following = member(f"IMSMQQueueInfos{revision}", 8)
        assert following.parameters[0].type == f"IMSMQQueueInfo{revision}**"
    assert member("IMSMQMessage", 22).kind == "putref"
    assert [member("IMSMQMessage4", opnum).kind for opnum in (22, 29, 30, 78)] == [
        "put",
        "get",
        "put",
        "put",
    ]
    assert member("IMSMQMessage4", 83).parameters[0].type == "IMSMQQueueInfo4*"
    assert member("IMSMQMessage3", 83).parameters[0].type == "IMSMQQueueInfo3*"
    for one in definitions().interfaces:
        if one.name.startswith("IMSMQ"):
            assert "dual" in one.attributes, one.name
            assert "IDispatch" in definitions().lineage(one.name)


@pytest.mark.spec("AC-6-12")
def test_flags_of_registering_certificates() -> None:
    assert [(one.name, one.value) for one in MQCERT_REGISTER] == [
        ("MQCERT_REGISTER_ALWAYS", 1),
        ("MQCERT_REGISTER_IF_NOT_EXIST", 2),
    ]
