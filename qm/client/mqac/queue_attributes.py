"""MSMQQueueInfo [MC-MQAC 3.10] except Open: names a queue, creates, changes and deletes it.

Setting a property changes only the object; Create and Update change the queue. Reading one
refreshes the object once, except for FormatName and the world-readable flags.
"""

from abc import ABC, abstractmethod
from datetime import datetime
from typing import Any, Final, TypeVar

from qm.client.errors import MqError
from qm.client.mqac import naming
from qm.client.mqac.constants import E_NOTIMPL, MQPRIVLEVEL
from qm.client.mqac.faces import OpenQueue
from qm.client.mqac.manager import QueueManager, QueueRecord
from qm.client.mqac.variant import date_of
from qm.names.guid import guid_from_text, guid_text
from qm.wire.access_mask import QueueAccess
from qm.wire.codes import ErrorCode

_UNLIMITED: Final = 0xFFFF_FFFF
_GUID_BYTES: Final = 16
# Attributes that Update and Create write; `transactional` is set only at creation.
_WRITTEN: Final[tuple[str, ...]] = (
    "type",
    "label",
    "journaling",
    "quota",
    "journal_quota",
    "authentication",
    "privacy_level",
    "multicast_address",
    "base_priority",
)

_T = TypeVar("_T")


