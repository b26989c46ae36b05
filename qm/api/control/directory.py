"""DirectoryControl: the objects of the embedded directory, and paths of queues."""

from collections.abc import Mapping
from typing import Final

from typing_extensions import override

from qm.api.convert.values import encode_values, plain_of, shown_value
from qm.api.gate.calls import Context, caller
from qm.api.gate.errors import Conflict, InvalidArgument, MsmqError, NotFound, check
from qm.api.gate.operations import NotOffered, Operations
from qm.api.gate.pages import bytes_after, page_size, token_of
from qm.api.propose.control_once import UNNUMBERED, Decider, made_identifier
from qm.cluster.cluster import Cluster
from qm.model.management.directory import Filter, Operator
from qm.model.queries import get_queue_path, read_directory
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import Command, DirectoryWrite
from qm.model.values.directory_objects import (
    OBJECT_ATTRIBUTES,
    SEALED_PASSWORD,
    password_label,
)
from qm.model.values.elements import DirectoryObjectType, DirectoryOperationResult
from qm.model.values.limits import VERSION_OF_ACCOUNTS
from qm.names.grammar import is_host
from qm.names.guid import GUID_SIZE_BYTES, guid_text
from qm.pb import control_pb2 as pb
from qm.pb import control_pb2_grpc
from qm.security.passwords import is_verifier

PASSWORD_HASH: Final = "password_hash"
"""In PutObject of a user: the NT hash of its password, or a verifier of it, which NTLM cannot use
(`qm.security.passwords`); the node seals either. Empty for none."""
PASSWORD_HASH_SIZE_BYTES: Final = 16
FILTERS_MAX: Final = 32
ATTRIBUTES_MAX: Final = 128
_CLASSES: Final[Mapping[str, DirectoryObjectType]] = {
    kind.name.lower(): kind for kind in DirectoryObjectType
}
_OPERATORS: Final[Mapping[str, Operator]] = {
    "": Operator.EQUALS,
    "==": Operator.EQUALS,
    "!=": Operator.NOT_EQUALS,
    "<": Operator.LESS_THAN,
    ">": Operator.GREATER_THAN,
    "<=": Operator.LESS_THAN_OR_EQUAL,
    ">=": Operator.GREATER_THAN_OR_EQUAL,
}


