"""MSMQDestination [MC-MQAC 3.12]: one or several queues to send to."""

from typing import Any, NoReturn

from typing_extensions import override

from qm.client.errors import MqError
from qm.client.mqac import naming
from qm.client.mqac.constants import E_NOTIMPL, MQACCESS, MQSHARE
from qm.client.mqac.faces import SendTarget
from qm.client.mqac.manager import OpenedQueue
from qm.client.mqac.object_factory import ObjectFactory
from qm.wire.codes import ErrorCode

INVALID_HANDLE_VALUE = (1 << 64) - 1


class MSMQDestination(SendTarget):
    """The last name that was put counts; an open destination is opened again with it."""

    __slots__ = ("_ads_path", "_format_name", "_manager", "_opened", "_path_name")

    def __init__(self, service: ObjectFactory) -> None:
        self._manager = service.manager
        self._opened: OpenedQueue | None = None
        self._format_name = ""
        self._path_name = ""
        self._ads_path: str | None = None

    # Names ---------------------------------------------------------------------------------

    @property
    def ADsPath(self) -> str | None:
        """Directory path, None unless it was put last."""
        return self._ads_path

    @ADsPath.setter
    def ADsPath(self, value: str) -> None:
        """Find the queue, list or alias of a directory path. Raises MQ_ERROR_QUEUE_NOT_FOUND."""
        self._ads_path = value
        self._format_name = self._manager.format_name_of_directory_path(value)
        self._path_name = ""
        self._reopen()

    @property
    def PathName(self) -> str:
        """Path name, "" unless it was put last."""
        return self._path_name

    @PathName.setter
    def PathName(self, value: str) -> None:
        """Find the queue of a path name. Raises MqError."""
        self._path_name = value
        self._format_name = naming.format_name_of_path(self._manager, value)
        self._ads_path = None
        self._reopen()

    @property
    def FormatName(self) -> str:
        """Format name of one or several queues."""
        return self._format_name

    @FormatName.setter
    def FormatName(self, value: str) -> None:
        """A name that is none is refused by Open."""
        self._format_name, self._path_name, self._ads_path = value, "", None
        self._reopen()

    # State ---------------------------------------------------------------------------------

    @property
    def IsOpen(self) -> bool:
        """Whether it is open for sending."""
        return self._opened is not None

    @property
    def Handle(self) -> int | None:
        """Handle of the open queue, None for none [IMSMQPrivateDestination]."""
        return self._opened.handle if self._opened is not None else None

    @Handle.setter
    def Handle(self, value: int | None) -> None:
        """Send to a queue that the queue manager has open; an unknown handle leaves it closed."""
        self._path_name, self._ads_path, self._opened = "", None, None
        if value is not None and value != INVALID_HANDLE_VALUE:
            self._opened = self._manager.opened(value)

    def Open(self) -> bool:
        """Open it for sending; False (S_FALSE) if it is open already."""
        if self._opened is not None:
            return False
        if not self._format_name:
            raise MqError(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        naming.parsed_format_name(self._format_name)
        self._opened = self._manager.open_queue(
            self._format_name, MQACCESS.MQ_SEND_ACCESS, MQSHARE.MQ_DENY_NONE
        )
        return True

    def Close(self) -> bool:
        """Close it; False (S_FALSE) if it is not open."""
        opened, self._opened = self._opened, None
        if opened is None:
            return False
        opened.close()
        return True

    @override
    def opened_names(self) -> list[str]:
        """Return the format names for Send, opening it if necessary (AC-A48)."""
        self.Open()
        assert self._opened is not None, "Open raised nothing"
        return naming.element_names(self._opened.format_name)

    def _reopen(self) -> None:
        """AC-A51: what fails here fails the put and leaves it closed."""
        if self.Close():
            self.Open()

    # Not implemented -----------------------------------------------------------------------

    @property
    def IADs(self) -> NoReturn:
        """Not implemented [MC-MQAC 3.12.4.1.4]."""
        raise MqError(E_NOTIMPL)

    @IADs.setter
    def IADs(self, value: Any) -> None:
        raise MqError(E_NOTIMPL)

    @property
    def Destinations(self) -> NoReturn:
        """Not implemented [MC-MQAC 3.12.4.1.12]."""
        raise MqError(E_NOTIMPL)

    @Destinations.setter
    def Destinations(self, value: Any) -> None:
        raise MqError(E_NOTIMPL)

    @property
    def Properties(self) -> NoReturn:
        """Not implemented [MC-MQAC 3.12.4.1.14]."""
        raise MqError(E_NOTIMPL)
