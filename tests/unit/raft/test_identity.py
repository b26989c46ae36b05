"""Who may start with which id, and what is found after a crash."""

from collections.abc import Collection
from random import Random

import pytest

from raft.identity import (
    IDENTITY_FILE,
    Identity,
    IdentityRefused,
    claim,
    load,
    rejoin,
    start,
    store,
)
from raft.log.files import Directory
from raft.types import NodeId
from tests.unit.raft.log.faults import Disk, Loss, Stopped

CLUSTER = bytes(range(16))
WANTED = Identity(CLUSTER, "n1", 1)


@pytest.fixture
def folder() -> Directory:
    return Disk().root


def claimed(
    folder: Directory,
    wanted: Identity = WANTED,
    *,
    has_log: bool = False,
    known_ids: Collection[NodeId] = (),
) -> Identity:
    return claim(folder, wanted, has_log=has_log, known_ids=known_ids)


class TestFile:
    def test_there_is_none_at_first(self, folder: Directory) -> None:
        assert load(folder) is None

    def test_it_comes_back(self, folder: Directory) -> None:
        for identity in (Identity(CLUSTER, "a-long-name.ñ", 77, True), WANTED):
            store(folder, identity)
            assert load(folder) == identity
        assert folder.names() == [IDENTITY_FILE]

    def test_a_flipped_bit_is_refused(self) -> None:
        disk = Disk()
        store(disk.root, WANTED)
        for bit in range(len(disk.root.bytes_of(IDENTITY_FILE)) * 8):
            disk.root.bytes_of(IDENTITY_FILE)[bit // 8] ^= 1 << bit % 8
            with pytest.raises(IdentityRefused, match="is damaged"):
                load(disk.root)
            disk.root.bytes_of(IDENTITY_FILE)[bit // 8] ^= 1 << bit % 8

    def test_a_crash_leaves_the_old_or_the_new_one(self) -> None:
        identities = [WANTED, Identity(CLUSTER, "n1", 2), Identity(CLUSTER, "n1", 2, True)]
        for stop_at in range(40):
            for loss in Loss:
                disk = Disk()
                disk.stop_at = stop_at
                stored = 0
                try:
                    for identity in identities:
                        store(disk.root, identity)
                        stored += 1
                except Stopped:
                    pass
                after = disk.after_crash(loss, Random(stop_at)).root
                assert load(after) in [None, *identities][stored : stored + 2]
                store(after, WANTED)
                assert load(after) == WANTED

    @pytest.mark.parametrize(
        "make",
        [
            lambda: Identity(b"short", "n1", 1),
            lambda: Identity(CLUSTER, "", 1),
            lambda: Identity(CLUSTER, "n1", 0),
        ],
    )
    def test_impossible_ones_are_not_made(self, make: object) -> None:
        assert callable(make)
        with pytest.raises(ValueError, match=r"cluster id|node id"):
            make()


class TestClaim:
    def test_a_new_node_gets_what_it_wants(self, folder: Directory) -> None:
        assert claimed(folder) == load(folder) == WANTED
        assert WANTED.node_id == "n1.1"

    def test_it_may_be_claimed_again_until_started(self, folder: Directory) -> None:
        """A crash between claim and start: nothing has left the node."""
        claimed(folder)
        assert claimed(folder, has_log=True) == WANTED
        assert start(folder, WANTED).is_started
        assert claimed(folder, has_log=True) == load(folder)

    def test_a_started_node_keeps_its_incarnation(self, folder: Directory) -> None:
        started = start(folder, claimed(folder, Identity(CLUSTER, "n1", 3)))
        assert claimed(folder, Identity(CLUSTER, "n1", 9), has_log=True) == started

    def test_one_that_never_started_takes_the_higher_incarnation(self, folder: Directory) -> None:
        claimed(folder)
        assert claimed(folder, Identity(CLUSTER, "n1", 4)).incarnation == 4
        assert claimed(folder).incarnation == 4

    def test_a_lost_log_is_refused(self, folder: Directory) -> None:
        start(folder, claimed(folder))
        with pytest.raises(IdentityRefused, match=r"n1\.1 has lost its log.*next incarnation"):
            claimed(folder)

    def test_a_lost_identity_is_refused(self, folder: Directory) -> None:
        with pytest.raises(IdentityRefused, match="there is a log but no file"):
            claimed(folder, has_log=True)

    def test_an_empty_folder_is_no_member_that_was(self, folder: Directory) -> None:
        known = ["n1.1", "n1.2", "n2.7", "n1.x", "odd"]
        with pytest.raises(IdentityRefused, match=r"join as n1\.3, and let n1\.1 leave"):
            claimed(folder, known_ids=known)
        assert load(folder) is None
        assert claimed(folder, Identity(CLUSTER, "n1", 3), known_ids=known).node_id == "n1.3"

    @pytest.mark.parametrize(
        ("other", "message"),
        [
            (Identity(bytes(16), "n1", 1), "belongs to cluster 000102"),
            (Identity(CLUSTER, "n2", 1), "belongs to node n1"),
        ],
    )
    def test_another_s_folder_is_refused(
        self, folder: Directory, other: Identity, message: str
    ) -> None:
        claimed(folder)
        with pytest.raises(IdentityRefused, match=message):
            claimed(folder, other, has_log=True)

    def test_wanting_to_be_started_does_not_start(self, folder: Directory) -> None:
        assert not claimed(folder, Identity(CLUSTER, "n1", 1, True)).is_started


class TestRejoin:
    def test_the_next_incarnation_starts_anew(self, folder: Directory) -> None:
        start(folder, claimed(folder))
        identity = rejoin(folder, known_ids=["n1.1", "n2.5"])
        assert identity == load(folder) == Identity(CLUSTER, "n1", 2)
        assert claimed(folder) == identity

    def test_it_passes_every_incarnation_that_is_known(self, folder: Directory) -> None:
        start(folder, claimed(folder))
        assert rejoin(folder, known_ids=["n1.1", "n1.6"]).node_id == "n1.7"

    def test_asking_twice_raises_it_once(self, folder: Directory) -> None:
        start(folder, claimed(folder))
        assert rejoin(folder, known_ids=["n1.1"]) == rejoin(folder, known_ids=["n1.1"])

    def test_it_needs_to_know_which_node_this_was(self, folder: Directory) -> None:
        with pytest.raises(IdentityRefused, match="join as a new one"):
            rejoin(folder, known_ids=[])
