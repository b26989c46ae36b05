"""Enumerations and values of [MC-MQAC] 2.2.2."""

from __future__ import annotations

from enum import IntEnum, IntFlag

import pytest

from qm.client.mqac import constants as c
from qm.wire.enums import EncryptionAlgorithm, HashAlgorithm


def values(kind: type[IntEnum] | type[IntFlag]) -> dict[str, int]:
    return {name: int(member) for name, member in kind.__members__.items()}


@pytest.mark.spec("AC-2.2.2.1-01", "AC-2.2.2.2-01", "AC-2.2.2.3-01", "AC-2.2.2.4-01")
def test_transactions_shares_accesses_journals() -> None:
    assert values(c.MQTRANSACTION) == {
        "MQ_NO_TRANSACTION": 0,
        "MQ_MTS_TRANSACTION": 1,
        "MQ_XA_TRANSACTION": 2,
        "MQ_SINGLE_MESSAGE": 3,
    }
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
    assert values(c.MQPRIVLEVEL) == {
        "MQ_PRIV_LEVEL_NONE": 0,
        "MQ_PRIV_LEVEL_OPTIONAL": 1,
        "MQ_PRIV_LEVEL_BODY": 2,
    }
    assert values(c.XACTTC) == {
        "XACTTC_NONE": 0,
        "XACTTC_SYNC_PHASEONE": 1,
        "XACTTC_SYNC_PHASETWO": 2,
        "XACTTC_SYNC": 2,
        "XACTTC_ASYNC_PHASEONE": 4,
        "XACTTC_ASYNC": 4,
    }


@pytest.mark.spec("AC-2.2.2.9-01", "AC-2.2.2.9-02", "AC-2.2.2.9-03", "AC-2.2.2.9-04")
def test_message_classes() -> None:
    of_arrival = (
        "BAD_DST_Q", "PURGED", "REACH_QUEUE_TIMEOUT", "Q_EXCEED_QUOTA", "ACCESS_DENIED",
        "HOP_COUNT_EXCEEDED", "BAD_SIGNATURE", "BAD_ENCRYPTION", "COULD_NOT_ENCRYPT",
        "NOT_TRANSACTIONAL_Q", "NOT_TRANSACTIONAL_MSG", "UNSUPPORTED_CRYPTO_PROVIDER",
        "SOURCE_COMPUTER_GUID_CHANGED",
    )  # fmt: skip
    of_receipt = ("Q_DELETED", "Q_PURGED", "RECEIVE_TIMEOUT", "RECEIVE_TIMEOUT_AT_SENDER")
    assert values(c.MQMSGCLASS) == {
        "MQMSG_CLASS_NORMAL": 0,
        "MQMSG_CLASS_REPORT": 1,
        "MQMSG_CLASS_ACK_REACH_QUEUE": 2,
        "MQMSG_CLASS_ACK_RECEIVE": 0x4000,
        **{f"MQMSG_CLASS_NACK_{n}": 0x8000 + k for k, n in enumerate(of_arrival)},
        **{f"MQMSG_CLASS_NACK_{n}": 0xC000 + k for k, n in enumerate(of_receipt)},
    }
    assert len(c.MQMSGCLASS) == 21


@pytest.mark.spec(
    "AC-2.2.2.10-01", "AC-2.2.2.10-03", "AC-2.2.2.11-01", "AC-2.2.2.12-01", "AC-2.2.2.8-01"
)
def test_delivery_acknowledgments_journals_and_cursors() -> None:
    assert values(c.MQMSGDELIVERY) == {
        "MQMSG_DELIVERY_EXPRESS": 0,
        "MQMSG_DELIVERY_RECOVERABLE": 1,
    }
    assert values(c.MQMSGACKNOWLEDGEMENT) == {
        "MQMSG_ACKNOWLEDGMENT_NONE": 0,
        "MQMSG_ACKNOWLEDGMENT_POS_ARRIVAL": 1,
        "MQMSG_ACKNOWLEDGMENT_POS_RECEIVE": 2,
        "MQMSG_ACKNOWLEDGMENT_NEG_ARRIVAL": 4,
        "MQMSG_ACKNOWLEDGMENT_NEG_RECEIVE": 8,
        "MQMSG_ACKNOWLEDGMENT_NACK_REACH_QUEUE": 4,
        "MQMSG_ACKNOWLEDGMENT_FULL_REACH_QUEUE": 5,
        "MQMSG_ACKNOWLEDGMENT_NACK_RECEIVE": 0xC,
        "MQMSG_ACKNOWLEDGMENT_FULL_RECEIVE": 0xE,
    }
    assert values(c.MQMSGJOURNAL) == {
        "MQMSG_JOURNAL_NONE": 0,
        "MQMSG_DEADLETTER": 1,
        "MQMSG_JOURNAL": 2,
    }
    assert values(c.MQMSGCURSOR) == {"MQMSG_FIRST": 0, "MQMSG_CURRENT": 1, "MQMSG_NEXT": 2}


