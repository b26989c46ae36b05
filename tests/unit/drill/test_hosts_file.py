"""The file of hosts: what it may say, and what a drill answers to what it may not."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from qm.cli.drills.drill import drill
from qm.drill.targets.ability import Ability, Refused
from qm.drill.targets.hosts_file import load_hosts

BASE = """
clients = "192.0.2.99"
virtual_address = "192.0.2.10"

[tls]
authority = "authority.pem"
certificate = "/etc/quorate/admin.pem"
key = "admin.key"

[[nodes]]
name = "n1"
host = "192.0.2.11"
[[nodes]]
name = "n2"
host = "2001:db8::12"
[[nodes]]
name = "n3"
host = "n3.example.org"
api_port = 2811

[commands]
kill = ["ssh", "{host}", "systemctl", "kill", "-s", "KILL", "quorate"]
stop = ["ssh", "{host}", "systemctl", "stop", "quorate"]
start = ["ssh", "{host}", "systemctl", "start", "quorate"]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "hosts.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_nodes_and_files_are_where_it_says(tmp_path: Path) -> None:
    hosts = load_hosts(written(tmp_path, BASE))
    assert [host.api for host in hosts.nodes] == [
        "192.0.2.11:1811",
        "[2001:db8::12]:1811",
        "n3.example.org:2811",
    ]
    assert hosts.nodes[1].http == "http://[2001:db8::12]:1814"
    assert hosts.tls.authority == tmp_path / "authority.pem"
    assert hosts.tls.certificate == Path("/etc/quorate/admin.pem")


@pytest.mark.parametrize(
    ("more", "able"),
    [
        ("", set()),
        ('pause = ["a"]\nresume = ["a"]', {Ability.PAUSE}),
        ('lose_disk = ["a"]\nrejoin = ["a"]', {Ability.DISKS}),
        (
            'lose_disk = ["a"]\nrejoin = ["a"]\n[[spares]]\nname = "n4"\nhost = "h"',
            {Ability.DISKS, Ability.REPLACE},
        ),
        ('cut = ["a", "{sources}"]\nheal = ["a"]', {Ability.NETWORK}),
        (
            'cut = ["a", "{sources}"]\nheal = ["a"]\nhas_address = ["a"]',
            {Ability.NETWORK, Ability.UNPLUG},
        ),
        ('upgrade = ["a"]\ndowngrade = ["a"]', {Ability.BUILDS}),
    ],
)
def test_it_can_do_what_it_is_told_how(tmp_path: Path, more: str, able: set[Ability]) -> None:
    hosts = load_hosts(written(tmp_path, BASE + more))
    assert hosts.abilities == {Ability.PROCESSES, Ability.VIRTUAL_ADDRESS} | able


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("kill =", "kil ="), "unknown key 'commands.kil': did you mean 'kill'"),
        (('name = "n2"', 'name = "n1"'), "name a node twice"),
        (('[[nodes]]\nname = "n1"\nhost = "192.0.2.11"', ""), "length >= 3"),
        (('"{host}", "systemctl", "stop"', '"{adress}", "systemctl", "stop"'), "'{adress}'"),
        (('"{host}", "systemctl", "stop"', '"{host.__class__}", "stop"'), "known are {name}"),
        (('"{host}", "systemctl", "stop"', '"{", "stop"'), "known are {name}"),
        (("[commands]", '[commands]\npause = ["a"]'), "`pause` and `resume` together"),
        (("[commands]", '[commands]\ncut = ["a"]\nheal = ["a"]'), "no argument '{sources}'"),
        (("[tls]", "[tls"), "hosts.toml"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(
    tmp_path: Path, change: tuple[str, str], says: str
) -> None:
    path = written(tmp_path, BASE.replace(*change))
    with pytest.raises(Refused) as refused:
        load_hosts(path)
    assert says in str(refused.value)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_scenario_that_it_cannot_do_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = written(tmp_path, BASE)
    for name, why in (
        ("torn-write", "only dev and netns do"),
        ("pause-leader", "is not configured for it"),
    ):
        arguments = ["run", name, "--target", str(path), "--yes", "--folder", str(tmp_path)]
        result = CliRunner().invoke(drill, arguments)
        assert result.exit_code == 2
        assert why in result.output


def test_nothing_fails_without_consent(tmp_path: Path) -> None:
    arguments = ["run", "kill-leader", "--target", str(written(tmp_path, BASE))]
    result = CliRunner().invoke(drill, [*arguments, "--folder", str(tmp_path)], input="n\n")
    assert result.exit_code == 1
    assert "kill-leader" in result.output
