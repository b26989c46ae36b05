"""The commands of the replicated state machine (mqdmpr-guide section 10, DESIGN section 4).

A Raft entry is one batch of commands under one `Stamp`. Values here are what apply sees; the
protobuf form under proto/qm/pb belongs to `qm.store.codec`. Everything that needs a clock,
randomness, a resolver or a key is decided before the proposal and travels in the command; apply
decides every verdict from replicated state. The proposer chooses ids and sizes; GUIDs are 16 raw
packet bytes.

A command is one class, marked `declared`, and a message of the same fields in command.proto; its
effect is a method `apply_<op>` of one part of `qm.model.machine`.
"""

from qm.model.values.commands.arrivals import EdgeBatch, Facts, SignatureFact, TransferVerdict
from qm.model.values.commands.clients import (
    CancelRequests,
    CloseClient,
    CloseQueue,
    Confirm,
    Move,
    OpenClient,
    OpenQueue,
    ReadEnd,
    ReceiveRun,
    RenewClients,
    Selector,
    SelectorKind,
    Send,
    Target,
)
from qm.model.values.commands.cluster import (
    AuditMark,
    AuditResult,
    ClockTick,
    LeaderActivated,
    RaiseApplyVersion,
    RenumberStep,
    SetMember,
    StateRestored,
)
from qm.model.values.commands.declaration import (
    DECLARATIONS,
    POSITIONS_PER_MOVE,
    AtMostQueued,
    Command,
    Declaration,
    Fixed,
    OfClient,
    OfTransaction,
    RowsOf,
    ValueOf,
)
from qm.model.values.commands.delivery import (
    AssignTransfer,
    FinalAcked,
    OrderAcked,
    OutboxDone,
    TransferAcked,
    TransferFailed,
    TransferTraced,
)
from qm.model.values.commands.entry import CommandBatch, Request, Stamp
from qm.model.values.commands.management import (
    CreateQueue,
    DeleteQueue,
    DirectoryWrite,
    Provision,
    PurgeQueue,
    PurgeStep,
    RemoveOutgoingQueue,
    SetOutgoingAdminState,
    SetQueue,
    SetQueueManager,
)
from qm.model.values.commands.transactions import TxAbort, TxBegin, TxCommit, TxPrepare

__all__ = [
    "DECLARATIONS",
    "POSITIONS_PER_MOVE",
    "AssignTransfer",
    "AtMostQueued",
    "AuditMark",
    "AuditResult",
    "CancelRequests",
    "ClockTick",
    "CloseClient",
    "CloseQueue",
    "Command",
    "CommandBatch",
    "Confirm",
    "CreateQueue",
    "Declaration",
    "DeleteQueue",
    "DirectoryWrite",
    "EdgeBatch",
    "Facts",
    "FinalAcked",
    "Fixed",
    "LeaderActivated",
    "Move",
    "OfClient",
    "OfTransaction",
    "OpenClient",
    "OpenQueue",
    "OrderAcked",
    "OutboxDone",
    "Provision",
    "PurgeQueue",
    "PurgeStep",
    "RaiseApplyVersion",
    "ReadEnd",
    "ReceiveRun",
    "RemoveOutgoingQueue",
    "RenewClients",
    "RenumberStep",
    "Request",
    "RowsOf",
    "Selector",
    "SelectorKind",
    "Send",
    "SetMember",
    "SetOutgoingAdminState",
    "SetQueue",
    "SetQueueManager",
    "SignatureFact",
    "Stamp",
    "StateRestored",
    "Target",
    "TransferAcked",
    "TransferFailed",
    "TransferTraced",
    "TransferVerdict",
    "TxAbort",
    "TxBegin",
    "TxCommit",
    "TxPrepare",
    "ValueOf",
]
