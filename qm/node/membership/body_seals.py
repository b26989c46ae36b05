"""Seals and opens bodies at this node, with keys derived from the cluster's sealing key."""

import logging
import secrets
import time
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace
from typing_extensions import override
from zlib_ng.zlib_ng import crc32

from qm.cluster.cluster import Cluster, Unavailable
from qm.cluster.sealing import Sealing
from qm.model.queries import manager_keys, security_policy
from qm.model.values.commands import Command, Send, Target
from qm.model.values.elements import SealedBodies
from qm.model.values.limits import VERSION_OF_SEALED_BODIES
from qm.node.membership.manager_keys import NodeKeys
from qm.observe.logs import LimitedLog
from qm.observe.metrics import Metrics
from qm.security.body_seals import (
    BodyOpener,
    BodySealer,
    SealBroken,
    generation_key,
    is_sealed,
)
from qm.store.bodies.body_places import BodyDamaged, BodyUnopened
from qm.store.sealing import SealingError
from qm.wire.enums import PrivacyLevel
from qm.wire.packets.peek import peek_head, peek_privacy_level

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 1.0
"""How long a change of the policy or of the keys may take to count here."""


class BodySeals(Sealing):
    """What this node does to bodies before it proposes them, and when it reads them."""

    def __init__(
        self,
        keys: NodeKeys,
        cluster: Cluster,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock`: monotonic seconds."""
        self._keys = keys
        self._cluster = cluster
        self._clock = clock
        self._log = LimitedLog(logger, clock)
        self._unopened = metrics.counter("quorate_bodies_unopened_total")
        self._look_at = 0.0
        self._which: SealedBodies | None = None
        self._generation = 0
        self._sealer: BodySealer | None = None
        self._opener = BodyOpener(self._key)

    def _key(self, generation: int) -> bytes:
        return generation_key(self._keys.proven_sealing_key(), generation)

    # Sealing

    @property
    @override
    def which(self) -> SealedBodies:
        now = self._clock()
        if self._which is None or now >= self._look_at:
            self._look_at = now + LOOK_EVERY_S
            self._which, self._generation = self._wanted()
        return self._which

    def _wanted(self) -> tuple[SealedBodies, int]:
        try:
            view = self._cluster.view
        except Unavailable:
            if self._which is None:
                raise
            return self._which, self._generation
        generation = manager_keys(view).generation
        policy = security_policy(view)
        if policy is None or view.counters().apply_version < VERSION_OF_SEALED_BODIES:
            return SealedBodies.NONE, generation
        return SealedBodies(policy.sealed_bodies), generation

    @override
    def sealer(self) -> BodySealer:
        if self._sealer is None or self._sealer.generation != self._generation:
            try:
                key = generation_key(self._keys.proven_sealing_key(), self._generation)
            except SealingError as error:
                raise Unavailable(f"this node cannot seal bodies: {error}") from error
            self._sealer = BodySealer(key, self._generation, secrets.token_bytes)
        return self._sealer

    def sealed(self, command: Command) -> Command:
        """Return what is proposed for a command: a send with those bodies sealed that are to be.

        Raises Unavailable.
        """
        if not isinstance(command, Send):
            return command
        which = self.which
        if which is SealedBodies.NONE:
            return command
        packets: list[bytes] = []
        targets: list[Target] = []
        begin = 0
        for k, target in enumerate(command.targets):
            packet = bytes(command.packets[begin : begin + target.packet_bytes])
            begin += target.packet_bytes
            was_encrypted = bool(command.facts) and command.facts[k].was_encrypted
            if which is SealedBodies.ALL or was_encrypted or _is_to_be_encrypted(packet):
                packet = self.sealer().sealed(packet)
                target = replace(
                    target,
                    packet_bytes=len(packet),
                    checksum=crc32(packet),
                    is_sealed=True,
                )
            packets.append(packet)
            targets.append(target)
        return replace(command, packets=memoryview(b"".join(packets)), targets=tuple(targets))

    # Opening

    def opened(self, packet: bytes) -> bytes:
        """Return the plain form of a stored packet. Raises BodyDamaged."""
        if not is_sealed(packet):
            return packet
        try:
            return self._opener.opened(packet)
        except SealBroken as error:
            self._unopened.labels("broken").inc()
            self._log.error("broken", "a sealed body does not open", error)
            raise BodyDamaged(str(error)) from error
        except SealingError as error:
            self._unopened.labels("no_key").inc()
            self._log.warning("no_key", f"this node cannot open sealed bodies: {error}")
            raise BodyUnopened(f"this node cannot open the body: {error}") from error


def _is_to_be_encrypted(packet: bytes) -> bool:
    """Whether the body is to leave encrypted (MessagePropertiesHeader.PrivacyLevel)."""
    return peek_privacy_level(packet, 0, peek_head(packet, 0)) != PrivacyLevel.NONE
