"""`qm packet`: MSMQ packets, decoded."""

import json
import sys
from pathlib import Path

import click

EXIT_NOT_CLEAN = 1


@click.group()
def packet() -> None:
    """Inspect MSMQ packets."""


@packet.command()
@click.argument("source", default="-")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["tree", "json"]),
    default="tree",
    show_default=True,
    help="Output format: a tree for people or JSON for programs.",
)
@click.option("-b", "--bits", is_flag=True, help="Show flag bits that are clear, too.")
def decode(source: str, output: str, bits: bool) -> None:
    """Decode the packets in SOURCE and report errors in them.

    SOURCE is a file, hexadecimal digits, or - for standard input. Its format is detected: a capture
    (pcap or pcapng: TCP port 1801 reassembled, UDP port 3527), hexadecimal text, or raw packets one
    after another.

    Exit code: 0 every byte belongs to a valid packet; 1 bytes are malformed, cut or missing; 2 the
    input cannot be read.
    """
    # Imported here: `qm --help` and shell completion need none of it.
    from qm.cli.packets import render
    from qm.cli.packets.capture import CaptureError
    from qm.cli.packets.source import SourceError, decode_input

    try:
        decoded = decode_input(_read(source))
    except (CaptureError, SourceError) as error:
        raise click.UsageError(str(error)) from error
    if output == "json":
        json.dump(render.as_json(decoded), sys.stdout, indent=1)
        sys.stdout.write("\n")
    else:
        render.print_tree(decoded, shows_clear_bits=bits)
    sys.exit(0 if decoded.is_clean else EXIT_NOT_CLEAN)


@packet.command()
def demo() -> None:
    """Decode the frames printed in [MS-MQQB] section 4, and show what had to be corrected."""
    from qm.cli.packets.packet_demo import show_demo

    sys.exit(0 if show_demo() else EXIT_NOT_CLEAN)


def _read(source: str) -> bytes:
    from qm.cli.packets.source import hex_text

    if source == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(source).read_bytes()
    except OSError as error:
        # Hexadecimal digits are not the name of a file, or too long for one.
        spelled = hex_text(source.encode())
        if spelled is None:
            raise click.UsageError(
                f"{source[:80]!r} is neither hexadecimal digits nor a file: {error.strerror}"
            ) from error
        return spelled
