"""Property identifiers [MS-MQMQ 2.3]: one enumeration per kind of object.

A PROPID is a u32 and its value a PROPVARIANT. Numbers 1 to 27 mean one thing for a queue manager
and another for a queue (2.3.11, 2.3.12), so a number alone never identifies a property: the
enumeration gives the kind of object. Members leave out the prefix that `spec_name` adds, and are in
the order of the specification, where property k of a kind is in subsection k.
"""

from enum import Enum
from typing import ClassVar, Final

import msgspec
from typing_extensions import override

from qm.wire.enums import SecurityInformation, VarType
from qm.wire.limits import U16_MAX, U32_MAX


class Choices(msgspec.Struct, frozen=True, gc=False):
    """The only legal values, by name."""

    named: tuple[tuple[str, int | str], ...]


class Bits(msgspec.Struct, frozen=True, gc=False):
    """A mask that may combine these bits."""

    named: tuple[tuple[str, int], ...]


class Range(msgspec.Struct, frozen=True, gc=False):
    """All values from `low` to `high`."""

    low: int
    high: int
    unit: str = ""
    """"KB", "s" or empty."""


class Form(msgspec.Struct, frozen=True, gc=False):
    """A grammar or layout of the value, or of each element where the value is an array."""

    name: str
    max_chars: int | None = None


class Columns(msgspec.Struct, frozen=True, gc=False):
    """Arrays of equal length in a VECTOR_VARIANT, with one slot of each per entry."""

    vartypes: tuple[VarType, ...]


class Reserved(msgspec.Struct, frozen=True, gc=False):
    """Undefined and never interpreted."""


Valid = Choices | Bits | Range | Form | Columns | Reserved


class Row(msgspec.Struct, frozen=True, gc=False):
    """The table's data about one property."""

    number: int
    """The PROPID, u32; unique within a kind of object."""
    vartype: VarType
    """Type of the PROPVARIANT."""
    valid: Valid | None = None
    """Limits of the value beyond its type; None for no limits."""
    default: int | str | None = None
    """Default value; None where the specification names none or "unset"."""
    since: int = 1
    """First product version that has the property."""


class Property(Enum):
    """Base of the enumerations; a member's value is its row."""

    _value_: Row
    _prefix: ClassVar[str]
    _section: ClassVar[str]

    @override
    def __init_subclass__(cls, *, prefix: str, section: str) -> None:
        """Store the prefix of the names and the section of the kind."""
        cls._prefix = prefix
        cls._section = section

    @property
    def number(self) -> int:
        """The PROPID, which identifies the property only together with its enumeration."""
        row: Row = self.value
        return row.number

    @property
    def spec_name(self) -> str:
        """The name as the specification prints it, such as PROPID_Q_LABEL."""
        return self._prefix + self.name

    @property
    def section(self) -> str:
        """The subsection of MS-MQMQ that defines the property."""
        return f"{self._section}.{list(type(self)).index(self) + 1}"


def choices(**named: int | str) -> Choices:
    """Return the legal values from their names."""
    return Choices(tuple(named.items()))


_RESERVED: Final = Reserved()
_NO_YES: Final = choices(no=0, yes=1)
_SCOPE: Final = choices(MQDS_SITESCOPE=0, MQDS_ENTERPRISESCOPE=1)
_SERVICE: Final = choices(NONE=0, SRV=1, BSC=2, PSC=4, PEC=8)
_SECURITY_INFORMATION: Final = Bits(
    tuple((f"{part.name}_SECURITY_INFORMATION", part.value) for part in SecurityInformation)
)
_DESCRIPTOR: Final = Form("SECURITY_DESCRIPTOR (self-relative)")
_DESCRIPTOR_NT4: Final = Form(
    "SECURITY_DESCRIPTOR (self-relative); ACE types limited to the NT 4.0 set"
)
_SID: Final = Form("SID")
_ADDRESSES: Final = Form("packed array of TA_ADDRESS")
_CERTIFICATE: Final = Form("X.509 certificate (RFC 3280)")
_PUBLIC_KEYS: Final = Form("MQDSPUBLICKEYS")
_USER_CERTIFICATES: Final = Form("MQUSERSIGNCERTS")
_SEQUENCE_INFO: Final = Form("SEQUENCE_INFO (16 bytes)")
_DISTINGUISHED_NAME: Final = Form("RFC 4514 distinguishedName")


