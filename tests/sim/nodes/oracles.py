"""What must hold when faults are over, in the order of what it has found so far.

The histories' verdict, liveness and what probes compare while a world runs come before this.
"""

from typing import TYPE_CHECKING, Final

from qm.model.state.tables import Table
from qm.model.values.rows import POSITION_ROW
from qm.store.bodies.body_places import BodyPlace
from qm.store.replay import _RecentEntries as RecentEntries
from qm.store.store import Store
from raft.types import Entry
from tests.sim.nodes import rot
from tests.sim.nodes.machines import Machine

if TYPE_CHECKING:
    from tests.sim.nodes.cluster import SimCluster

CONVERGE_S: Final = 20.0
REPLAY_RUNS: Final = (1, 2, 7, 64)
WHOLE: Final = 1 << 20
"""A run that has all entries."""
DISK_FAULTS: Final = frozenset({"eio", "full", "full_all", "full_class", "rocks_full", "rocks_eio"})
FATAL_FAULTS: Final = frozenset({"eio", "rocks_eio", "rot"})
"""They may end a process: what was lost or damaged is not known there."""
_BODY_FIELDS: Final = slice(3, 8)
_KEY_END: Final = b"\xff" * 24
_SCAN_ROWS: Final = 1 << 20


async def judge(cluster: "SimCluster") -> None:
    """Look at everything."""
    await _converged(cluster, "after the faults")
    if "rot" in cluster.faults.counts:
        await rot.scrub_all(cluster)
    check_states(cluster)
    check_deaths(cluster)
    await _restart_all(cluster)
    check_states(cluster)
    check_replays(cluster)
    for machine in cluster.machines.values():
        for text in machine.disk.findings:
            cluster.find(text)


async def _converged(cluster: "SimCluster", when: str) -> None:
    try:
        await cluster.until(lambda: _is_same(cluster), f"convergence {when}", CONVERGE_S)
    except TimeoutError as error:
        cluster.find(f"liveness: {error}: {_where(cluster)}")


def _stores(cluster: "SimCluster") -> dict[str, Store]:
    """Return the store of each node that can be read."""
    found = {}
    for name, machine in cluster.machines.items():
        replicated = None if machine.node is None else machine.node.replicated
        if replicated is not None and not replicated.machine.is_installing:
            found[name] = replicated.machine.store
    return found


def _is_same(cluster: "SimCluster") -> bool:
    stores = _stores(cluster)
    leader = cluster.leader()
    return (
        len(stores) == len(cluster.machines)
        and leader is not None
        and len(voters(leader)) == len(cluster.machines)
        and (len({store.applied_index() for store in stores.values()}) == 1)
    )


def voters(machine: Machine) -> tuple[str, ...]:
    """Return the voters that a running node knows."""
    replicated = None if machine.node is None else machine.node.replicated
    return () if replicated is None else replicated.configuration.voters


def _where(cluster: "SimCluster") -> str:
    applied = {name: store.applied_index() for name, store in _stores(cluster).items()}
    leader = cluster.leader()
    return f"applied {applied}, voters {() if leader is None else voters(leader)}"


def check_states(cluster: "SimCluster") -> None:
    """The same rows, the digest that they give, and every body, on every replica."""
    stores = _stores(cluster)
    for name in cluster.machines:
        if name not in stores:
            cluster.find(f"liveness: {name} does not serve")
    points = {name: store.applied for name, store in stores.items()}
    newest = max((point.index for point in points.values()), default=0)
    digests = {point.digest for point in points.values() if point.index == newest}
    if len(digests) > 1:
        cluster.find(f"digest: states differ at entry {newest}: {first_difference(stores)}")
    for name, store in stores.items():
        if not store.verify():
            cluster.find(f"digest: the rows of {name} do not give its digest")
        cluster.world.say("state", name, points[name].index, read_bodies(cluster, name, store))


def first_difference(stores: dict[str, Store]) -> str:
    """Return the first replicated row that two of them have not in common."""
    rows = {name: dict(store.state.rows()) for name, store in stores.items()}
    first = next(iter(rows.values()))
    for other in rows.values():
        for key in sorted(first.keys() | other.keys()):
            if key[0] < Table.LOCAL_FIRST and first.get(key) != other.get(key):
                values = [(rows[name].get(key) or b"").hex()[:64] for name in rows]
                return f"{Table(key[0]).name} {key[1:].hex()}: {values}"
    return "no row; the digests are of something else"


def read_bodies(cluster: "SimCluster", name: str, store: Store) -> int:
    """Read the body of every position on one replica; return how many there are."""
    rows = store.state.scan(Table.POSITION, b"", _KEY_END, _SCAN_ROWS)
    damaged: list[str] = []
    for key, row in rows:
        place = BodyPlace(*POSITION_ROW.unpack(row)[_BODY_FIELDS])
        try:
            store.bodies.read(place)
        except Exception as error:
            damaged.append(f"{key.hex()} of entry {place.index}: {error!r}")
    if damaged:
        text = f"{name} cannot read {len(damaged)} of {len(rows)} bodies that were acknowledged"
        cluster.find(f"body: {text}: {damaged[0][:200]}")
    return len(rows)


def check_deaths(cluster: "SimCluster") -> None:
    """A full disk ends no process, and stops none from starting; errors of syncs and damage may."""
    kinds = set(cluster.faults.counts)
    if kinds & FATAL_FAULTS:
        return
    for machine in cluster.machines.values():
        _check_deaths(cluster, machine, "a full disk" if kinds & DISK_FAULTS else "no fault of it")


def _check_deaths(cluster: "SimCluster", machine: Machine, reason: str) -> None:
    name = machine.name
    if machine.deaths:
        cluster.find(f"death: {name} ended itself for {reason}: {machine.deaths[0][:300]}")
    if machine.start_failures:
        text = machine.start_failures[0][:300]
        cluster.find(f"death: {name} did not start for {reason}: {text}")
    if reason == "no fault of it" and machine.loop is not None and machine.loop.errors:
        cluster.find(f"error: {name}: {machine.loop.errors[0][:300]}")


async def _restart_all(cluster: "SimCluster") -> None:
    """Kill everybody, some by power; what was acknowledged is still there."""
    chance = cluster.world.chance("last death")
    for machine in cluster.machines.values():
        machine.kill(power=chance.random() < 0.7, why="the end", restart_s=0.2)
    await _converged(cluster, "after the last restart")


def check_replays(cluster: "SimCluster") -> None:
    """Apply all entries once more in a store alone, in runs of several lengths.

    Probes compare what comes of it with what the nodes had.
    """
    entries = cluster.probes.entries()
    if entries is None:
        return
    chance = cluster.world.chance("replays")
    for run in (chance.choice(REPLAY_RUNS), WHOLE):
        cluster.probes.acting = f"a replay in runs of {run}"
        try:
            _replay(cluster, entries, run)
        finally:
            cluster.probes.acting = ""


def _replay(cluster: "SimCluster", entries: list[Entry], run: int) -> None:
    log = RecentEntries()
    store = Store(cluster.folder / f"replay-{run}", log, keeps_effects=True, cache_bytes=4 << 20)
    for begin in range(0, len(entries), run):
        part = entries[begin : begin + run]
        log.append(part)
        store.apply(part)
        for mark in store.marks:
            store.let_go(mark)
        store.marks.clear()
    store.settle()
    store.close()
