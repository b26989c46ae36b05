"""Transactions of [MC-MQAC] 3.6 to 3.9, over a real node."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from typing_extensions import override

from qm.client.errors import MqError
from qm.client.mqac import (
    MSMQCoordinatedTransactionDispenser,
    MSMQMessage,
    MSMQQueue,
    MSMQService,
    MSMQTransaction,
    MSMQTransactionDispenser,
)
from qm.client.mqac.constants import (
    MQTRANSACTION,
    XACT_E_NOTSUPPORTED,
    XACTTC,
)
from qm.client.mqac.manager import UnitOfWork
from qm.client.mqac.transaction import XACTTRANSINFO, TransactionImpl
from qm.pb import control_pb2
from qm.wire.codes import ErrorCode
from tests.conformance.mqac_world import PEEK, SEND, ask, fails, info_of, made, opened, serving

E = ErrorCode


@pytest.fixture(scope="module")
def service() -> Iterator[MSMQService]:
    with serving() as running:
        yield running


class Pair:
    """A transactional queue, open for sending and for looking."""

    def __init__(self, service: MSMQService) -> None:
        info = made(service, is_transactional=True)
        self.service = service
        self.sender = opened(info, SEND)
        lenient = MSMQService(service.manager, null_on_empty=True)
        self.looker = opened(info_of(lenient, name=info.FormatName or ""), PEEK)
        self.reader: MSMQQueue = opened(info)

    def send(self, transaction: MSMQTransaction | int) -> None:
        message = MSMQMessage(self.service)
        message.Send(self.sender, transaction)

    def is_empty(self) -> bool:
        return self.looker.Peek(ReceiveTimeout=0) is None


@pytest.mark.spec("AC-3.6.4.1.1-01", "AC-3.6.4.1.2-01", "AC-3.8.3-01", "AC-4.7-01")
def test_a_dispenser_begins_internal_transactions(service: MSMQService) -> None:
    dispenser = MSMQTransactionDispenser(service)
    one, two = dispenser.BeginTransaction(), dispenser.BeginTransaction()
    identifiers = {t.attached().GetTransactionInfo().uow for t in (one, two)}
    assert len(identifiers) == 2
    assert {len(identifier) for identifier in identifiers} == {16}
    assert bytes(16) not in identifiers
    pair = Pair(service)
    pair.send(one)
    assert pair.is_empty()
    one.Commit()
    assert not pair.is_empty()
    two.Abort()
    with fails(0x8000_4001):
        getattr(dispenser, "Properties")  # noqa: B009 - typed as never returning


@pytest.mark.spec("AC-3.7.4.1.1-04", "AC-3.7.4.1.2-01")
def test_there_is_no_distributed_coordinator(service: MSMQService) -> None:
    dispenser = MSMQCoordinatedTransactionDispenser(service)
    for attempt, code in (
        ("BeginTransaction", E.MQ_ERROR_DTC_CONNECT),
        ("Properties", 0x8000_4001),
    ):
        with fails(code):
            getattr(dispenser, attempt)()


@pytest.mark.spec(
    "AC-3.8.4.1.1-01", "AC-3.8.4.1.1-02", "AC-3.8.4.1.1-03", "AC-3.8.4.1.1-05", "AC-3.9.4.1.2-01"
)
def test_commit_is_synchronous_plain_and_once(service: MSMQService) -> None:
    # There are no external transactions (AC-3.8.4.1.1-04); nor in the next test.
    with fails(0x8007_0057):  # it stands for no transaction
        MSMQTransaction().Commit()
    pair = Pair(service)
    transaction = MSMQTransactionDispenser(service).BeginTransaction()
    pair.send(transaction)
    wrong: list[dict[str, Any]] = [
        {"fRetaining": True},
        *({"grfTC": value} for value in {*range(9), 0x12, 0xFFFF_FFFF, -2} - {2}),
        {"grfRM": 1},
    ]
    for each in wrong:
        with fails(0x8004_D00F):
            transaction.Commit(**each)
    assert pair.is_empty()
    transaction.Commit(False, XACTTC.XACTTC_SYNC_PHASETWO, 0)
    assert not pair.is_empty()
    for again in (transaction.Commit, transaction.Abort):
        with fails(0xC00E_0051):
            again()
    with fails(XACT_E_NOTSUPPORTED):  # checked first
        transaction.Commit(fRetaining=True)


@pytest.mark.spec(
    "AC-3.8.4.1.2-01", "AC-3.8.4.1.2-02", "AC-3.8.4.1.2-03", "AC-3.9.4.1.3-01", "AC-3.8.4.1.1-03"
)
def test_abort_is_synchronous_plain_and_once(service: MSMQService) -> None:
    with fails(0x8007_0057):  # it stands for no transaction
        MSMQTransaction().Abort()
    pair = Pair(service)
    transaction = MSMQTransactionDispenser(service).BeginTransaction()
    pair.send(transaction)
    for wrong in ({"fRetaining": True}, {"fAsync": True}):
        with fails(0x8004_D00F):
            transaction.Abort(**wrong)
    pair.send(transaction)  # it goes on
    transaction.Abort()
    assert pair.is_empty()
    for again in (transaction.Commit, transaction.Abort):
        with fails(0xC00E_0051):
            again()
    for wrong in ({"fRetaining": True}, {"fAsync": True}):  # checked first
        with fails(XACT_E_NOTSUPPORTED):
            transaction.Abort(**wrong)
    # It gives back what was received, and one that is committed is not aborted.
    pair.send(MQTRANSACTION.MQ_SINGLE_MESSAGE)
    for ending in ("Abort", "Commit"):
        transaction = MSMQTransactionDispenser(service).BeginTransaction()
        assert pair.reader.Receive(transaction, ReceiveTimeout=0) is not None
        assert pair.is_empty()
        getattr(transaction, ending)()
        assert pair.is_empty() == (ending == "Commit")
        for again in (transaction.Abort, transaction.Commit):
            with fails(0xC00E_0051):
                again()


@pytest.mark.spec("AC-3.8.4.1.2-01", "AC-3.8.4.1.1-01")
@pytest.mark.parametrize("ending", ["Abort", "Commit"])
def test_a_transaction_is_ended_once_that_has_succeeded(ending: str) -> None:
    unit = Ledgered(E.MQ_ERROR_SERVICE_NOT_AVAILABLE)
    transaction = MSMQTransaction(TransactionImpl(unit))
    for _ in range(2):
        with fails(E.MQ_ERROR_SERVICE_NOT_AVAILABLE):
            getattr(transaction, ending)()
    unit.code = 0
    getattr(transaction, ending)()
    assert unit.ended == [ending.lower()] * 3
    with fails(0xC00E_0051):
        getattr(transaction, ending)()
    assert unit.ended == [ending.lower()] * 3


class Ledgered(UnitOfWork):
    """A transaction that remembers how it was ended, or refuses to."""

    identifier = bytes(range(16))

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.ended: list[str] = []

    @override
    def commit(self) -> None:
        self._end("commit")

    @override
    def abort(self) -> None:
        self._end("abort")

    def _end(self, how: str) -> None:
        self.ended.append(how)
        if self.code:
            raise MqError(self.code)


class Recorded(TransactionImpl):
    """An ITransaction that remembers the arguments of the calls that end it."""

    def __init__(self) -> None:
        super().__init__(Ledgered())
        self.calls: list[tuple[object, ...]] = []

    @override
    def Commit(
        self, fRetaining: bool = True, grfTC: int = XACTTC.XACTTC_NONE, grfRM: int = -1
    ) -> None:
        self.calls.append(("Commit", fRetaining, grfTC, grfRM))

    @override
    def Abort(
        self, pboidReason: bytes | None = b"a reason", fRetaining: bool = True, fAsync: bool = True
    ) -> None:
        self.calls.append(("Abort", pboidReason, fRetaining, fAsync))


@pytest.mark.spec("AC-3.9.4.1.2-02", "AC-3.9.4.1.3-02")
def test_an_itransaction_is_given_the_defaults_and_no_reason() -> None:
    inner = Recorded()
    transaction = MSMQTransaction(inner)
    transaction.Commit()
    transaction.Commit(True, 1, 5)
    transaction.Abort()
    transaction.Abort(True, True)
    assert inner.calls == [
        ("Commit", False, 2, 0),
        ("Commit", True, 1, 5),
        ("Abort", None, False, False),
        ("Abort", None, True, True),
    ]


@pytest.mark.spec(
    "AC-3.9.4.1.2-02", "AC-3.9.4.1.2-03", "AC-3.9.4.1.3-02", "AC-3.9.4.1.3-03", "AC-3.8.4.1.1-01"
)
def test_what_an_object_of_transactions_hands_on(service: MSMQService) -> None:
    for name in ("Commit", "Abort"):
        with fails(0x8007_0057):
            getattr(MSMQTransaction(), name)()
        refusing = Ledgered(E.MQ_ERROR_INSUFFICIENT_RESOURCES)
        transaction = MSMQTransaction(TransactionImpl(refusing))
        for _ in range(2):  # not ended, so it may be tried again
            with fails(E.MQ_ERROR_INSUFFICIENT_RESOURCES):
                getattr(transaction, name)()
        unit = Ledgered()
        getattr(MSMQTransaction(TransactionImpl(unit)), name)()
        assert unit.ended == [name.lower()]
        written = [
            parameter.default
            for parameter in inspect.signature(getattr(MSMQTransaction, name)).parameters.values()
        ][1:]
        assert written == ([False, 2, 0] if name == "Commit" else [False, False])


@pytest.mark.spec(
    "AC-2.2.3.1-01", "AC-2.2.3.2-01", "AC-2.2.3.2-02", "AC-3.8.4.1.3-01", "AC-3.8.4.1.3-02"
)
def test_transaction_info_is_the_unit_of_work(service: MSMQService) -> None:
    transaction = MSMQTransactionDispenser(service).BeginTransaction()
    info = transaction.attached().GetTransactionInfo()
    assert len(info.uow) == 16
    assert info == XACTTRANSINFO(info.uow, 0, 0, 0, 0, 0, 0)
    assert info.__struct_fields__ == (
        "uow", "isoLevel", "isoFlags", "grfTCSupported", "grfRMSupported",
        "grfTCSupportedRetaining", "grfRMSupportedRetaining",
    )  # fmt: skip
    assert info.uow == transaction.attached().unit.identifier
    # It is the queue manager's, which has it with the first operation.
    pair = Pair(service)
    pair.send(MQTRANSACTION.MQ_SINGLE_MESSAGE)
    assert pair.reader.Receive(transaction, ReceiveTimeout=0) is not None
    listed = control_pb2.ListTransactionsRequest()
    reply = ask(service, lambda stubs: stubs.clients.ListTransactions, listed)
    assert info.uow in [each.identifier for each in reply.transactions]
    transaction.Abort()
    reply = ask(service, lambda stubs: stubs.clients.ListTransactions, listed)
    assert info.uow not in [each.identifier for each in reply.transactions]


@pytest.mark.spec(
    "AC-3.9.3-01", "AC-3.9.4.1.1-01", "AC-3.9.4.2.2-01", "AC-3.9.4.3.1-01", "AC-3.9.4.3.1-02"
)
def test_an_object_of_the_application_s_own_has_no_transaction(service: MSMQService) -> None:
    empty = MSMQTransaction()
    assert empty.ITransaction is None
    for name in ("Transaction", "Properties"):
        with fails(0x8000_4001):
            getattr(empty, name)
    begun = MSMQTransactionDispenser(service).BeginTransaction()
    assert begun.ITransaction is begun.attached()
    begun.Abort()


@pytest.mark.spec("AC-3.9.4.2.1-01", "AC-3.9.4.2.1-02", "AC-3.9.4.2.1-03")
def test_init_new_attaches_once_and_no_number(service: MSMQService) -> None:
    pair = Pair(service)
    begun = MSMQTransactionDispenser(service).BeginTransaction()
    other = MSMQTransaction()
    for wrong in (7, None, "x", 1 << 40, object(), other, MSMQTransaction(), begun):
        with fails(0x8007_0057):
            other.InitNew(wrong)
    other.InitNew(begun.ITransaction)
    for again in (begun.ITransaction, 7, None):  # before the argument
        with fails(0xC00E_0050):
            other.InitNew(again)
    with fails(0xC00E_0050):
        begun.InitNew(begun.ITransaction)
    pair.send(other)
    begun.Commit()
    assert not pair.is_empty()
    with fails(E.MQ_ERROR_TRANSACTION_SEQUENCE):
        other.Commit()


def test_an_exclusive_reader_may_be_transactional(service: MSMQService) -> None:
    from qm.client.mqac.constants import MQACCESS, MQSHARE

    info = made(service, is_transactional=True)
    message = MSMQMessage(service)
    message.Body = "x"
    message.Send(opened(info, SEND), MQTRANSACTION.MQ_SINGLE_MESSAGE)
    alone = info.Open(MQACCESS.MQ_RECEIVE_ACCESS, MQSHARE.MQ_DENY_RECEIVE_SHARE)
    transaction = MSMQTransactionDispenser(service).BeginTransaction()
    found = alone.Receive(Transaction=transaction, ReceiveTimeout=0)
    assert found is not None
    assert found.Body == "x"
    transaction.Commit()
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        alone.Receive(ReceiveTimeout=0)
    alone.Close()
