"""Read from a node by Kerberos in an Active Directory: `python -m tests.rpc_peers.domain PYTHON`.

Samba's domain controller and the node run in a network namespace of their own, on loopback; this
needs root, Debian's samba-ad-dc (`make deps-system`) and the package gssapi. `PYTHON` has impacket.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from qm.pb import control_pb2
from qm.rpc.client import RpcClient
from qm.rpc.interface import Fault
from qm.rpc.pdu.codes import AuthLevel, AuthType
from qm.rpc.remote_read.interface import REMOTE_READ
from qm.rpc.security.kerberos import KerberosClient
from qm.rpc.security.provider import Provider
from qm.rpc.security.spnego import OID_KERBEROS, OID_KERBEROS_MS, SpnegoClient
from tests.cluster.harness import run
from tests.rpc_peers import namespace, report
from tests.unit.rpc.reading import ORDERS, RPC_PORT, RemoteReader, RpcWorld, rpc_world, with_orders

HERE = Path(__file__).parent
REALM, DOMAIN = "QUORATE.TEST", "QUORATE"
HOST = "queues.quorate.test"
CONTROLLER = "127.0.0.1"
KERBEROS_PORT = 88
PASSWORD = "Passw0rd.of.tests"
SYSTEM_PYTHON = "/usr/bin/python3"
UP_WITHIN_S = 60.0


class Domain:
    """A domain with the users alice, of the group readers, and bob; and a node's account."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = folder / "domain" / "etc" / "smb.conf"
        self.keytab = folder / "quorate.keytab"
        (folder / "krb5.conf").write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n rdns = false\n"
            " dns_canonicalize_hostname = false\n udp_preference_limit = 1\n"
            f"[realms]\n {REALM} = {{\n  kdc = {CONTROLLER}\n }}\n"
            f"[domain_realm]\n .quorate.test = {REALM}\n"
        )
        os.environ["KRB5_CONFIG"] = str(folder / "krb5.conf")

    def provision(self) -> None:
        (self.folder / "domain").mkdir()
        for kind in ("pid", "lock"):
            (self.folder / "domain" / kind).mkdir()
        self._tool(
            "domain", "provision", f"--realm={REALM}", f"--domain={DOMAIN}", "--server-role=dc",
            f"--adminpass={PASSWORD}", "--dns-backend=SAMBA_INTERNAL", "--host-name=dc1",
            f"--host-ip={CONTROLLER}", f"--targetdir={self.folder / 'domain'}",
            f"--option=interfaces={CONTROLLER}", "--option=bind interfaces only=yes",
            *(
                f"--option={kind} directory={self.folder / 'domain' / kind}"
                for kind in ("pid", "lock")
            ),
            f"--option=log file={self.folder / 'log.%m'}",
        )  # fmt: skip
        at = (f"--configfile={self.settings}",)
        for user in ("alice", "bob", "quorate"):
            self._tool("user", "create", user, PASSWORD, *at)
        self._tool("group", "add", "readers", *at)
        self._tool("group", "addmembers", "readers", "alice", *at)
        database = self.folder / "domain" / "private" / "sam.ldb"
        change = (
            "dn: CN=quorate,CN=Users,DC=quorate,DC=test\nchangetype: modify\n"
            "replace: msDS-SupportedEncryptionTypes\nmsDS-SupportedEncryptionTypes: 24\n"
        )
        subprocess.run(["ldbmodify", "-H", database], input=change, text=True, check=True)
        for service in ("HOST", "RPCSS"):
            self._tool("spn", "add", f"{service}/{HOST}", "quorate", *at)
            self._tool(
                "domain", "exportkeytab", str(self.keytab), f"--principal={service}/{HOST}", *at
            )

    def sid_of(self, group: str) -> str:
        shown = self._tool("group", "show", group, f"--configfile={self.settings}")
        return next(line.split()[1] for line in shown.splitlines() if line.startswith("objectSid"))

    def log_on(self, user: str) -> None:
        """Get a ticket, for all that this process and its children do from now on."""
        os.environ["KRB5CCNAME"] = f"{self.folder / user}.tickets"
        subprocess.run(["kinit", user], input=PASSWORD, text=True, check=True, stdout=sys.stderr)

    def _tool(self, *arguments: str) -> str:
        done = subprocess.run(
            ["samba-tool", *arguments], text=True, capture_output=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"samba-tool {arguments[:2]}: {done.stderr or done.stdout}")
        return done.stdout

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Run the controller in the foreground of a process of its own."""
        with (self.folder / "controller.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                "samba", "--interactive", f"--configfile={self.settings}",
                stdin=asyncio.subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
            try:
                await _answers(CONTROLLER, KERBEROS_PORT)
                yield
            except TimeoutError:
                print((self.folder / "controller.log").read_text()[-2_000:], file=sys.stderr)
                raise
            finally:
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGTERM)
                await process.wait()
                await _gone(process.pid)


async def _gone(group: int) -> None:
    """Wait for the other processes of a group, which write into their folder to the end."""
    with contextlib.suppress(ProcessLookupError):
        for _ in range(100):
            os.killpg(group, 0)
            await asyncio.sleep(0.1)
        os.killpg(group, signal.SIGKILL)


async def _answers(host: str, port: int) -> None:
    async with asyncio.timeout(UP_WITHIN_S):
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(host, port)
                writer.close()
                return
            await asyncio.sleep(0.1)


def providers() -> dict[str, tuple[Provider, int]]:
    return {
        "kerberos": (KerberosClient(HOST), AuthType.KERBEROS),
        "spnego": (SpnegoClient(KerberosClient(HOST), OID_KERBEROS), AuthType.SPNEGO),
        "spnego, as Windows names it": (
            SpnegoClient(KerberosClient(HOST), OID_KERBEROS_MS),
            AuthType.SPNEGO,
        ),
    }


async def reader(provider: Provider, auth_type: int, level: AuthLevel) -> RemoteReader:
    client = await RpcClient().connect(HOST, RPC_PORT)
    await client.bind(REMOTE_READ, provider=provider, auth_type=auth_type, level=level)
    return RemoteReader(client)


async def let_read(made: RpcWorld, sid: str) -> None:
    """Let a group, and nobody else, read the queue."""
    queue = control_pb2.QueueName(name=r".\private$\orders")
    entry = control_pb2.Ace(sid=sid, rights=["receive_message", "peek_message"])
    async with made.client(await made.leader()) as client:
        await client.queues.SetAcl(control_pb2.SetAclRequest(queue=queue, entries=[entry]))


async def command(*arguments: str) -> tuple[int, bytes, bytes]:
    process = await asyncio.create_subprocess_exec(
        *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, error = await process.communicate()
    return process.returncode or 0, out, error


async def read(made: RpcWorld) -> int:
    """Read by our own client, in every way and level; return how often."""
    count = 0
    for name, (provider, auth_type) in providers().items():
        for level in (AuthLevel.PRIVACY, AuthLevel.INTEGRITY):
            if level is AuthLevel.INTEGRITY:
                provider, auth_type = providers()[name]
            remote = await reader(provider, auth_type, level)
            handle = await remote.open()
            got = await remote.receive(handle)
            await remote.close(handle)
            remote.client.close()
            print(f"{name}, {level.name}: {len(got):,} bytes")
            count += 1
    return count


async def refused() -> None:
    """Somebody of the domain who is not in the group may not read."""
    provider, auth_type = providers()["spnego"]
    remote = await reader(provider, auth_type, AuthLevel.PRIVACY)
    try:
        await remote.open()
    except Fault as error:
        print(f"bob: {error}")
    else:
        raise AssertionError("bob could open the queue")


async def main(python: str) -> None:
    """Run everything in the namespace."""
    with tempfile.TemporaryDirectory() as name:
        domain = Domain(Path(name))
        domain.provision()
        async with (
            domain.serving(),
            rpc_world(keytab=domain.keytab, level="integrity", objects=True) as made,
        ):
            host = (await made.harness.leader()).host
            (Path(name) / "hosts").write_text(f"127.0.0.1 localhost\n{host} {HOST}\n")
            subprocess.run(["mount", "--bind", Path(name) / "hosts", "/etc/hosts"], check=True)
            async with made.client(await made.leader()) as sender:
                await with_orders(sender, *[b"x" * 50_000] * 6, b"by command", b"left")
            await let_read(made, domain.sid_of("readers"))
            domain.log_on("alice")
            own = await read(made)
            qm = (sys.executable, "-m", "qm", "rpc", "receive", ORDERS, "--to", HOST)
            status, out, error = await command(*qm, "--kerberos", "--port", str(RPC_PORT))
            assert (status, out) == (0, b"by command"), error
            programs = (
                (SYSTEM_PYTHON, str(HERE / "samba_kerberos.py"), HOST, str(RPC_PORT)),
                (python, str(HERE / "impacket_kerberos.py"), HOST, str(RPC_PORT)),
            )
            for program in programs:
                status, out, error = await command(*program)
                print(out.decode().rstrip())
                assert status == 0, error.decode()
            domain.log_on("bob")
            await refused()
    figures = {"own_reads_count": own, "programs_passed_count": len(programs), "refused_count": 1}
    report.write("test-domain", figures)


if __name__ == "__main__":
    namespace.enter("tests.rpc_peers.domain", sys.argv[1:])
    run(main(sys.argv[1]))
