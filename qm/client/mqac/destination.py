"""MSMQDestination [MC-MQAC 3.12]: one or several queues to send to."""

from typing import NoReturn

from typing_extensions import override

from qm.client.errors import MqError
from qm.client.mqac.constants import E_NOTIMPL
from qm.client.mqac.faces import SendTarget
from qm.client.mqac.object_factory import ObjectFactory
from qm.names.errors import QueueNameError
from qm.names.format_name import MultipleElementName, format_name_text, parse_format_name
from qm.wire.codes import ErrorCode


class MSMQDestination(SendTarget):
    """Setting a name closes it; the last name set counts."""

    def __init__(self, service: ObjectFactory) -> None:
        self._service = service
        self._info = service.queue_info()
        self._names: list[str] = []

    @property
    def PathName(self) -> str:
        """Path name of one queue."""
        return self._info.PathName or ""

    @PathName.setter
    def PathName(self, value: str) -> None:
        self._info.PathName = value
        self._names = []

    @property
    def FormatName(self) -> str:
        """Format name of one or several queues."""
        return self._info.FormatName or ""

    @FormatName.setter
    def FormatName(self, value: str) -> None:
        self._info.FormatName = value
        self._names = []

    @property
    def IsOpen(self) -> bool:
        """Whether it is open for sending."""
        return bool(self._names)

    @property
    def Properties(self) -> NoReturn:
        """Not implemented."""
        raise MqError(E_NOTIMPL)

    def Open(self) -> bool:
        """Open it for sending; False (S_FALSE) if it is open already."""
        if self._names:
            return False
        name = self._info.FormatName
        if not name:
            raise MqError(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        try:
            parsed = parse_format_name(name)
        except QueueNameError as error:
            raise MqError(error.code, str(error)) from error
        elements = parsed.elements if isinstance(parsed, MultipleElementName) else (parsed,)
        self._names = [format_name_text(element) for element in elements]
        return True

    def Close(self) -> None:
        """Close it. Raises MQ_ERROR_INVALID_HANDLE if it is not open."""
        if not self._names:
            raise MqError(ErrorCode.MQ_ERROR_INVALID_HANDLE)
        self._names = []

    @override
    def opened_names(self) -> list[str]:
        """Return the format names for Send, opening it if necessary."""
        self.Open()
        return self._names
