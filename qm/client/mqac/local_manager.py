"""The cluster as the local queue manager of COM applications: calls and their errors."""

from collections.abc import Callable
from typing import TypeVar

from qm.client.blocking import BlockingClient
from qm.client.calls import Method, Stubs
from qm.client.errors import ClientError, MqError, NotAllowed, Unavailable
from qm.wire.codes import ErrorCode

_Q = TypeVar("_Q")
_R = TypeVar("_R")


class LocalManager:
    """Calls of the control plane, and the one setting shared by all objects."""

    def __init__(self, client: BlockingClient, *, null_on_empty: bool = False) -> None:
        """`null_on_empty`: reads that find nothing return None, as Visual Basic sees it, instead
        of raising MQ_ERROR_IO_TIMEOUT or MQ_ERROR_MESSAGE_NOT_FOUND (AC-A20).
        """
        self.client = client
        self.null_on_empty = null_on_empty

    @property
    def computer_name(self) -> str:
        """NetBIOS name that "." means in path names."""
        return self.client.computer_name

    def call(self, method: Callable[[Stubs], Method[_Q, _R]], request: _Q) -> _R:
        """Make a call of any service. Raises MqError."""
        try:
            return self.client.call(method, request)
        except ClientError as error:
            raise hresult_of(error) from error


def hresult_of(error: ClientError) -> MqError:
    """Return an error of the client as COM applications see it: an HRESULT."""
    if isinstance(error, MqError):
        return error
    if isinstance(error, Unavailable):
        return MqError(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE, str(error))
    if isinstance(error, NotAllowed):
        return MqError(ErrorCode.MQ_ERROR_ACCESS_DENIED, str(error))
    return MqError(ErrorCode.MQ_ERROR_INVALID_PARAMETER, str(error))