class QueueProperty(Property, prefix="PROPID_Q_", section="2.3.1"):
    """PROPID_Q_* [MS-MQMQ 2.3.1]: a queue."""

    INSTANCE = Row(101, VarType.CLSID)
    TYPE = Row(102, VarType.CLSID)
    PATHNAME = Row(103, VarType.LPWSTR, Form("QueuePathName (2.1.1)"))
    JOURNAL = Row(104, VarType.UI1, choices(MQ_JOURNAL_NONE=0, MQ_JOURNAL=1), default=0)
    QUOTA = Row(105, VarType.UI4, Range(0, U32_MAX, "KB"))
    BASEPRIORITY = Row(106, VarType.I2, Range(-32768, 32767), default=0)
    JOURNAL_QUOTA = Row(107, VarType.UI4, Range(0, U32_MAX, "KB"))
    LABEL = Row(108, VarType.LPWSTR, Form("text", 124))
    CREATE_TIME = Row(109, VarType.I4)
    MODIFY_TIME = Row(110, VarType.I4)
    AUTHENTICATE = Row(111, VarType.UI1, choices(MQ_AUTHENTICATE_NONE=0, MQ_AUTHENTICATE=1))
    PRIV_LEVEL = Row(
        112,
        VarType.UI4,
        choices(MQ_PRIV_LEVEL_NONE=0, MQ_PRIV_LEVEL_OPTIONAL=1, MQ_PRIV_LEVEL_BODY=2),
        default=1,
    )
    TRANSACTION = Row(113, VarType.UI1, choices(MQ_TRANSACTIONAL_NONE=0, MQ_TRANSACTIONAL=1))
    SCOPE = Row(114, VarType.UI1, _SCOPE)
    QMID = Row(115, VarType.CLSID)
    PARTITIONID = Row(116, VarType.CLSID)
    SEQNUM = Row(117, VarType.BLOB)
    HASHKEY = Row(118, VarType.UI4, _RESERVED)
    LABEL_HASHKEY = Row(119, VarType.UI4, _RESERVED)
    FULL_PATH = Row(121, VarType.LPWSTR, since=2)
    NAME_SUFFIX = Row(
        123, VarType.LPWSTR, Form("tail of a queue name longer than 64 characters"), since=2
    )
    PATHNAME_DNS = Row(124, VarType.LPWSTR, Form("QueuePathName with FQDN computer"), since=2)
    MULTICAST_ADDRESS = Row(125, VarType.LPWSTR, Form('IPv4 ":" Port (2.1.6)'), since=3)
    ADS_PATH = Row(126, VarType.LPWSTR, Form("ldapurl (RFC 4516)"), since=3)
    SECURITY = Row(1101, VarType.BLOB, _DESCRIPTOR_NT4)
    OBJ_SECURITY = Row(1102, VarType.BLOB, _DESCRIPTOR, since=2)
    SECURITY_INFORMATION = Row(1103, VarType.UI4, _SECURITY_INFORMATION)


