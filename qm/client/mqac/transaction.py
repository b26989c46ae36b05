"""Transactions [MC-MQAC 3.6 to 3.9]: begun by a dispenser, used in sends and reads, ended once."""

from typing import Final, NoReturn

import msgspec

from qm.client.errors import MqError
from qm.client.mqac.constants import (
    E_INVALIDARG,
    E_NOTIMPL,
    MQTRANSACTION,
    XACT_E_NOTSUPPORTED,
    XACTTC,
)
from qm.client.mqac.manager import UnitOfWork
from qm.client.mqac.object_factory import ObjectFactory
from qm.wire.codes import ErrorCode


class XACTTRANSINFO(msgspec.Struct, frozen=True):
    """[MC-MQAC] 2.2.3.2."""

    uow: bytes
    """BOID: 16 raw bytes of the transaction's GUID."""
    isoLevel: int = 0
    isoFlags: int = 0
    grfTCSupported: int = 0
    grfRMSupported: int = 0
    grfTCSupportedRetaining: int = 0
    grfRMSupportedRetaining: int = 0


class TransactionImpl:
    """A transaction of the queue manager [MC-MQAC 3.8]; several objects may share one."""

    def __init__(self, unit: UnitOfWork) -> None:
        self.unit: Final = unit
        self._is_ended = False

    def Commit(
        self, fRetaining: bool = False, grfTC: int = XACTTC.XACTTC_SYNC, grfRM: int = 0
    ) -> None:
        """Commit it; only the default arguments are supported."""
        if fRetaining or grfTC != XACTTC.XACTTC_SYNC or grfRM:
            raise MqError(XACT_E_NOTSUPPORTED)
        self._end(commits=True)

    def Abort(
        self, pboidReason: bytes | None = None, fRetaining: bool = False, fAsync: bool = False
    ) -> None:
        """Abort it; the reason is ignored."""
        del pboidReason
        if fRetaining or fAsync:
            raise MqError(XACT_E_NOTSUPPORTED)
        self._end(commits=False)

    def GetTransactionInfo(self) -> XACTTRANSINFO:
        """Return its unit of work; everything else is zero."""
        return XACTTRANSINFO(self.unit.identifier)

    def _end(self, *, commits: bool) -> None:
        if self._is_ended:
            raise MqError(ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE)
        if commits:
            self.unit.commit()
        else:
            self.unit.abort()
        self._is_ended = True


class MSMQTransaction:
    """What applications hold; created by a dispenser, or empty for InitNew."""

    def __init__(self, inner: TransactionImpl | None = None) -> None:
        self._inner = inner

    @property
    def Transaction(self) -> NoReturn:
        """Deprecated and not implemented [MC-MQAC 3.9.4.1.1]."""
        raise MqError(E_NOTIMPL)

    @property
    def ITransaction(self) -> TransactionImpl | None:
        """The underlying transaction, None if there is none."""
        return self._inner

    @property
    def Properties(self) -> NoReturn:
        """Not implemented [MC-MQAC 3.9.4.2.2]."""
        raise MqError(E_NOTIMPL)

    def InitNew(self, varTransaction: object) -> None:
        """Attach a transaction; AC-A31: pointers given as numbers are not supported."""
        if self._inner is not None:
            raise MqError(ErrorCode.MQ_ERROR_TRANSACTION_USAGE)
        if not isinstance(varTransaction, TransactionImpl):
            raise MqError(E_INVALIDARG)
        self._inner = varTransaction

    def Commit(
        self, fRetaining: bool = False, grfTC: int = XACTTC.XACTTC_SYNC, grfRM: int = 0
    ) -> None:
        """Commit the transaction."""
        self.attached().Commit(fRetaining, grfTC, grfRM)

    def Abort(self, fRetaining: bool = False, fAsync: bool = False) -> None:
        """Abort the transaction."""
        self.attached().Abort(None, fRetaining, fAsync)

    def attached(self) -> TransactionImpl:
        """Return the underlying transaction. Raises E_INVALIDARG if there is none."""
        if self._inner is None:
            raise MqError(E_INVALIDARG)
        return self._inner


TransactionArgument = MSMQTransaction | int | None
"""What Send and the receives take: a transaction, an MQTRANSACTION, or None for none at all."""


def unit_of(argument: TransactionArgument) -> UnitOfWork | None:
    """Return the transaction that an argument means. Raises E_INVALIDARG."""
    if isinstance(argument, MSMQTransaction):
        return argument.attached().unit
    if argument is None:
        return None
    is_number = isinstance(argument, int) and not isinstance(argument, bool)
    if not is_number or argument not in tuple(MQTRANSACTION):
        raise MqError(E_INVALIDARG)
    # A single message is its own transaction; AC-A21: there are no ambient ones.
    return None


class MSMQTransactionDispenser:
    """Begins transactions of the queue manager [MC-MQAC 3.6] (AC-A52)."""

    def __init__(self, service: ObjectFactory) -> None:
        self._service = service

    @property
    def Properties(self) -> NoReturn:
        """Not implemented [MC-MQAC 3.6.4.1.2]."""
        raise MqError(E_NOTIMPL)

    def BeginTransaction(self) -> MSMQTransaction:
        """Begin a transaction; if it is not ended, the cluster aborts it after a time."""
        return MSMQTransaction(TransactionImpl(self._service.manager.begin_transaction()))


class MSMQCoordinatedTransactionDispenser:
    """Would begin transactions of a distributed transaction coordinator [MC-MQAC 3.7]."""

    def __init__(self, service: ObjectFactory) -> None:
        del service

    @property
    def Properties(self) -> NoReturn:
        """Not implemented [MC-MQAC 3.7.4.1.2]."""
        raise MqError(E_NOTIMPL)

    def BeginTransaction(self) -> NoReturn:
        """Fail: there is no transaction coordinator."""
        raise MqError(ErrorCode.MQ_ERROR_DTC_CONNECT)
