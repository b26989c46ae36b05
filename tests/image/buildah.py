"""Buildah with a store of its own: images and containers of this test, and nobody else's."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

BUILD_TIMEOUT_S: Final = 1_800
CALL_TIMEOUT_S: Final = 300
_ISOLATION: Final = ("--isolation", "chroot")


class BuildahFailed(Exception):
    """A command of buildah's failed; the text is what it said last."""


class ImageConfig(msgspec.Struct):
    """What an image says about the process that it starts."""

    user: str
    entrypoint: list[str]
    command: list[str]
    exposed: list[str]
    volumes: list[str]


class Store:
    """A store of images; needs root."""

    def __init__(self, folder: Path) -> None:
        self._argv = [
            *("buildah", "--storage-driver", "vfs"),
            *("--root", str(folder / "storage"), "--runroot", str(folder / "run")),
        ]

    def call(self, *argv: str, timeout_s: float = CALL_TIMEOUT_S) -> str:
        """Run a command; return what it wrote. Raises BuildahFailed."""
        done = subprocess.run(
            [*self._argv, *argv], capture_output=True, text=True, check=False, timeout=timeout_s
        )
        if done.returncode:
            said = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
            raise BuildahFailed(f"buildah {' '.join(argv)}\n{said}")
        return done.stdout.strip()

    def digest(self, image: str) -> str:
        """Return an image's digest, empty if there is none of that name. Raises BuildahFailed."""
        listed = self.call("images", "--json")
        for found in json.loads(listed):
            if f"{image}:latest" in (found["names"] or ()):
                return str(found["digest"])
        return ""

    def import_root(self, folder: Path, image: str, timestamp_s: int) -> str:
        """Make an image of a root file system; return its digest."""
        container = self.call("from", "scratch")
        try:
            self.call("add", "--quiet", container, str(folder), "/")
            self.call("commit", "--quiet", "--timestamp", str(timestamp_s), container, image)
        finally:
            self.call("rm", container)
        return self.digest(image)

    def build(
        self,
        file: Path,
        context: Path,
        image: str,
        *,
        timestamp_s: int,
        arguments: dict[str, str],
        secrets: dict[str, Path],
    ) -> None:
        """Build an image from nothing but its base. Raises BuildahFailed."""
        argv = ["build", "--no-cache", "--layers=false", "--pull-never", *_ISOLATION]
        argv += ["--timestamp", str(timestamp_s), "--file", str(file), "--tag", image]
        for name, value in arguments.items():
            argv += ["--build-arg", f"{name}={value}"]
        for name, path in secrets.items():
            argv += ["--secret", f"id={name},src={path}"]
        self.call(*argv, str(context), timeout_s=BUILD_TIMEOUT_S)
        self.call("rmi", "--prune")  # what had the name before

    def export(self, image: str, folder: Path) -> None:
        """Write an image in the OCI layout."""
        shutil.rmtree(folder, ignore_errors=True)
        self.call("push", "--quiet", image, f"oci:{folder}:image")

    def config(self, image: str) -> ImageConfig:
        """Return how an image starts."""
        found: dict[str, Any] = json.loads(self.call("inspect", "--type", "image", image))
        config = found["OCIv1"]["config"]
        return ImageConfig(
            config.get("User", ""),
            config.get("Entrypoint", []),
            config.get("Cmd", []),
            sorted(config.get("ExposedPorts", {})),
            sorted(config.get("Volumes", {})),
        )

    def create(self, image: str, hosts: dict[str, str]) -> str:
        """Make a container that knows these hosts by name; return its id."""
        argv = ["from", "--pull-never"]
        for name, address in hosts.items():
            argv += ["--add-host", f"{name}:{address}"]
        return self.call(*argv, image)

    def remove(self, container: str) -> None:
        """Remove a container in which nothing runs."""
        self.call("rm", container)

    def written(self, container: str, since_s: int) -> list[str]:
        """Return the files of a container's own layer that are newer than its image."""
        root = Path(self.call("mount", container))
        try:
            newer = (
                path
                for path in root.rglob("*")
                if not path.is_symlink() and path.is_file() and path.stat().st_mtime > since_s
            )
            return sorted(str(path.relative_to(root)) for path in newer)
        finally:
            self.call("umount", container)

    def run_argv(
        self,
        container: str,
        argv: Sequence[str],
        *,
        user: str = "",
        hostname: str = "",
        environment: dict[str, str] | None = None,
        mounts: Sequence[tuple[Path, str, bool]] = (),
        tmpfs: Sequence[str] = (),
        drop: Sequence[str] = (),
    ) -> list[str]:
        """Return the command line that runs `argv` in a container, in this network namespace."""
        options = [*_ISOLATION, "--network", "host"]
        if user:
            options += ["--user", user]
        if hostname:
            options += ["--hostname", hostname]
        for name, value in (environment or {}).items():
            options += ["--env", f"{name}={value}"]
        for here, there, is_read_only in mounts:
            options += ["--volume", f"{here}:{there}{':ro' if is_read_only else ''}"]
        for place in tmpfs:
            options += ["--mount", f"type=tmpfs,destination={place}"]
        for capability in drop:
            options += ["--cap-drop", capability]
        return [*self._argv, "run", *options, container, "--", *argv]
