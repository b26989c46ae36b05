"""Definitions: queues, their attributes and access lists, and the queue manager's settings, as a
YAML document that can be kept in version control and applied any number of times.

Only what differs from the default is written, so documents stay short and survive new defaults.
"""

import asyncio
from collections.abc import Mapping
from enum import IntFlag
from typing import Any, Final, Literal

import msgspec
import yaml

from qm.api.convert.acl import changed_descriptor, names_of, shown_acl
from qm.api.gate.errors import InvalidArgument
from qm.cluster.cluster import Cluster
from qm.model.queries import PAGE_ITEMS_MAX, list_clients, list_queues
from qm.model.values.attributes import QUEUE_ATTRIBUTES, QUEUE_MANAGER_ATTRIBUTES
from qm.model.values.elements import QueueKind, QueueType
from qm.model.values.records import Queue, QueueManager
from qm.names.guid import guid_from_text, guid_text
from qm.names.path_name import parse_path_name, path_name_text
from qm.pb import control_pb2 as pb
from qm.security.sid import Sid
from qm.wire.access_mask import MachineAccess, QueueAccess

DOCUMENT_MAX_BYTES: Final = 5 << 20
NESTING_MAX: Final = 20
"""Levels of lists and mappings in a document; four are of use."""
QUEUES_PER_PAGE: Final = 100
_LOCAL: Final = "."
_NOT_SETTINGS: Final = frozenset(
    {
        "security",  # written as `access`
        "public_encryption_key_list",  # the cluster's own
        "public_signing_key_list",
        "sealed_private_keys",
    }
)

QUEUE_SETTINGS: Final = sorted(QUEUE_ATTRIBUTES.keys() - _NOT_SETTINGS)
MANAGER_SETTINGS: Final = sorted(QUEUE_MANAGER_ATTRIBUTES.keys() - _NOT_SETTINGS)

Plain = bool | int | str | list[str]
"""A value in YAML; GUIDs are text."""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One line of an access list: `allow` or `deny` names the principal."""

    rights: list[str]
    allow: str = ""
    deny: str = ""


class Access(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An access list in order, and the owner of the queue."""

    entries: list[Entry]
    owner: str = ""


class QueueDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One application queue."""

    path_name: str
    attributes: dict[str, Plain] = {}
    access: Access | None = None
    """None: left unchanged; a new queue gets the default."""


class ManagerDefinition(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Settings of the queue manager."""

    attributes: dict[str, Plain] = {}
    access: Access | None = None


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole document."""

    version: Literal[1]
    queue_manager: ManagerDefinition = ManagerDefinition()
    queues: list[QueueDefinition] = []


# Text ----------------------------------------------------------------------------------------


# Pure Python takes several times as long, and other threads stand still meanwhile.
_Loader: Final[Any] = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_Dumper: Final[Any] = yaml.CSafeDumper if yaml.__with_libyaml__ else yaml.SafeDumper


def _check_shape(text: str) -> None:
    """Refuse aliases, with which a small document could expand to a huge one, and nesting that the
    loader's recursion would not survive. Raises YAMLError.
    """
    depth = 0
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError("anchors and aliases are not allowed")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > NESTING_MAX:
            raise yaml.YAMLError(f"nested deeper than {NESTING_MAX}")


def write_document(document: Document) -> str:
    """Return the YAML."""
    text: str = yaml.dump(
        msgspec.to_builtins(document),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=100,
    )
    return text


def read_document(text: str) -> Document:
    """Return what a YAML text defines. Raises InvalidArgument with the place of the mistake."""
    if len(text.encode()) > DOCUMENT_MAX_BYTES:
        raise InvalidArgument("document", f"at most {DOCUMENT_MAX_BYTES} bytes")
    try:
        _check_shape(text)
        document = msgspec.convert(yaml.load(text, _Loader), Document)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise InvalidArgument("document", str(error)) from None
    seen: set[str] = set()
    for queue in document.queues:
        name = queue.path_name.lower()
        if name in seen:
            raise InvalidArgument("document", f"{name!r} is defined twice")
        seen.add(name)
    return document


# Definitions of the state ------------------------------------------------------------------------


class Picture(msgspec.Struct, frozen=True):
    """Copies of what definitions are made from: they may be read in another thread."""

    manager: QueueManager
    queues: list[Queue]
    """Application queues."""
    names: dict[Sid, str]
    """Names of known SIDs."""


async def take_picture(cluster: Cluster, manager: QueueManager) -> Picture:
    """Return the state's picture, read page by page between other work of the loop."""
    clients = list_clients(cluster.view, limit=PAGE_ITEMS_MAX).items
    names = names_of({client.principal for client in clients})
    queues: list[Queue] = []
    after: int | None = 0
    while after is not None:
        view = cluster.view
        page = list_queues(view, after=after, limit=QUEUES_PER_PAGE, kinds=(QueueKind.APPLICATION,))
        for info in page.items:
            queue = view.ledger.queue(info.queue_id)
            if queue is not None and not queue.record.is_deleting:
                queues.append(msgspec.structs.replace(queue.record))
        after = page.next
        await asyncio.sleep(0)
    return Picture(msgspec.structs.replace(manager), queues, names)


