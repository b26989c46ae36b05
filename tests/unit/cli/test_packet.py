"""`qm packet`: inputs, outputs, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from qm.cli.main import main
from qm.cli.packets.spec_session import FRAMES
from tests.unit.cli import traffic

ROOT = Path(__file__).resolve().parents[3]
VECTORS = ROOT / "tests" / "data" / "vectors"
SESSION = ROOT / "tests" / "data" / "captures" / "session.pcap"
MESSAGE, THANKS = FRAMES[6].packet, FRAMES[7].packet


def run(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["packet", *arguments], input=stdin)


def run_json(*arguments: str, stdin: bytes | None = None) -> tuple[int, dict[str, Any]]:
    result = run("decode", "-o", "json", *arguments, stdin=stdin)
    return result.exit_code, json.loads(result.output)


def kinds(decoded: dict[str, Any]) -> list[str]:
    return [packet["kind"] for packet in decoded["packets"]]


def test_hexadecimal_digits_as_an_argument() -> None:
    result = run("decode", THANKS.hex())
    assert result.exit_code == 0
    assert "SessionAck  36 bytes at 0" in result.output
    assert "AckSequenceNumber 1" in result.output
    assert "[MS-MQMQ 2.2.20.4]" in result.output
    assert "\x1b" not in result.output


@pytest.mark.parametrize(
    "text",
    [
        THANKS.hex().upper(),
        THANKS.hex(" "),
        THANKS.hex(":"),
        "\n".join(f"0x{byte:02x}," for byte in THANKS),
    ],
)
def test_hexadecimal_text_on_standard_input(text: str) -> None:
    code, decoded = run_json(stdin=text.encode())
    assert (code, kinds(decoded)) == (0, ["SessionAck"])


def test_long_hexadecimal_digits_are_no_file_name() -> None:
    code, decoded = run_json(MESSAGE.hex())
    assert (code, kinds(decoded)) == (0, ["UserMessage"])


def test_raw_packets_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "packets.bin"
    file.write_bytes(MESSAGE + THANKS)
    code, decoded = run_json(str(file))
    assert code == 0
    assert [(p["kind"], p["offset"]) for p in decoded["packets"]] == [
        ("UserMessage", 0),
        ("SessionAck", 2224),
    ]


def test_a_ping_by_itself() -> None:
    code, decoded = run_json("-", stdin=FRAMES[0].packet)
    assert (code, kinds(decoded)) == (0, ["Ping"])


def test_a_capture_in_the_order_of_the_session() -> None:
    code, decoded = run_json(str(SESSION))
    assert code == 0
    assert kinds(decoded) == [frame.kind for frame in FRAMES]
    times = [packet["time"] for packet in decoded["packets"]]
    assert times == sorted(times)
    assert decoded["notes"] == [
        "TCP 192.0.2.1:49152 -> 192.0.2.2:1801: 700 bytes were sent more than once"
    ]


def test_a_gap_costs_only_the_packets_it_hits() -> None:
    talk = traffic.Talk()
    packets = [talk.syn(), talk.segment(0, THANKS + MESSAGE[:500])]
    packets.append(talk.segment(36 + 600, MESSAGE[600:] + THANKS))
    capture = traffic.pcap(traffic.timed(map(traffic.ethernet, packets)))
    code, decoded = run_json(stdin=capture)
    assert code == 1
    assert kinds(decoded) == ["SessionAck", "UserMessage", "lost", "lost", "SessionAck"]
    cut, gap, rest = decoded["packets"][1:4]
    assert cut["error"]["reason"] == "needs 2224 bytes, 500 are left"
    assert (gap["offset"], gap["size"]) == (536, 100)
    assert (rest["offset"], rest["size"]) == (636, 1624)
    assert not decoded["is_clean"]


def test_a_malformed_packet_shows_what_comes_before_its_error() -> None:
    broken = bytearray(MESSAGE)
    broken[60 + 1] = 0x04  # Flags.DQ = 1
    code, decoded = run_json(stdin=bytes(broken) + THANKS)
    assert code == 1
    first, second = decoded["packets"]
    assert first["error"]["field"] == "UserHeader.Flags.DQ"
    assert first["error"]["section"] == "MS-MQMQ 2.2.19.2"
    assert [header["name"] for header in first["headers"]] == ["BaseHeader", "UserHeader"]
    assert [field["name"] for field in first["headers"][1]["children"]][-1] == "Flags"
    assert second["error"] is None
    text = run("decode", stdin=bytes(broken)).output
    assert "error: UserHeader.Flags.DQ at offset 60" in text


def test_bytes_that_are_no_packet_are_skipped_to_the_next() -> None:
    code, decoded = run_json(stdin=b"\x10noise LIOR noise" + THANKS + b"\0" * 20)
    assert code == 1
    assert kinds(decoded) == ["lost", "SessionAck", "lost"]
    assert "BaseHeader.Signature" in decoded["packets"][0]["reason"]


def test_notes_name_what_is_odd() -> None:
    vector = json.loads((VECTORS / "mqqb_frame7_user_message_reconstructed_tail.json").read_text())
    code, decoded = run_json(vector["hex"])
    assert code == 0
    assert [note.split("(")[-1] for note in decoded["packets"][0]["notes"]] == [
        "MQ-A6)",
        "MQ-A8)",
        "MQ-A10)",
    ]


def test_json_holds_every_field_with_its_place() -> None:
    _, decoded = run_json(MESSAGE.hex())
    user = decoded["packets"][0]["headers"][1]
    assert (user["name"], user["offset"], user["size"]) == ("UserHeader", 16, 76)
    assert user["section"] == "MS-MQMQ 2.2.19.2"
    flags = user["children"][5]
    assert (flags["name"], flags["offset"], flags["value"]) == ("Flags", 60, 0x00281C00)
    bits = {bit["name"]: bit["value"] for bit in flags["children"]}
    assert (bits["DQ"], bits["SH"], bits["TH"]) == (7, 1, 0)
    body = decoded["packets"][0]["headers"][3]["children"][-2]
    assert body["name"] == "MessageBody"
    assert bytes.fromhex(body["value"]) == b"a\0" * 1000


def test_clear_bits_are_shown_when_wanted() -> None:
    assert "CQ 0" not in run("decode", MESSAGE.hex()).output
    assert "CQ 0" in run("decode", "--bits", MESSAGE.hex()).output


def test_a_hostile_label_cannot_steer_the_terminal() -> None:
    label = "mqsender label".encode("utf-16-le")
    hostile = "\x1b]0;owned\x07\u202eab"
    raw = MESSAGE.replace(label, hostile.encode("utf-16-le").ljust(len(label), b"x"))
    output = run("decode", stdin=raw).output
    assert "\\x1b]0;owned\\x07\\u202eab" in output
    assert "\x1b" not in output
    assert "\u202e" not in output


def test_colours_only_on_a_terminal_and_never_from_the_network() -> None:
    label = "mqsender label".encode("utf-16-le")
    hostile = MESSAGE.replace(label, "\x1b[31mred\x1b[0m[b]".encode("utf-16-le")[: len(label)])
    arguments = ["packet", "decode", hostile.hex()]
    assert "\x1b" not in CliRunner().invoke(main, arguments).output
    coloured = CliRunner(env={"FORCE_COLOR": "1"}).invoke(main, arguments).output
    assert "\x1b[" in coloured
    assert "\\x1b[31mred\\x1b[0m" in coloured
    assert "\x1b[31mred" not in coloured


def test_a_capture_as_a_tree_names_streams_times_and_gaps() -> None:
    text = run("decode", str(SESSION)).output
    first = "Ping  24 bytes at 0  UDP 192.0.2.1:4057 -> 192.0.2.2:3527  2023-11-14 22:13:20.000000"
    assert first in text
    assert "UserMessage  2224 bytes at 604  TCP 192.0.2.1:49152 -> 192.0.2.2:1801" in text
    assert "note: TCP 192.0.2.1:49152 -> 192.0.2.2:1801: 700 bytes were sent more" in text
    gap = [traffic.Talk().syn(), traffic.Talk().segment(50, THANKS)]
    result = run("decode", stdin=traffic.pcap(traffic.timed(map(traffic.ethernet, gap))))
    assert result.exit_code == 1
    assert "50 bytes  missing from the capture at 0" in result.output


def test_an_input_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qm.cli.packets.source.INPUT_SIZE_MAX_BYTES", 10)
    result = run("decode", stdin=THANKS)
    assert result.exit_code == 2
    assert "36 bytes; at most 10 are read" in result.output


@pytest.mark.parametrize(
    ("arguments", "stdin", "said"),
    [
        (["decode", "no-such-file.pcap"], None, "neither hexadecimal digits nor a file"),
        (["decode", "."], None, "neither hexadecimal digits nor a file"),
        (["decode", "abc"], None, "neither hexadecimal digits nor a file"),
        (["decode"], b"", "no bytes to decode"),
        (["decode"], b"  \n", "no bytes to decode"),
        (["decode"], b"\xd4\xc3\xb2\xa1", "not a readable pcap"),
        (["decode", "-o", "xml", "00"], None, "xml"),
        (["decode", "--no-such-option"], None, "no-such-option"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str], stdin: bytes | None, said: str) -> None:
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 2
    assert said in result.output


def test_a_capture_without_msmq_is_clean_and_says_so() -> None:
    web = traffic.Talk(destination_port=443).segment(0, b"GET /")
    result = run("decode", stdin=traffic.pcap(traffic.timed([traffic.ethernet(web)])))
    assert result.exit_code == 0
    assert "no traffic of TCP port 1801" in result.output


def test_python_m_qm_is_the_command_line() -> None:
    command = [sys.executable, "-m", "qm", "packet", "decode", THANKS.hex()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "SessionAck" in done.stdout


def test_the_version_with_and_without_an_installed_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert CliRunner().invoke(main, ["--version"]).output.startswith("qm, ")

    def not_installed(_name: str) -> str:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "version", not_installed)
    result = CliRunner().invoke(main, ["--version"])
    assert (result.exit_code, result.output) == (0, "qm, run from its source tree\n")


def test_help_lists_the_nouns_without_loading_them() -> None:
    script = (
        "import sys; from click.testing import CliRunner; from qm.cli.main import main;"
        "print(CliRunner().invoke(main, ['--help']).output);"
        "print([m for m in ('rich', 'dpkt', 'grpc', 'qm.wire') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert "packet" in CliRunner().invoke(main, ["--help"]).output