class MachineProperty(Property, prefix="PROPID_QM_", section="2.3.2"):
    """PROPID_QM_* [MS-MQMQ 2.3.2]: a queue manager."""

    SITE_ID = Row(201, VarType.CLSID)
    MACHINE_ID = Row(202, VarType.CLSID)
    PATHNAME = Row(203, VarType.LPWSTR)
    ENCRYPTION_PK = Row(205, VarType.VECTOR_UI1)
    ADDRESS = Row(206, VarType.BLOB, _ADDRESSES)
    CNS = Row(207, VarType.VECTOR_CLSID)
    OUTFRS = Row(208, VarType.VECTOR_CLSID)
    INFRS = Row(209, VarType.VECTOR_CLSID)
    SERVICE = Row(210, VarType.UI4, choices(NONE=0, SRV=1, BSC=2, PSC=4, PEC=8, RAS=16))
    QUOTA = Row(214, VarType.UI4, Range(0, U32_MAX))
    PARTITIONID = Row(211, VarType.CLSID)
    HASHKEY = Row(212, VarType.UI4, _RESERVED)
    SEQNUM = Row(213, VarType.BLOB)
    JOURNAL_QUOTA = Row(215, VarType.UI4, Range(0, U32_MAX, "KB"))
    MACHINE_TYPE = Row(
        216,
        VarType.LPWSTR,
        Form(
            'empty, or "Windows" SP OSType SP n.n SP "(Build" SP n "," SP Platform ")" SP "-" SP '
            '"MSMQ" SP n.n SP "(Build" SP n ")" (old Windows only)'
        ),
    )
    CREATE_TIME = Row(217, VarType.I4)
    MODIFY_TIME = Row(218, VarType.I4)
    FOREIGN = Row(219, VarType.UI1, choices(MSMQ_MACHINE=0, FOREIGN_MACHINE=1))
    OS = Row(
        220,
        VarType.UI4,
        choices(
            MSMQ_OS_NONE=0,
            MSMQ_OS_FOREIGN=256,
            MSMQ_OS_95=512,
            MSMQ_OS_NTW=768,
            MSMQ_OS_NTS=1024,
            MSMQ_OS_NTE=1280,
        ),
    )
    FULL_PATH = Row(221, VarType.LPWSTR, _DISTINGUISHED_NAME, since=2)
    SITE_IDS = Row(222, VarType.VECTOR_CLSID, since=2)
    OUTFRS_DN = Row(223, VarType.VECTOR_LPWSTR, _DISTINGUISHED_NAME, since=2)
    INFRS_DN = Row(224, VarType.VECTOR_LPWSTR, _DISTINGUISHED_NAME, since=2)
    SERVICE_ROUTING = Row(227, VarType.UI1, _NO_YES, since=2)
    SERVICE_DSSERVER = Row(228, VarType.UI1)
    SERVICE_DEPCLIENTS = Row(229, VarType.UI1)
    ENCRYPTION_PK_BASE = Row(231, VarType.VECTOR_UI1, since=2)
    ENCRYPTION_PK_ENHANCED = Row(232, VarType.VECTOR_UI1, since=2)
    PATHNAME_DNS = Row(233, VarType.LPWSTR, since=2)
    OBJ_SECURITY = Row(234, VarType.BLOB, _DESCRIPTOR, since=2)
    SECURITY_INFORMATION = Row(237, VarType.UI4, _SECURITY_INFORMATION)
    # Encryption keys, although the section calls them signing keys (MQ-A24).
    ENCRYPT_PKS = Row(238, VarType.BLOB, _PUBLIC_KEYS)
    SIGN_PKS = Row(239, VarType.BLOB, _PUBLIC_KEYS)
    OWNER_SID = Row(241, VarType.BLOB, _SID, since=2)
    GROUP_IN_CLUSTER = Row(
        242, VarType.UI1, choices(MSMQ_GROUP_NOT_IN_CLUSTER=0, MSMQ_GROUP_IN_CLUSTER=1), since=2
    )
    SECURITY = Row(1201, VarType.BLOB, _DESCRIPTOR_NT4)
    SIGN_PK = Row(1202, VarType.BLOB, _PUBLIC_KEYS)
    ENCRYPT_PK = Row(1203, VarType.BLOB, _PUBLIC_KEYS)
    UPGRADE_DACL = Row(1205, VarType.BLOB, Form("write-only trigger; the value is ignored"))


