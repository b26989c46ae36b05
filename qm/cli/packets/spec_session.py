"""The session shown in [MS-MQQB] section 4, frame by frame, with the document's errors corrected.

The bytes are those printed in the section. Where its hexadecimal dump and its field table disagree,
`corrections` says which one was used and why.
"""

from dataclasses import dataclass
from typing import Final

_CLIENT: Final = "d1587355509195954997b6e611ea26c6"
_SERVER: Final = "0789cd434c39118f44459078909ea0fc"
_PADDING: Final = "5a" * 512


@dataclass(frozen=True)
class Frame:
    """One packet of the example."""

    title: str
    section: str
    """Section of MS-MQQB."""
    packet: bytes
    kind: str
    """The kind that it must decode as."""
    story: str
    """A sentence about what happens."""
    fields: dict[str, int | str | bytes]
    """The values that its fields must have, by full name."""
    corrections: tuple[str, ...] = ()
    """Where the document differs, and why the bytes are right."""


_MESSAGE: Final = (
    "100003004c494f52b008000000460500"
    f"{_CLIENT}{'00' * 16}ffffffffe6051144ee080000001c2800"
    "1a004f0053003a0061003000340062006d00300032005c0071000000"
    "01001c00000000000000000000000000010500000000000515000000ad4a9ebd36d9fa3d63a656dae8030000"
    f"000f0000{'00' * 20}0800000000000000d0070000d0070000000000000480000001680000"
    "00000000"
    "6d007100730065006e0064006500720020006c006100620065006c000000"
    f"{'6100' * 1000}0000"
)

FRAMES: Final = (
    Frame(
        "Ping request",
        "4.1.1",
        bytes.fromhex(f"017d485504000000{_CLIENT}"),
        "Ping",
        "The sender asks by UDP whether the other queue manager would accept a session.",
        {"Ping.Cookie": 4, "Ping.QMGuid": bytes.fromhex(_CLIENT)},
        ("The GUID's text is printed with its 16 bytes reversed; its bytes are in MS-DTYP order.",),
    ),
    Frame(
        "Ping response",
        "4.1.2",
        bytes.fromhex(f"95b2485504000000{_SERVER}"),
        "Ping",
        "The other side repeats the cookie and says that it would.",
        {"Ping.Cookie": 4, "Ping.Flags.RF": 0},
    ),
    Frame(
        "EstablishConnection request",
        "4.1.3",
        bytes.fromhex(
            f"10c00b004c494f523c020000ffffffff00000200{_CLIENT}{_SERVER}4ecade1d10030000{_PADDING}"
        ),
        "EstablishConnection",
        "On a new TCP connection the sender names itself and the peer that it wants to reach.",
        {
            "BaseHeader.PacketSize": 572,
            "EstablishConnectionHeader.OperatingSystem": 0x0310,
            "EstablishConnectionHeader.Reserved": 0,
        },
        (
            "The field table gives 0x310 to Reserved; the layout says it is OperatingSystem.",
            "OperatingSystem.SE says that no ping was sent, but frames 1 and 2 are one.",
        ),
    ),
    Frame(
        "EstablishConnection response",
        "4.1.4",
        bytes.fromhex(
            f"105a0b004c494f523c020000ffffffff00000200{_CLIENT}{_SERVER}4ecade1d10030000{_PADDING}"
        ),
        "EstablishConnection",
        "The receiver repeats the time stamp, from which the sender learns the round trip.",
        {
            "InternalHeader.Flags.CS": 0,
            "EstablishConnectionHeader.ClientGuid": bytes.fromhex(_CLIENT),
            "EstablishConnectionHeader.ServerGuid": bytes.fromhex(_SERVER),
        },
        ("The dump's GUIDs are from another capture; those of the field table were used.",),
    ),
    Frame(
        "ConnectionParameters request",
        "4.1.5",
        bytes.fromhex("10c00b004c494f5220000000ffffffff00000300d8050000c0d4010000004000"),
        "ConnectionParameters",
        "The sender proposes its timeouts (1,496 ms is eight round trips) and its window.",
        {
            "ConnectionParametersHeader.RecoverableAckTimeout": 1496,
            "ConnectionParametersHeader.AckTimeout": 120_000,
            "ConnectionParametersHeader.WindowSize": 64,
        },
    ),
    Frame(
        "ConnectionParameters response",
        "4.1.6",
        bytes.fromhex("10c00b004c494f5220000000ffffffff00000300d8050000c0d4010000002000"),
        "ConnectionParameters",
        "The receiver repeats the timeouts and answers with a window of its own.",
        {"ConnectionParametersHeader.WindowSize": 32},
        ("The dump repeats the request's window of 64; the field table's 32 was used.",),
    ),
    Frame(
        "UserMessage",
        "4.1.7",
        bytes.fromhex(_MESSAGE),
        "UserMessage",
        "An express message of 2,000 bytes goes to the queue q of the host a04bm02.",
        {
            "BaseHeader.PacketSize": 2224,
            "UserHeader.SentTime": 0x441105E6,
            "UserHeader.DestinationQueue.DirectFormatName": "OS:a04bm02\\q",
            "SecurityHeader.SenderIdSize": 28,
            "MessagePropertiesHeader.Label": "mqsender label",
            "MessagePropertiesHeader.MessageSize": 2000,
        },
        (
            "The dump stops after 1,650 of 2,224 bytes; body and padding were completed.",
            "SentTime repeats the signature in the dump; the field table's time was used.",
            "The dump requests all acks without a queue for them; the field table's 0 was used.",
            "The table's body of 20 bytes and padding of 1 cannot make 2,224; the dump's sizes do.",
            "AI says that no SecurityData follows, but a SID of 28 bytes does: the sizes count.",
        ),
    ),
    Frame(
        "SessionAck",
        "4.1.8",
        bytes.fromhex("10cd1b004c494f5224000000ffffffff0000010001000000000000000000000040000000"),
        "SessionAck",
        "The receiver has the message: the sender may forget it.",
        {"SessionHeader.AckSequenceNumber": 1, "BaseHeader.PacketSize": 36},
        ("PacketSize counts the SessionHeader here, which MS-MQMQ 2.2.19.1 excludes.",),
    ),
)
