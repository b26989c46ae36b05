"""Access lists in words, and back."""

from qm.api.convert.acl import changed_descriptor, mask_of, rights_of, shown_acl
from qm.pb import control_pb2 as pb
from qm.wire.access_mask import QueueAccess


def test_rights_in_words_are_the_mask_again() -> None:
    for mask in (0, 0x1, 0x3, 0x24, 0x2000F, 0xF003F, 0x3F, 0x10040):
        rights = rights_of(mask, QueueAccess)
        assert mask_of(rights, QueueAccess, "rights") == mask
    assert rights_of(0x3, QueueAccess) == ["receive_message"]
    assert rights_of(0x40, QueueAccess) == ["0x40"]


def test_a_list_without_owner_belongs_to_administrators() -> None:
    given = [pb.Ace(principal="alice", rights=["write_message"])]
    security = changed_descriptor(b"", given, "", QueueAccess)
    shown = shown_acl(security, 3, QueueAccess, {})
    assert (shown.owner_sid, shown.version) == ("S-1-5-32-544", 3)
    again = changed_descriptor(security, given, "bob", QueueAccess)
    assert shown_acl(again, 3, QueueAccess, {}).owner_sid.startswith("S-1-5-21-")