class QueueAttributes(ABC):
    """Names and attributes of a queue, as MSMQQueueInfo has them.

    Errors are MqError with the HRESULT as `code`.
    """

    __slots__ = (
        "_attributes",
        "_changed",
        "_format_name",
        "_is_application",
        "_is_refreshed",
        "_manager",
        "_path_name",
    )

    def __init__(self, manager: QueueManager) -> None:
        self._manager = manager
        self._path_name = ""
        self._format_name = ""
        self._attributes: dict[str, Any] = {}
        self._changed: set[str] = set()
        self._forget_flags()

    def _forget_flags(self) -> None:
        self._is_refreshed = self._is_application = False

    # Names ---------------------------------------------------------------------------------

    @property
    def PathName(self) -> str | None:
        """The value that was set (AC-A13), or that Refresh finds."""
        if not self._path_name:
            self._refresh_once()
        return self._path_name or None

    @PathName.setter
    def PathName(self, value: str) -> None:
        """Refer to another queue; nothing is renamed."""
        self._path_name, self._format_name = value, ""
        self._forget_flags()

    @property
    def FormatName(self) -> str | None:
        """As set or found; if only a path name is set, it is resolved if possible (AC-A12)."""
        if not self._format_name and self._path_name:
            try:
                self._resolve()
            except MqError:
                return None
        return self._format_name or None

    @FormatName.setter
    def FormatName(self, value: str) -> None:
        """Refer to another queue."""
        self._format_name, self._path_name = value, ""
        self._forget_flags()

    @property
    def PathNameDNS(self) -> str:
        """QualifiedPathName of a public queue."""
        return self._public_only("qualified_pathname")

    @property
    def ADsPath(self) -> str:
        """DirectoryPath of a public queue."""
        return self._public_only("directory_path")

    # Attributes ----------------------------------------------------------------------------

    @property
    def QueueGuid(self) -> str | None:
        """Identifier of an application queue, without braces."""
        raw = self._get("identifier", b"")
        return guid_text(raw) if self._is_application and raw else None

    @property
    def ServiceTypeGuid(self) -> str:
        """Type: a GUID chosen by the application."""
        raw = self._get("type", bytes(_GUID_BYTES))
        return guid_text(raw) if len(raw) == _GUID_BYTES else raw.decode()

    @ServiceTypeGuid.setter
    def ServiceTypeGuid(self, value: str) -> None:
        """Text that is not a GUID is refused by Create and Update."""
        self._put("type", guid_from_text(value.strip("{}")) or value.encode())

    @property
    def Label(self) -> str:
        """At most 124 characters."""
        return str(self._get("label", ""))

    @Label.setter
    def Label(self, value: str) -> None:
        self._put("label", value)

    @property
    def IsTransactional(self) -> int:
        """1 or 0."""
        return int(self.IsTransactional2)

    @property
    def IsTransactional2(self) -> bool:
        """Whether the queue accepts only transactional messages."""
        return bool(self._get("transactional", False))

    @property
    def PrivLevel(self) -> int:
        """MQPRIVLEVEL."""
        optional = MQPRIVLEVEL.MQ_PRIV_LEVEL_OPTIONAL
        return int(self._is_application_get("privacy_level", default=optional))

    @PrivLevel.setter
    def PrivLevel(self, value: int) -> None:
        self._put("privacy_level", int(value))

    @property
    def Journal(self) -> int:
        """MQJOURNAL."""
        return int(self._is_application_get("journaling", default=False))

    @Journal.setter
    def Journal(self, value: int) -> None:
        self._put("journaling", value != 0)

    @property
    def Quota(self) -> int:
        """KB, -1 unlimited (AC-A9)."""
        return _signed(self._is_application_get("quota", default=_UNLIMITED))

    @Quota.setter
    def Quota(self, value: int) -> None:
        self._put("quota", value & _UNLIMITED)

    @property
    def JournalQuota(self) -> int:
        """KB, -1 unlimited; AC-A9: not scaled."""
        return _signed(self._is_application_get("journal_quota", default=_UNLIMITED))

    @JournalQuota.setter
    def JournalQuota(self, value: int) -> None:
        self._put("journal_quota", value & _UNLIMITED)

    @property
    def BasePriority(self) -> int:
        """Base priority of a public queue; 0 for others."""
        value = int(self._get("base_priority", 0))
        return value if naming.is_public(self._format_name) else 0

    @BasePriority.setter
    def BasePriority(self, value: int) -> None:
        is_public = naming.is_public(self._format_name) or (
            not self._format_name and naming.is_public_path(self._manager, self._path_name)
        )
        # AC-A10: a public path name is enough before Create.
        if not is_public or not -32768 <= value <= 32767:
            raise MqError(ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE)
        self._put("base_priority", value)

    @property
    def Authenticate(self) -> int:
        """MQAUTHENTICATE."""
        return int(self._is_application_get("authentication", default=False))

    @Authenticate.setter
    def Authenticate(self, value: int) -> None:
        self._put("authentication", value != 0)

    @property
    def MulticastAddress(self) -> str:
        """Address and port, "" for none."""
        return str(self._get("multicast_address", ""))

    @MulticastAddress.setter
    def MulticastAddress(self, value: str) -> None:
        self._put("multicast_address", value)

    @property
    def CreateTime(self) -> datetime:
        """UTC."""
        return date_of(self._get("create_time", 0))

    @property
    def ModifyTime(self) -> datetime:
        """UTC; 1970 for queues that belong to no application."""
        return date_of(self._is_application_get("modify_time", default=0))

    @property
    def IsWorldReadable(self) -> int:
        """1 or 0."""
        return int(self.IsWorldReadable2)

    @property
    def IsWorldReadable2(self) -> bool:
        """False when only the owner may take ownership; has no effect (AC-A15)."""
        try:
            found = self._manager.access_list(self._resolve())
        except MqError:
            return True
        return any(
            entry.mask & QueueAccess.TAKE_QUEUE_OWNERSHIP and entry.sid != found.owner_sid
            for entry in found.allowed
        )

    @property
    def Properties(self) -> None:
        """Not implemented [MC-MQAC 3.10.4.1.32]."""
        raise MqError(E_NOTIMPL)

    @property
    def Security(self) -> None:
        """Not implemented [MC-MQAC 3.10.4.1.33]."""
        raise MqError(E_NOTIMPL)

    @Security.setter
    def Security(self, value: object) -> None:
        raise MqError(E_NOTIMPL)

    # Methods -------------------------------------------------------------------------------

    def Create(self, IsTransactional: bool = False, IsWorldReadable: bool = False) -> None:
        """Create the queue that PathName names [MC-MQAC 3.10.4.1.26]."""
        path = self._path_name
        if not path:
            raise MqError(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        naming.require_local(self._manager, path)
        attributes = self._to_write()
        attributes["transactional"] = bool(IsTransactional)
        queue = self._manager.create_queue(
            naming.expanded(self._manager, path),
            attributes,
            is_world_readable=bool(IsWorldReadable),
        )
        self._take(queue)
        # AC-A11: FormatName is known from here on.
        self._format_name = queue.format_name
        self._is_refreshed = False

    def Delete(self) -> None:
        """Delete the queue and its messages."""
        self._manager.delete_queue(self._one_held_queue())
        self._path_name = self._format_name = ""
        self._attributes, self._changed = {}, set()
        self._forget_flags()

    @abstractmethod
    def Open(self, Access: int, ShareMode: int) -> OpenQueue:
        """Open the queue [MC-MQAC 3.10.4.1.28]."""

    def Refresh(self) -> None:
        """Read the queue's attributes; a queue manager's own queue shows none [3.10.4.1.29]."""
        self._take(self._manager.queue(self._one_local_queue()))
        self._is_refreshed = True

    def Update(self) -> None:
        """Write the attributes that were set since Refresh or Create."""
        self._manager.change_queue(self._one_held_queue(), self._to_write())
        self._changed.clear()

    # ---------------------------------------------------------------------------------------

    def _get(self, name: str, default: _T) -> _T:
        if name not in self._changed:
            self._refresh_once()
        value: _T = self._attributes.get(name, default)
        return value

    def _is_application_get(self, name: str, *, default: int) -> int:
        """Return a value as it was put or found; of a queue that is known to belong to no
        application, the default.
        """
        value = self._get(name, default)
        return value if self._is_application or not self._is_refreshed else default

    def _put(self, name: str, value: object) -> None:
        self._attributes[name] = value
        self._changed.add(name)

    def _refresh_once(self) -> None:
        if not self._is_refreshed:
            kept = {name: self._attributes[name] for name in self._changed}
            self.Refresh()
            self._attributes |= kept
            self._changed = set(kept)

    def _to_write(self) -> dict[str, Any]:
        return {name: self._attributes[name] for name in _WRITTEN if name in self._changed}

    def _take(self, queue: QueueRecord) -> None:
        self._is_application = queue.is_application
        self._attributes = dict(queue.attributes) if queue.is_application else {}
        self._changed.clear()
        if queue.is_application:
            self._path_name = queue.path_name
        self._format_name = self._format_name or queue.format_name

    def _public_only(self, name: str) -> str:
        value = self._get(name, "")
        if not naming.is_public(self._resolve()):
            raise MqError(ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION)
        return str(value)

    def _resolve(self) -> str:
        """Return the format name, finding it if only a path name is known."""
        if not self._format_name:
            if not self._path_name:
                raise MqError(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
            self._format_name = naming.resolve(self._manager, self._path_name)
        return self._format_name

    def _one_held_queue(self) -> str:
        """Return the format name if this cluster holds the queue, not only messages on their way to
        it.
        """
        name = self._one_local_queue()
        if naming.may_be_elsewhere(self._manager, name):
            self._manager.queue(name)
        return name

    def _one_local_queue(self) -> str:
        """Return the format name if it means one queue, and not by a path of another computer."""
        name = self._resolve()
        if naming.is_send_only(name):
            raise MqError(ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION)
        if self._path_name:
            naming.require_local(self._manager, self._path_name)
        return name


def _signed(kilobytes: int) -> int:
    return -1 if kilobytes == _UNLIMITED else kilobytes
