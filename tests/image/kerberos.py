"""The image with Kerberos, built on the program's: `make test-image-kerberos`.

It reads a keytab as a node does when it starts, and so finds the library that it was built for;
what it does with tickets is `make test-domain`'s. Needs what `make test-image` needs. Prints JSON
and writes it to build/test-image-kerberos.json. Exit code 1: something does not hold, `broken` says
what. 69: this machine lacks something.
"""

import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from tests.image.buildah import Store
from tests.image.building import (
    EPOCH_S,
    IMAGE,
    IMAGE_KERBEROS,
    base,
    build,
    build_with_kerberos,
    copy_context,
)
from tests.image.machine import EXIT_STATUS_UNAVAILABLE, FOLDER, missing_here

OUTPUT: Final = Path("build") / "test-image-kerberos.json"
USER: Final = 10001
RUN_S: Final = 120.0
KEYTAB: Final = "/etc/quorate/kerberos/rpc.keytab"
REALM, COMPONENTS = "QUORATE.TEST", ("HOST", "queues.quorate.test")
NAME: Final = f"{'/'.join(COMPONENTS)}@{REALM}"
SCRIPT: Final = f"""
from pathlib import Path
from qm.rpc.security.kerberos import KerberosMissing, Keytab
try:
    print(Keytab(Path("{KEYTAB}"), None)._credentials.name)
except KerberosMissing as error:
    print("missing:", error)
"""
_NAME_TYPE_PRINCIPAL: Final = 1
_AES256: Final = 18


def keytab() -> bytes:
    """Return a keytab of the service, with a key of zeros."""

    def counted(raw: bytes) -> bytes:
        return struct.pack(">H", len(raw)) + raw

    names = b"".join(counted(one.encode()) for one in (REALM, *COMPONENTS))
    entry = struct.pack(">H", len(COMPONENTS)) + names
    entry += struct.pack(">IIBH", _NAME_TYPE_PRINCIPAL, EPOCH_S, 1, _AES256) + counted(bytes(32))
    return b"\x05\x02" + struct.pack(">i", len(entry)) + entry


def main() -> int:
    """Do everything; return the exit code."""
    if missing := missing_here():
        print(f"test-image-kerberos needs {missing}; see `make deps-system`", file=sys.stderr)
        return EXIT_STATUS_UNAVAILABLE
    FOLDER.mkdir(parents=True, exist_ok=True)
    store = Store(FOLDER)
    copy_context(FOLDER)
    if not store.digest(IMAGE):
        build(store, FOLDER, base(store, FOLDER))
    started = time.monotonic()
    build_with_kerberos(store, FOLDER)
    report: dict[str, Any] = {"build_s": round(time.monotonic() - started, 1)}
    broken: list[str] = []
    with tempfile.TemporaryDirectory(dir=FOLDER) as name:
        file = Path(name) / "rpc.keytab"
        file.write_bytes(keytab())
        os.chown(file, USER, USER)
        report["found"] = _said(store, IMAGE_KERBEROS, file, broken)
        report["found_without"] = _said(store, IMAGE, file, broken)
    if report["found"] != NAME:
        broken.append("the image does not read a keytab")
    if not report["found_without"].startswith("missing:"):
        broken.append("the program's own image has the library, too: one image is enough")
    report["load_average"] = round(os.getloadavg()[0], 1)
    report["broken"] = broken
    OUTPUT.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(report, indent=2))
    return 1 if broken else 0


def _said(store: Store, image: str, file: Path, broken: list[str]) -> str:
    """Return what an image says of a keytab."""
    container = store.create(image, {})
    try:
        argv = store.run_argv(
            container, ["python3", "-c", SCRIPT], user=str(USER), mounts=[(file, KEYTAB, True)]
        )
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=RUN_S)
        if written := [one for one in store.written(container, EPOCH_S) if one[:4] != "etc/"]:
            broken.append(f"{image} wrote {written}")
    finally:
        store.remove(container)
    if done.returncode:
        broken.append(f"{image}: {done.stderr[-2_000:]}")
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
