"""`qm packet demo`: the specification's frames, described correctly."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from qm.cli.main import main
from qm.cli.packets import packet_demo as demo
from qm.cli.packets.spec_session import FRAMES, Frame

VECTORS = Path(__file__).resolve().parents[2] / "data" / "vectors"
NAMES = [
    "frame1_ping_request",
    "frame2_ping_response",
    "frame3_establish_connection_request",
    "frame4_establish_connection_response_reconstructed",
    "frame5_connection_parameters_request",
    "frame6_connection_parameters_response_reconstructed",
    "frame7_user_message_reconstructed_fields",
    "frame8_session_ack",
]


@pytest.mark.parametrize(("frame", "name"), list(zip(FRAMES, NAMES, strict=True)), ids=NAMES)
def test_the_frames_are_the_vectors(frame: Frame, name: str) -> None:
    vector = json.loads((VECTORS / f"mqqb_{name}.json").read_text(encoding="utf-8"))
    assert frame.packet.hex() == vector["hex"]
    assert frame.section == vector["source_section"]


def test_the_demo_shows_every_frame_and_ends_well() -> None:
    result = CliRunner().invoke(main, ["packet", "demo"])
    assert result.exit_code == 0
    for number, frame in enumerate(FRAMES, start=1):
        assert f"Frame {number}: {frame.title}  [MS-MQQB {frame.section}]" in result.output
        for correction in frame.corrections:
            assert f"corrected: {correction}" in result.output
    assert "All frames decode" in result.output


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "OrderAck"},
        {"fields": {"BaseHeader.PacketSize": 37}},
        {"fields": {"BaseHeader.NoSuchField": 0}},
        {"packet": FRAMES[7].packet[:-1]},
    ],
)
def test_a_frame_that_is_not_what_it_should_be_is_a_failure(
    change: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = (*FRAMES[:7], replace(FRAMES[7], **change))  # type: ignore[arg-type]
    monkeypatch.setattr(demo, "FRAMES", frames)
    result = CliRunner().invoke(main, ["packet", "demo"])
    assert result.exit_code == 1
    assert "WRONG" in result.output
