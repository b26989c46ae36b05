"""The coclasses of [MC-MQAC] section 6, by the numbers of its IDL."""

from __future__ import annotations

import re
from itertools import pairwise
from uuid import UUID

import pytest

from qm.rpc.dcom.mqac.definitions import definitions
from tests.unit.rpc.dcom.scripts import Program, clsid, iid, play

_DCCD = "-dccd-11d0-aa4b-0060970debae"
_2168 = "-2168-11d3-898c-00e02c074f6b"
COCLASSES = {
    ("MSMQQuery", f"d7d6e073{_DCCD}"): {
        "IMSMQQuery": f"d7d6e072{_DCCD}",
        "IMSMQQuery2": f"eba96b0e{_2168}",
        "IMSMQQuery3": f"eba96b19{_2168}",
        "IMSMQQuery4": f"eba96b24{_2168}",
    },
    ("MSMQMessage", f"d7d6e075{_DCCD}"): {
        "IMSMQMessage": f"d7d6e074{_DCCD}",
        "IMSMQMessage2": "d9933be0-a567-11d2-b0f3-00e02c074f6b",
        "IMSMQMessage3": f"eba96b1a{_2168}",
        "IMSMQMessage4": f"eba96b23{_2168}",
    },
    ("MSMQQueue", f"d7d6e079{_DCCD}"): {
        "IMSMQQueue": f"d7d6e076{_DCCD}",
        "IMSMQQueue2": "ef0574e0-06d8-11d3-b100-00e02c074f6b",
        "IMSMQQueue3": f"eba96b1b{_2168}",
        "IMSMQQueue4": f"eba96b20{_2168}",
    },
    ("MSMQEvent", f"d7d6e07a{_DCCD}"): {
        "IMSMQEvent": f"d7d6e077{_DCCD}",
        "IMSMQEvent2": f"eba96b12{_2168}",
        "IMSMQEvent3": f"eba96b1c{_2168}",
        "IMSMQPrivateEvent": "d7ab3341-c9d3-11d1-bb47-0080c7c5a2c0",
    },
    ("MSMQQueueInfo", f"d7d6e07c{_DCCD}"): {
        "IMSMQQueueInfo": f"d7d6e07b{_DCCD}",
        "IMSMQQueueInfo2": "fd174a80-89cf-11d2-b0f2-00e02c074f6b",
        "IMSMQQueueInfo3": f"eba96b1d{_2168}",
        "IMSMQQueueInfo4": f"eba96b21{_2168}",
    },
    ("MSMQQueueInfos", f"d7d6e07e{_DCCD}"): {
        "IMSMQQueueInfos": f"d7d6e07d{_DCCD}",
        "IMSMQQueueInfos2": f"eba96b0f{_2168}",
        "IMSMQQueueInfos3": f"eba96b1e{_2168}",
        "IMSMQQueueInfos4": f"eba96b22{_2168}",
    },
    ("MSMQTransaction", f"d7d6e080{_DCCD}"): {
        "IMSMQTransaction": f"d7d6e07f{_DCCD}",
        "IMSMQTransaction2": "2ce0c5b0-6e67-11d2-b0e6-00e02c074f6b",
        "IMSMQTransaction3": f"eba96b13{_2168}",
    },
    ("MSMQCoordinatedTransactionDispenser", f"d7d6e082{_DCCD}"): {
        "IMSMQCoordinatedTransactionDispenser": f"d7d6e081{_DCCD}",
        "IMSMQCoordinatedTransactionDispenser2": f"eba96b10{_2168}",
        "IMSMQCoordinatedTransactionDispenser3": f"eba96b14{_2168}",
    },
    ("MSMQTransactionDispenser", f"d7d6e084{_DCCD}"): {
        "IMSMQTransactionDispenser": f"d7d6e083{_DCCD}",
        "IMSMQTransactionDispenser2": f"eba96b11{_2168}",
        "IMSMQTransactionDispenser3": f"eba96b15{_2168}",
    },
    ("MSMQApplication", f"d7d6e086{_DCCD}"): {
        "IMSMQApplication": f"d7d6e085{_DCCD}",
        "IMSMQApplication2": "12a30900-7300-11d2-b0e6-00e02c074f6b",
        "IMSMQApplication3": f"eba96b1f{_2168}",
    },
    ("MSMQDestination", f"eba96b18{_2168}"): {
        "IMSMQDestination": f"eba96b16{_2168}",
        "IMSMQPrivateDestination": f"eba96b17{_2168}",
    },
    ("MSMQCollection", "f72b9031-2f0c-43e8-924e-e6052cdc493f"): {
        "IMSMQCollection": "0188ac2f-ecb3-4173-9779-635ca2039c72",
    },
    ("MSMQManagement", "39ce96fe-f4c5-4484-a143-4c2d5d324229"): {
        "IMSMQManagement": "be5f0241-e489-4957-8cc4-a452fcf3e23e",
    },
    ("MSMQOutgoingQueueManagement", "0188401c-247a-4fed-99c6-bf14119d7055"): {
        "IMSMQOutgoingQueueManagement": "64c478fb-f9b0-4695-8a7f-439ac94326d3",
    },
    ("MSMQQueueManagement", "33b6d07e-f27d-42fa-b2d7-bf82e11e9374"): {
        "IMSMQQueueManagement": "7fbe7759-5760-444d-b8a5-5e7ab9a84cce",
    },
}
REVISED = [list(each) for each in COCLASSES.values() if len(each) > 2]


@pytest.mark.spec("AC-1.9-64")
def test_every_class_of_the_idl_is_made_with_each_interface_of_the_idl() -> None:
    assert len(COCLASSES) == 15
    for (name, number), interfaces in COCLASSES.items():
        assert clsid(name) == UUID(number).bytes_le
        for interface, identifier in interfaces.items():
            assert iid(interface) == UUID(identifier).bytes_le

    async def scenario(program: Program) -> None:
        server = program.server
        for (_, number), interfaces in COCLASSES.items():
            wanted = [UUID(one).bytes_le for one in interfaces.values()]
            refs = await server.create(UUID(number).bytes_le, *wanted)
            assert [one.iid for one in refs] == wanted
            assert len({one.oid for one in refs}) == 1
            for alone in wanted:
                (ref,) = await server.create(UUID(number).bytes_le, alone)
                assert ref.iid == alone
                await server.release(ref)
            await server.release(*refs)

    play(scenario)


def shape(interface: str) -> dict[int, list[tuple[str, bool]]]:
    """What each slot carries, of which an interface pointer may be of another interface."""
    return {
        method.opnum: [
            (re.sub(r"^I[A-Z]\w+\*+", "I*", one.type), one.is_out) for one in method.parameters
        ]
        for method in definitions().methods(interface)
    }


@pytest.mark.spec("AC-1.7-01")
@pytest.mark.parametrize("family", REVISED, ids=lambda family: str(family[0]))
def test_each_revision_has_the_slots_of_the_one_before(family: list[str]) -> None:
    revisions = [one for one in family if "Private" not in one]
    assert len(revisions) >= 3
    for earlier, later in pairwise(revisions):
        before, behind = shape(earlier), shape(later)
        assert {slot: behind.get(slot) for slot in before} == before
        assert iid(earlier) != iid(later)
