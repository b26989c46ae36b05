"""The image, built twice and compared, then started as the compose file says: `make test-image`.

Needs root, buildah and debootstrap (`make deps-system` says how); no registry and no Docker. Prints
JSON and writes it to build/test-image.json. Exit code 1: something does not hold, `broken` says
what. 69: this machine lacks something.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from tests.image.buildah import Store
from tests.image.building import BASE, CONTEXT, IMAGE, authority_of_pip, base, build_twice
from tests.image.compose import ROOT
from tests.image.containers import TOOLS, Rig
from tests.image.machine import EXIT_STATUS_UNAVAILABLE, FOLDER, missing_here

OUTPUT: Final = Path("build") / "test-image.json"
PORTS: Final = ["1801/tcp", "1811/tcp", "1812/tcp", "1813/tcp", "1814/tcp", "3527/udp"]


def main() -> int:
    """Do everything; return the exit code."""
    if missing := missing_here():
        print(f"test-image needs {missing}; see `make deps-system`", file=sys.stderr)
        return EXIT_STATUS_UNAVAILABLE
    FOLDER.mkdir(parents=True, exist_ok=True)
    store = Store(FOLDER)
    report: dict[str, Any] = {}
    broken: list[str] = []
    _build(store, report, broken)
    _run(store, report, broken)
    _install(store, report, broken)
    report["broken"] = broken
    OUTPUT.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(report, indent=2))
    return 1 if broken else 0


def _build(store: Store, report: dict[str, Any], broken: list[str]) -> None:
    digest = base(store, FOLDER)
    compared = build_twice(store, FOLDER, digest)
    report["base_digest"] = digest
    report["image_digest"], second = compared.digests
    report["is_reproducible"] = report["image_digest"] == second
    report["differing_files"] = len(compared.differing)
    report["image_mib"] = compared.image_mib
    report["build_s"] = compared.build_s
    if not report["is_reproducible"]:
        names = ", ".join(compared.differing[:10]) or "only the image's own configuration"
        broken.append(f"two builds differ: {names}")
    config = store.config(IMAGE)
    if config.exposed != PORTS or config.volumes != ["/var/lib/quorate"]:
        broken.append(f"the image names other ports or volumes: {config}")


def _run(store: Store, report: dict[str, Any], broken: list[str]) -> None:
    folder = FOLDER / "containers"
    shutil.rmtree(folder, ignore_errors=True)
    rig = Rig(store, folder)
    with rig:
        pki = rig.containers["pki"]
        pki.start()
        if pki.wait(120) != 0:
            broken.append(f"pki: {pki.log.read_text()}")
            return
        started = time.monotonic()
        for node in rig.nodes():
            node.start()
        for node in rig.nodes():
            node.wait_until_healthy()
        report["ready_s"] = round(time.monotonic() - started, 1)
        report["uids"] = [node.uid() for node in rig.nodes()]
        tools = rig.containers[TOOLS]
        status, said = tools.ask("qm", "check", "send-receive", "--msmq", "n2")
        report["send_receive"] = said.strip()
        if status != 0:
            broken.append(f"send-receive: {said}")
        report["exit_statuses"] = [node.stop() for node in rig.nodes()]
    report["written_outside_volumes"] = rig.written
    if 0 in report["uids"] or any(report["exit_statuses"]) or rig.written:
        broken.append("a container ran as root, wrote outside its volumes, or did not end well")


def _install(store: Store, report: dict[str, Any], broken: list[str]) -> None:
    """Install on a bare machine: the base, with nothing of the image."""
    folder = FOLDER / "bare"
    shutil.rmtree(folder, ignore_errors=True)
    addresses = [f"n{k}=10.0.0.{k}" for k in (1, 2, 3)]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    prepare = [str(ROOT / "deploy" / "bare" / "prepare.sh"), str(folder), *addresses]
    subprocess.run(prepare, env={**os.environ, "PATH": path}, stdout=subprocess.DEVNULL, check=True)
    mounts = [(FOLDER / CONTEXT, "/src", False), (ROOT / "deploy", "/src/deploy", True)]
    mounts += [(folder / "n1.tar", "/n1.tar", True)]
    environment = {}
    if authority := authority_of_pip():
        mounts.append((authority, "/authority.pem", True))
        environment["PIP_CERT"] = "/authority.pem"
    container = store.create(BASE, {})
    try:
        script = "sh /src/deploy/bare/install.sh /n1.tar && /opt/quorate/bin/qm --version"
        argv = store.run_argv(
            container, ["sh", "-c", script], user="root", environment=environment, mounts=mounts
        )
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=1_200)
    finally:
        store.remove(container)
    report["bare_install"] = (done.stdout + done.stderr).strip().splitlines()[-2:]
    if done.returncode != 0:
        broken.append(f"install.sh: {done.stdout + done.stderr}")


if __name__ == "__main__":
    sys.exit(main())
