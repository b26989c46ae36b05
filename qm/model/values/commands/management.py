"""Queues, the queue manager and its directory."""

from qm.model.values.commands.declaration import Command, Fixed, ValueOf, declared
from qm.model.values.commands.entry import Request


@declared(weight=Fixed(1), since=1)
class Provision(Command, frozen=True, gc=False):
    """Creation of the cluster: identity, system queues, defaults; accepted once."""

    queue_manager: bytes
    computer_name: str
    qualified_computer_name: str
    aliases: tuple[str, ...]
    realm: bytes
    tx_time_stamp: int
    sealed_private_keys: bytes
    public_keys: bytes


@declared(weight=Fixed(1), since=1)
class SetQueueManager(Command, frozen=True, gc=False):
    """Change attributes by their names in the specification; values are canonical msgpack."""

    request: Request
    changes: dict[str, bytes]
    sender_sids: tuple[bytes, ...]
    if_version: int | None = None


@declared(weight=Fixed(1), since=6)
class SetManagerKeys(Command, frozen=True, gc=False):
    """The queue manager's key pairs: those of its birth are published, or new ones replace them."""

    request: Request
    sealed_private_keys: bytes
    """A KeyRing, sealed; it holds what is replaced for as long as that is accepted."""
    exchange_keys: bytes
    """PublicEncryptionKeyList, MQDSPUBLICKEYS."""
    signing_keys: bytes
    """PublicSigningKeyList, likewise."""
    generation: int
    """The present generation: its keys are published. The next one: they replace the present."""
    accepted_ms: int
    """How long the present keys are accepted from now on, once they are replaced."""
    sender_sids: tuple[bytes, ...]


@declared(weight=Fixed(1), since=1)
class CreateQueue(Command, frozen=True, gc=False):
    """[MS-MQDMPR] 3.1.7.1.3; a public queue and its directory object appear together."""

    request: Request
    identifier: bytes
    journal_identifier: bytes
    pathname: str
    attributes: dict[str, bytes]
    security_descriptor: bytes
    sender_sids: tuple[bytes, ...]


@declared(weight=Fixed(1), since=1)
class DeleteQueue(Command, frozen=True, gc=False):
    """[MS-MQDMPR] 3.1.7.1.4: the queue is hidden at once and settled by PurgeStep."""

    request: Request
    queue_id: int
    sender_sids: tuple[bytes, ...]


@declared(weight=Fixed(1), since=1)
class SetQueue(Command, frozen=True, gc=False):
    """Change properties in place."""

    request: Request
    queue_id: int
    changes: dict[str, bytes]
    sender_sids: tuple[bytes, ...]
    if_version: int | None = None


@declared(weight=Fixed(1), since=1)
class PurgeQueue(Command, frozen=True, gc=False):
    """[MS-MQDMPR] 3.1.7.1.7: sets the watermark; PurgeStep settles."""

    request: Request
    queue_id: int
    sender_sids: tuple[bytes, ...]


@declared(weight=ValueOf("count"), since=1)
class PurgeStep(Command, frozen=True, gc=False):
    """Settle at most `count` hidden positions with their consequences (at most 4,096)."""

    queue_id: int
    count: int


@declared(weight=Fixed(1), since=1)
class SetOutgoingAdminState(Command, frozen=True, gc=False):
    """Pause or resume ([MS-MQDMPR] 3.1.7.2.3, .4)."""

    request: Request
    queue_id: int
    admin_state: int
    sender_sids: tuple[bytes, ...]


@declared(weight=Fixed(1), since=1)
class RemoveOutgoingQueue(Command, frozen=True, gc=False):
    """Remove it only if it is empty and nothing of its sequence is pending."""

    queue_id: int


@declared(weight=Fixed(1), since=1)
class DirectoryWrite(Command, frozen=True, gc=False):
    """Create (no object yet), change or delete (attributes None) a directory object."""

    request: Request
    identifier: bytes
    object_type: int
    attributes: dict[str, bytes] | None
    sender_sids: tuple[bytes, ...]


@declared(weight=Fixed(1), since=6)
class RegisterCertificate(Command, frozen=True, gc=False):
    """RegisterCertificate ([MC-MQAC] 3.2.4.2.1): add a certificate to a user, who may be new.

    The value is MQ_INFORMATION_INTERNAL_USER_CERT_EXIST's or the certificate's identifier.
    """

    request: Request
    sid: bytes
    name: str
    """Of a user who is new."""
    user_identifier: bytes
    """Of a user who is new: a GUID."""
    certificate: bytes
    """X.509, DER."""
    digest: bytes
    """MD5 of it, as the directory has it."""
    identifier: bytes
    """Of the certificate: a GUID."""
    is_internal: bool
    """It replaces the internal one that the user had."""
    is_conditional: bool
    """MQCERT_REGISTER_IF_NOT_EXIST: nothing changes if there is an internal one."""
    sender_sids: tuple[bytes, ...]


@declared(weight=Fixed(1), since=6)
class RemoveCertificate(Command, frozen=True, gc=False):
    """Remove the certificates of a digest from a user."""

    request: Request
    sid: bytes
    digest: bytes
    sender_sids: tuple[bytes, ...]
