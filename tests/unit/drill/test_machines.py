"""Machines of drills on this one: a node may leave a machine and another come to it."""

from pathlib import Path

from qm.node.dev.layout import DevNode, Layout


def test_a_machine_that_was_a_member_before_is_one_again(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    founders = layout.make(3, "127.0.88")
    fourth = DevNode("n4", "127.0.88.14")
    layout.add(fourth, founders)
    certificate = (layout.pki / "n4.pem").read_bytes()
    layout.add(fourth, founders[1:])
    assert (layout.pki / "n4.pem").read_bytes() == certificate
    assert "127.0.88.11" not in layout.config("n4").read_text(encoding="utf-8")
