"""MSMQQuery, MSMQQueueInfos and MSMQCollection [MC-MQAC 3.13 to 3.15] over a real node."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from time import monotonic, sleep
from typing import Any

import pytest
from typing_extensions import override

from qm.client.errors import MqError
from qm.client.mqac import MSMQCollection, MSMQQuery, MSMQQueueInfo, MSMQQueueInfos, MSMQService
from qm.client.mqac.cluster.manager import ClusterManager
from qm.client.mqac.constants import RELOPS
from qm.client.mqac.manager import QueueRecord
from qm.wire.codes import ErrorCode
from tests.conformance.mqac_world import Deleting, fails, info_of, made, serving

E = ErrorCode
WAIT_S = 20
TYPES = [f"{{01020304-0506-0708-090A-0B0C0D0E0F0{number}}}" for number in range(3)]
LONG_AGO, FAR_OFF = (datetime.now(UTC) + timedelta(days=days) for days in (-9, 9))


@pytest.fixture(scope="module")
def service() -> Iterator[MSMQService]:
    with serving() as running:
        made(running)  # a private queue: never found
        for number, (label, address) in enumerate(
            [("apple", "234.1.1.1:8001"), ("banana", ""), ("cherry", "")]
        ):
            info = info_of(running, path=f"QUORATE\\public{number}")
            info.Label, info.ServiceTypeGuid = label, TYPES[number]
            if address:
                info.MulticastAddress = address
            info.Create()
        yield running


def labels(infos: MSMQQueueInfos) -> Sequence[str]:
    """Labels of what was found, in order of the alphabet."""
    found = []
    while (info := infos.Next()) is not None:
        found.append(info.Label)
    return sorted(found)


ALL = ["apple", "banana", "cherry"]
BY_RELATION = {
    RELOPS.REL_NOP: ALL,
    RELOPS.REL_EQ: ["banana"],
    RELOPS.REL_NEQ: ["apple", "cherry"],
    RELOPS.REL_LT: ["apple"],
    RELOPS.REL_GT: ["cherry"],
    RELOPS.REL_LE: ["apple", "banana"],
    RELOPS.REL_GE: ["banana", "cherry"],
}


@pytest.mark.spec(
    "AC-2.2.2.20-01", "AC-2.2.2.20-02", "AC-3.13.4.1.3-02", "AC-3.13.4.1.3-04", "AC-3.13.4.1.3-05"
)
def test_relations_by_label_and_type(service: MSMQService) -> None:
    query = MSMQQuery(service)
    assert labels(query.LookupQueue()) == ALL
    for each, found in BY_RELATION.items():
        assert labels(query.LookupQueue(Label="banana", RelLabel=each)) == found
        by_type = query.LookupQueue(ServiceTypeGuid=TYPES[1], RelServiceType=each)
        assert labels(by_type) == found
    assert labels(query.LookupQueue(Label="banana")) == ["banana"]
    assert labels(query.LookupQueue(ServiceTypeGuid=TYPES[2])) == ["cherry"]
    times_are_terms(service, query.LookupQueue)
    assert labels(query.LookupQueue(MulticastAddress="")) == ["banana", "cherry"]
    assert labels(query.LookupQueue(MulticastAddress="234.1.1.1:8001")) == ["apple"]
    assert relations(query.LookupQueue) == {
        "RelServiceType": 1,
        "RelLabel": 1,
        "RelCreateTime": 1,
        "RelModifyTime": 1,
        "RelMulticastAddress": 1,
    }


def relations(lookup: Callable[..., MSMQQueueInfos]) -> dict[str, int]:
    """Its relation arguments, with what they are if they are left out."""
    given = inspect.signature(lookup).parameters
    return {name: each.default for name, each in given.items() if name.startswith("Rel")}


def modified(service: MSMQService, label: str) -> MSMQQueueInfo:
    """A queue that was modified after it was created: one time is not taken for the other."""
    info = MSMQQuery(service).LookupQueue(Label=label).Next()
    assert isinstance(info, MSMQQueueInfo)
    end = monotonic() + WAIT_S
    while info.ModifyTime <= info.CreateTime:
        assert monotonic() < end
        sleep(0.05)
        info.Label = label
        info.Update()
        info.Refresh()
    return info


def times_are_terms(service: MSMQService, lookup: Callable[..., MSMQQueueInfos]) -> None:
    """CreateTime and ModifyTime by each relation, which is EQ if it is left out."""
    info = modified(service, "banana")
    guid = "{" + str(info.QueueGuid) + "}"
    for name in ("CreateTime", "ModifyTime"):
        exact = getattr(info, name)
        for time, is_found in (
            (exact, {"EQ", "LE", "GE"}),
            (LONG_AGO, {"NEQ", "GT", "GE"}),
            (FAR_OFF, {"NEQ", "LT", "LE"}),
        ):
            for each in RELOPS:
                found = lookup(guid, **{name: time, f"Rel{name}": each})
                is_wanted = each is RELOPS.REL_NOP or each.name[4:] in is_found
                assert labels(found) == (["banana"] if is_wanted else []), (name, each)
            omitted = labels(lookup(guid, **{name: time}))
            assert omitted == (["banana"] if time == exact else [])


@pytest.mark.spec("AC-3.13.4.1.3-03", "AC-3.13.4.1.3-10", "AC-3.13.4.1.3-02")
def test_guids_stand_in_braces(service: MSMQService) -> None:
    query = MSMQQuery(service)
    guid = info_of(service, path="QUORATE\\public0").QueueGuid
    assert labels(query.LookupQueue(QueueGuid="{" + str(guid) + "}")) == ["apple"]
    for wrong in (guid, "{}", "", "apple"):
        with fails(E.MQ_ERROR_INVALID_PARAMETER):
            query.LookupQueue(QueueGuid=wrong)
        with fails(E.MQ_ERROR_INVALID_PARAMETER):
            query.LookupQueue(ServiceTypeGuid=wrong)
    for number in (7, -1):
        with fails(E.MQ_ERROR_INVALID_PARAMETER):
            query.LookupQueue(Label="apple", RelLabel=number)
    both: dict[str, Any] = {"QueueGuid": "{" + str(guid) + "}", "Label": "banana"}
    assert labels(query.LookupQueue(**both)) == []  # EQUALS, beside other terms
    with pytest.raises(TypeError):
        query.LookupQueue(**both, RelQueueGuid=RELOPS.REL_NEQ)  # type: ignore[call-arg]


@pytest.mark.spec("AC-3.13.4.1.3-01", "AC-3.13.4.1.3-02", "AC-3.13.4.1.3-07")
def test_every_argument_is_a_term_and_all_must_hold(service: MSMQService) -> None:
    query = MSMQQuery(service)
    apple = modified(service, "apple")
    given: dict[str, Any] = {
        "QueueGuid": "{" + str(apple.QueueGuid) + "}",
        "ServiceTypeGuid": TYPES[0],
        "Label": "apple",
        "CreateTime": apple.CreateTime,
        "ModifyTime": apple.ModifyTime,
        "MulticastAddress": "234.1.1.1:8001",
    }
    others: dict[str, Any] = {
        "QueueGuid": TYPES[0],
        "ServiceTypeGuid": TYPES[1],
        "Label": "banana",
        "CreateTime": FAR_OFF,
        "ModifyTime": FAR_OFF,
        "MulticastAddress": "",
    }
    relations = {name: f"Rel{name}" for name in given} | {"ServiceTypeGuid": "RelServiceType"}
    del relations["QueueGuid"]  # always EQUALS
    assert labels(query.LookupQueue(**given)) == ["apple"]
    for name, value in others.items():
        changed = given | {name: value}
        assert labels(query.LookupQueue(**changed)) == []  # it is a term
        if name in relations:
            ignored = changed | {relations[name]: RELOPS.REL_NOP}
            assert labels(query.LookupQueue(**ignored)) == ["apple"]
            opposite = changed | {relations[name]: RELOPS.REL_NEQ}
            assert labels(query.LookupQueue(**opposite)) == ["apple"]
        left_out = {key: each for key, each in given.items() if key != name}
        assert labels(query.LookupQueue(**left_out)) == ["apple"]
    # An empty address means the queues that have none.
    assert labels(query.LookupQueue(MulticastAddress="")) == ["banana", "cherry"]


@pytest.mark.spec("AC-3.13.4.1.3-07")
def test_every_condition_must_hold(service: MSMQService) -> None:
    query = MSMQQuery(service)
    both = query.LookupQueue(Label="apple", RelLabel=RELOPS.REL_NEQ, CreateTime=LONG_AGO,
                             RelCreateTime=RELOPS.REL_GT, ServiceTypeGuid=TYPES[2])  # fmt: skip
    assert labels(both) == ["cherry"]
    assert labels(query.LookupQueue(Label="apple", ServiceTypeGuid=TYPES[2])) == []
    newer = {"CreateTime": FAR_OFF, "RelCreateTime": RELOPS.REL_GT}
    assert labels(query.LookupQueue(**newer)) == []  # type: ignore[arg-type]
    changed = {"ModifyTime": FAR_OFF, "RelModifyTime": RELOPS.REL_LT}
    assert labels(query.LookupQueue(**changed)) == ALL  # type: ignore[arg-type]
    cannot_be_read(service, "LookupQueue")


class Unread(ClusterManager):
    """A cluster whose directory cannot be read."""

    @override
    def public_queues(self) -> Iterator[QueueRecord]:
        raise MqError(E.MQ_ERROR_NO_DS)


def cannot_be_read(service: MSMQService, name: str) -> None:
    """What the directory answers is the result of a lookup."""
    assert isinstance(service.manager, ClusterManager)
    query = MSMQQuery(MSMQService(Unread(service.manager.client)))
    with fails(E.MQ_ERROR_NO_DS):
        getattr(query, name)(Label="apple")


@pytest.mark.parametrize("call", ["LookupQueue", "LookupQueue_v2"])
def test_queues_that_are_deleted_meanwhile_are_left_out(service: MSMQService, call: str) -> None:
    """A program that walks through them would never get past one of them."""
    doomed = []
    for name in ("early", "late"):
        info = info_of(service, path=f"QUORATE\\{call}{name}")
        info.Create()
        doomed.append(info)
    assert isinstance(service.manager, ClusterManager)
    manager = Deleting(service.manager.client)
    manager.doomed = [str(doomed[0].FormatName)]
    infos = getattr(MSMQQuery(MSMQService(manager)), call)()
    manager.doomed = [str(doomed[1].FormatName)]
    assert labels(infos) == ALL
    assert infos.Next() is None


@pytest.mark.spec("AC-3.13.4.1.3-08", "AC-3.13.4.1.3-09")
def test_multicast_addresses(service: MSMQService) -> None:
    query = MSMQQuery(service)
    assert labels(query.LookupQueue(MulticastAddress="234.1.1.1:8001")) == ["apple"]
    assert labels(query.LookupQueue(MulticastAddress="")) == ["banana", "cherry"]
    has_one = query.LookupQueue(MulticastAddress="", RelMulticastAddress=RELOPS.REL_NEQ)
    assert labels(has_one) == ["apple"]
    unasked = query.LookupQueue(MulticastAddress="", RelMulticastAddress=RELOPS.REL_NOP)
    assert labels(unasked) == labels(query.LookupQueue()) == ALL
    # Left out it is no term, whatever its relation is and whatever else is asked for.
    for each in RELOPS:
        assert labels(query.LookupQueue(RelMulticastAddress=each)) == ALL
        for label in ALL:
            assert labels(query.LookupQueue(Label=label, RelMulticastAddress=each)) == [label]
    none, one = ["banana", "cherry"], ["apple"]
    for address, found in (
        ("234.1.1.1:8001", (ALL, one, none, none, [], ALL, one)),
        ("", (ALL, none, one, [], one, none, ALL)),
    ):
        for relation, wanted in enumerate(found):
            terms = {"MulticastAddress": address, "RelMulticastAddress": relation}
            assert labels(query.LookupQueue(**terms)) == wanted, terms  # type: ignore[arg-type]


@pytest.mark.spec(
    "AC-3.13.4.1.1-01", "AC-3.13.4.1.1-02", "AC-3.13.4.1.1-03", "AC-3.13.4.1.1-04",
    "AC-3.13.4.1.1-06",
)  # fmt: skip
def test_the_earlier_lookup_has_no_multicast_addresses(service: MSMQService) -> None:
    query = MSMQQuery(service)
    guid = "{" + str(info_of(service, path="QUORATE\\public0").QueueGuid) + "}"
    assert labels(query.LookupQueue_v2(guid)) == ["apple"]
    assert labels(query.LookupQueue_v2(guid, Label="banana")) == []
    assert labels(query.LookupQueue_v2(ServiceTypeGuid=TYPES[1])) == ["banana"]
    assert labels(query.LookupQueue_v2(Label="banana")) == ["banana"]
    for each, found in BY_RELATION.items():
        assert labels(query.LookupQueue_v2(Label="banana", RelLabel=each)) == found
    later = RELOPS.REL_GE
    assert labels(query.LookupQueue_v2(CreateTime=LONG_AGO, RelCreateTime=later)) == ALL
    assert labels(query.LookupQueue_v2(ModifyTime=LONG_AGO, RelModifyTime=later)) == ALL
    assert labels(query.LookupQueue_v2(CreateTime=FAR_OFF, RelCreateTime=later)) == []
    for unknown in ("MulticastAddress", "RelMulticastAddress", "RelQueueGuid"):
        with pytest.raises(TypeError):
            query.LookupQueue_v2(**{unknown: 0})  # type: ignore[arg-type]
    assert relations(query.LookupQueue_v2) == {
        "RelServiceType": 1, "RelLabel": 1, "RelCreateTime": 1, "RelModifyTime": 1,
    }  # fmt: skip
    for each, found in BY_RELATION.items():
        by_type = query.LookupQueue_v2(ServiceTypeGuid=TYPES[1], RelServiceType=each)
        assert labels(by_type) == found
    times_are_terms(service, query.LookupQueue_v2)
    cannot_be_read(service, "LookupQueue_v2")


@pytest.mark.spec("AC-3.13.4.1.2-01", "AC-3.14.4.1.3-01")
def test_no_properties(service: MSMQService) -> None:
    for each in (MSMQQuery(service), MSMQQueueInfos(service)):
        with fails(0x8000_4001):
            _ = each.Properties


# Results ---------------------------------------------------------------------------------------


@pytest.mark.spec("AC-3.14.1-01", "AC-3.14.3-02", "AC-3.14.4.1.1-02", "AC-3.14.4.1.2-02")
def test_results_of_an_application_s_own_are_none(service: MSMQService) -> None:
    own = MSMQQueueInfos(service)
    for call in (own.Reset, own.Next):
        with fails(E.MQ_ERROR_UNINITIALIZED_OBJECT):
            call()


@pytest.mark.spec(
    "AC-3.14.4.1.1-01", "AC-3.14.4.1.2-01", "AC-3.14.4.1.2-03", "AC-4.4-01", "AC-3.14.1-01"
)
def test_results_are_read_in_turn_and_again(service: MSMQService) -> None:
    for call in (MSMQQueueInfos(service).Reset, MSMQQueueInfos(service).Next):
        with fails(E.MQ_ERROR_UNINITIALIZED_OBJECT):
            call()
    infos = MSMQQuery(service).LookupQueue(Label="apple", RelLabel=RELOPS.REL_NEQ)
    first, second = infos.Next(), infos.Next()
    assert isinstance(first, MSMQQueueInfo)
    assert isinstance(second, MSMQQueueInfo)
    assert {first.Label, second.Label} == {"banana", "cherry"}
    assert (first.FormatName or "").startswith("PUBLIC=")
    for _ in range(3):
        assert infos.Next() is None
    infos.Reset()
    again = infos.Next()
    assert again is not None
    assert again is not first
    assert again.FormatName == first.FormatName
    # It was refreshed: what changes afterwards is not seen.
    infos.Reset()
    seen = infos.Next()
    assert seen is not None
    for label in ("relabelled", first.Label):
        first.Label = label
        first.Update()
        assert seen.Label == again.Label != "relabelled"


@pytest.mark.spec("AC-3.14-01", "AC-3.14.3-01", "AC-3.10.3-04", "AC-3.14.4.1.2-04", "AC-3.14.1-01")
def test_results_are_found_once_and_refreshed_when_they_are_read(service: MSMQService) -> None:
    going = info_of(service, path="QUORATE\\going")
    going.Label = "going"
    going.Create()
    changing = info_of(service, path="QUORATE\\changing")
    changing.Label = "going"
    changing.Create()
    infos = MSMQQuery(service).LookupQueue(Label="going")
    later = info_of(service, path="QUORATE\\later")
    later.Label = "going"
    later.Create()
    changing.Label = "changed"
    changing.Update()
    going.Delete()
    # Nothing later is found; what was found is read as it is now, if it is still there.
    assert labels(infos) == ["changed"]
    found = MSMQQuery(service).LookupQueue(Label="going")
    changing.Label = "going"
    changing.Update()
    seen = MSMQQuery(service).LookupQueue(Label="going")
    changing.Label = "changed"
    changing.Update()
    assert labels(found) == ["going"]
    assert labels(seen) == ["changed", "going"]
    for each in (changing, later):
        each.Delete()


@pytest.mark.spec("AC-3.10.3-04", "AC-3.14-01", "AC-3.14.4.1.2-04")
def test_each_result_is_read_when_its_turn_comes(service: MSMQService) -> None:
    made = {name: info_of(service, path=f"QUORATE\\{name}") for name in ("turn0", "turn1", "turn2")}
    for info in made.values():
        info.Label = "before"
        info.Create()
    infos = MSMQQuery(service).LookupQueue(Label="before")
    for seen in range(3):
        for info in made.values():
            info.Label = f"changed {seen}"
            info.Update()
        found = infos.Next()
        assert found is not None
        assert found.Label == f"changed {seen}"
        del made[str(found.PathName).partition("\\")[2]]
        found.Delete()
    assert infos.Next() is None


class Forgetful(ClusterManager):
    """A cluster that does not answer about a queue for a while."""

    is_silent = False

    @override
    def queue(self, name: str) -> QueueRecord:
        if self.is_silent:
            raise MqError(E.MQ_ERROR_SERVICE_NOT_AVAILABLE)
        return super().queue(name)


@pytest.mark.spec("AC-3.14.4.1.2-04")
def test_a_result_that_cannot_be_read_now_is_not_lost(service: MSMQService) -> None:
    assert isinstance(service.manager, ClusterManager)
    manager = Forgetful(service.manager.client)
    infos = MSMQQuery(MSMQService(manager)).LookupQueue(Label="banana")
    manager.is_silent = True
    for _ in range(2):
        with fails(0xC00E_000B):
            infos.Next()
    manager.is_silent = False
    assert labels(infos) == ["banana"]


# Collections -----------------------------------------------------------------------------------


@pytest.mark.spec(
    "AC-3.15.1-01", "AC-3.15.4.1.1-01", "AC-3.15.4.1.1-02", "AC-3.15.4.1.2-01", "AC-3.15.4.1.3-01"
)
def test_a_collection_has_named_values() -> None:
    given = {"One": 1, "Two": "zwei"}
    collection = MSMQCollection(given)
    given["Three"] = 3
    assert (collection.Item("Two"), collection.Item("One"), collection.Count) == ("zwei", 1, 2)
    assert [*collection] == [1, "zwei"]
    for missing in ("Three", "one", ""):
        with fails(0xC00E_0006):
            collection.Item(missing)


@pytest.mark.spec("AC-3.15.3-01")
def test_a_collection_of_an_application_s_own_is_empty() -> None:
    assert (MSMQCollection().Count, [*MSMQCollection()]) == (0, [])
