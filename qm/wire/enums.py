"""Small tables of named numbers; a field holds a plain integer where unknown values are legal.

Members leave out the specification's prefix, which the docstring of each enumeration names.
"""

from enum import IntEnum, IntFlag
from types import MappingProxyType
from typing import Final


class QueueFormatType(IntEnum):
    """QUEUE_FORMAT_TYPE_* [MS-MQMQ 2.2.6]: the kind of name in a QUEUE_FORMAT."""

    UNKNOWN = 0
    PUBLIC = 1
    PRIVATE = 2
    DIRECT = 3
    MACHINE = 4
    CONNECTOR = 5
    DL = 6
    MULTICAST = 7
    SUBQUEUE = 8
    """From MSMQ 4.0 on."""


class QueueSuffixType(IntEnum):
    """QUEUE_SUFFIX_TYPE_* [MS-MQMQ 2.2.11]: the part of a name after the semicolon."""

    NONE = 0
    JOURNAL = 1
    """The journal of the queue, or of the computer."""
    DEADLETTER = 2
    """The computer's dead-letter queue for non-transactional messages."""
    DEADXACT = 3
    """The computer's dead-letter queue for transactional messages."""
    XACTONLY = 4
    """The connector's queue for transactional messages."""
    SUBQUEUE = 5
    """The subqueue in the direct name."""


class QueueFormatFlags(IntEnum):
    """QUEUE_FORMAT_FLAG_* [MS-MQMQ 2.2.7]: the high half of m_SuffixAndFlags."""

    NOT_SYSTEM = 0x00
    SYSTEM = 0x80


class VarType(IntEnum):
    """VT_* [MS-MQMQ 2.2.12]: the scalar types of a PROPVARIANT, and the bit that makes an array."""

    EMPTY = 0
    NULL = 1
    I2 = 2
    I4 = 3
    BOOL = 11
    VARIANT = 12
    """Only in an array (`VECTOR_VARIANT`)."""
    I1 = 16
    UI1 = 17
    UI2 = 18
    UI4 = 19
    I8 = 20
    UI8 = 21
    LPWSTR = 31
    BLOB = 65
    CLSID = 72
    VECTOR = 0x1000
    """Combined with a scalar type: a counted array [MS-MQMQ 2.2.16]."""
    # The counted arrays that tag_inner_PROPVARIANT has an arm for [MS-MQMQ 2.2.13.1], no others.
    VECTOR_I4 = 0x1003
    VECTOR_VARIANT = 0x100C
    VECTOR_UI1 = 0x1011
    VECTOR_UI2 = 0x1012
    VECTOR_UI4 = 0x1013
    VECTOR_UI8 = 0x1015
    VECTOR_LPWSTR = 0x101F
    VECTOR_CLSID = 0x1048


class SecurityInformation(IntFlag):
    """*_SECURITY_INFORMATION [MS-MQMQ 2.2.3]: which parts of a security descriptor are meant."""

    OWNER = 0x0000_0001
    GROUP = 0x0000_0002
    DACL = 0x0000_0004
    SACL = 0x0000_0008


class PrivacyLevel(IntEnum):
    """MessagePropertiesHeader.PrivacyLevel [MS-MQMQ 2.2.19.3]: how a body is encrypted."""

    NONE = 0
    BASE = 1
    """40-bit RC2 or RC4."""
    ENHANCED = 3
    """128-bit RC2 or RC4."""
    ADVANCED = 5
    """AES."""


class HashAlgorithm(IntEnum):
    """MessagePropertiesHeader.HashAlgorithm [MS-MQMQ 2.2.19.3]; 0x8003 is MD5 (MQ-A33)."""

    MD2 = 0x8001
    MD4 = 0x8002
    MD5 = 0x8003
    SHA1 = 0x8004
    SHA256 = 0x800C
    SHA512 = 0x800E
    """What signers should use."""


class EncryptionAlgorithm(IntEnum):
    """MessagePropertiesHeader.EncryptionAlgorithm [MS-MQMQ 2.2.19.3] and SIMPLEBLOB's key type."""

    RC2 = 0x6602
    AES128 = 0x660E
    AES192 = 0x660F
    AES256 = 0x6610
    RC4 = 0x6801


ALGORITHMS_OF_PRIVACY_LEVEL: Final = MappingProxyType(
    {
        PrivacyLevel.NONE: frozenset[EncryptionAlgorithm](),
        PrivacyLevel.BASE: frozenset({EncryptionAlgorithm.RC2, EncryptionAlgorithm.RC4}),
        PrivacyLevel.ENHANCED: frozenset({EncryptionAlgorithm.RC2, EncryptionAlgorithm.RC4}),
        PrivacyLevel.ADVANCED: frozenset(
            {EncryptionAlgorithm.AES128, EncryptionAlgorithm.AES192, EncryptionAlgorithm.AES256}
        ),
    }
)
"""The algorithms that each privacy level allows [MS-MQMQ 2.2.19.3]."""


class PublicKeyAlgorithm(IntEnum):
    """CALG_RSA_*: the algorithm of a public key blob [MS-MQMQ 2.2.1, 2.2.20.6]."""

    RSA_SIGN = 0x0000_2400
    RSA_KEYX = 0x0000_A400


class ProviderType(IntEnum):
    """PROV_*: the cryptographic provider that made a key [MS-MQMQ 2.2.1]."""

    RSA_FULL = 1
    RSA_AES = 24


class ConnectionStatus(IntEnum):
    """Status of an entry of PROPID_MGMT_QUEUE_CONNECTION_HISTORY [MS-MQMQ 2.3.12.25]."""

    ESTABLISHING = 0x0000_0000
    ESTABLISH_PACKET_RECEIVED = 0x0000_0001
    READY = 0x0000_0002
    UNKNOWN_FAILURE = 0x8000_0000
    PING_FAILURE = 0x8000_0001
    CREATE_SOCKET_FAILURE = 0x8000_0002
    BIND_SOCKET_FAILURE = 0x8000_0003
    CONNECT_SOCKET_FAILURE = 0x8000_0004
    TCP_NOT_ENABLED = 0x8000_0005
    SEND_FAILURE = 0x8000_0006
    SEND_NOT_READY = 0x8000_0007
    DNS_FAILURE = 0x8000_0008
    HTTPS_CERTIFICATE_FAILURE = 0x8000_0009
    CONNECTION_LIMIT_REACHED = 0x8000_000A
    REFUSED_BY_PEER = 0x8000_000B
    NO_DIRECTORY_FOR_ROUTING = 0x8000_000C
    LOW_MEMORY = 0x8000_000D

    @property
    def is_failure(self) -> bool:
        """Tell whether the connection could not be made or was lost."""
        return self >= ConnectionStatus.UNKNOWN_FAILURE
