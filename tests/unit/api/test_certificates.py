"""CertificateControl on one node: whose certificates a caller registers and sees."""

from __future__ import annotations

import grpc

from qm.api.gate.identity import Role, principal_sid
from qm.client.signing import new_signer
from qm.pb import control_pb2 as pb
from qm.pb import control_pb2_grpc
from qm.security.sid import sid_text
from tests.cluster.harness import run
from tests.unit.api.world import refused, world

INVALID = grpc.StatusCode.INVALID_ARGUMENT
ALICE = pb.Person(principal="alice")


def test_callers_register_for_themselves_and_admins_for_everybody() -> None:
    certificate = new_signer("alice", 1024, 30).certificate

    async def scenario() -> None:
        async with world(is_secure=True) as made:
            node = await made.leader()
            async with (
                made.channel(node, "alice", Role.CLIENT) as own,
                made.channel(node, "admin", Role.ADMIN) as admin,
            ):
                mine = control_pb2_grpc.CertificateControlStub(own)
                all_of_them = control_pb2_grpc.CertificateControlStub(admin)
                request = pb.RegisterCertificateRequest(certificate=certificate)
                reply = await mine.Register(request)
                assert reply.sid == sid_text(principal_sid("alice"))
                other = pb.RegisterCertificateRequest(
                    certificate=certificate, person=pb.Person(principal="bob")
                )
                with refused(grpc.StatusCode.PERMISSION_DENIED):
                    await mine.Register(other)
                await all_of_them.Register(other)
                with refused(grpc.StatusCode.PERMISSION_DENIED):
                    await mine.List(pb.ListCertificatesRequest(person=other.person))
                found = await all_of_them.List(pb.ListCertificatesRequest(person=ALICE))
                (shown,) = found.certificates
                assert (shown.key_bits, shown.subject) == (1024, "CN=alice")
                with refused(INVALID, field="certificate"):
                    await mine.Register(pb.RegisterCertificateRequest(certificate=b"junk"))
                with refused(INVALID, field="person.sid"):
                    await mine.List(pb.ListCertificatesRequest(person=pb.Person(sid="x")))
                with refused(INVALID, field="digest"):
                    await mine.Remove(pb.RemoveCertificateRequest(digest=b"short"))
                with refused(INVALID, field="if_not_exist"):
                    odd = pb.RegisterCertificateRequest(certificate=certificate, if_not_exist=True)
                    await mine.Register(odd)
                await mine.Remove(pb.RemoveCertificateRequest(digest=reply.digest))
                assert not (await mine.List(pb.ListCertificatesRequest())).certificates

    run(scenario())
