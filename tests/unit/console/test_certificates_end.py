"""A session that a certificate began ends with the certificate."""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from qm.api.gate.identity import Role, principal_of
from qm.client.calls import Calls, Tls
from qm.console.people import of_certificate
from qm.console.sign_ins import SignIns
from qm.node.config.schema import API_PORT, CONSOLE_PORT
from qm.node.upkeep.pki import AUTHORITY_CERTIFICATE, AUTHORITY_KEY, issue
from qm.pb import control_pb2 as pb
from tests.unit.api.world import eventually
from tests.unit.client.world import Clients, scenario
from tests.unit.console.world import Browser, browser

LASTS_S = 12
"""Enough for signing in on a machine that others use, too."""


def shortened(folder: Path, certificate: Path, lasts: timedelta) -> None:
    """Have a certificate end soon; its authority signs it again."""
    old = x509.load_pem_x509_certificate(certificate.read_bytes())
    key = serialization.load_pem_private_key((folder / AUTHORITY_KEY).read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    authority = x509.load_pem_x509_certificate((folder / AUTHORITY_CERTIFICATE).read_bytes())
    builder = x509.CertificateBuilder(
        authority.subject,
        old.subject,
        old.public_key(),
        old.serial_number,
        datetime.now(UTC) - timedelta(hours=1),
        datetime.now(UTC) + lasts,
    )
    for one in old.extensions:
        builder = builder.add_extension(one.value, one.critical)
    signed = builder.sign(key, hashes.SHA256())
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))


async def address_of(made: Clients, host: str, certificate: Path, key: Path) -> str:
    """What `qm console` prints for the holder of a certificate, as a path."""
    wire = Calls([f"{host}:{API_PORT}"], Tls(made.tls.authority, certificate, key))
    reply = await wire.call(lambda stubs: stubs.console.SignIn, pb.SignInRequest())
    await wire.close()
    return str(reply.url).removeprefix(f"https://{host}:{CONSOLE_PORT}")


@scenario()
async def test_sessions_end_with_the_certificate_that_began_them(made: Clients) -> None:
    folder = made.tls.authority.parent
    certificate, key = issue(folder, "oscar", Role.OPERATOR)
    shortened(folder, certificate, timedelta(seconds=LASTS_S))
    tls = ssl.create_default_context(cafile=str(made.tls.authority))
    tls.load_cert_chain(certificate, key)
    async with browser(made, tls) as shows_it, browser(made) as has_code:
        path = await address_of(made, has_code.host, certificate, key)
        for found, way in ((shows_it, "/sign-in"), (has_code, path)):
            status, text = await found.get(way)
            assert (status, "oscar (operator)" in text) == (200, True)
        for found in (shows_it, has_code):

            async def seen(found: Browser = found) -> int:
                await asyncio.sleep(0.2)
                return (await found.get("/queues"))[0]

            await eventually(seen, lambda status: status != 200, 3.0 * LASTS_S)
            # Nor does the same connection begin a new one, whose handshake is older.
            assert (await found.get("/sign-in"))[0] == 401


def test_a_certificate_that_cannot_be_read_proves_nothing() -> None:
    secrets = iter("abcdefgh")
    sign_ins = SignIns(lambda: 0.0, lambda: next(secrets))
    who = principal_of("oscar", Role.OPERATOR)
    unreadable = of_certificate(who, b"no certificate", lambda _: False)
    assert sign_ins.redeem(sign_ins.code_for(unreadable)) is None
    assert sign_ins.find(sign_ins.begin(unreadable)) is None
