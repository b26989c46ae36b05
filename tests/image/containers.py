"""The services of the compose file as containers, each on a host of its own.

The hosts are network namespaces, so that every container has all ports and its name as the file
says. Docker's `read_only` and `no-new-privileges` cannot be had without it; what stands in for the
first is the check that nothing outside volumes was written.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final

from qm.drill.targets.namespaces import Namespaces
from tests.image.buildah import Store
from tests.image.building import EPOCH_S, IMAGE
from tests.image.compose import Compose, Service, load

NODES: Final = ("n1", "n2", "n3")
READY_S: Final = 120.0
STOP_S: Final = 60.0
POLL_S: Final = 0.2
TOOLS: Final = "tools"
_HOSTS: Final = {**{name: name for name in NODES}, TOOLS: NODES[0]}
"""Where containers run that need the network."""
_MADE_BY_BUILDAH: Final = frozenset(
    ("etc/hosts", "etc/hostname", "etc/resolv.conf", "run/.containerenv")
)


class Container:
    """One service, made and perhaps running."""

    def __init__(self, rig: "Rig", name: str, service: Service) -> None:
        self._rig = rig
        self.name = name
        self._service = service
        hosts = {host.name: host.address for host in rig.spaces.hosts.values()}
        self._id = rig.store.create(IMAGE, hosts)
        self.log = rig.folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def argv(self, *argv: str) -> list[str]:
        """Return the command line that runs `argv` in the container, on its host."""
        service = self._service
        inside = self._rig.store.run_argv(
            self._id,
            argv,
            user=service.user or self._rig.config.user,
            hostname=service.hostname,
            environment=service.environment,
            mounts=service.mounts(self._rig.volumes),
            tmpfs=service.tmpfs,
            drop=service.cap_drop,
        )
        host = _HOSTS.get(self.name)
        return inside if host is None else self._rig.spaces.command(host, *inside)

    def start(self) -> None:
        """Run what Docker would: the service's command, or the image's."""
        service, config = self._service, self._rig.config
        entrypoint = service.entrypoint or config.entrypoint
        command = service.command or ([] if service.entrypoint else config.command)
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self.argv(*entrypoint, *command), stdout=log, stderr=subprocess.STDOUT
            )

    def wait(self, seconds: float) -> int:
        """Wait for the end of what runs; return its exit status."""
        assert self._process is not None
        return self._process.wait(seconds)

    def ask(self, *argv: str) -> tuple[int, str]:
        """Run a command beside what runs; return its exit status and what it said."""
        done = subprocess.run(
            self.argv(*argv),
            capture_output=True,
            text=True,
            check=False,
            timeout=READY_S,
        )
        return done.returncode, done.stdout + done.stderr

    def wait_until_healthy(self) -> None:
        """Ask as the file's health check does, until it says yes."""
        check = self._service.healthcheck
        assert check is not None
        assert check.test[0] == "CMD"
        end = time.monotonic() + READY_S
        while True:
            status, said = self.ask(*check.test[1:])
            if status == 0:
                return
            assert self._process is not None
            assert self._process.poll() is None, self.log.read_text()
            assert time.monotonic() < end, f"{self.name}: {said}\n{self.log.read_text()[-4000:]}"
            time.sleep(POLL_S)

    def uid(self) -> int:
        """Return as whom its first process runs."""
        return Path(f"/proc/{self._first()}").stat().st_uid

    def stop(self) -> int:
        """Tell its first process to end, as `docker stop` does; return the exit status."""
        os.kill(self._first(), signal.SIGTERM)
        return self.wait(STOP_S)

    def close(self) -> list[str]:
        """End what runs, and remove it; return the files that it wrote outside its volumes."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._first(), signal.SIGKILL)
            self._process.wait(STOP_S)
        written = self._rig.store.written(self._id, EPOCH_S)
        self._rig.store.remove(self._id)
        mounts = self._service.mounts(self._rig.volumes)
        expected = _MADE_BY_BUILDAH | {target.lstrip("/") for _, target, _ in mounts}
        return [name for name in written if name not in expected]

    def _first(self) -> int:
        """Return the id of the container's process: the innermost with another root than ours."""
        assert self._process is not None
        here = Path("/").stat().st_ino
        found, inside = [self._process.pid], 0
        for process in found:
            with contextlib.suppress(FileNotFoundError):
                if Path(f"/proc/{process}/root").stat().st_ino != here:
                    inside = process  # buildah's own parent of it has the container's root too
            found += _children(process)
        if not inside:
            raise ProcessLookupError(f"{self.name} runs nothing: {self.log.read_text()}")
        return inside


def _children(process: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            text = (thread / "children").read_text(encoding="ascii")
            found += (int(word) for word in text.split())
    return found


class Rig:
    """Three hosts, the file's volumes, and its containers; a context manager that removes all."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.folder = folder
        self.config = store.config(IMAGE)
        self.compose: Compose = load({"QUORATE_IMAGE": IMAGE})
        self.volumes = {name: folder / "volumes" / name for name in self.compose.volumes}
        self.spaces = Namespaces(f"i{os.getpid() % 10_000}", NODES, "10.181.0.0/24")
        self.containers: dict[str, Container] = {}
        self.written: list[str] = []

    def __enter__(self) -> "Rig":
        """Make hosts, volumes and containers."""
        user, group = (int(number) for number in self.config.user.split(":"))
        for path in self.volumes.values():
            path.mkdir(parents=True)
            os.chown(path, user, group)  # as the image's folder, which Docker copies
            path.chmod(0o750)
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.spaces)
            for name, service in self.compose.services.items():
                self.containers[name] = container = Container(self, name, service)
                stack.callback(self._close, container)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove them."""
        self._stack.close()

    def nodes(self) -> Iterator[Container]:
        """Return the containers that are nodes."""
        return (self.containers[name] for name in NODES)

    def _close(self, container: Container) -> None:
        self.written += container.close()