class SiteProperty(Property, prefix="PROPID_S_", section="2.3.3"):
    """PROPID_S_* [MS-MQMQ 2.3.3]: a site."""

    PATHNAME = Row(301, VarType.LPWSTR)
    SITEID = Row(302, VarType.CLSID)
    GATES = Row(303, VarType.VECTOR_CLSID)
    PSC = Row(304, VarType.LPWSTR)
    INTERVAL1 = Row(305, VarType.UI2, Range(0, U16_MAX, "s"), default=2)
    INTERVAL2 = Row(306, VarType.UI2, Range(0, U16_MAX, "s"), default=10)
    PARTITIONID = Row(307, VarType.CLSID)
    SEQNUM = Row(308, VarType.BLOB)
    FULL_NAME = Row(309, VarType.LPWSTR, since=2)
    NT4_STUB = Row(310, VarType.UI2, _NO_YES, since=2)
    FOREIGN = Row(311, VarType.UI1, _NO_YES, since=2)
    DONOTHING = Row(312, VarType.UI1, since=2)
    SECURITY = Row(1301, VarType.BLOB, _DESCRIPTOR_NT4)
    PSC_SIGNPK = Row(1302, VarType.BLOB, _PUBLIC_KEYS)
    SECURITY_INFORMATION = Row(1303, VarType.UI4, _SECURITY_INFORMATION, since=3)


class ConnectedNetworkProperty(Property, prefix="PROPID_CN_", section="2.3.4"):
    """PROPID_CN_* [MS-MQMQ 2.3.4]: a connected network."""

    PROTOCOLID = Row(
        501, VarType.UI1, choices(IP_ADDRESS_TYPE=1, IPX_ADDRESS_TYPE=3, FOREIGN_ADDRESS_TYPE=5)
    )
    NAME = Row(502, VarType.LPWSTR)
    GUID = Row(503, VarType.CLSID)
    PARTITIONID = Row(504, VarType.CLSID)
    SEQNUM = Row(505, VarType.BLOB)
    SECURITY = Row(1501, VarType.BLOB, _DESCRIPTOR_NT4)


class EnterpriseProperty(Property, prefix="PROPID_E_", section="2.3.5"):
    """PROPID_E_* [MS-MQMQ 2.3.5]: the enterprise."""

    NAME = Row(601, VarType.LPWSTR)
    NAMESTYLE = Row(
        602, VarType.UI1, choices(weakened_off=0, weakened_on=1, internal_default=2), since=2
    )
    CSP_NAME = Row(
        603, VarType.LPWSTR, default="Microsoft Enhanced RSA and AES Cryptographic Provider"
    )
    PECNAME = Row(604, VarType.LPWSTR)
    S_INTERVAL1 = Row(605, VarType.UI2, _RESERVED)
    S_INTERVAL2 = Row(606, VarType.UI2, _RESERVED)
    PARTITIONID = Row(607, VarType.CLSID)
    SEQNUM = Row(608, VarType.BLOB)
    ID = Row(609, VarType.CLSID)
    CRL = Row(610, VarType.BLOB, _RESERVED)
    CSP_TYPE = Row(611, VarType.UI4, _RESERVED)
    ENCRYPT_ALG = Row(612, VarType.UI4, _RESERVED)
    SIGN_ALG = Row(613, VarType.UI4, _RESERVED)
    HASH_ALG = Row(614, VarType.UI4, _RESERVED)
    LONG_LIVE = Row(616, VarType.UI4)
    VERSION = Row(617, VarType.UI2)
    SECURITY = Row(1601, VarType.BLOB, _DESCRIPTOR_NT4)
    CIPHER_MODE = Row(615, VarType.UI4, _RESERVED)


class UserProperty(Property, prefix="PROPID_U_", section="2.3.6"):
    """PROPID_U_* [MS-MQMQ 2.3.6]: a user."""

    SID = Row(701, VarType.BLOB, _SID)
    PARTITIONID = Row(703, VarType.CLSID)
    SEQNUM = Row(704, VarType.BLOB)
    SIGN_CERT = Row(702, VarType.BLOB, _USER_CERTIFICATES)
    DIGEST = Row(705, VarType.VECTOR_CLSID, Form("16-byte MD5 of encoded certificate"))
    ID = Row(706, VarType.CLSID)


