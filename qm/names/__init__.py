"""Queue names of MSMQ: read, print, compare, and tell whether they are local (MS-MQMQ 2.1). Pure;
imports nothing of `qm`.

Any text ends in a value or in a `QueueNameError` that carries the MQ_ERROR code to answer.
"""

from qm.names.alias import LocalAliases
from qm.names.capability import check_sendable, check_transport
from qm.names.conversion import direct_of_path, path_of_direct
from qm.names.direct import DirectAddress, DirectName, DirectProtocol, DirectSystemName
from qm.names.errors import FormatNameError, PathNameError, QueueNameError
from qm.names.format_name import (
    ConnectorName,
    DistributionListName,
    FormatName,
    MachineName,
    MulticastName,
    MultipleElementName,
    PrivateName,
    PublicName,
    SingleFormatName,
    format_name_key,
    format_name_text,
    is_read_only,
    parse_direct_format_name,
    parse_format_name,
    parse_multiple_element_name,
)
from qm.names.grammar import NameVersion, SystemQueue
from qm.names.path_name import (
    PathKind,
    PathName,
    parse_path_name,
    path_name_key,
    path_name_text,
)

__all__ = [
    "ConnectorName",
    "DirectAddress",
    "DirectName",
    "DirectProtocol",
    "DirectSystemName",
    "DistributionListName",
    "FormatName",
    "FormatNameError",
    "LocalAliases",
    "MachineName",
    "MulticastName",
    "MultipleElementName",
    "NameVersion",
    "PathKind",
    "PathName",
    "PathNameError",
    "PrivateName",
    "PublicName",
    "QueueNameError",
    "SingleFormatName",
    "SystemQueue",
    "check_sendable",
    "check_transport",
    "direct_of_path",
    "format_name_key",
    "format_name_text",
    "is_read_only",
    "parse_direct_format_name",
    "parse_format_name",
    "parse_multiple_element_name",
    "parse_path_name",
    "path_name_key",
    "path_name_text",
    "path_of_direct",
]
