"""A base from Debian's packages, the image built on it twice, and a comparison of every byte."""

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import time
from pathlib import Path
from typing import Final

import msgspec

from tests.image.buildah import Store
from tests.image.compose import ROOT

DOCKERFILE: Final = ROOT / "deploy" / "image" / "Dockerfile"
DOCKERFILE_SPARK: Final = DOCKERFILE.with_name("Dockerfile.spark")
DOCKERFILE_KERBEROS: Final = DOCKERFILE.with_name("Dockerfile.kerberos")
CONTEXT: Final = "context"
BASE: Final = "localhost/quorate-base"
IMAGE: Final = "localhost/quorate"
IMAGE_SPARK: Final = "localhost/quorate-spark"
IMAGE_KERBEROS: Final = "localhost/quorate-kerberos"
EPOCH_S: Final = 1_767_225_600
"""Of every file of the image and of the image itself."""
_SUITE: Final = "bookworm"
_MIRROR: Final = "http://deb.debian.org/debian"
_PACKAGES: Final = "python3,python3-venv,ca-certificates"
_AUTHORITIES: Final = ("PIP_CERT", "SSL_CERT_FILE")


class Comparison(msgspec.Struct):
    """Two builds of one context."""

    digests: list[str]
    """Of the manifests; equal when every byte is."""
    differing: list[str]
    """Files that one build lacks or has otherwise."""
    build_s: list[float]
    image_mib: float


def base(store: Store, folder: Path) -> str:
    """Make the base once; return its digest."""
    digest = store.digest(BASE)
    if digest:
        return digest
    root = folder / "root"
    shutil.rmtree(root, ignore_errors=True)
    argv = ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _SUITE, str(root)]
    subprocess.run([*argv, _MIRROR], stdout=subprocess.DEVNULL, check=True, timeout=1_200)
    try:
        return store.import_root(root, BASE, EPOCH_S)
    finally:
        shutil.rmtree(root)


def build(store: Store, folder: Path, base_digest: str) -> None:
    """Build the image without a cache, from the context that is there."""
    arguments = {"BASE": BASE, "BASE_DIGEST": base_digest, "SOURCE_DATE_EPOCH": str(EPOCH_S)}
    store.build(
        DOCKERFILE,
        folder / CONTEXT,
        IMAGE,
        timestamp_s=EPOCH_S,
        arguments=arguments,
        secrets=_secrets(folder),
    )


def build_with_spark(store: Store, folder: Path) -> None:
    """Build the image of audits on the one that is there."""
    _build_upon(store, folder, DOCKERFILE_SPARK, IMAGE_SPARK)


def build_with_kerberos(store: Store, folder: Path) -> None:
    """Build the image with Kerberos on the one that is there."""
    _build_upon(store, folder, DOCKERFILE_KERBEROS, IMAGE_KERBEROS)


def _build_upon(store: Store, folder: Path, file: Path, image: str) -> None:
    store.build(
        file,
        folder / CONTEXT,
        image,
        timestamp_s=EPOCH_S,
        arguments={"IMAGE": IMAGE},
        secrets=_secrets(folder),
    )


def build_twice(store: Store, folder: Path, base_digest: str) -> Comparison:
    """Build from one copy of the sources, twice and without a cache."""
    copy_context(folder)
    digests, seconds, layouts = [], [], []
    for number in (1, 2):
        started = time.monotonic()
        build(store, folder, base_digest)
        seconds.append(round(time.monotonic() - started, 1))
        digests.append(store.digest(IMAGE))
        layouts.append(folder / f"oci-{number}")
        store.export(IMAGE, layouts[-1])
    contents = [_files(layout) for layout in layouts]
    differing = sorted(
        name
        for name in contents[0].keys() | contents[1].keys()
        if contents[0].get(name) != contents[1].get(name)
    )
    size = sum(blob.stat().st_size for blob in layouts[0].rglob("blobs/sha256/*"))
    return Comparison(digests, differing, seconds, round(size / (1 << 20), 1))


def copy_context(folder: Path) -> None:
    """Copy what .dockerignore lets through, so that all builds see the same."""
    context = folder / CONTEXT
    shutil.rmtree(context, ignore_errors=True)
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for name in (line.removeprefix("!") for line in lines if line.startswith("!")):
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, context / name, ignore=ignored)
        else:
            (context / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, context / name)


def _secrets(folder: Path) -> dict[str, Path]:
    """Return what pip needs on a network whose own authority signs everything."""
    found = authority_of_pip()
    if found is None:
        return {}
    settings = folder / "pip.conf"
    settings.write_text("[global]\ncert = /run/secrets/authority\n", encoding="utf-8")
    return {"pip.conf": settings, "authority": found}


def authority_of_pip() -> Path | None:
    """Return the authority that this machine's pip is told to trust, if any."""
    found = (os.environ[name] for name in _AUTHORITIES if os.environ.get(name))
    return next(map(Path, found), None)


def _files(layout: Path) -> dict[str, str]:
    """Return name -> what matters of every file in an image's layers."""
    index = json.loads((layout / "index.json").read_text(encoding="utf-8"))
    manifest = json.loads(_blob(layout, index["manifests"][0]["digest"]).read_bytes())
    found: dict[str, str] = {}
    for number, layer in enumerate(manifest["layers"]):
        with tarfile.open(_blob(layout, layer["digest"])) as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isfile() else None
                digest = hashlib.sha256(content.read()).hexdigest() if content else member.linkname
                about = (member.mode, member.uid, member.gid, member.mtime, digest)
                found[f"{number}/{member.name}"] = repr(about)
    return found


def _blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / Path(*digest.split(":"))
