"""Settings of one simulated world, drawn from its seed. Each kind of fault is absent from some
seeds, so that a failure can be read without the noise of all the others.
"""

import random
from dataclasses import dataclass, field

from tests.sim.clients import ClientFaults
from tests.sim.host import HostFaults
from tests.sim.network import NetworkFaults
from tests.sim.slots import MachineFaults

FAULT_KINDS_QUIET = ("pause", "freeze", "split", "reset", "clog", "repeat", "stranger", "transfer")
"""In every seed's choice."""
FAULT_KINDS_CRASH = ("kill", "die", "power", "blackout", "stop")
"""In two seeds of three, which then have at least one of them."""
FAULT_KINDS_DISK = ("wipe", "corrupt", "fill", "sync_error")
FAULT_KINDS_LATER = ("set_back", "stall")
"""Drawn last, so that the settings of a seed stayed what they were without them."""


@dataclass(slots=True)
class Knobs:
    """Sizes and rates. Production's limits are shrunk until each is reached within a run."""

    voters: int = 3
    spares: int = 1
    heartbeat_ticks: int = 10
    election_ticks: int = 100
    append_bytes_max: int = 2_048
    commit_stride_entries: int = 8
    inflight_messages_max: int = 8
    recent_bytes_max: int = 4_096
    apply_batch_bytes: int = 4_096
    log_retain_bytes: int = 8_192
    segment_bytes: int = 4_096
    picture_idle_ticks: int = 1_000
    stuck_ticks: int = 200
    apply_lag_entries_max: int = 64
    sector_bytes: int = 64
    snapshot_chunk_bytes: int = 512
    is_encoded: bool = False
    """Frames travel as the bytes that production sends (raft.transport.wire_format)."""
    has_crashes: bool = True
    fault_pause_us: int = 150_000
    """Mean time between two faults."""
    churn: float = 0.0
    """Share of the administrator's rounds in which the members change for no reason."""
    fault_weights: dict[str, int] = field(default_factory=dict)
    host: HostFaults = field(default_factory=HostFaults)
    machine: MachineFaults = field(default_factory=MachineFaults)
    network: NetworkFaults = field(default_factory=NetworkFaults)
    clients: ClientFaults = field(default_factory=ClientFaults)

    @classmethod
    def drawn(cls, seed: int, chance: random.Random) -> "Knobs":
        """Draw the settings of a seed."""
        heartbeat_ticks, election_ticks = chance.choice(((20, 80), (30, 120), (50, 250)))
        knobs = cls(
            voters=chance.choice((3, 3, 3, 3, 3, 5, 4, 2, 1)),
            spares=chance.choice((0, 1, 1, 2)),
            heartbeat_ticks=heartbeat_ticks,
            election_ticks=election_ticks,
            append_bytes_max=chance.choice((300, 2_048, 1 << 20)),
            commit_stride_entries=chance.choice((1, 1, 8, 64)),
            inflight_messages_max=chance.choice((1, 4, 256)),
            recent_bytes_max=chance.choice((256, 4_096, 1 << 20)),
            apply_batch_bytes=chance.choice((256, 4_096, 4 << 20)),
            log_retain_bytes=chance.choice((256, 256, 256, 16_384)),
            segment_bytes=chance.choice((4_096, 4_096, 16_384)),
            picture_idle_ticks=chance.choice((10, 1_000)),
            stuck_ticks=chance.choice((100, 500)),
            sector_bytes=chance.choice((16, 64, 512)),
            snapshot_chunk_bytes=chance.choice((256, 2_048, 65_536)),
            is_encoded=chance.random() < 0.5,
            has_crashes=seed % 3 != 0,
            fault_pause_us=chance.choice((30_000, 100_000, 300_000)),
            churn=chance.choice((0.0, 0.1, 0.5)),
            network=NetworkFaults.drawn(chance),
        )
        knobs._draw_parts(chance)
        knobs._draw_faults(chance)
        knobs.apply_lag_entries_max = chance.choice((4, 16, 64))
        for kind in FAULT_KINDS_LATER if knobs.has_crashes else ():
            if weight := chance.choice((0, 0, 1, 4)):
                knobs.fault_weights[kind] = weight
        return knobs

    def _draw_parts(self, chance: random.Random) -> None:
        self.host = HostFaults(
            sync_us_min=chance.choice((50, 500)),
            sync_us_max=chance.choice((1_000, 5_000, 20_000)),
            slow_sync=chance.choice((0.0, 0.01, 0.05)),
            poll_late=chance.choice((0.0, 0.1, 0.5)),
            clock_drift=chance.choice((0.0, 0.05, 0.3)),
        )
        self.machine = MachineFaults(
            write_every=chance.choice((1, 2, 5)), sync_every=chance.choice((1, 2, 4))
        )
        self.clients = ClientFaults(
            count=chance.choice((1, 3, 5)),
            window=chance.choice((1, 4, 16)),
            think_us=chance.choice((5_000, 20_000, 60_000)),
            read_share=chance.choice((0.0, 0.2, 0.5)),
            value_bytes=chance.choice(((0, 8, 40), (40, 400), (400, 1_500))),
        )

    def _draw_faults(self, chance: random.Random) -> None:
        kinds = [*FAULT_KINDS_QUIET]
        if self.has_crashes:
            kinds += [*FAULT_KINDS_CRASH, *FAULT_KINDS_DISK]
        for kind in kinds:
            weight = chance.choice((0, 1, 1, 4))
            if weight and kind == "blackout":
                weight = 1
            if weight:
                self.fault_weights[kind] = weight
        if self.has_crashes and not self.fault_weights.keys() & set(FAULT_KINDS_CRASH):
            self.fault_weights[chance.choice(FAULT_KINDS_CRASH)] = 2
