"""The archiver on this node: the store as its source, and the audit results it is given.

Only a node that archives loads this module, and Arrow with it, which takes 50 MiB.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from blake3 import blake3
from typing_extensions import override

from qm.archive.archiver import Archiver, ArchiverConfig
from qm.archive.bodies import Span
from qm.archive.columns import MarkReport
from qm.archive.ranges import AckRow, Identity, Policy
from qm.archive.source import ArchiveSource, LogGone, LogHold
from qm.node.config.schema import ArchiveSection
from qm.node.membership.peers import Peers
from qm.node.replica.replicated_store import GROUP, ReplicatedStore
from qm.node.replica.state_machine import AppliedStore
from qm.node.upkeep.msmq_endpoint import MsmqEndpoint
from qm.observe.metrics import Metrics
from qm.pb import relay_pb2
from qm.store.audit import Mark, Proof
from qm.store.effects.effects_log import EffectsLog
from qm.store.signing import Signer
from qm.store.snapshot import Pinned
from qm.store.store import Store
from raft.log.recovery import LogDamaged
from raft.log_view import Compacted, Unavailable
from raft.transport.transport import node_name

_PLACE_BYTES: Final = 8


class StoreSource(ArchiveSource):
    """Implements `qm.archive.source.ArchiveSource`."""

    def __init__(self, machine: AppliedStore) -> None:
        self._machine = machine

    @property
    def _store(self) -> Store:
        return self._machine.store

    @override
    def keeper(self) -> EffectsLog | None:
        return None if self._machine.is_installing else self._store.kept

    @override
    def hold(self, index: int) -> LogHold:
        try:
            return self._store.hold_log(index)
        except Compacted as error:
            raise LogGone(str(error)) from error

    @override
    def next_row(self, above: int) -> tuple[int, bytes] | None:
        rows = self._store.kept_rows(above, 1)
        return rows[0] if rows else None

    @override
    def rows(self, above: int, limit: int) -> list[tuple[int, bytes]]:
        with self._machine.files:
            if self._machine.is_closed:
                raise LogGone("this node stops")
            return self._store.kept_rows(above, limit)

    @override
    def flush(self) -> None:
        if self._machine.is_closed:
            raise LogGone("this node stops")
        self._machine.flush()

    @override
    def pin(self) -> Pinned:
        return self._machine.pin()

    @override
    def entry(self, index: int) -> bytes | memoryview:
        try:
            return self._store.read_entry(index)
        except (Compacted, Unavailable) as error:
            raise LogGone(str(error)) from error
        except LogDamaged as error:
            raise OSError(str(error)) from error


class Archiving:
    """An archiver of the archive that the configuration names."""

    def __init__(
        self,
        section: ArchiveSection,
        replicated: ReplicatedStore,
        msmq: MsmqEndpoint,
        on_alarm: Callable[[str, str], None],
        metrics: Metrics,
        peers: Peers,
        signer: Callable[[], Signer | None],
    ) -> None:
        self._place = _place(section.url)
        config = replicated.config
        own = relay_pb2.InspectReply(
            node=replicated.node, cluster=config.cluster, archived_to=self._place
        )
        self.archiver: Final = Archiver(
            archiver_config(section),
            Identity(config.cluster.hex(), config.node, GROUP),
            StoreSource(replicated.machine),
            lambda: _ack_rows(replicated.node, msmq),
            on_alarm,
            metrics,
            lambda: _turn(replicated),
            lambda: _spans_of_others(own, peers),
            signer=signer,
        )
        self.archiver.begin()

    async def stop(self) -> None:
        """Let a running export end, and release the log; call it before the state is closed."""
        await self.archiver.stop()

    def describe(self, reply: relay_pb2.InspectReply) -> None:
        """Report which entries' data this node has in the archive."""
        span = self.archiver.data_span
        if span is not None:
            reply.archived_first, reply.archived_last = span
            reply.archived_to = self._place

    def proved(self, mark: Mark, proof: Proof) -> None:
        """The state at an audit mark was read: add the result to the archive."""
        if proof.is_sound:
            self.archiver.report(mark.index, MarkReport(mark.number, proof.digest, proof.queues))


def archiver_config(section: ArchiveSection) -> ArchiverConfig:
    """Return a configuration in the units of `qm.archive`."""
    return ArchiverConfig(
        url=section.url,
        policy=Policy(section.bodies),
        has_data_once=section.body_copies == "one",
        range_entries=section.range_entries,
        range_bytes=section.range_mb << 20,
        range_s=section.range_s,
        hold_bytes=section.hold_mb << 20,
        busy_wait_s=section.busy_wait_s,
        checkpoint_bytes=section.checkpoint_mb << 20,
    )


def _turn(replicated: ReplicatedStore) -> int:
    """Return how many members export before this one: the leader is the last."""
    leader, own = replicated.leadership.node, replicated.node
    before = [
        name
        for name in map(node_name, replicated.configuration.voters)
        if (name == leader, name) < (own == leader, own)
    ]
    return len(before)


async def _spans_of_others(own: relay_pb2.InspectReply, peers: Peers) -> Mapping[str, Span]:
    """Return what other members have written of this cluster's entries to the same archive."""
    return {
        name: Span(reply.archived_first, reply.archived_last)
        for name, reply in (await peers.inspect_all()).items()
        if name != own.node
        and reply.archived_last
        and (reply.cluster, reply.archived_to) == (own.cluster, own.archived_to)
    }


def _place(url: str) -> bytes:
    """Return a digest that tells archives apart, without the secrets that a URL may hold."""
    return blake3(url.encode()).digest(_PLACE_BYTES)


def _ack_rows(edge: str, msmq: MsmqEndpoint) -> Sequence[AckRow]:
    if msmq.edge is None:
        return ()
    return [
        (edge, mark.session, mark.acknowledged, mark.depends_on, mark.commit_index)
        for mark in msmq.edge.drain_ack_marks()
    ]
