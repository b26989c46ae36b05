"""Alarms of apply are counted and kept, with the peer that they are about."""

from prometheus_client import CollectorRegistry

from qm.api.gate.events import EventLog
from qm.cluster.cluster import Leadership
from qm.model.values import commands
from qm.model.values.commands import Facts
from qm.model.values.elements import BindingMode
from qm.model.values.limits import ALARM_DIVERGED, ALARM_JOURNAL_DROPPED
from qm.names.guid import guid_text
from qm.node.upkeep.event_journal import Journal
from qm.observe.metrics import Metrics
from tests.unit.model.world import PEER, PEER_ADDRESS, World, packet


def test_an_alarm_about_a_peer_names_it() -> None:
    world, metrics = World(), Metrics(CollectorRegistry())
    world.create("plain")
    world.one(commands.SetBindings(BindingMode.BIND, 60_000, (), ()))
    world.arrive(packet(1, to="plain"))
    _, applied = world.arrive_applied(packet(2, to="plain"), facts=Facts(2, PEER, "10.0.0.66", ()))
    events = EventLog(lambda: 0)
    Journal(events, metrics.counter("quorate_alarms_total")).on_applied(applied)
    (event,) = events.after(0)
    assert event.name == "peer_elsewhere"
    assert event.details == {
        "queue_manager": guid_text(PEER),
        "address": "10.0.0.66",
        "expected": PEER_ADDRESS,
    }
    assert all(text in event.text for text in event.details.values())
    counted = metrics.registry.get_sample_value("quorate_alarms_total", {"alarm": event.name})
    assert counted == 1


def test_refused_messages_are_told_once_a_minute_for_each_class() -> None:
    now = [0.0]
    events, metrics = EventLog(lambda: 0), Metrics(CollectorRegistry())
    journal = Journal(events, metrics.counter("quorate_alarms_total"), lambda: now[0])
    facts = Facts(1, PEER, PEER_ADDRESS, ())
    signature, encryption = "nack_bad_signature", "nack_bad_encryption"
    refused = ((0.0, signature), (59.0, signature), (59.0, encryption), (60.0, signature))
    for now[0], refused_as in refused:
        journal.insecure(refused_as, 3, facts)
    told = events.after(0)
    assert [event.details["class"] for event in told] == [signature, encryption, signature]
    assert {(event.kind, event.name) for event in told} == {("session", "message_insecure")}
    assert all(PEER_ADDRESS in event.text and guid_text(PEER) in event.text for event in told)


def test_an_alarm_that_every_node_sees_enters_the_history_by_the_leader() -> None:
    events, metrics = EventLog(lambda: 0), Metrics(CollectorRegistry())
    taken: list[str] = []
    events.on_add = lambda event: taken.append(event.name)
    journal = Journal(events, metrics.counter("quorate_alarms_total"))
    applied = World().apply()
    applied.alarms.append(ALARM_JOURNAL_DROPPED)
    applied.alarms.append(ALARM_DIVERGED)
    journal.on_applied(applied)
    journal.on_leadership(Leadership("n1", 2, True))
    assert taken == []
    journal.on_applied(applied)
    assert taken == [ALARM_JOURNAL_DROPPED], "the entry itself records who diverged"
    journal.on_leadership(Leadership("n2", 3, False))
    journal.alarm("damaged", "only this node sees it")
    assert taken[1:] == ["damaged"]
    assert len(events.after(0)) == 7
