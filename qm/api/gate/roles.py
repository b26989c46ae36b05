"""Which roles may make which call, and which calls change something: one row per method.

A role admits a call; apply decides whether it may use a certain queue, by the queue's security
descriptor and the caller's SIDs.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from qm.api.gate.identity import Role

ADMINS: Final = frozenset({Role.ADMIN})
OPERATORS: Final = ADMINS | {Role.OPERATOR}
CLIENTS: Final = OPERATORS | {Role.CLIENT}
NODES: Final = OPERATORS | {Role.NODE}
"""For what nodes may also ask of each other over their relay endpoints."""

_DATA: Final = "quorate.data.v1.Data"
_CONTROL: Final = "quorate.control.v1"


class Rule(msgspec.Struct, frozen=True):
    """One method's row."""

    roles: frozenset[Role]
    is_change: bool
    """A control call that is recorded as an event."""


def _rules(
    service: str, roles: frozenset[Role], methods: Iterable[str], *, is_change: bool
) -> dict[str, Rule]:
    return {f"/{service}/{method}": Rule(roles, is_change) for method in methods}


def _reads(service: str, roles: frozenset[Role], *methods: str) -> dict[str, Rule]:
    return _rules(service, roles, methods, is_change=False)


def _changes(service: str, roles: frozenset[Role], *methods: str) -> dict[str, Rule]:
    return _rules(service, roles, methods, is_change=True)


RULES: Final[Mapping[str, Rule]] = {
    **_reads(_DATA, CLIENTS, "OpenSession", "RenewSession", "CloseSession", "Confirm"),
    **_reads(_DATA, CLIENTS, "OpenQueue", "CloseQueue", "CreateCursor", "CloseCursor"),
    **_reads(_DATA, CLIENTS, "Compose", "Send", "Receive", "Peek", "Cancel", "Complete", "Move"),
    **_reads(_DATA, CLIENTS, "StreamReceive", "BeginTransaction", "PrepareTransaction"),
    **_reads(_DATA, CLIENTS, "CommitTransaction", "AbortTransaction"),
    **_reads(f"{_CONTROL}.ClusterControl", NODES, "GetStatus", "ListMembers", "CanStop"),
    **_changes(f"{_CONTROL}.ClusterControl", NODES, "TransferLeadership", "Drain", "Undrain"),
    **_reads(f"{_CONTROL}.ClusterControl", OPERATORS, "GetScrub", "ListEvents"),
    **_changes(f"{_CONTROL}.ClusterControl", OPERATORS, "MarkAudit", "StartScrub"),
    **_changes(f"{_CONTROL}.ClusterControl", ADMINS, "AddMember", "RemoveMember"),
    **_changes(f"{_CONTROL}.ClusterControl", ADMINS, "PromoteMember", "ReplaceMember"),
    **_reads(f"{_CONTROL}.QueueControl", CLIENTS, "GetQueueManager", "ListQueues", "GetQueue"),
    **_reads(f"{_CONTROL}.QueueControl", CLIENTS, "GetAcl", "ExplainAcl"),
    **_changes(f"{_CONTROL}.QueueControl", CLIENTS, "CreateQueue", "SetQueue", "DeleteQueue"),
    **_changes(f"{_CONTROL}.QueueControl", CLIENTS, "PurgeQueue", "SetAcl"),
    **_changes(f"{_CONTROL}.QueueControl", ADMINS, "SetQueueManager"),
    **_reads(f"{_CONTROL}.OutgoingControl", OPERATORS, "ListOutgoing", "GetOutgoing"),
    **_changes(f"{_CONTROL}.OutgoingControl", OPERATORS, "Pause", "Resume", "Resend"),
    **_reads(f"{_CONTROL}.PeerControl", OPERATORS, "ListPeers", "GetPeer", "ListSessions"),
    **_changes(f"{_CONTROL}.PeerControl", ADMINS, "ForgetPeer"),
    **_reads(f"{_CONTROL}.KeyControl", CLIENTS, "GetKeys"),
    **_changes(f"{_CONTROL}.KeyControl", ADMINS, "ReplaceKeys"),
    **_reads(f"{_CONTROL}.DirectoryControl", OPERATORS, "ListObjects"),
    **_reads(f"{_CONTROL}.DirectoryControl", CLIENTS, "GetQueuePath"),
    **_changes(f"{_CONTROL}.DirectoryControl", ADMINS, "PutObject", "DeleteObject"),
    **_reads(f"{_CONTROL}.CertificateControl", CLIENTS, "List"),
    **_changes(f"{_CONTROL}.CertificateControl", CLIENTS, "Register", "Remove"),
    **_reads(f"{_CONTROL}.MessageControl", CLIENTS, "Browse", "GetMessage", "CountClasses"),
    **_changes(f"{_CONTROL}.MessageControl", OPERATORS, "ReturnToSource"),
    **_reads(f"{_CONTROL}.ClientControl", OPERATORS, "ListClients", "ListOpens"),
    **_reads(f"{_CONTROL}.ClientControl", OPERATORS, "ListTransactions", "ListOperations"),
    **_changes(f"{_CONTROL}.ClientControl", OPERATORS, "CloseClient"),
    **_changes(f"{_CONTROL}.ClientControl", ADMINS, "ResolveTransaction"),
    **_reads(f"{_CONTROL}.DefinitionControl", OPERATORS, "Export", "Diff"),
    **_changes(f"{_CONTROL}.DefinitionControl", ADMINS, "Import"),
    **_changes(f"{_CONTROL}.ConsoleControl", CLIENTS, "SignIn"),
    **_reads(f"{_CONTROL}.NodeControl", OPERATORS, "StreamEvents", "GetDiagnostics"),
    **_reads(f"{_CONTROL}.NodeControl", OPERATORS, "ListReports", "GetReport"),
    **_changes(f"{_CONTROL}.NodeControl", OPERATORS, "SetLogLevel"),
    **_changes(f"{_CONTROL}.NodeControl", ADMINS, "CreateBackup"),
}

PUBLIC_SERVICES: Final = frozenset(
    {"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
)
"""Open to every certificate of the cluster, including nodes'."""


def rule_of(method: str) -> Rule | None:
    """Return the row of a method, given as /service/method; None: no role may call it."""
    rule = RULES.get(method)
    if rule is None and method[1:].partition("/")[0] in PUBLIC_SERVICES:
        return Rule(frozenset(Role), is_change=False)
    return rule