class RoutingLinkProperty(Property, prefix="PROPID_L_", section="2.3.7"):
    """PROPID_L_* [MS-MQMQ 2.3.7]: a routing link."""

    NEIGHBOR1 = Row(801, VarType.CLSID)
    NEIGHBOR2 = Row(802, VarType.CLSID)
    COST = Row(803, VarType.UI4, Range(1, 999999), default=1)
    PARTITIONID = Row(804, VarType.CLSID)
    SEQNUM = Row(805, VarType.BLOB)
    ID = Row(806, VarType.CLSID)
    GATES_DN = Row(807, VarType.VECTOR_LPWSTR, _DISTINGUISHED_NAME, since=3)
    NEIGHBOR1_DN = Row(808, VarType.LPWSTR, _DISTINGUISHED_NAME, since=2)
    NEIGHBOR2_DN = Row(809, VarType.LPWSTR, _DISTINGUISHED_NAME, since=2)
    DESCRIPTION = Row(810, VarType.LPWSTR, since=2)
    FULL_PATH = Row(811, VarType.LPWSTR, _DISTINGUISHED_NAME, since=2)
    ACTUAL_COST = Row(812, VarType.UI4, Range(1, 999999), since=2)
    GATES = Row(813, VarType.VECTOR_CLSID, since=2)


class SettingsProperty(Property, prefix="PROPID_SET_", section="2.3.8"):
    """PROPID_SET_* [MS-MQMQ 2.3.8]: the settings of a server."""

    NAME = Row(
        5101, VarType.LPWSTR, choices(CONST="MSMQ Settings"), default="MSMQ Settings", since=2
    )
    SERVICE = Row(5102, VarType.UI4, _SERVICE, since=2)
    QM_ID = Row(5103, VarType.CLSID, since=2)
    FULL_PATH = Row(5105, VarType.LPWSTR, _DISTINGUISHED_NAME, since=2)
    NT4 = Row(5106, VarType.UI1, _NO_YES, since=2)
    PARTITIONID = Row(5107, VarType.CLSID, since=2)
    SITENAME = Row(5108, VarType.LPWSTR, since=2)
    SERVICE_ROUTING = Row(5109, VarType.UI1, _NO_YES, since=2)
    SERVICE_DSSERVER = Row(5110, VarType.UI1, _NO_YES, since=2)
    SERVICE_DEPCLIENTS = Row(5111, VarType.UI1, _NO_YES, since=2)
    OLDSERVICE = Row(5112, VarType.UI4, _SERVICE, since=2)


class MqUserProperty(Property, prefix="PROPID_MQU_", section="2.3.9"):
    """PROPID_MQU_* [MS-MQMQ 2.3.9]: an MQUser object."""

    SID = Row(5401, VarType.BLOB, _SID, since=2)
    SIGN_CERT = Row(5402, VarType.BLOB, _CERTIFICATE, since=2)
    DIGEST = Row(5405, VarType.VECTOR_CLSID, Form("16-byte MD5 of encoded certificate"), since=2)
    ID = Row(5406, VarType.CLSID, since=2)
    SECURITY = Row(5407, VarType.BLOB, _DESCRIPTOR_NT4, since=2)


class ComputerProperty(Property, prefix="PROPID_COM_", section="2.3.10"):
    """PROPID_COM_* [MS-MQMQ 2.3.10]: a computer object."""

    FULL_PATH = Row(5201, VarType.LPWSTR, _DISTINGUISHED_NAME, since=2)
    SAM_ACCOUNT = Row(
        5202, VarType.LPWSTR, Form('computer name truncated to 19 chars + "$"', 20), since=2
    )
    ACCOUNT_CONTROL = Row(5204, VarType.UI4, Form("MS-SAMR 2.2.1.13 UF_FLAG codes"), since=2)
    DNS_HOSTNAME = Row(5205, VarType.LPWSTR, Form("FQDN"), since=2)
    SID = Row(5206, VarType.BLOB, _SID, since=2)
    SIGN_CERT = Row(5207, VarType.BLOB, _CERTIFICATE, since=2)
    DIGEST = Row(5208, VarType.VECTOR_CLSID, Form("16-byte MD5 of encoded certificate"), since=2)
    ID = Row(5209, VarType.CLSID, since=2)


