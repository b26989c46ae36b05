"""What the suite reads of Kubernetes' objects and of what `qm` prints."""

from collections.abc import Iterator
from typing import Any

import msgspec

from qm.node.leader.kubernetes import LABEL
from tests.kubernetes.programs import Object


class Pod(msgspec.Struct, frozen=True):
    """A pod as the API server describes it."""

    name: str
    uid: str
    labels: dict[str, str]
    worker: str
    """Empty: not yet on any."""
    is_ready: bool
    """Ready, and not about to end."""

    @property
    def role(self) -> str:
        """By which the leader's Service finds it."""
        return self.labels.get(LABEL, "")


class Member(msgspec.Struct, frozen=True):
    """A line of `qm cluster members`."""

    name: str
    raft_id: str
    role: str
    leader: bool
    reachable: bool


class Message(msgspec.Struct, frozen=True):
    """A message that `qm message receive` took."""

    body: str


def pods_of(found: Object) -> Iterator[Pod]:
    """Read a list of pods."""
    for each in found["items"]:
        meta, found_conditions = each["metadata"], each["status"].get("conditions") or ()
        conditions = {each["type"]: each["status"] for each in found_conditions}
        yield Pod(
            meta["name"],
            meta["uid"],
            meta.get("labels") or {},
            each["spec"].get("nodeName", ""),
            conditions.get("Ready") == "True" and "deletionTimestamp" not in meta,
        )


def is_rolled_out(stateful_set: Object, count: int) -> bool:
    """Return whether so many pods run, all of them as the set says now."""
    status = stateful_set["status"]
    return bool(
        status.get("observedGeneration") == stateful_set["metadata"]["generation"]
        and stateful_set["spec"]["replicas"] == count
        and status["replicas"] == status.get("readyReplicas") == count
        and status["currentRevision"] == status["updateRevision"]
    )


def outcome_of(job: Object) -> str:
    """Return how a Job ended, "" while it runs."""
    conditions = {each["type"]: each["status"] for each in job["status"].get("conditions") or ()}
    return next((how for how in ("Complete", "Failed") if conditions.get(how) == "True"), "")


def names(found: str) -> set[str]:
    """Read what `kubectl get --output name` prints, without the kinds' API groups."""
    lines = (line.partition("/") for line in found.split())
    return {f"{kind.partition('.')[0]}/{name}" for kind, _, name in lines}


def members_of(found: Any) -> list[Member]:
    return msgspec.convert(found, list[Member])
