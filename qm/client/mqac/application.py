"""MSMQApplication [MC-MQAC 3.2]: a queue manager, the local one or another."""

from typing import Any, Final, NoReturn

from qm.client.errors import MqError
from qm.client.mqac.constants import E_NOTIMPL, MQCERT_REGISTER
from qm.client.mqac.object_factory import ObjectFactory
from qm.names.guid import guid_from_text, guid_text
from qm.wire.codes import ErrorCode
from qm.wire.property_id import MachineManagementProperty as Property

_CONNECTED: Final = "CONNECTED"


class MSMQApplication:
    """Stands for the local queue manager until Machine is put."""

    def __init__(self, service: ObjectFactory) -> None:
        self._manager = service.manager
        self._computer_name = ""

    @property
    def Machine(self) -> str:
        """Computer whose queue manager it is."""
        return self._computer_name or self._manager.computer_name

    @Machine.setter
    def Machine(self, value: str) -> None:
        """Stand for another queue manager; nothing is checked."""
        self._computer_name = value

    # The directory -------------------------------------------------------------------------

    def MachineIdOfMachineName(self, MachineName: str | None) -> str:
        """Return the GUID, without braces, of a computer's queue manager.

        None and "" mean the local one: over DCOM a NULL name arrives as "".
        """
        name = MachineName or self._manager.computer_name
        return guid_text(self._manager.machine(name).identifier)

    def MachineNameOfMachineId(self, bstrGuid: str) -> str:
        """Return the computer of the queue manager with a GUID, with or without braces."""
        identifier = guid_from_text(bstrGuid.removeprefix("{").removesuffix("}"))
        if identifier is None:
            raise MqError(ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE)
        return self._manager.machine_of(identifier).computer_name

    def RegisterCertificate(
        self,
        Flags: int = MQCERT_REGISTER.MQCERT_REGISTER_ALWAYS,
        ExternalCertificate: bytes | None = None,
    ) -> int:
        """Register a certificate of the caller, or a new internal one whose key stays here.

        Return MQ_OK, or MQ_INFORMATION_INTERNAL_USER_CERT_EXIST if there is an internal one and
        Flags says to keep it.
        """
        if self._computer_name:
            raise MqError(E_NOTIMPL)
        is_conditional = Flags == MQCERT_REGISTER.MQCERT_REGISTER_IF_NOT_EXIST
        if is_conditional and ExternalCertificate is not None:
            raise MqError(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        return self._manager.register_certificate(ExternalCertificate, only_if_none=is_conditional)

    # The local queue manager ---------------------------------------------------------------

    @property
    def MSMQVersionMajor(self) -> int:
        """Major version of MSMQ whose protocols are spoken."""
        self._require_local()
        return self._manager.version.major

    @property
    def MSMQVersionMinor(self) -> int:
        """Minor version."""
        self._require_local()
        return self._manager.version.minor

    @property
    def MSMQVersionBuild(self) -> int:
        """Build."""
        self._require_local()
        return self._manager.version.build

    @property
    def IsDsEnabled(self) -> bool:
        """Whether the queue manager uses a directory."""
        self._require_local()
        return bool(self._manager.attributes().get("directory_integrated"))

    @property
    def Properties(self) -> NoReturn:
        """Not implemented [MC-MQAC 3.2.4.2.7]."""
        raise MqError(E_NOTIMPL)

    # Either queue manager (AC-A44) ---------------------------------------------------------

    def ActiveQueues(self) -> list[str]:
        """Return the format names of active queues."""
        return list(self._read(Property.ACTIVEQUEUES))

    @property
    def PrivateQueues(self) -> list[str]:
        """Path names of private queues."""
        return list(self._read(Property.PRIVATEQ))

    @property
    def DirectoryServiceServer(self) -> str:
        r"""Name of the directory's server behind two backslashes (AC-A34)."""
        return str(self._read(Property.DSSERVER))

    @property
    def IsConnected(self) -> bool:
        """Whether the queue manager is online (AC-A45)."""
        return bool(self._read(Property.CONNECTED).upper() == _CONNECTED)

    @property
    def BytesInAllQueues(self) -> int:
        """Bytes of all messages."""
        return int(self._read(Property.BYTES_IN_ALL_QUEUES))

    def Connect(self) -> None:
        """Bring the queue manager online."""
        self._act("CONNECT")

    def Disconnect(self) -> None:
        """Take the queue manager offline: it sends to and receives from no other one."""
        self._act("DISCONNECT")

    def Tidy(self) -> None:
        """Have it release what it does not need."""
        self._act("TIDY")

    # ---------------------------------------------------------------------------------------

    def _require_local(self) -> None:
        if self._computer_name:
            raise MqError(ErrorCode.MQ_ERROR_INVALID_PARAMETER)

    def _read(self, property_id: Property) -> Any:
        return self._manager.management(self._computer_name).machine_info(property_id)

    def _act(self, action: str) -> None:
        self._manager.management(self._computer_name).act_on_machine(action)
