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
from qm.client.mqac.local_manager import LocalManager
from qm.client.mqac.variant import date_of
from qm.client.values import kept_entry, python_value, value_of
from qm.names.guid import guid_from_text, guid_text
from qm.pb import control_pb2
from qm.wire.access_mask import QueueAccess
from qm.wire.codes import ErrorCode

_UNLIMITED: Final = 0xFFFF_FFFF
_APPLICATION: Final = (control_pb2.PRIVATE, control_pb2.PUBLIC)
_EVERYONE: Final = "Everyone"
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

    def __init__(self, service: LocalManager) -> None:
        self._service = service
        self._path_name = ""
        self._format_name = ""
        self._attributes: dict[str, Any] = {}
        self._changed: set[str] = set()
        self._forget_flags()

    def _forget_flags(self) -> None:
        self._is_refreshed = self._is_created = self._is_application = False

    # Names ---------------------------------------------------------------------------------

    @property
    def PathName(self) -> str | None:
        """The value that was set, or that Refresh found (AC-A13)."""
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
        return guid_text(self._get("type", bytes(16)))

    @ServiceTypeGuid.setter
    def ServiceTypeGuid(self, value: str) -> None:
        raw = guid_from_text(value.strip("{}"))
        if raw is None:
            raise MqError(ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE)
        self._put("type", raw)

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
        value = self._get("privacy_level", MQPRIVLEVEL.MQ_PRIV_LEVEL_OPTIONAL)
        return int(value) if self._is_application else MQPRIVLEVEL.MQ_PRIV_LEVEL_OPTIONAL

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
        return value if self._format_name.upper().startswith("PUBLIC=") else 0

    @BasePriority.setter
    def BasePriority(self, value: int) -> None:
        is_public = self._format_name.upper().startswith("PUBLIC=") or (
            not self._format_name and naming.is_public(self._service, self._path_name)
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
            acl = self._call(
                lambda stubs: stubs.queues.GetAcl,
                control_pb2.GetAclRequest(queue=control_pb2.QueueName(name=self._resolve())),
            )
        except MqError:
            return True
        return any(
            entry.mask & QueueAccess.TAKE_QUEUE_OWNERSHIP and entry.sid != acl.owner_sid
            for entry in acl.entries
            if entry.type == control_pb2.ALLOW
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
        naming.require_local(self._service, path)
        attributes = self._to_write()
        attributes["transactional"] = bool(IsTransactional)
        queue = self._call(
            lambda stubs: stubs.queues.CreateQueue,
            control_pb2.CreateQueueRequest(
                path_name=naming.expanded(self._service, path), attributes=_values(attributes)
            ),
        )
        if IsWorldReadable:
            self._let_everyone_read(queue.queue_id)
        self._take(queue)
        # AC-A11: FormatName is known from here on.
        self._format_name = queue.format_name
        self._is_created = True
        self._is_refreshed = False

    def Delete(self) -> None:
        """Delete the queue and its messages."""
        name = self._one_local_queue()
        self._call(
            lambda stubs: stubs.queues.DeleteQueue,
            control_pb2.DeleteQueueRequest(queue=control_pb2.QueueName(name=name)),
        )
        self.__init__(self._service)  # type: ignore[misc]

    @abstractmethod
    def Open(self, Access: int, ShareMode: int) -> OpenQueue:
        """Open the queue [MC-MQAC 3.10.4.1.28]."""

    def Refresh(self) -> None:
        """Read the queue's attributes."""
        name = self._one_local_queue()
        queue = self._call(
            lambda stubs: stubs.queues.GetQueue,
            control_pb2.GetQueueRequest(queue=control_pb2.QueueName(name=name)),
        )
        self._take(queue)
        self._is_refreshed = True

    def Update(self) -> None:
        """Write the attributes that were set since Refresh or Create."""
        name = self._one_local_queue()
        self._call(
            lambda stubs: stubs.queues.SetQueue,
            control_pb2.SetQueueRequest(
                queue=control_pb2.QueueName(name=name), changes=_values(self._to_write())
            ),
        )
        self._changed.clear()

    # ---------------------------------------------------------------------------------------

    def _call(self, method: Any, request: Any) -> Any:
        return self._service.call(method, request)

    def _get(self, name: str, default: _T) -> _T:
        if name not in self._changed:
            self._refresh_once()
        value: _T = self._attributes.get(name, default)
        return value

    def _is_application_get(self, name: str, *, default: int) -> int:
        value = self._get(name, default)
        return value if self._is_application or name in self._changed else default

    def _put(self, name: str, value: object) -> None:
        self._attributes[name] = value
        self._changed.add(name)

    def _refresh_once(self) -> None:
        if not self._is_refreshed and (self._path_name or self._format_name):
            kept = {name: self._attributes[name] for name in self._changed}
            self.Refresh()
            self._attributes |= kept
            self._changed = set(kept)

    def _to_write(self) -> dict[str, Any]:
        return {name: self._attributes[name] for name in _WRITTEN if name in self._changed}

    def _take(self, queue: control_pb2.Queue) -> None:
        self._attributes = {name: python_value(queue.attributes[name]) for name in queue.attributes}
        self._changed.clear()
        self._path_name = queue.path_name
        self._format_name = self._format_name or queue.format_name
        self._is_application = queue.type in _APPLICATION

    def _public_only(self, name: str) -> str:
        value = self._get(name, "")
        if not self._resolve().upper().startswith("PUBLIC="):
            raise MqError(ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION)
        return str(value)

    def _let_everyone_read(self, queue_id: int) -> None:
        """AC-A14: allow Everyone to receive and peek."""
        name = control_pb2.QueueName(queue_id=queue_id)
        acl = self._call(lambda stubs: stubs.queues.GetAcl, control_pb2.GetAclRequest(queue=name))
        added = control_pb2.Ace(
            type=control_pb2.ALLOW,
            principal=_EVERYONE,
            mask=QueueAccess.RECEIVE_MESSAGE | QueueAccess.PEEK_MESSAGE,
        )
        self._call(
            lambda stubs: stubs.queues.SetAcl,
            control_pb2.SetAclRequest(
                queue=name,
                entries=[*map(kept_entry, acl.entries), added],
                if_version=acl.version,
            ),
        )

    def _resolve(self) -> str:
        """Return the format name, finding it if only a path name is known."""
        if not self._format_name:
            if not self._path_name:
                raise MqError(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
            self._format_name = naming.resolve(self._service, self._path_name)
        return self._format_name

    def _one_local_queue(self) -> str:
        """Return the format name if it means one queue that this cluster holds."""
        name = self._resolve()
        if naming.is_send_only(name):
            raise MqError(ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION)
        if self._path_name:
            naming.require_local(self._service, self._path_name)
        return name


def _signed(kilobytes: int) -> int:
    return -1 if kilobytes == _UNLIMITED else kilobytes


def _values(attributes: dict[str, Any]) -> dict[str, control_pb2.Value]:
    return {name: value_of(value) for name, value in attributes.items()}
