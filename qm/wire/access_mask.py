"""Access masks of the five kinds of object [MS-MQMQ 2.2.23 to 2.2.27].

Each mask is a 32-bit integer of an ACCESS_MASK [MS-DTYP 2.4.3]. Members leave out the prefix
`MQSEC_`; a composite right needs every bit that it names.
"""

from enum import IntFlag
from typing import Final

import msgspec

GENERIC_ALL: Final = 0x1000_0000
GENERIC_EXECUTE: Final = 0x2000_0000
GENERIC_WRITE: Final = 0x4000_0000
GENERIC_READ: Final = 0x8000_0000
"""The generic rights of an ACCESS_MASK [MS-DTYP 2.4.3], which each kind of object maps."""


class MachineAccess(IntFlag):
    """MQQMACCESSMASK [MS-MQMQ 2.2.23]: rights to a queue manager."""

    DELETE_DEADLETTER_MESSAGE = 0x0000_0001
    PEEK_DEADLETTER_MESSAGE = 0x0000_0002
    CREATE_QUEUE = 0x0000_0004
    SET_MACHINE_PROPERTIES = 0x0000_0010
    GET_MACHINE_PROPERTIES = 0x0000_0020
    DELETE_JOURNAL_QUEUE_MESSAGE = 0x0000_0040
    PEEK_JOURNAL_QUEUE_MESSAGE = 0x0000_0080
    DELETE_MACHINE = 0x0001_0000
    GET_MACHINE_PERMISSIONS = 0x0002_0000
    CHANGE_MACHINE_PERMISSIONS = 0x0004_0000
    TAKE_MACHINE_OWNERSHIP = 0x0008_0000

    RECEIVE_DEADLETTER_MESSAGE = DELETE_DEADLETTER_MESSAGE | PEEK_DEADLETTER_MESSAGE
    RECEIVE_JOURNAL_QUEUE_MESSAGE = DELETE_JOURNAL_QUEUE_MESSAGE | PEEK_JOURNAL_QUEUE_MESSAGE
    MACHINE_WORLD_RIGHTS = GET_MACHINE_PROPERTIES | GET_MACHINE_PERMISSIONS
    MACHINE_GENERIC_READ = (
        MACHINE_WORLD_RIGHTS | RECEIVE_DEADLETTER_MESSAGE | RECEIVE_JOURNAL_QUEUE_MESSAGE
    )
    MACHINE_GENERIC_WRITE = MACHINE_WORLD_RIGHTS | CREATE_QUEUE
    MACHINE_GENERIC_ALL = (
        MACHINE_GENERIC_READ
        | CREATE_QUEUE
        | SET_MACHINE_PROPERTIES
        | DELETE_MACHINE
        | CHANGE_MACHINE_PERMISSIONS
        | TAKE_MACHINE_OWNERSHIP
    )


class QueueAccess(IntFlag):
    """MQQUEUEACCESSMASK [MS-MQMQ 2.2.24]: rights to a queue and its journal."""

    DELETE_MESSAGE = 0x0000_0001
    PEEK_MESSAGE = 0x0000_0002
    WRITE_MESSAGE = 0x0000_0004
    DELETE_JOURNAL_MESSAGE = 0x0000_0008
    SET_QUEUE_PROPERTIES = 0x0000_0010
    GET_QUEUE_PROPERTIES = 0x0000_0020
    DELETE_QUEUE = 0x0001_0000
    GET_QUEUE_PERMISSIONS = 0x0002_0000
    CHANGE_QUEUE_PERMISSIONS = 0x0004_0000
    TAKE_QUEUE_OWNERSHIP = 0x0008_0000

    RECEIVE_MESSAGE = DELETE_MESSAGE | PEEK_MESSAGE
    # A journal has no peek bit of its own; the queue's bit covers both.
    RECEIVE_JOURNAL_MESSAGE = DELETE_JOURNAL_MESSAGE | PEEK_MESSAGE
    QUEUE_GENERIC_READ = (
        GET_QUEUE_PROPERTIES | GET_QUEUE_PERMISSIONS | RECEIVE_MESSAGE | RECEIVE_JOURNAL_MESSAGE
    )
    QUEUE_GENERIC_WRITE = GET_QUEUE_PROPERTIES | GET_QUEUE_PERMISSIONS | WRITE_MESSAGE
    QUEUE_GENERIC_ALL = (
        QUEUE_GENERIC_READ
        | WRITE_MESSAGE
        | SET_QUEUE_PROPERTIES
        | DELETE_QUEUE
        | CHANGE_QUEUE_PERMISSIONS
        | TAKE_QUEUE_OWNERSHIP
    )


class SiteAccess(IntFlag):
    """MQSITEACCESSMASK [MS-MQMQ 2.2.25]: rights to a site."""

    CREATE_FRS = 0x0000_0001
    """Add a routing server."""
    CREATE_BSC = 0x0000_0002
    """Add a backup site controller."""
    CREATE_MACHINE = 0x0000_0004
    SET_SITE_PROPERTIES = 0x0000_0010
    GET_SITE_PROPERTIES = 0x0000_0020
    DELETE_SITE = 0x0001_0000
    GET_SITE_PERMISSIONS = 0x0002_0000
    CHANGE_SITE_PERMISSIONS = 0x0004_0000
    TAKE_SITE_OWNERSHIP = 0x0008_0000

    SITE_GENERIC_READ = GET_SITE_PROPERTIES | GET_SITE_PERMISSIONS
    SITE_GENERIC_WRITE = SITE_GENERIC_READ | CREATE_MACHINE
    SITE_GENERIC_ALL = (
        SITE_GENERIC_WRITE
        | CREATE_FRS
        | CREATE_BSC
        | SET_SITE_PROPERTIES
        | DELETE_SITE
        | CHANGE_SITE_PERMISSIONS
        | TAKE_SITE_OWNERSHIP
    )


