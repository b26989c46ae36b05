"""What a start makes of a folder whose member was removed."""

from pathlib import Path

import pytest

from qm.node.membership.automatic_entry import is_removed
from qm.node.membership.former_member import FORMER_FOLDER, NOTE_FILE, FormerMember
from qm.pb import relay_pb2

CLUSTER = bytes(16)


def member(data: Path) -> None:
    for part in ("raft", "store"):
        (data / part).mkdir()
        (data / part / "file").write_text(part)
    (data / "sealing.key").write_text("key")


def test_old_data_are_set_aside_and_deleted_when_the_new_member_votes(tmp_path: Path) -> None:
    member(tmp_path)
    FormerMember(tmp_path).note("n4.1")
    FormerMember(tmp_path).set_aside()
    assert sorted(path.name for path in tmp_path.iterdir()) == [FORMER_FOLDER, "sealing.key"]
    assert (tmp_path / FORMER_FOLDER / "raft" / "file").read_text() == "raft"
    FormerMember(tmp_path).forget()
    assert [path.name for path in tmp_path.iterdir()] == ["sealing.key"]


def test_a_start_that_was_broken_off_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member(tmp_path)
    former = FormerMember(tmp_path)
    former.note("n4.1")
    rename = Path.rename

    def power_cut(self: Path, target: Path) -> Path:
        if self.name == "raft":
            raise OSError(5, "power cut")
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", power_cut)
        with pytest.raises(OSError, match="power cut"):
            former.set_aside()
    assert (tmp_path / "raft").exists()
    former.forget()  # nothing: the note is still there
    former.set_aside()
    assert not (tmp_path / NOTE_FILE).exists()
    assert {p.name for p in (tmp_path / FORMER_FOLDER).iterdir()} == {"raft", "store"}


def test_a_folder_without_a_note_is_left_alone(tmp_path: Path) -> None:
    member(tmp_path)
    FormerMember(tmp_path).set_aside()
    assert not (tmp_path / FORMER_FOLDER).exists()


def state(name: str, *, role: str = "follower", retired: bool = True) -> relay_pb2.InspectReply:
    return relay_pb2.InspectReply(
        raft_id=f"{name}.1",
        cluster=CLUSTER,
        role=role,
        term=3,
        voters=["n1.1", "n2.1", "n3.1"],
        retired=["n4.1"] if retired else [],
    )


def test_a_removal_counts_once_a_majority_has_it() -> None:
    own = relay_pb2.InspectReply(raft_id="n4.1", cluster=CLUSTER)
    leader, follower = state("n1", role="leader"), state("n2")
    assert is_removed(own, [own, leader, follower])
    assert not is_removed(own, [own, leader]), "not committed, perhaps"
    assert not is_removed(own, [own, leader, state("n2", retired=False)])
    assert not is_removed(own, [own, state("n2"), state("n3")]), "nobody leads"
    leader.voters.append("n4.1")
    assert not is_removed(own, [own, leader, follower, state("n3")])
    stranger = state("n2")
    stranger.cluster = bytes(15) + b"\x01"
    assert not is_removed(own, [own, state("n1", role="leader"), stranger])
