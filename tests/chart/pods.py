"""Pods of the rendered release as processes: their arguments, environment, node.toml, DNS names.

What differs from Kubernetes is said here and nowhere else: a pod's address is a loopback one, a
hosts file is its DNS, folders of the container are folders of the test, the API server is the
test's, and so is who signs the Certificates.
"""

import asyncio
import base64
import copy
import os
import re
import shutil
import socket
import ssl
import sys
from pathlib import Path
from typing import Any

import aiohttp

from qm.api.gate.identity import Role, role_uri
from qm.client.calls import Tls
from qm.node.config.schema import API_PORT, HTTP_PORT
from qm.node.upkeep.pki import AUTHORITY_CERTIFICATE, create_authority, issue
from tests.chart.rendering import ROOT, Object, of_kind, one, render
from tests.cluster.test_kubernetes import TOKEN, ApiServer

NAMESPACE = "default"
DOMAIN = "svc.cluster.local"
START_S = 90.0
STOP_S = 60.0
TOOL_S = 60.0
TLS_FOLDER = "/etc/quorate/tls"
_DEPENDENT = re.compile(r"\$\(([A-Z_]+)\)")
_WITH_HOSTS = ("sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"')


class Release:
    """An installed release; its pods are started one by one."""

    def __init__(
        self,
        values: Object,
        folder: Path,
        network: str,
        pods_max: int,
        server: type[ApiServer] = ApiServer,
        name: str | None = None,
    ) -> None:
        """`name`: of the release; None: the chart's."""
        (folder / "kubernetes").mkdir(parents=True)
        self.server = server(folder / "kubernetes")
        (self.server.account / "token").write_text(TOKEN)
        self.objects = render(values, name=name)
        self.folder = folder
        spec = one(self.objects, "StatefulSet")
        self.name: str = spec["metadata"]["name"]
        self.container: Object = spec["spec"]["template"]["spec"]["containers"][0]
        self.addresses = {f"{self.name}-{k}": f"{network}.{11 + k}" for k in range(pods_max)}
        self.names = {
            f"{pod}.{self.name}-nodes.{NAMESPACE}.{DOMAIN}": address
            for pod, address in self.addresses.items()
        }
        """What DNS knows: pods, and Services."""
        for service, pod in (("api", 0), ("msmq", 1)):
            name = f"{self.name}-{service}.{NAMESPACE}.{DOMAIN}"
            self.names[name] = self.addresses[f"{self.name}-{pod}"]
        self.admin = self._mount()

    def _mount(self) -> Tls:
        """Make what the pods' volumes hold; return an admin's certificate."""
        pki = self.folder / "pki"
        authority = create_authority(pki, "authority")
        sealing = self.folder / "etc" / "sealing"
        for folder in (sealing, self.folder / "etc" / "config"):
            folder.mkdir(parents=True)
        self._sign(pki, "", Role.NODE, "tls")
        self._sign(pki, "-admin", Role.ADMIN, "admin-tls")
        secret = one(self.objects, "Secret", "-sealing")
        (sealing / "sealing.key").write_bytes(base64.b64decode(secret["data"]["sealing.key"]))
        files = self.folder / "etc" / "admin-tls"
        # Tests call pods by their addresses, which certificates do not name.
        api = f"{self.name}-api.{NAMESPACE}.{DOMAIN}"
        return Tls(authority, files / "tls.crt", files / "tls.key", server_name=api)

    def _sign(self, pki: Path, suffix: str, role: Role, secret: str) -> None:
        """Make the Secret that a Certificate asks for, as cert-manager and the kubelet do."""
        asked = one(self.objects, "Certificate", f"{self.name}{suffix}")["spec"]
        assert asked["uris"] == [role_uri(role)]
        assert asked["secretName"] == f"{self.name}-{secret}"
        signed = issue(pki, asked["commonName"], role, asked.get("dnsNames", []))
        folder = self.folder / "etc" / secret
        folder.mkdir(exist_ok=True)
        shutil.copy(pki / AUTHORITY_CERTIFICATE, folder / "ca.crt")
        for name, path in zip(("tls.crt", "tls.key"), signed, strict=True):
            path.rename(folder / name)

    def rotate(self) -> None:
        """Replace the nodes' certificate and key."""
        self._sign(self.folder / "pki", "", Role.NODE, "tls")

    def local(self, text: str, pod: str, secret: str = "tls") -> str:
        """Return a rendered text with this machine's folders, `secret` being what is mounted."""
        text = text.replace(TLS_FOLDER, str(self.folder / "etc" / secret))
        text = text.replace("/etc/quorate", str(self.folder / "etc"))
        return text.replace("/var/lib/quorate", str(self.folder / "data" / pod))

    async def tool(self, spec: Object) -> tuple[int, str]:
        """Run the pod of a job to its end; return its exit status and what it said."""
        (container,) = spec["containers"]
        mounted = {volume["name"]: volume for volume in spec["volumes"]}
        secret = mounted["tls"]["secret"]["secretName"].removeprefix(f"{self.name}-")
        environment = {
            variable["name"]: self.local(variable["value"], "", secret)
            for variable in container["env"]
        }
        if "definitions" in mounted:
            made = one(self.objects, "ConfigMap", mounted["definitions"]["configMap"]["name"])
            folder = self.folder / "etc" / "definitions"
            folder.mkdir(exist_ok=True)
            for name, text in made["data"].items():
                (folder / name).write_text(text)
        arguments = [self.local(argument, "", secret) for argument in container["args"]]
        process = await self.run(arguments, environment, asyncio.subprocess.PIPE)
        async with asyncio.timeout(TOOL_S):
            said, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, said.decode()

    async def run(
        self,
        arguments: list[str],
        environment: dict[str, str],
        output: Any,
        errors: int = asyncio.subprocess.STDOUT,
    ) -> asyncio.subprocess.Process:
        """Start `qm` where the release's DNS names are known."""
        hosts = self.folder / "hosts"
        lines = (f"{address} {name}\n" for name, address in self.names.items())
        hosts.write_text("".join(lines))
        rights = () if os.geteuid() == 0 else ("--map-root-user",)
        return await asyncio.create_subprocess_exec(
            *("unshare", *rights, "--mount", *_WITH_HOSTS, str(hosts)),
            *(sys.executable, "-m", "qm", *arguments),
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], **environment},
            stdout=output,
            stderr=errors,
        )


class PodEnded(AssertionError):
    """Its container ended instead of getting ready."""


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
            "metadata.uid": f"uid-of-{self.name}",
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
                if self._process.returncode is not None:
                    raise PodEnded(self.log.read_text())
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
        """Return a pod of a release elsewhere that was given a copy of this one's volume."""
        twin = copy.copy(self)
        twin.address = address
        twin._process = None
        data = self._release.folder / "data" / self.name
        shutil.copytree(data, data.with_name(f"{self.name}-twin"))
        twin._config = self._config.with_name(f"{self.name}-twin.toml")
        text = self._config.read_text().replace(str(data), f"{data}-twin")
        here, there = f".{NAMESPACE}.{DOMAIN}", f".elsewhere.{DOMAIN}"
        twin._config.write_text(text.replace(here, there))
        own = f"{self.name}.{self._release.name}-nodes{there}"
        self._release.names[own] = address
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
        own = [str(self._config) if a == config else a for a in arguments]
        return await self._release.run(own, self.environment(), log)
