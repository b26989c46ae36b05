"""`qm log`: a stopped node's log in words, and the place where one is damaged."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from qm.cli.main import main
from qm.node.log_reading import NodeLog
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


def test_files_are_open_for_reading_alone(data: Path) -> None:
    folder = Path(json.loads(qm("verify", str(data), "-o", "json").stdout)["folder"])
    opened: list[int] = []
    is_watching = True

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if is_watching and event == "open" and str(arguments[0]).startswith(str(folder)):
            opened.append(arguments[2] & os.O_ACCMODE)

    before = {path.name: path.stat() for path in folder.iterdir()}
    modes = {path: path.stat().st_mode for path in (folder, *folder.iterdir())}
    for path, mode in modes.items():
        path.chmod(mode & ~0o222)
    sys.addaudithook(watch)  # root may write regardless of the modes
    try:
        assert entries(data)
        qm("verify", str(data))
    finally:
        is_watching = False
        for path, mode in modes.items():
            path.chmod(mode)
    assert set(opened) == {os.O_RDONLY}
    after = {path.name: path.stat() for path in folder.iterdir()}
    assert {name: (stat.st_size, stat.st_mtime_ns) for name, stat in after.items()} == {
        name: (stat.st_size, stat.st_mtime_ns) for name, stat in before.items()
    }


def test_the_log_of_a_node_that_runs_is_read_without_disturbing_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(1, folder=tmp_path, has_edges=False) as nodes:
            node = await nodes.leader()
            await create_queue(node, "orders")
            for number in range(1, 200, 10):
                writing = asyncio.create_task(
                    propose(node, batch("orders", range(number, number + 10), number))
                )
                read = await asyncio.to_thread(whole, tmp_path / "n1")
                await writing
                assert read == list(range(1, len(read) + 1))
            last = await node.cluster.read_barrier()
            assert len(whole(tmp_path / "n1")) >= last
            await node.stop()

    run(scenario())


def whole(folder: Path) -> list[int]:
    """Return the indexes of every entry of a log."""
    with NodeLog(folder) as log:
        return [entry.index for entry in log.entries(1, log.summary().last_index)]
