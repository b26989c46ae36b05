"""Pods of the rendered StatefulSet as processes: its arguments, its environment, its node.toml.

What differs from Kubernetes is said here and nowhere else: a pod's address is a loopback one, DNS
names are replaced by those addresses, folders of the container are folders of the test, and the
API server is the test's.
"""

import asyncio
import base64
import copy
import re
import shutil
import socket
import ssl
import sys
from pathlib import Path

import aiohttp

from qm.api.identity import Role
from qm.client.wire import Tls
from qm.node.config import API_PORT, HTTP_PORT
from qm.node.pki import AUTHORITY_CERTIFICATE, AUTHORITY_KEY, create_authority, issue
from tests.chart.rendering import ROOT, Object, of_kind, one, render
from tests.cluster.test_kubernetes import TOKEN, ApiServer

NAMESPACE = "default"
START_S = 90.0
STOP_S = 60.0
AUTHORITY_FILES = (AUTHORITY_CERTIFICATE, AUTHORITY_KEY)
_DEPENDENT = re.compile(r"\$\(([A-Z_]+)\)")


class Release:
    """An installed release; its pods are started one by one."""

    def __init__(
        self,
        values: Object,
        folder: Path,
        network: str,
        pods_max: int,
        server: type[ApiServer] = ApiServer,
    ) -> None:
        (folder / "kubernetes").mkdir(parents=True)
        self.server = server(folder / "kubernetes")
        (self.server.account / "token").write_text(TOKEN)
        self.objects = render(values)
        self.folder = folder
        spec = one(self.objects, "StatefulSet")
        self.name: str = spec["metadata"]["name"]
        self.container: Object = spec["spec"]["template"]["spec"]["containers"][0]
        self.addresses = {f"{self.name}-{k}": f"{network}.{11 + k}" for k in range(pods_max)}
        self.admin = self._mount()

    def _mount(self) -> Tls:
        """Make what the pods' volumes hold; return an admin's certificate."""
        pki = self.folder / "pki"
        authority = create_authority(pki, "authority")
        hosts = [*self.addresses, *self.addresses.values()]
        files = {"ca.crt": authority}
        files["tls.crt"], files["tls.key"] = issue(pki, self.name, Role.NODE, hosts)
        tls, sealing = self.folder / "etc" / "tls", self.folder / "etc" / "sealing"
        for folder in (tls, sealing, self.folder / "etc" / "config"):
            folder.mkdir(parents=True)
        for name, path in files.items():
            (tls / name).write_bytes(path.read_bytes())
        secret = one(self.objects, "Secret", "-sealing")
        (sealing / "sealing.key").write_bytes(base64.b64decode(secret["data"]["sealing.key"]))
        certificate, key = issue(pki, "admin", Role.ADMIN)
        return Tls(pki / AUTHORITY_CERTIFICATE, certificate, key)

    def rotate(self) -> None:
        """Replace the nodes' certificate and key, as cert-manager and the kubelet do."""
        fresh, tls = self.folder / "renewed", self.folder / "etc" / "tls"
        fresh.mkdir()
        for name in AUTHORITY_FILES:
            shutil.copy(self.folder / "pki" / name, fresh / name)
        hosts = [*self.addresses, *self.addresses.values()]
        files = issue(fresh, self.name, Role.NODE, hosts)
        for name, path in zip(("tls.crt", "tls.key"), files, strict=True):
            path.replace(tls / name)

    def local(self, text: str, pod: str) -> str:
        """Return a rendered text with this machine's addresses and folders."""
        domain = f".{self.name}-nodes.{NAMESPACE}.svc.cluster.local"
        text = text.replace(f"${{POD_NAME}}{domain}", "${POD_IP}")
        for name, address in self.addresses.items():
            text = text.replace(name + domain, address)
        assert "svc.cluster" not in text, text
        text = text.replace("/etc/quorate", str(self.folder / "etc"))
        return text.replace("/var/lib/quorate", str(self.folder / "data" / pod))


