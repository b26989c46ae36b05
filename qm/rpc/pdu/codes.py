"""Numbers of DCE/RPC: kinds and flags of PDUs, results, reasons, and statuses of faults."""

from enum import IntEnum
from typing import Final


class PduType(IntEnum):
    """PTYPE [C706 12.6.4; MS-RPCE 2.2.2.1]."""

    REQUEST = 0
    RESPONSE = 2
    FAULT = 3
    BIND = 11
    BIND_ACK = 12
    BIND_NAK = 13
    ALTER_CONTEXT = 14
    ALTER_CONTEXT_RESPONSE = 15
    AUTH3 = 16
    SHUTDOWN = 17
    CO_CANCEL = 18
    ORPHANED = 19


class PduFlag(IntEnum):
    """pfc_flags [C706 12.6.3.1; MS-RPCE 2.2.2.3]; no IntFlag, whose operators are slow."""

    FIRST = 0x01
    LAST = 0x02
    PENDING_CANCEL = 0x04
    SUPPORT_HEADER_SIGN = 0x04
    """The same bit, in bind, alter_context and their answers."""
    CONC_MPX = 0x10
    DID_NOT_EXECUTE = 0x20
    MAYBE = 0x40
    OBJECT_UUID = 0x80


class ContextResult(IntEnum):
    """What became of a proposed presentation context."""

    ACCEPTANCE = 0
    USER_REJECTION = 1
    PROVIDER_REJECTION = 2
    NEGOTIATE_ACK = 3
    """[MS-RPCE] 2.2.2.4: the reason is the mask of accepted features."""


class RejectReason(IntEnum):
    """Why a presentation context was refused."""

    NOT_SPECIFIED = 0
    ABSTRACT_SYNTAX = 1
    TRANSFER_SYNTAXES = 2
    LOCAL_LIMIT = 3


class BindNakReason(IntEnum):
    """Why a bind was refused [MS-RPCE 2.2.2.5]."""

    NOT_SPECIFIED = 0
    PROTOCOL_VERSION = 4
    AUTHENTICATION_TYPE = 8
    INVALID_CHECKSUM = 9


class FaultStatus(IntEnum):
    """Statuses that the engine itself faults with [C706 App. E; MS-RPCE 3.3.3.5]."""

    ACCESS_DENIED = 0x0000_0005
    SERVER_UNAVAILABLE = 0x0000_06BA
    CALL_FAILED = 0x0000_06BE
    CANNOT_SUPPORT = 0x0000_06E4
    ENTRY_NOT_ALLOWED = 0x0000_06D8
    """EPT_S_CANT_PERFORM_OP."""
    BAD_STUB_DATA = 0x0000_06F7
    SECURITY_PACKAGE = 0x0000_0721
    """RPC_S_SEC_PKG_ERROR: a signature or a leg is wrong."""
    CANCELLED = 0x1C00_000D
    CONTEXT_MISMATCH = 0x1C00_001A
    REMOTE_NO_MEMORY = 0x1C00_001B
    OPERATION_RANGE = 0x1C01_0002
    UNKNOWN_INTERFACE = 0x1C01_0003
    PROTOCOL_ERROR = 0x1C01_000B
    SERVER_TOO_BUSY = 0x1C01_0014


class AuthLevel(IntEnum):
    """Protection of calls [MS-RPCE 2.2.1.1.8]."""

    DEFAULT = 0
    NONE = 1
    CONNECT = 2
    CALL = 3
    """Counts as PACKET here."""
    PACKET = 4
    INTEGRITY = 5
    PRIVACY = 6


class AuthType(IntEnum):
    """Security providers that are served [MS-RPCE 2.2.1.1.7]."""

    SPNEGO = 9
    NTLM = 10
    KERBEROS = 16


NO_AUTHENTICATION: Final = 0
"""auth_type of a trailer that names no provider."""
FEATURES: Final = 0x0003
"""Bind-time features that are accepted: multiplexed security contexts, and connections that outlive
an orphaned call [MS-RPCE 2.2.2.14]."""