@pytest.mark.spec("AC-2.2.2.13-01", "AC-2.2.2.14-01", "AC-2.2.2.15-01", "AC-2.2.2.16-01")
def test_traces_senders_and_levels_of_messages() -> None:
    assert values(c.MQMSGTRACE) == {
        "MQMSG_TRACE_NONE": 0,
        "MQMSG_SEND_ROUTE_TO_REPORT_QUEUE": 1,
    }
    assert values(c.MQMSGSENDERIDTYPE) == {
        "MQMSG_SENDERID_TYPE_NONE": 0,
        "MQMSG_SENDERID_TYPE_SID": 1,
    }
    assert values(c.MQMSGPRIVLEVEL) == {
        "MQMSG_PRIV_LEVEL_NONE": 0,
        "MQMSG_PRIV_LEVEL_BODY_BASE": 1,
        "MQMSG_PRIV_LEVEL_BODY_ENHANCED": 3,
    }
    assert values(c.MQMSGAUTHLEVEL) == {
        "MQMSG_AUTH_LEVEL_NONE": 0,
        "MQMSG_AUTH_LEVEL_ALWAYS": 1,
        "MQMSG_AUTH_LEVEL_SIG10": 2,
        "MQMSG_AUTH_LEVEL_MSMQ10": 2,
        "MQMSG_AUTH_LEVEL_SIG20": 4,
        "MQMSG_AUTH_LEVEL_MSMQ20": 4,
        "MQMSG_AUTH_LEVEL_SIG30": 8,
    }


@pytest.mark.spec("AC-2.2.2.17-01", "AC-2.2.2.18-01", "AC-2.2.2.18-03")
def test_authentications_and_algorithms() -> None:
    assert values(c.MQMSGAUTHENTICATION) == {
        "MQMSG_AUTHENTICATION_NOT_REQUESTED": 0,
        "MQMSG_AUTHENTICATION_REQUESTED": 1,
        "MQMSG_AUTHENTICATED_SIG10": 1,
        "MQMSG_AUTHENTICATION_REQUESTED_EX": 3,
        "MQMSG_AUTHENTICATED_SIG20": 3,
        "MQMSG_AUTHENTICATED_SIG30": 5,
        "MQMSG_AUTHENTICATED_SIGXML": 9,
    }
    hashes = {
        "MQMSG_CALG_MD2": 0x8001,
        "MQMSG_CALG_MD4": 0x8002,
        "MQMSG_CALG_MD5": 0x8003,
        "MQMSG_CALG_SHA": 0x8004,
        "MQMSG_CALG_SHA1": 0x8004,
    }
    others = {
        "MQMSG_CALG_MAC": 0x8005,
        "MQMSG_CALG_RSA_SIGN": 0x2400,
        "MQMSG_CALG_DSS_SIGN": 0x2200,
        "MQMSG_CALG_RSA_KEYX": 0xA400,
        "MQMSG_CALG_DES": 0x6601,
        "MQMSG_CALG_RC2": 0x6602,
        "MQMSG_CALG_RC4": 0x6801,
        "MQMSG_CALG_SEAL": 0x6802,
    }
    assert values(c.MQCALG) == hashes | others
    # The first are of HashAlgorithm, of the others only ciphers, and MAC is none.
    assert {*hashes.values()} <= {*HashAlgorithm}
    assert not {*others.values()} & {*HashAlgorithm}
    supported = {name for name, value in others.items() if value in {*EncryptionAlgorithm}}
    assert supported == {"MQMSG_CALG_RC2", "MQMSG_CALG_RC4"}


@pytest.mark.spec("AC-2.2.2.19-01", "AC-2.2.2.20-01")
def test_states_and_relations() -> None:
    states = (
        "LOCAL_CONNECTION", "DISCONNECTED", "WAITING", "NEEDVALIDATE", "ONHOLD", "NONACTIVE",
        "CONNECTED", "DISCONNECTING", "LOCKED",
    )  # fmt: skip
    assert values(c.QUEUE_STATE) == {f"MQ_QUEUE_STATE_{n}": k for k, n in enumerate(states)}
    relations = ("NOP", "EQ", "NEQ", "LT", "GT", "LE", "GE")
    assert values(c.RELOPS) == {f"REL_{name}": number for number, name in enumerate(relations)}