class MachineManagementProperty(Property, prefix="PROPID_MGMT_MSMQ_", section="2.3.11"):
    """PROPID_MGMT_MSMQ_* [MS-MQMQ 2.3.11]: what a queue manager reports about itself."""

    ACTIVEQUEUES = Row(1, VarType.VECTOR_LPWSTR, Form("format name (2.1.2, 2.1.3, 2.1.4, 2.1.6)"))
    PRIVATEQ = Row(2, VarType.VECTOR_LPWSTR, Form("QueuePathName (private)"))
    DSSERVER = Row(
        3,
        VarType.LPWSTR,
        Form(
            "two backslashes, then 1 or more UTF-16 units other than U+0000 and comma U+002C, "
            "then NUL"
        ),
    )
    CONNECTED = Row(
        4, VarType.LPWSTR, choices(MSMQ_CONNECTED="CONNECTED", MSMQ_DISCONNECTED="DISCONNECTED")
    )
    TYPE = Row(5, VarType.LPWSTR)
    BYTES_IN_ALL_QUEUES = Row(6, VarType.I8, since=3)


class QueueManagementProperty(Property, prefix="PROPID_MGMT_QUEUE_", section="2.3.12"):
    """PROPID_MGMT_QUEUE_* [MS-MQMQ 2.3.12]: what a queue manager reports about a queue."""

    PATHNAME = Row(1, VarType.LPWSTR, Form("QueuePathName (2.1.1)"))
    FORMATNAME = Row(2, VarType.LPWSTR, Form("format name (2.1)"))
    TYPE = Row(
        3,
        VarType.LPWSTR,
        choices(
            MGMT_QUEUE_TYPE_PUBLIC="PUBLIC",
            MGMT_QUEUE_TYPE_PRIVATE="PRIVATE",
            MGMT_QUEUE_TYPE_MACHINE="MACHINE",
            MGMT_QUEUE_TYPE_CONNECTOR="CONNECTOR",
            MGMT_QUEUE_TYPE_MULTICAST="MULTICAST",
        ),
    )
    LOCATION = Row(
        4,
        VarType.LPWSTR,
        choices(MGMT_QUEUE_LOCAL_LOCATION="LOCAL", MGMT_QUEUE_REMOTE_LOCATION="REMOTE"),
    )
    XACT = Row(
        5,
        VarType.LPWSTR,
        choices(
            MGMT_QUEUE_UNKNOWN_TYPE="UNKNOWN",
            MGMT_QUEUE_TRANSACTIONAL_TYPE="YES",
            MGMT_QUEUE_NOT_TRANSACTIONAL_TYPE="NO",
        ),
    )
    FOREIGN = Row(
        6,
        VarType.LPWSTR,
        choices(
            MGMT_QUEUE_UNKNOWN_TYPE="UNKNOWN",
            MGMT_QUEUE_FOREIGN_TYPE="YES",
            MGMT_QUEUE_NOT_FOREIGN_TYPE="NO",
        ),
    )
    MESSAGE_COUNT = Row(7, VarType.UI4)
    BYTES_IN_QUEUE = Row(8, VarType.UI4, since=3)
    JOURNAL_MESSAGE_COUNT = Row(9, VarType.UI4)
    BYTES_IN_JOURNAL = Row(10, VarType.UI4, since=3)
    STATE = Row(
        11,
        VarType.LPWSTR,
        choices(
            MGMT_QUEUE_STATE_LOCAL="LOCAL CONNECTION",
            MGMT_QUEUE_STATE_NONACTIVE="INACTIVE",
            MGMT_QUEUE_STATE_WAITING="WAITING",
            MGMT_QUEUE_STATE_NEED_VALIDATE="NEED VALIDATION",
            MGMT_QUEUE_STATE_ONHOLD="ONHOLD",
            MGMT_QUEUE_STATE_CONNECTED="CONNECTED",
            MGMT_QUEUE_STATE_DISCONNECTING="DISCONNECTING",
            MGMT_QUEUE_STATE_DISCONNECTED="DISCONNECTED",
        ),
    )
    NEXTHOPS = Row(
        12,
        VarType.VECTOR_LPWSTR,
        Form('"IP=" IPv4address / "FOREIGN=" Guid / "IPv6=" IPv6address (RFC 3986)'),
    )
    EOD_LAST_ACK = Row(13, VarType.BLOB, _SEQUENCE_INFO)
    EOD_LAST_ACK_TIME = Row(14, VarType.I4)
    EOD_LAST_ACK_COUNT = Row(15, VarType.UI4)
    EOD_FIRST_NON_ACK = Row(16, VarType.BLOB, _SEQUENCE_INFO)
    EOD_LAST_NON_ACK = Row(17, VarType.BLOB, _SEQUENCE_INFO)
    EOD_NEXT_SEQ = Row(18, VarType.BLOB, _SEQUENCE_INFO)
    EOD_NO_READ_COUNT = Row(19, VarType.UI4)
    EOD_NO_ACK_COUNT = Row(20, VarType.UI4)
    EOD_RESEND_TIME = Row(21, VarType.I4)
    EOD_RESEND_INTERVAL = Row(22, VarType.UI4)
    EOD_RESEND_COUNT = Row(23, VarType.UI4)
    EOD_SOURCE_INFO = Row(
        24,
        VarType.VECTOR_VARIANT,
        Columns(
            (
                VarType.VECTOR_LPWSTR,
                VarType.VECTOR_CLSID,
                VarType.VECTOR_UI8,
                VarType.VECTOR_UI4,
                VarType.VECTOR_I4,
                VarType.VECTOR_UI4,
            )
        ),
    )
    # Each list of addresses is a VECTOR_LPWSTR of its own: an array of PROPVARIANTs (MQ-A29).
    CONNECTION_HISTORY = Row(
        25,
        VarType.VECTOR_VARIANT,
        Columns((VarType.VECTOR_UI4, VarType.VECTOR_I4, VarType.VECTOR_I4, VarType.VECTOR_VARIANT)),
    )
    SUBQUEUE_COUNT = Row(26, VarType.UI4)
    SUBQUEUE_NAMES = Row(27, VarType.VECTOR_LPWSTR, Form("Subqueue (2.1.1)"))


