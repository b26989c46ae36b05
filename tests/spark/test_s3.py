"""Archiving to, and reading from, an S3-compatible server: whole objects under one URL.

The server has an environment of its own (`make test-spark`), since it wants other versions of what
the product uses.
"""

import asyncio
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from pyarrow import fs

from qm.archive.destination import RemoteDestination, open_destination
from qm.archive.exported import find_exported
from qm.archive.manifest import MANIFEST_NAME, RANGES_FOLDER
from qm.archive.schema import Part
from qm.model.values import commands
from qm.store.digest import digest_bytes
from qm.store.effects.effects_log import Exported
from spark.archive.ranges import find_ranges
from spark.archive.standing import only_cluster, standing
from spark.archive.store import ArchiveStore
from spark.replay.replay import ReplayPlan, replay
from tests.cluster.harness import until
from tests.unit.archive.world import CLUSTER, IDENTITY, archiver_of
from tests.unit.model.world import packet
from tests.unit.store.test_store import Node, arrivals, receive, setup_commands

SERVER = Path("build/moto/bin/python")
BUCKET = "archives"
ENTRIES = 10


@pytest.fixture
def endpoint() -> Iterator[str]:
    """A server without anything in it."""
    assert SERVER.exists(), "make test-spark installs it"
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    server = subprocess.Popen(
        [SERVER, "-m", "moto.server", "-H", "127.0.0.1", "-p", address.partition(":")[2]],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        asyncio.run(until(lambda: _answers(address), server.poll))
        yield address
    finally:
        server.kill()
        server.wait()


def _answers(address: str) -> bool:
    try:
        with urlopen(f"http://{address}/moto-api/", timeout=5):
            return True
    except OSError:
        return False


@pytest.fixture
def url(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place in an empty bucket."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    where = f"endpoint_override={endpoint}&scheme=http&region=us-east-1"
    files, _ = fs.FileSystem.from_uri(f"s3://{BUCKET}?{where}&allow_bucket_creation=true")
    files.create_dir(BUCKET)
    return f"s3://{BUCKET}/queues?{where}"


def test_objects_are_there_whole_or_not_at_all(url: str) -> None:
    destination = open_destination(url)
    assert isinstance(destination, RemoteDestination)
    assert destination.read("a/b/file") is None
    assert destination.folders("a") == []
    destination.write("a/b/file", b"one")
    destination.write("a/c/file", memoryview(b"two"))
    destination.write("a/b/file", b"three")
    assert destination.read("a/b/file") == b"three"
    assert destination.folders("a") == ["b", "c"]
    destination.remove_folder("a/b")
    destination.remove_folder("a/b")
    assert destination.folders("a") == ["c"]
    assert ArchiveStore(url).names("a", "file") == ["a/c/file"], "nothing has another name"


def test_what_a_node_exports_there_is_found_again_and_gives_its_state(
    url: str, tmp_path: Path
) -> None:
    node = Node(tmp_path / "node", keeps_effects=True)
    node.put(setup_commands())
    for number in range(1, ENTRIES):
        node.put([arrivals(packet(number, body=bytes(1000)))])
    _export(node, url)
    node.put([receive(2, 5)], [commands.Confirm("c", 6)])
    _export(node, url)
    last = node.log.last_index()
    found = find_exported(open_destination(url), IDENTITY, Exported())
    assert found.upto == last

    store = ArchiveStore(url)
    assert only_cluster(store) == CLUSTER
    exported = standing(store).exported["n1.1"]
    assert exported.last == last
    paths = store.names(f"{CLUSTER}/{RANGES_FOLDER}", MANIFEST_NAME)
    assert exported.ranges == len(paths) >= 3
    ranges = find_ranges(store, CLUSTER, 0)
    assert ranges.problems == []
    assert ranges.rows_of_one_copy(Part.ENTRIES) == last
    plan = ReplayPlan(
        url=url,
        group=1,
        start=None,
        files=ranges.entry_files(1, 0, last),
        upto=last,
        output="base",
        is_verified=True,
    )
    replayed = replay(plan)
    assert (replayed.problem, replayed.index) == ("", last)
    assert replayed.digest == digest_bytes(node.store.applied.digest).hex()
    assert replayed.messages == ENTRIES - 1 - 5
    assert store.size_bytes("base/state.qsnap") == replayed.stream_bytes
    node.close()


def test_spark_is_asked_for_the_place_alone(url: str) -> None:
    """Server and credentials are for the cluster's own configuration to say."""
    assert ArchiveStore(url).spark_path("a/file") == f"s3a://{BUCKET}/queues/a/file"


def _export(node: Node, url: str) -> None:
    async def scenario() -> None:
        archiver = archiver_of(node, url)
        await archiver.step()
        await archiver.stop()

    asyncio.run(scenario())
