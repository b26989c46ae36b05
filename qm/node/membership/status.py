"""What a node reports about itself to the others."""

import time
from collections.abc import Mapping
from importlib import metadata
from types import MappingProxyType
from typing import Final

from qm.model.values.limits import APPLY_VERSION
from qm.node.replica.replicated_store import ReplicatedStore
from qm.pb import relay_pb2
from qm.store.digest import digest_bytes
from raft.types import Role


def build_version() -> str:
    """Return the version of this build."""
    try:
        return metadata.version("quorate")
    except metadata.PackageNotFoundError:
        return "run from its source tree"


VERSION: Final = build_version()


def inspect_reply(
    name: str,
    replicated: ReplicatedStore | None = None,
    proofs: Mapping[int, bytes] = MappingProxyType({}),
) -> relay_pb2.InspectReply:
    """Return a node's answer to Inspect; `proofs` are its digests by audit mark."""
    reply = relay_pb2.InspectReply(
        node=name,
        wall_clock_ms=time.time_ns() // 1_000_000,
        version=VERSION,
        command_version=APPLY_VERSION,
    )
    if replicated is None:
        return reply
    status = replicated.driver.status()
    is_voter = replicated.config.node in status.configuration.voters
    reply.raft_id = replicated.config.node
    reply.role = role_name(status.role, is_voter=is_voter)
    reply.term = status.term
    reply.leader = replicated.leadership.node or ""
    reply.commit = status.commit
    reply.applied = status.applied
    reply.cluster = replicated.config.cluster
    reply.voters.extend(status.configuration.voters)
    reply.learners.extend(status.configuration.learners)
    reply.retired.extend(status.configuration.retired)
    reply.membership_index = status.configuration_index
    reply.marks.update(proofs)
    if not (replicated.machine.is_installing or replicated.machine.is_closed):
        reply.digest = digest_bytes(replicated.machine.store.applied.digest)
        reply.is_provisioned = replicated.view.ledger.manager is not None
        reply.apply_version = replicated.view.counters().apply_version
    return reply


def role_name(role: Role, *, is_voter: bool) -> str:
    """Return leader, follower, candidate or learner."""
    if role is Role.LEADER:
        return "leader"
    if role is Role.FOLLOWER:
        return "follower" if is_voter else "learner"
    return "candidate"
