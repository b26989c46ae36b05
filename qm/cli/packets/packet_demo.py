"""`qm packet demo`: the specification's example of a session, decoded and explained."""

from collections.abc import Iterator

from rich.text import Text

from qm.cli.packets import render
from qm.cli.packets.source import Found
from qm.cli.packets.spec_session import FRAMES, Frame
from qm.wire.packets.describe import Description, Node, describe_packet, describe_ping


def show_demo() -> bool:
    """Print the session; return whether every frame decoded as the specification intends."""
    console = render.terminal()

    def say(text: str, style: str = "") -> None:
        render.print_text(console, Text(text, style))

    say("An MSMQ session, as [MS-MQQB] section 4 shows it", "bold")
    say("Eight frames: a ping, the handshake, the parameters, one message, its acknowledgement.")
    say("Each line: offset, size, field, value, meaning, [section].")
    is_sound = True
    for number, frame in enumerate(FRAMES, start=1):
        say(f"\nFrame {number}: {frame.title}  [MS-MQQB {frame.section}]", "bold underline")
        say(frame.story)
        for correction in frame.corrections:
            say(f"corrected: {correction}", "yellow")
        description = describe(frame)
        render.print_item(console, Found("", 0, description))
        for problem in problems(frame, description):
            is_sound = False
            say(f"WRONG: {problem}", "bold red")
    if is_sound:
        say("\nAll frames decode as the specification intends.", "bold green")
    else:
        say("\nSome frames do not decode as the specification intends.", "bold red")
    say("Decode your own capture with: qm packet decode FILE.pcap")
    return is_sound


def describe(frame: Frame) -> Description:
    """Decode a frame by its transport: pings are datagrams."""
    return describe_ping(frame.packet) if frame.kind == "Ping" else describe_packet(frame.packet)


def problems(frame: Frame, description: Description) -> Iterator[str]:
    """Yield the differences between a frame and what it should be."""
    if description.error is not None:
        yield str(description.error)
    if description.kind != frame.kind:
        yield f"decoded as {description.kind}, expected {frame.kind}"
    found = dict(_values(description.nodes, ""))
    for name, wanted in frame.fields.items():
        if found.get(name) != wanted:
            yield f"{name} is {found.get(name)!r}, expected {wanted!r}"


def _values(nodes: tuple[Node, ...], prefix: str) -> Iterator[tuple[str, int | str | bytes]]:
    for node in nodes:
        name = prefix + node.name
        if node.value is not None:
            yield name, node.value
        yield from _values(node.children, name + ".")
