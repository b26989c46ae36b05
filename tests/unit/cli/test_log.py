"""`qm log`: a stopped node's log in words, and the place where one is damaged."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from qm.cli.main import main
from tests.cluster.harness import cluster, run
from tests.cluster.messages import batch, create_queue, propose


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of a node that was stopped."""
    folder = tmp_path_factory.mktemp("nodes")

    async def scenario() -> None:
        async with cluster(1, folder=folder, has_edges=False) as nodes:
            node = await nodes.leader()
            await create_queue(node, "orders")
            await propose(node, batch("orders", range(1, 4)))
            await node.stop()

    run(scenario())
    return folder / "n1"


def qm(*arguments: str, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["log", *arguments], catch_exceptions=False)
    assert result.exit_code == exit_code, result.output
    return result


def entries(data: Path, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(qm("dump", str(data), *options, "-o", "json").stdout)
    return found


def test_a_dump_tells_commands_in_words_and_no_bodies(data: Path) -> None:
    found = entries(data)
    assert [entry["index"] for entry in found] == list(range(1, len(found) + 1))
    assert found[0]["kind"] == "config"
    assert found[0]["commands"] == ["voters=[n1.1]"]
    words = " | ".join(command for entry in found for command in entry["commands"])
    for part in ("LeaderActivated", "Provision", "computer_name=QUORATE", "CreateQueue",
                 "EdgeBatch", "edge=n1", "packets=("):  # fmt: skip
        assert part in words
    assert "sealed" not in words
    assert b"body".hex() not in words
    assert all(entry["time"] for entry in found if entry["kind"] == "data")


def test_a_part_of_the_log_is_chosen(data: Path) -> None:
    assert [entry["index"] for entry in entries(data, "--first", "2", "--count", "2")] == [2, 3]
    last = entries(data)[-1]["index"]
    assert [entry["index"] for entry in entries(data, "--count", "1")] == [last]
    assert entries(data, "--first", str(last + 1)) == []
    assert "COMMANDS" in qm("dump", str(data)).stdout


def test_a_sound_log_is_called_so(data: Path) -> None:
    found = json.loads(qm("verify", str(data), "-o", "json").stdout)
    assert found["sound"] is True
    assert (found["first_index"], found["last_index"]) == (1, entries(data)[-1]["index"])
    assert found["synced_index"] == found["last_index"]
    assert found["voters"] == ["n1.1"]
    again = json.loads(qm("verify", found["folder"], "-o", "json").stdout)
    assert again == found


def test_damage_is_named_with_file_byte_and_entry(data: Path, tmp_path: Path) -> None:
    folder = json.loads(qm("verify", str(data), "-o", "json").stdout)["folder"]
    copy = tmp_path / "log"
    copy.mkdir()
    (segment,) = Path(folder).glob("*.segment")
    damaged = bytearray(segment.read_bytes())
    at = damaged.index(b"QUORATE")
    damaged[at] ^= 1
    (copy / segment.name).write_bytes(damaged)
    for verb in ("verify", "dump"):
        text = qm(verb, str(copy), exit_code=1).stderr
        assert segment.name in text
        assert "damaged at byte" in text


def test_what_holds_no_log_is_refused(tmp_path: Path) -> None:
    assert "holds no log" in qm("verify", str(tmp_path), exit_code=1).stderr
    assert not list(tmp_path.iterdir())
