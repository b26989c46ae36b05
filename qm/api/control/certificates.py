"""CertificateControl: certificates with which people sign their messages."""

from typing_extensions import override

from qm.api.gate.calls import Context, caller
from qm.api.gate.errors import Conflict, InvalidArgument, NotFound, NotPermitted, check
from qm.api.gate.identity import PRINCIPAL_MAX_CHARS, Role, principal_sid
from qm.api.propose.control_once import UNNUMBERED, Decider, made_identifier
from qm.cluster.cluster import Cluster
from qm.model.queries.people import internal_digest, user_certificates
from qm.model.values.commands import Command, RegisterCertificate, RemoveCertificate
from qm.model.values.elements import DirectoryOperationResult
from qm.model.values.limits import VERSION_OF_PEOPLE
from qm.pb import control_pb2 as pb
from qm.pb import control_pb2_grpc
from qm.security.certificates import UnusableCertificate, described
from qm.security.sid import Sid, sid_from_text, sid_text
from qm.wire.codes import MQ_OK, ErrorCode
from qm.wire.errors import ValueOutOfRange
from qm.wire.structures.user_certificate import (
    DIGEST_SIZE_BYTES,
    UserCertificate,
    certificate_digest,
)


class CertificateControl(control_pb2_grpc.CertificateControlServicer):
    """Implements `quorate.control.v1.CertificateControl`."""

    def __init__(self, cluster: Cluster, decider: Decider) -> None:
        self._cluster = cluster
        self._decider = decider

    @override
    async def Register(
        self, request: pb.RegisterCertificateRequest, context: Context
    ) -> pb.RegisterCertificateReply:
        sid, name = _person(request.person)
        _require_own(sid)
        if request.if_not_exist and not request.is_internal:
            raise InvalidArgument("if_not_exist", "it is said of internal certificates alone")
        try:
            described(request.certificate)
        except UnusableCertificate as error:
            raise InvalidArgument("certificate", str(error)) from None
        digest = certificate_digest(request.certificate)

        def make() -> Command:
            self._require_version()
            return RegisterCertificate(
                *(UNNUMBERED, sid, name, made_identifier("user"), request.certificate, digest),
                *(made_identifier("certificate"), request.is_internal, request.if_not_exist),
                caller().sids,
            )

        outcome = await self._decider.once(request, make)
        is_kept = outcome.status == ErrorCode.MQ_INFORMATION_INTERNAL_USER_CERT_EXIST
        if not is_kept:
            check(outcome.status)
            if outcome.value != DirectoryOperationResult.SUCCESS:
                raise Conflict("another object has the identifier of this call: call again")
        return pb.RegisterCertificateReply(
            status=outcome.status if is_kept else MQ_OK, sid=sid_text(sid), digest=digest
        )

    @override
    async def Remove(
        self, request: pb.RemoveCertificateRequest, context: Context
    ) -> pb.RemoveCertificateReply:
        sid, _ = _person(request.person)
        _require_own(sid)
        if len(request.digest) != DIGEST_SIZE_BYTES:
            raise InvalidArgument("digest", f"a digest of {DIGEST_SIZE_BYTES} bytes")

        def make() -> Command:
            self._require_version()
            return RemoveCertificate(UNNUMBERED, sid, request.digest, caller().sids)

        outcome = await self._decider.once(request, make)
        check(outcome.status)
        if outcome.value != DirectoryOperationResult.SUCCESS:
            raise NotFound(f"{sid_text(sid)} has no certificate {request.digest.hex()}")
        return pb.RemoveCertificateReply()

    @override
    async def List(
        self, request: pb.ListCertificatesRequest, context: Context
    ) -> pb.ListCertificatesReply:
        sid, _ = _person(request.person)
        who = caller()
        if who.role is Role.CLIENT and sid not in who.sids:
            raise NotPermitted("certificates of others are shown to operators and admins")
        await self._cluster.read_barrier()
        internal = internal_digest(self._cluster.view, sid)
        return pb.ListCertificatesReply(
            sid=sid_text(sid),
            certificates=[
                _shown(one, one.digest == internal)
                for one in user_certificates(self._cluster.view, sid)
            ],
        )

    def _require_version(self) -> None:
        if self._cluster.view.counters().apply_version < VERSION_OF_PEOPLE:
            raise Conflict("first upgrade the members that do not run this release yet")


def _person(given: pb.Person) -> tuple[Sid, str]:
    """Return the SID of who is meant, and the name if it is known. Raises InvalidArgument."""
    who = given.WhichOneof("who")
    if who == "sid":
        try:
            return sid_from_text(given.sid), ""
        except ValueOutOfRange as error:
            raise InvalidArgument("person.sid", str(error)) from None
    if who == "principal":
        if not 1 <= len(given.principal) <= PRINCIPAL_MAX_CHARS:
            raise InvalidArgument("person.principal", f"1 to {PRINCIPAL_MAX_CHARS} characters")
        return principal_sid(given.principal), given.principal
    if not caller().is_authenticated:
        raise InvalidArgument(
            "person", "this caller has no name: say for whom, by SID or principal"
        )
    return caller().sids[0], caller().name


def _require_own(sid: Sid) -> None:
    """Raise NotPermitted unless the caller may say what another signs with."""
    if caller().role is not Role.ADMIN and sid not in caller().sids:
        raise NotPermitted("admins alone register and remove certificates of others")


def _shown(one: UserCertificate, is_internal: bool) -> pb.SignerCertificate:
    shown = pb.SignerCertificate(
        digest=one.digest,
        identifier=one.identifier,
        certificate=one.certificate,
        is_internal=is_internal,
    )
    try:
        found = described(one.certificate)
    except UnusableCertificate:
        return shown
    shown.subject, shown.issuer = found.subject, found.issuer
    shown.not_before_s, shown.not_after_s = found.not_before_s, found.not_after_s
    shown.key_bits = found.key_bits
    return shown
