"""Every alarm that a node can raise is seen at 0 before it is raised, so that alerts can fire."""

from prometheus_client import CollectorRegistry

from qm.archive.archiver import ALARM_LAG
from qm.model.values import limits
from qm.node.upkeep.healer import ALARM_DAMAGED, ALARM_DAMAGED_EVERYWHERE
from qm.observe.metrics import ALARMS, Metrics
from qm.store.reserve import DiskLevel
from raft.step import AlarmKind


def test_the_table_names_every_alarm() -> None:
    consensus = {kind.name.lower() for kind in AlarmKind}
    disk = {f"disk_{level.name.lower()}" for level in DiskLevel if level is not DiskLevel.ROOM}
    model = {text for name, text in vars(limits).items() if name.startswith("ALARM_")}
    damage = {ALARM_DAMAGED, ALARM_DAMAGED_EVERYWHERE}
    assert set(ALARMS) == consensus | disk | model | damage | {ALARM_LAG}


def test_an_alarm_counts_from_zero() -> None:
    metrics = Metrics(CollectorRegistry())
    for alarm in ALARMS:
        assert metrics.registry.get_sample_value("quorate_alarms_total", {"alarm": alarm}) == 0