class DeletionProperty(Property, prefix="PROPID_D_", section="2.3.13"):
    """PROPID_D_* [MS-MQMQ 2.3.13]: a deletion notification."""

    SEQNUM = Row(1401, VarType.BLOB)
    PARTITIONID = Row(1402, VarType.CLSID)
    SCOPE = Row(1403, VarType.UI1, _SCOPE)
    OBJTYPE = Row(
        1404,
        VarType.UI1,
        choices(
            MQDS_QUEUE=1,
            MQDS_MACHINE=2,
            MQDS_SITE=3,
            MQDS_DELETEDOBJECT=4,
            MQDS_CN=5,
            MQDS_ENTERPRISE=6,
            MQDS_USER=7,
            MQDS_ROUTINGLINK=8,
        ),
    )
    IDENTIFIER = Row(1405, VarType.CLSID)


PROPERTY_KINDS: Final[tuple[type[Property], ...]] = (
    QueueProperty,
    MachineProperty,
    SiteProperty,
    ConnectedNetworkProperty,
    EnterpriseProperty,
    UserProperty,
    RoutingLinkProperty,
    SettingsProperty,
    MqUserProperty,
    ComputerProperty,
    MachineManagementProperty,
    QueueManagementProperty,
    DeletionProperty,
)
"""Every enumeration, in the order of the specification."""

_BY_NUMBER: Final = {(kind, member.number): member for kind in PROPERTY_KINDS for member in kind}
_BY_NAME: Final = {member.spec_name: member for kind in PROPERTY_KINDS for member in kind}


def property_by_number(kind: type[Property], number: int) -> Property | None:
    """Return the property of a kind of object that has this PROPID."""
    return _BY_NUMBER.get((kind, number))


def property_by_name(spec_name: str) -> Property | None:
    """Return the property with this name in the specification, such as PROPID_Q_LABEL."""
    return _BY_NAME.get(spec_name)
