"""The attackers of `make hostile` do what they are meant to, and their verdict is strict."""

from pathlib import Path
from random import Random

import pytest

from qm.api.gate.identity import Role
from qm.api.gate.roles import RULES
from qm.node.config.loading import load
from qm.wire.packets.packet import parse_packet
from tests.fuzz.invariants import check_packet, check_ping
from tests.hostile.__main__ import Figures, broken, groups_of
from tests.hostile.attack import CLASSES
from tests.hostile.calls import ROLES, UNDECODABLE, body
from tests.hostile.packets import acknowledgement, aimed, corpus, mutated, ping
from tests.hostile.site import Site

QUEUES = ["OS:host\\private$\\q"]
SOUND: Figures = {
    "inputs": 9,
    "tracebacks": 0,
    "deaths": 0,
    "leader_changes": 0,
    "gap_p99_ms": 20.0,
    "sent": 5,
    "lost": 0,
    "doubled": 0,
    "unsettled": 0,
    "diverged": 0,
}


def test_the_codec_survives_what_attackers_make() -> None:
    chance = Random(1)
    for _ in range(300):
        check_packet(mutated(chance, chance.choice((aimed(chance, QUEUES), *corpus()))))
        check_packet(acknowledgement(chance))
        check_ping(ping(chance))


def test_most_of_what_is_aimed_arrives_whole() -> None:
    chance = Random(2)
    for _ in range(50):
        raw = aimed(chance, QUEUES)
        assert parse_packet(raw, 0, len(raw))[1] == len(raw)


def test_the_same_seed_makes_the_same_attack() -> None:
    first, second = ([mutated(Random(3), raw) for raw in corpus()] for _ in range(2))
    assert first == second


@pytest.mark.parametrize("role", [*ROLES.values(), None])
def test_no_attacker_takes_the_cluster_down_by_right(role: Role | None) -> None:
    chance = Random(4)
    for path, rule in RULES.items():
        data = body(chance, path, role)
        if role in (Role.ADMIN, Role.OPERATOR, Role.NODE) and rule.is_change and role in rule.roles:
            assert data.startswith(UNDECODABLE)


def test_a_broken_promise_is_named() -> None:
    assert broken(SOUND) == []
    for name in ("tracebacks", "deaths", "leader_changes", "lost", "doubled", "diverged"):
        assert broken(SOUND | {name: 1}) == [f"{name} 1"]
    assert broken(SOUND | {"gap_p99_ms": 1_000.0}) == ["gap_p99_ms 1000"]
    assert broken(SOUND | {"inputs": 0}) == ["no inputs"]
    assert set(CLASSES) >= {"fuzz_1801", "fuzz_grpc", "fuzz_http", "fuzz_udp"}


def test_classes_attack_alone_or_together() -> None:
    assert groups_of("") == [[name] for name in CLASSES]
    assert groups_of("fuzz_1801+byte_wise,fuzz_udp") == [["fuzz_1801", "byte_wise"], ["fuzz_udp"]]
    for text in ("nonsense", "fuzz_1801+", "fuzz_udp,fuzz_udp+byte_wise"):
        with pytest.raises(ValueError, match="class"):
            groups_of(text)


def test_the_nodes_of_the_site_serve_objects(tmp_path: Path) -> None:
    site = Site(tmp_path, print)
    for node in site._layout.make(3, site._network):
        site._configure(node)
        config = load(site._layout.config(node.name))
        assert config.rpc.objects
        assert config.rpc.users_file is not None
        assert config.rpc.users_file.is_file()
