"""Enumerations and values of [MC-MQAC] 2.2.2."""

from __future__ import annotations

from enum import IntEnum, IntFlag

import pytest

from qm.client.mqac import constants as c


def values(kind: type[IntEnum] | type[IntFlag]) -> dict[str, int]:
    return {name: int(member) for name, member in kind.__members__.items()}


@pytest.mark.spec("AC-2.2.2.1-01", "AC-2.2.2.2-01", "AC-2.2.2.3-01", "AC-2.2.2.4-01")
def test_transactions_shares_accesses_journals() -> None:
    assert list(values(c.MQTRANSACTION).values()) == [0, 1, 2, 3]
    assert values(c.MQSHARE) == {"MQ_DENY_NONE": 0, "MQ_DENY_RECEIVE_SHARE": 1}
    assert values(c.MQACCESS) == {
        "MQ_RECEIVE_ACCESS": 1,
        "MQ_SEND_ACCESS": 2,
        "MQ_PEEK_ACCESS": 0x20,
        "MQ_ADMIN_ACCESS": 0x80,
    }
    assert values(c.MQJOURNAL) == {"MQ_JOURNAL_NONE": 0, "MQ_JOURNAL": 1}


@pytest.mark.spec("AC-2.2.2.5-01", "AC-2.2.2.6-01", "AC-2.2.2.7-01", "AC-2.2.2.21-01")
def test_queue_properties_and_commit_flags() -> None:
    assert values(c.MQTRANSACTIONAL) == {"MQ_TRANSACTIONAL_NONE": 0, "MQ_TRANSACTIONAL": 1}
    assert values(c.MQAUTHENTICATE) == {"MQ_AUTHENTICATE_NONE": 0, "MQ_AUTHENTICATE": 1}
    assert list(values(c.MQPRIVLEVEL).values()) == [0, 1, 2]
    assert values(c.XACTTC) == {
        "XACTTC_NONE": 0,
        "XACTTC_SYNC_PHASEONE": 1,
        "XACTTC_SYNC_PHASETWO": 2,
        "XACTTC_SYNC": 2,
        "XACTTC_ASYNC_PHASEONE": 4,
        "XACTTC_ASYNC": 4,
    }


@pytest.mark.spec("AC-2.2.2.9-01", "AC-2.2.2.10-01", "AC-2.2.2.11-01", "AC-2.2.2.12-01")
def test_classes_delivery_acknowledgments_and_journals_of_messages() -> None:
    classes = sorted(values(c.MQMSGCLASS).values())
    assert classes == [
        *(0, 1, 2, 0x4000),
        *range(0x8000, 0x800C),
        *(0xC000, 0xC001, 0xC002, 0xC004),
    ]
    assert values(c.MQMSGDELIVERY) == {
        "MQMSG_DELIVERY_EXPRESS": 0,
        "MQMSG_DELIVERY_RECOVERABLE": 1,
    }
    acks = values(c.MQMSGACKNOWLEDGEMENT)
    assert acks["MQMSG_ACKNOWLEDGMENT_FULL_REACH_QUEUE"] == 1 | 4
    assert acks["MQMSG_ACKNOWLEDGMENT_NACK_RECEIVE"] == 4 | 8
    assert acks["MQMSG_ACKNOWLEDGMENT_FULL_RECEIVE"] == 2 | 4 | 8
    assert list(values(c.MQMSGJOURNAL).values()) == [0, 1, 2]


@pytest.mark.spec("AC-2.2.2.13-01", "AC-2.2.2.14-01", "AC-2.2.2.15-01", "AC-2.2.2.16-01")
def test_traces_senders_and_levels_of_messages() -> None:
    assert list(values(c.MQMSGTRACE).values()) == [0, 1]
    assert list(values(c.MQMSGSENDERIDTYPE).values()) == [0, 1]
    assert list(values(c.MQMSGPRIVLEVEL).values()) == [0, 1, 3]
    assert list(values(c.MQMSGAUTHLEVEL).values()) == [0, 1, 2, 4, 8]


@pytest.mark.spec("AC-2.2.2.17-01", "AC-2.2.2.18-01")
def test_authentications_and_algorithms() -> None:
    assert list(values(c.MQMSGAUTHENTICATION).values()) == [0, 1, 3, 5, 9]
    assert values(c.MQCALG) == {
        "MQMSG_CALG_MD2": 0x8001,
        "MQMSG_CALG_MD4": 0x8002,
        "MQMSG_CALG_MD5": 0x8003,
        "MQMSG_CALG_SHA": 0x8004,
        "MQMSG_CALG_MAC": 0x8005,
        "MQMSG_CALG_RSA_SIGN": 0x2400,
        "MQMSG_CALG_DSS_SIGN": 0x2200,
        "MQMSG_CALG_RSA_KEYX": 0xA400,
        "MQMSG_CALG_DES": 0x6601,
        "MQMSG_CALG_RC2": 0x6602,
        "MQMSG_CALG_RC4": 0x6801,
        "MQMSG_CALG_SEAL": 0x6802,
    }