class Pod:
    """One pod, whether it runs or not."""

    def __init__(self, release: Release, ordinal: int) -> None:
        self._release = release
        self.name = f"{release.name}-{ordinal}"
        self.address = release.addresses[self.name]
        self.api = f"{self.address}:{API_PORT}"
        self._process: asyncio.subprocess.Process | None = None
        (text,) = [
            found["data"]["node.toml"]
            for found in of_kind(release.objects, "ConfigMap")
            if "node.toml" in found["data"]
        ]
        # One per pod: the folders in it are those of the container.
        self._config = release.folder / "etc" / "config" / f"{self.name}.toml"
        server = release.server
        where = f'api_server = "{server.url}"\nservice_account = "{server.account}"'
        text = text.replace("[kubernetes]\n", f"[kubernetes]\n{where}\n")
        self._config.write_text(release.local(text, self.name))
        self.log = release.folder / f"{self.name}.log"

    def environment(self) -> dict[str, str]:
        """Return what the container's `env` says, and nothing else."""
        fields = {
            "metadata.name": self.name,
            "metadata.namespace": NAMESPACE,
            "status.podIP": self.address,
        }
        found: dict[str, str] = {}
        for variable in self._release.container["env"]:
            source = variable.get("valueFrom", {})
            if "fieldRef" in source:
                value = fields[source["fieldRef"]["fieldPath"]]
            elif "secretKeyRef" in source:
                key = source["secretKeyRef"]
                secret = one(self._release.objects, "Secret", key["name"])
                value = base64.b64decode(secret["data"][key["key"]]).decode()
            else:
                value = _DEPENDENT.sub(lambda name: found[name[1]], variable["value"])
            found[variable["name"]] = self._release.local(value, self.name)
        return found

    async def start(self) -> None:
        """Run the container's entry point."""
        with self.log.open("ab") as log:
            self._process = await self._qm(self._release.container["args"], log)

    async def ready(self) -> None:
        """Wait for the readiness probe to succeed."""
        probe = self._release.container["readinessProbe"]["httpGet"]["path"]
        answer: object = None
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            for _ in range(int(START_S / 0.1)):
                assert self._process is not None
                assert self._process.returncode is None, self.log.read_text()
                try:
                    url = f"http://{self.address}:{HTTP_PORT}{probe}"
                    async with session.get(url) as response:
                        answer = response.status, await response.text()
                except (aiohttp.ClientError, TimeoutError) as error:
                    answer = error
                if answer == (200, "ready\n"):
                    return
                await asyncio.sleep(0.1)
        raise AssertionError(f"{self.name}: {answer}\n{self.log.read_text()[-4000:]}")

    async def stop(self) -> str:
        """End it as Kubernetes does: the hook, then SIGTERM. Return what the hook said."""
        assert self._process is not None
        hook = self._release.container["lifecycle"]["preStop"]["exec"]["command"]
        assert hook[0] == "qm"
        with self.log.open("ab") as log:
            before = log.tell()
            async with asyncio.timeout(STOP_S):
                status = await (await self._qm(hook[1:], log)).wait()
        said = self.log.read_text()[before:]
        self._process.terminate()
        async with asyncio.timeout(STOP_S):
            assert await self._process.wait() == 0, said
        self._process = None
        assert status == 0, said
        return said

    def twin(self, address: str) -> "Pod":
        """Return a pod of another release that was given a copy of this one's volume."""
        twin = copy.copy(self)
        twin.address = address
        twin._process = None
        data = self._release.folder / "data" / self.name
        shutil.copytree(data, data.with_name(f"{self.name}-twin"))
        twin._config = self._config.with_name(f"{self.name}-twin.toml")
        text = self._config.read_text().replace(str(data), f"{data}-twin")
        twin._config.write_text(text.replace(f'"{self.address}"', f'"{address}"'))
        twin.log = self.log.with_name(f"{self.name}-twin.log")
        return twin

    async def lose_volume(self) -> None:
        """End it at once, and lose what its claim held."""
        await self.kill()
        self._process = None
        shutil.rmtree(self._release.folder / "data" / self.name)

    def certificate(self) -> bytes:
        """Return the certificate that its API shows in a new handshake, DER."""
        admin = self._release.admin
        context = ssl.create_default_context(cafile=str(admin.authority))
        context.load_cert_chain(str(admin.certificate), str(admin.key))
        context.set_alpn_protocols(["h2"])
        with (
            socket.create_connection((self.address, API_PORT), timeout=STOP_S) as plain,
            context.wrap_socket(plain, server_hostname=self.name) as secure,
        ):
            return secure.getpeercert(binary_form=True) or b""

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self._process is not None
        return self._process.pid

    async def exit_status(self) -> int:
        """Wait for it to end by itself."""
        assert self._process is not None
        async with asyncio.timeout(START_S):
            return await self._process.wait()

    async def kill(self) -> None:
        """Clean up after a test."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def _qm(self, arguments: list[str], log: object) -> asyncio.subprocess.Process:
        config = "/etc/quorate/config/node.toml"
        assert config in arguments
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "qm"),
            *(str(self._config) if a == config else a for a in arguments),
            cwd=ROOT,
            env=self.environment(),
            stdout=log,  # type: ignore[arg-type]
            stderr=asyncio.subprocess.STDOUT,
        )