def present(picture: Picture) -> Document:
    """Return the definitions of a picture, queues by path name."""

    def access(security: bytes, kind: type[IntFlag]) -> Access | None:
        return _access(shown_acl(security, 0, kind, picture.names)) if security else None

    fresh = QueueManager(identifier=bytes(16), computer_name="", qualified_computer_name="")
    queues = [
        QueueDefinition(
            local_path(record.pathname),
            settings_of(record, _fresh_queue(), QUEUE_SETTINGS),
            access(record.security, QueueAccess),
        )
        for record in picture.queues
    ]
    manager = ManagerDefinition(
        settings_of(picture.manager, fresh, MANAGER_SETTINGS),
        access(picture.manager.security, MachineAccess),
    )
    return Document(1, manager, sorted(queues, key=lambda queue: queue.path_name.lower()))


def local_path(path_name: str) -> str:
    """Return a path name without its computer, so that it is valid in every cluster."""
    return path_name_text(msgspec.structs.replace(parse_path_name(path_name), computer=_LOCAL))


def settings_of(
    record: Queue | QueueManager, default: Queue | QueueManager, names: list[str]
) -> dict[str, Plain]:
    """Return the settings that differ from their default."""
    return {
        name: to_plain(getattr(record, name))
        for name in names
        if getattr(record, name) != getattr(default, name)
    }


def _fresh_queue() -> Queue:
    return Queue(0, bytes(16), QueueKind.APPLICATION, QueueType.PRIVATE, "")


def _access(acl: pb.Acl) -> Access:
    entries = []
    for ace in acl.entries:
        whom = ace.principal or ace.sid
        rights = list(ace.rights)
        is_denied = ace.type == pb.DENY
        entries.append(Entry(rights, deny=whom) if is_denied else Entry(rights, allow=whom))
    return Access(entries, acl.owner or acl.owner_sid)


# Values --------------------------------------------------------------------------------------


def to_plain(value: Any) -> Plain:
    """Return an attribute's value for YAML."""
    if isinstance(value, bytes):
        return guid_text(value)
    if isinstance(value, tuple):
        return [guid_text(item) if isinstance(item, bytes) else str(item) for item in value]
    if isinstance(value, bool | str):
        return value
    return int(value)


def wanted_values(
    given: Mapping[str, Plain], known: Mapping[str, Any], names: list[str], where: str
) -> dict[str, pb.Value]:
    """Return settings as the API takes them. Raises InvalidArgument."""
    values = {}
    for name, plain in given.items():
        if name not in names:
            raise InvalidArgument(
                "document",
                f"{where}: {name!r} is not a setting; the settings are {', '.join(names)}",
            )
        try:
            values[name] = _value(known[name].kind, plain)
        except (TypeError, ValueError):
            raise InvalidArgument("document", f"{where}: {name} cannot be {plain!r}") from None
    return values


def _value(kind: Any, plain: Plain) -> pb.Value:
    if kind is bool and isinstance(plain, bool):
        return pb.Value(flag=plain)
    if kind is int and isinstance(plain, int) and not isinstance(plain, bool):
        return pb.Value(number=plain)
    if kind is str and isinstance(plain, str):
        return pb.Value(text=plain)
    if kind is bytes and isinstance(plain, str):
        return pb.Value(data=_guid(plain))
    if kind == tuple[str, ...] and isinstance(plain, list):
        return pb.Value(texts=pb.TextList(items=plain))
    if kind == tuple[bytes, ...] and isinstance(plain, list):
        return pb.Value(datas=pb.DataList(items=[_guid(item) for item in plain]))
    raise TypeError


def _guid(text: str) -> bytes:
    raw = guid_from_text(text)
    if raw is None:
        raise ValueError(text)
    return raw


def wanted_descriptor(access: Access, security: bytes, kind: type[IntFlag], where: str) -> bytes:
    """Return the security descriptor that an access list asks for. Raises InvalidArgument."""
    try:
        aces = [_ace(entry) for entry in access.entries]
        return changed_descriptor(security, aces, access.owner, kind)
    except InvalidArgument as error:
        raise InvalidArgument("document", f"{where}: access: {error}") from None


def _ace(entry: Entry) -> pb.Ace:
    if bool(entry.allow) == bool(entry.deny):
        raise InvalidArgument("entries", "each has either `allow` or `deny`")
    whom = entry.allow or entry.deny
    ace = pb.Ace(type=pb.ALLOW if entry.allow else pb.DENY, rights=entry.rights)
    if whom.upper().startswith("S-1-"):
        ace.sid = whom
    else:
        ace.principal = whom
    return ace