class EnterpriseAccess(IntFlag):
    """MQENTACCESSMASK [MS-MQMQ 2.2.26]: rights to the enterprise."""

    CREATE_USER = 0x0000_0001
    CREATE_SITE = 0x0000_0002
    CREATE_CN = 0x0000_0004
    """Create a connected network."""
    SET_ENTERPRISE_PROPERTIES = 0x0000_0010
    GET_ENTERPRISE_PROPERTIES = 0x0000_0020
    DELETE_ENTERPRISE = 0x0001_0000
    GET_ENTERPRISE_PERMISSIONS = 0x0002_0000
    CHANGE_ENTERPRISE_PERMISSIONS = 0x0004_0000
    TAKE_ENTERPRISE_OWNERSHIP = 0x0008_0000

    ENTERPRISE_GENERIC_READ = CREATE_USER | GET_ENTERPRISE_PROPERTIES | GET_ENTERPRISE_PERMISSIONS
    ENTERPRISE_GENERIC_WRITE = ENTERPRISE_GENERIC_READ | CREATE_SITE | CREATE_CN
    ENTERPRISE_GENERIC_ALL = (
        ENTERPRISE_GENERIC_WRITE
        | SET_ENTERPRISE_PROPERTIES
        | DELETE_ENTERPRISE
        | CHANGE_ENTERPRISE_PERMISSIONS
        | TAKE_ENTERPRISE_OWNERSHIP
    )


class ConnectedNetworkAccess(IntFlag):
    """MQCNACCESSMASK [MS-MQMQ 2.2.27]: rights to a connected network."""

    CN_OPEN_CONNECTOR = 0x0000_0001
    SET_CN_PROPERTIES = 0x0000_0010
    GET_CN_PROPERTIES = 0x0000_0020
    DELETE_CN = 0x0001_0000
    GET_CN_PERMISSIONS = 0x0002_0000
    CHANGE_CN_PERMISSIONS = 0x0004_0000
    TAKE_CN_OWNERSHIP = 0x0008_0000

    CN_GENERIC_READ = GET_CN_PROPERTIES | GET_CN_PERMISSIONS
    # Printed as SEC_CN_GENERIC_ALL, the one name without the prefix.
    CN_GENERIC_ALL = (
        CN_GENERIC_READ
        | CN_OPEN_CONNECTOR
        | SET_CN_PROPERTIES
        | DELETE_CN
        | CHANGE_CN_PERMISSIONS
        | TAKE_CN_OWNERSHIP
    )


class GenericMapping(msgspec.Struct, frozen=True, gc=False):
    """What the generic rights mean for one kind of object: u32 masks, 0 where none is specified."""

    read: int
    write: int
    all: int
    execute: int = 0

    def map_generic(self, mask: int) -> int:
        """Return `mask` with its generic bits replaced by the rights they stand for."""
        specific = mask & ~(GENERIC_READ | GENERIC_WRITE | GENERIC_EXECUTE | GENERIC_ALL)
        for bit, rights in (
            (GENERIC_READ, self.read),
            (GENERIC_WRITE, self.write),
            (GENERIC_EXECUTE, self.execute),
            (GENERIC_ALL, self.all),
        ):
            if mask & bit:
                specific |= rights
        return specific


MACHINE_GENERIC_MAPPING: Final = GenericMapping(
    read=MachineAccess.MACHINE_GENERIC_READ.value,
    write=MachineAccess.MACHINE_GENERIC_WRITE.value,
    all=MachineAccess.MACHINE_GENERIC_ALL.value,
)
QUEUE_GENERIC_MAPPING: Final = GenericMapping(
    read=QueueAccess.QUEUE_GENERIC_READ.value,
    write=QueueAccess.QUEUE_GENERIC_WRITE.value,
    all=QueueAccess.QUEUE_GENERIC_ALL.value,
)
SITE_GENERIC_MAPPING: Final = GenericMapping(
    read=SiteAccess.SITE_GENERIC_READ.value,
    write=SiteAccess.SITE_GENERIC_WRITE.value,
    all=SiteAccess.SITE_GENERIC_ALL.value,
)
ENTERPRISE_GENERIC_MAPPING: Final = GenericMapping(
    read=EnterpriseAccess.ENTERPRISE_GENERIC_READ.value,
    write=EnterpriseAccess.ENTERPRISE_GENERIC_WRITE.value,
    all=EnterpriseAccess.ENTERPRISE_GENERIC_ALL.value,
)
CONNECTED_NETWORK_GENERIC_MAPPING: Final = GenericMapping(
    read=ConnectedNetworkAccess.CN_GENERIC_READ.value,
    write=0,
    all=ConnectedNetworkAccess.CN_GENERIC_ALL.value,
)