class DirectoryControl(control_pb2_grpc.DirectoryControlServicer):
    """Implements `quorate.control.v1.DirectoryControl`."""

    def __init__(self, cluster: Cluster, operations: Operations, decider: Decider) -> None:
        self._cluster = cluster
        self._operations = operations
        self._decider = decider

    @override
    async def ListObjects(
        self, request: pb.ListObjectsRequest, context: Context
    ) -> pb.ListObjectsReply:
        kind = _class(request.object_class)
        if len(request.filters) > FILTERS_MAX or len(request.attributes) > ATTRIBUTES_MAX:
            raise InvalidArgument(
                "filters", f"at most {FILTERS_MAX} filters and {ATTRIBUTES_MAX} attributes"
            )
        filters = [_filter(given) for given in request.filters]
        size, after = page_size(request.page_size), bytes_after(request.page_token)
        await self._cluster.read_barrier()
        page = read_directory(
            self._cluster.view,
            kind,
            filters,
            attributes=list(request.attributes) or None,
            after=after,
            limit=size,
        )
        objects = [
            pb.DirectoryObject(
                identifier=one.identifier,
                attributes={name: shown_value(value) for name, value in one.attributes.items()},
            )
            for one in page.items
        ]
        return pb.ListObjectsReply(objects=objects, page_token=token_of(page.next))

    @override
    async def PutObject(self, request: pb.PutObjectRequest, context: Context) -> pb.PutObjectReply:
        kind = _writable(request.object_class)
        made = made_identifier(f"object {request.object_class}")
        identifier = _guid(request.identifier) if request.identifier else made
        _check_addresses(request.attributes)
        values = encode_values(OBJECT_ATTRIBUTES[kind], _named(request.attributes), "attributes")
        if PASSWORD_HASH in request.attributes:
            values[SEALED_PASSWORD] = await self._sealed(kind, request.attributes)

        def make() -> Command:
            return DirectoryWrite(UNNUMBERED, identifier, kind, values, caller().sids)

        outcome = await self._decider.once(request, make)
        check(outcome.status)
        if outcome.value != DirectoryOperationResult.SUCCESS:
            raise Conflict(
                "another object has this identifier, or an object of this class this name"
            )
        return pb.PutObjectReply(identifier=identifier)

    async def _sealed(self, kind: DirectoryObjectType, given: Mapping[str, pb.Value]) -> bytes:
        """Return the attribute that holds a password's hash, which is written and never read."""
        raw, sid = given[PASSWORD_HASH].data, given["security_identifier"].data
        field = f"attributes[{PASSWORD_HASH}]"
        if kind is not DirectoryObjectType.USER or not sid:
            raise InvalidArgument(field, "it needs a user with its security_identifier")
        await self._cluster.read_barrier()
        if self._cluster.view.counters().apply_version < VERSION_OF_ACCOUNTS:
            raise Conflict("first upgrade the members that do not run this release yet")
        if not raw:
            return encode_attribute(b"")
        if len(raw) != PASSWORD_HASH_SIZE_BYTES and not is_verifier(raw):
            raise InvalidArgument(
                field, f"an NT hash of {PASSWORD_HASH_SIZE_BYTES} bytes, or a verifier by scrypt"
            )
        try:
            sealed = await self._operations.sealed(raw, password_label(sid))
        except NotOffered as error:
            raise Conflict(f"{error}: call another node") from None
        return encode_attribute(sealed)

    @override
    async def DeleteObject(
        self, request: pb.DeleteObjectRequest, context: Context
    ) -> pb.DeleteObjectReply:
        kind, identifier = _writable(request.object_class), _guid(request.identifier)

        def make() -> Command:
            return DirectoryWrite(UNNUMBERED, identifier, kind, None, caller().sids)

        outcome = await self._decider.once(request, make)
        check(outcome.status)
        if outcome.value != DirectoryOperationResult.SUCCESS:
            raise NotFound(f"there is no object {guid_text(identifier)}")
        return pb.DeleteObjectReply()

    @override
    async def GetQueuePath(self, request: pb.GetQueuePathRequest, context: Context) -> pb.QueuePath:
        await self._cluster.read_barrier()
        found = get_queue_path(self._cluster.view, request.format_name)
        if found.status:
            raise MsmqError(found.status, f"{request.format_name!r} is not a format name")
        return pb.QueuePath(path_name=found.path_name, machine_name=found.machine_name)


def _named(given: Mapping[str, pb.Value]) -> dict[str, pb.Value]:
    """Return the attributes that the directory has by their names."""
    if SEALED_PASSWORD in given:
        raise InvalidArgument(
            f"attributes[{SEALED_PASSWORD}]", f"a node seals it; give {PASSWORD_HASH}"
        )
    return {name: value for name, value in given.items() if name != PASSWORD_HASH}


def _class(given: str) -> DirectoryObjectType:
    kind = _CLASSES.get(given)
    if kind is None:
        raise InvalidArgument("object_class", f"one of {', '.join(_CLASSES)}")
    return kind


def _writable(given: str) -> DirectoryObjectType:
    kind = _class(given)
    if kind not in OBJECT_ATTRIBUTES:
        raise InvalidArgument("object_class", f"a {given} is published as QueueControl sets it")
    return kind


def _guid(given: bytes) -> bytes:
    if len(given) != GUID_SIZE_BYTES:
        raise InvalidArgument("identifier", f"a GUID of {GUID_SIZE_BYTES} bytes")
    return given


def _check_addresses(given: Mapping[str, pb.Value]) -> None:
    """Refuse addresses of queue managers that nobody could connect to; apply takes any text."""
    if "addresses" not in given:
        return
    for text in given["addresses"].texts.items:
        if not is_host(text):
            raise InvalidArgument("attributes.addresses", f"{text!r}: an IP address or a host name")


def _filter(given: pb.DirectoryFilter) -> Filter:
    operator = _OPERATORS.get(given.operator)
    if operator is None:
        raise InvalidArgument("filters", f"operators are {' '.join(filter(None, _OPERATORS))}")
    return Filter(given.attribute, operator, plain_of(given.value, "filters"))
