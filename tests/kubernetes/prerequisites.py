"""What the suite needs, and one line that says what of it is missing."""

import os
import shutil
from pathlib import Path
from typing import Final

import msgspec

from tests.kubernetes.programs import Object, ProgramFailed, Programs

IMAGE: Final = "QUORATE_IMAGE"
STORAGE_CLASS: Final = "QUORATE_STORAGE_CLASS"
WORKERS_MIN: Final = 3
DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"


class Cluster(msgspec.Struct, frozen=True):
    """Where the suite runs."""

    image: str
    storage_class: str
    """Empty: the cluster's default."""
    workers: int


class Missing(Exception):
    """Something is missing; the text is one line that names all of it."""


def prerequisites(programs: Programs) -> Cluster:
    """Return where the suite runs. Raises Missing."""
    image, storage_class = os.environ.get(IMAGE, ""), os.environ.get(STORAGE_CLASS, "")
    missing = []
    files = [path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    if not any(Path(path).is_file() for path in files):
        missing.append("KUBECONFIG: the file of a cluster that is there for tests")
    missing += [f"{name} on the PATH" for name in ("kubectl", "helm") if not shutil.which(name)]
    if not image:
        missing.append(f"{IMAGE}: the image under a name by which workers find it")
    if not missing:
        try:
            nodes, classes = programs.get("nodes"), programs.get("storageclasses")
        except ProgramFailed as error:
            missing.append(f"a cluster that answers: {' '.join(str(error).split())}")
        else:
            missing += lacking(nodes, classes, storage_class)
            if not missing:
                return Cluster(image, storage_class, workers(nodes))
    raise Missing(f"missing: {'; '.join(missing)} (helm/quorate/README.md, Tests)")


def lacking(nodes: Object, classes: Object, storage_class: str) -> list[str]:
    """Return what the cluster itself has not."""
    missing = []
    if (found := workers(nodes)) < WORKERS_MIN:
        missing.append(f"{WORKERS_MIN} workers that take pods: there are {found}")
    names = {each["metadata"]["name"] for each in classes["items"]}
    if storage_class and storage_class not in names:
        missing.append(f"the storage class {storage_class}: there are {sorted(names)}")
    if not storage_class and not any(map(_is_default, classes["items"])):
        missing.append(f"{STORAGE_CLASS}, of {sorted(names)}: none of them is the default")
    return missing


def workers(nodes: Object) -> int:
    """Return how many nodes take pods that tolerate nothing."""
    return sum(_takes_pods(node) for node in nodes["items"])


def _takes_pods(node: Object) -> bool:
    spec = node["spec"]
    is_tainted = any(taint["effect"] != "PreferNoSchedule" for taint in spec.get("taints") or ())
    is_ready = any(
        each["type"] == "Ready" and each["status"] == "True"
        for each in node["status"]["conditions"]
    )
    return is_ready and not is_tainted and not spec.get("unschedulable", False)


def _is_default(storage_class: Object) -> bool:
    notes = storage_class["metadata"].get("annotations") or {}
    return notes.get(DEFAULT_CLASS) == "true"
