"""A second decoder of MSMQ packets, independent of the product.

It is written from the tables of [MS-MQMQ] 2.2 and [MS-MQQB] 2.2 as somebody would decode a hex
dump by hand: one byte after the other, plain dictionaries, the documents' names as keys, no
thought for speed. It imports nothing of the product, and shares no idea with it but the tables.
Where the two disagree, one of them has misread a table.

`decode` takes one whole packet, a ping included, and returns a dictionary per header;
`BadBytesError` says where the bytes have no reading.
"""

from __future__ import annotations

from typing import Any

Fields = dict[str, Any]


class BadBytesError(Exception):
    """The bytes have no reading."""

    def __init__(self, at: int, why: str) -> None:
        super().__init__(f"at {at}: {why}")
        self.at = at


class Bytes:
    """A packet and a finger on it."""

    def __init__(self, data: bytes, at: int, stop: int) -> None:
        self.data = data
        self.at = at
        self.stop = stop

    def take(self, count: int) -> bytes:
        if count > self.stop - self.at:
            raise BadBytesError(self.at, f"{count} bytes wanted, {self.stop - self.at} are there")
        taken = self.data[self.at : self.at + count]
        self.at += count
        return taken

    def number(self, width: int) -> int:
        value = 0
        for position, byte in enumerate(self.take(width)):
            value += byte * 256**position
        return value

    def guid(self) -> str:
        return self.take(16).hex()

    def wide(self, count: int) -> str:
        """`count` characters, the last of them NUL; returned without it."""
        start = self.at
        text = self.take(2 * count).decode("utf-16-le", errors="surrogatepass")
        if not text.endswith("\0"):
            raise BadBytesError(start, "string without its NUL")
        if "\0" in text[:-1]:
            raise BadBytesError(start, "NUL inside a string")
        return text[:-1]

    def wide_until_nul(self) -> str:
        """Characters up to a NUL, wherever it is."""
        raw = b""
        while True:
            pair = self.take(2)
            if pair == b"\0\0":
                return raw.decode("utf-16-le", errors="surrogatepass")
            raw += pair

    def align(self, to: int) -> None:
        while self.at % to:
            self.take(1)


def bits(value: int, table: dict[str, tuple[int, int]]) -> dict[str, int]:
    """Cut a flags field: name -> (first bit, how many)."""
    return {f"Flags.{name}": value >> low & (2**count - 1) for name, (low, count) in table.items()}


BASE_FLAGS = {"PR": (0, 3), "IN": (3, 1), "SH": (4, 1), "DH": (5, 1), "TR": (8, 1)}
INTERNAL_FLAGS = {"PT": (0, 4), "CS": (4, 1)}
USER_FLAGS = {
    "RC": (0, 5),
    "DM": (5, 2),
    "JN": (8, 1),
    "JP": (9, 1),
    "DQ": (10, 3),
    "AQ": (13, 3),
    "RQ": (16, 3),
    "SH": (19, 1),
    "TH": (20, 1),
    "MP": (21, 1),
    "CQ": (22, 1),
    "MQ": (23, 1),
    "AH": (25, 1),
    "HH": (28, 1),
}
TRANSACTION_FLAGS = {"CG": (0, 1), "FA": (1, 1), "FM": (2, 1), "LM": (3, 1), "ID": (4, 20)}
SECURITY_FLAGS = {
    "ST": (0, 4),
    "AU": (4, 1),
    "EB": (5, 1),
    "DE": (6, 1),
    "AI": (7, 1),
    "AS": (8, 4),
}
PROPERTIES_FLAGS = {"PA": (0, 1), "PR": (1, 1), "NA": (2, 1), "NR": (3, 1)}
PING_FLAGS = {"RC": (0, 1), "RF": (1, 1)}


def decode(data: bytes) -> Fields:
    """Decode one packet: what stands on the wire from its first byte to its last."""
    if len(data) == 24 and data[2:4] == b"HU":
        return {"Ping": ping(data)}
    read = Bytes(data, 0, len(data))
    packet: Fields = {"BaseHeader": base_header(read)}
    base = packet["BaseHeader"]
    if base["Flags.IN"]:
        return packet | internal_packet(read, base)
    return packet | user_message(read, base)


def ping(data: bytes) -> Fields:
    read = Bytes(data, 0, 24)
    flags = read.number(2)
    signature = read.number(2)
    return {
        "Flags": flags,
        **bits(flags, PING_FLAGS),
        "Signature": signature,
        "Cookie": read.number(4),
        "QMGuid": read.guid(),
    }


def base_header(read: Bytes) -> Fields:
    version = read.number(1)
    reserved = read.number(1)
    flags = read.number(2)
    signature = read.number(4)
    size = read.number(4)
    if version != 16:
        raise BadBytesError(0, "version")
    if signature != int.from_bytes(b"LIOR", "little"):
        raise BadBytesError(4, "signature")
    if not 20 <= size <= 4 * 1024 * 1024:
        raise BadBytesError(8, "packet size")
    cut = bits(flags, BASE_FLAGS)
    if cut["Flags.TR"] and not cut["Flags.DH"]:
        raise BadBytesError(2, "traced without a DebugHeader")
    if cut["Flags.IN"] and cut["Flags.DH"]:
        raise BadBytesError(2, "DebugHeader outside a message")
    return {
        "VersionNumber": version,
        "Reserved": reserved,
        "Flags": flags,
        **cut,
        "Signature": signature,
        "PacketSize": size,
        "TimeToReachQueue": read.number(4),
    }


def internal_packet(read: Bytes, base: Fields) -> Fields:
    reserved = read.number(2)
    flags = read.number(2)
    internal = {"Reserved": reserved, "Flags": flags, **bits(flags, INTERNAL_FLAGS)}
    kind = internal["Flags.PT"]
    if base["Flags.SH"] != (kind == 1):
        raise BadBytesError(2, "a SessionAck has a SessionHeader, the others have none")
    if kind == 1:
        if internal["Flags.CS"]:
            raise BadBytesError(18, "a SessionAck that refuses")
        # 36 as frame 8 prints it; 20 for those who leave the SessionHeader out of the count.
        expect_size(base, (36, 20))
        name, header = "SessionHeader", session_header(read)
    elif kind == 2:
        expect_size(base, (572,))
        name, header = "EstablishConnectionHeader", establish_connection_header(read)
    elif kind == 3:
        expect_size(base, (32,))
        name, header = "ConnectionParametersHeader", connection_parameters_header(read)
    else:
        raise BadBytesError(18, f"internal packet type {kind}")
    expect_end(read, len(read.data))
    return {"InternalHeader": internal, name: header}


def expect_size(base: Fields, sizes: tuple[int, ...]) -> None:
    if base["PacketSize"] not in sizes:
        raise BadBytesError(8, f"PacketSize {base['PacketSize']}, expected {sizes}")


def expect_end(read: Bytes, end: int) -> None:
    if read.at != end:
        raise BadBytesError(read.at, f"{end - read.at} bytes are left over")


def session_header(read: Bytes) -> Fields:
    header = {
        "AckSequenceNumber": read.number(2),
        "RecoverableMsgAckSeqNumber": read.number(2),
        "RecoverableMsgAckFlags": read.number(4),
        "UserMsgSequenceNumber": read.number(2),
        "RecoverableMsgSeqNumber": read.number(2),
        "WindowSize": read.number(2),
        "Reserved": read.number(2),
    }
    if header["WindowSize"] == 0:
        raise BadBytesError(read.at - 4, "no window")
    return header


def establish_connection_header(read: Bytes) -> Fields:
    client = read.guid()
    server = read.guid()
    time_stamp = read.number(4)
    system = read.number(2)
    if system & 255 != 0x10:
        raise BadBytesError(56, "low byte of OperatingSystem")
    return {
        "ClientGuid": client,
        "ServerGuid": server,
        "TimeStamp": time_stamp,
        "OperatingSystem": system,
        "OperatingSystem.RE": system & 255,
        "OperatingSystem.SE": system >> 8 & 1,
        "OperatingSystem.OS": system >> 9 & 1,
        "OperatingSystem.QS": system >> 10 & 1,
        "Reserved": read.number(2),
        "Padding": read.take(512).hex(),
    }


def connection_parameters_header(read: Bytes) -> Fields:
    recoverable = read.number(4)
    ack = read.number(4)
    if not 500 <= recoverable <= 120_000:
        raise BadBytesError(20, "RecoverableAckTimeout")
    if not 20_000 <= ack <= 120_000:
        raise BadBytesError(24, "AckTimeout")
    return {
        "RecoverableAckTimeout": recoverable,
        "AckTimeout": ack,
        "Reserved": read.number(2),
        "WindowSize": read.number(2),
    }


def user_message(read: Bytes, base: Fields) -> Fields:
    size = base["PacketSize"]
    if size > len(read.data):
        raise BadBytesError(8, "packet is cut short")
    read.stop = size
    message: Fields = {}
    user = message["UserHeader"] = user_header(read)
    if user["Flags.TH"]:
        message["TransactionHeader"] = transaction_header(read)
    if user["Flags.SH"]:
        message["SecurityHeader"] = security_header(read)
    message |= properties_and_rest(read, base, user)
    read.stop = len(read.data)
    if base["Flags.SH"]:
        message["SessionHeader"] = session_header(read)
    expect_end(read, len(read.data))
    return message | order_queue_body(base, message)


def properties_and_rest(read: Bytes, base: Fields, user: Fields) -> Fields:
    """The headers from MessagePropertiesHeader on, which end where the packet ends.

    Two things are unsaid: whether AllocationBodySize, when it is larger, is the room of the body,
    and in which order SOAP and the lists of queues come. First the plain reading, then the others.
    """
    start = read.at
    soap_and_lists = ["SoapHeader"] * user["Flags.HH"] + ["MultiQueueFormatHeader"] * user[
        "Flags.MQ"
    ]
    first = None
    for room in ("MessageSize", "AllocationBodySize"):
        for names in (soap_and_lists, soap_and_lists[::-1]):
            read.at = start
            try:
                found = {"MessagePropertiesHeader": message_properties_header(read, room)}
                if base["Flags.DH"]:
                    found["DebugHeader"] = debug_header(read)
                for name in names:
                    found[name] = {
                        "SoapHeader": soap_header,
                        "MultiQueueFormatHeader": multi_queue_format_header,
                    }[name](read)
                expect_end(read, read.stop)
            except BadBytesError as bad:
                first = first or bad
            else:
                return found
    assert first is not None
    raise first


def user_header(read: Bytes) -> Fields:
    start = read.at
    header: Fields = {
        "SourceQueueManager": read.guid(),
        "QueueManagerAddress": read.guid(),
        "TimeToBeReceived": read.number(4),
        "SentTime": read.number(4),
        "MessageID": read.number(4),
        "Flags": read.number(4),
    }
    header |= bits(header["Flags"], USER_FLAGS)
    if header["Flags.DM"] > 1:
        raise BadBytesError(start + 44, "delivery mode")
    if header["Flags.TH"] and header["Flags.DM"] == 0:
        raise BadBytesError(start + 44, "transactional but express")
    if not header["Flags.MP"]:
        raise BadBytesError(start + 44, "no MessagePropertiesHeader")
    if header["Flags.DQ"] not in (0, 3, 5, 7):
        raise BadBytesError(start + 44, "destination queue type")
    if header["Flags.AQ"] not in (0, 2, 3, 5, 6, 7):
        raise BadBytesError(start + 44, "admin queue type")
    for name, kind in (("DestinationQueue", "DQ"), ("AdminQueue", "AQ"), ("ResponseQueue", "RQ")):
        if queue := queue_name(read, header[f"Flags.{kind}"]):
            header[name] = queue
    if header["Flags.CQ"]:
        header["ConnectorType"] = read.guid()
    read.align(4)
    return header


def queue_name(read: Bytes, kind: int) -> Fields | None:
    """DQ, AQ and RQ share their numbers; 0 and 1 have no bytes."""
    if kind in (2, 3, 4):
        return {"PrivateQueueIdentifier": read.number(4)}
    if kind == 5:
        return {"PublicQueueIdentifier": read.guid()}
    if kind == 6:
        return {"SourceQueueManager": read.guid(), "PrivateQueueIdentifier": read.number(4)}
    if kind == 7:
        count = read.number(2)
        if count % 2 or count < 2:
            raise BadBytesError(read.at - 2, f"Count {count}")
        name = read.wide(count // 2)
        read.align(4)
        return {"Count": count, "DirectFormatName": name}
    return None


def tx_sequence_id(read: Bytes) -> Fields:
    return {"Ordinal": read.number(4), "TimeStamp": read.number(4)}


def transaction_header(read: Bytes) -> Fields:
    flags = read.number(4)
    header: Fields = {
        "Flags": flags,
        **bits(flags, TRANSACTION_FLAGS),
        "TxSequenceID": tx_sequence_id(read),
        "TxSequenceNumber": read.number(4),
        "PreviousTxSequenceNumber": read.number(4),
    }
    if header["TxSequenceNumber"] == 0:
        raise BadBytesError(read.at - 8, "sequence numbers start at 1")
    if header["PreviousTxSequenceNumber"] == 0xFFFFFFFF:
        raise BadBytesError(read.at - 4, "previous sequence number")
    if header["Flags.CG"]:
        header["ConnectorQMGuid"] = read.guid()
    return header


def security_header(read: Bytes) -> Fields:
    flags = read.number(2)
    header: Fields = {
        "Flags": flags,
        **bits(flags, SECURITY_FLAGS),
        "SenderIdSize": read.number(2),
        "EncryptionKeySize": read.number(2),
        "SignatureSize": read.number(2),
        "SenderCertSize": read.number(4),
        "ProviderInfoSize": read.number(4),
    }
    if header["Flags.ST"] > 2:
        raise BadBytesError(read.at - 16, "kind of sender id")
    if header["Flags.ST"] == 0 and header["SenderIdSize"]:
        raise BadBytesError(read.at - 14, "sender id of no kind")
    if header["SenderCertSize"] > 0xFFFF or header["ProviderInfoSize"] > 0x10000:
        raise BadBytesError(read.at - 8, "size out of bounds")
    if not any(value for name, value in header.items() if name.endswith("Size")):
        raise BadBytesError(read.at - 14, "a SecurityHeader of nothing")
    for name, size in (
        ("SecurityID", "SenderIdSize"),
        ("EncryptionKey", "EncryptionKeySize"),
        ("Signature", "SignatureSize"),
        ("SenderCert", "SenderCertSize"),
        ("ProviderInfo", "ProviderInfoSize"),
    ):
        if header[size]:
            header[name] = read.take(header[size]).hex()
            read.align(4)
    return header


def message_properties_header(read: Bytes, room: str) -> Fields:
    start = read.at
    flags = read.number(1)
    header: Fields = {
        "Flags": flags,
        **bits(flags, PROPERTIES_FLAGS),
        "LabelLength": read.number(1),
        "MessageClass": read.number(2),
        "CorrelationID": read.take(20).hex(),
        "BodyType": read.number(4),
        "ApplicationTag": read.number(4),
        "MessageSize": read.number(4),
        "AllocationBodySize": read.number(4),
        "PrivacyLevel": read.number(4),
        "HashAlgorithm": read.number(4),
        "EncryptionAlgorithm": read.number(4),
        "ExtensionSize": read.number(4),
    }
    if header["LabelLength"] > 250:
        raise BadBytesError(start + 1, "label length")
    if not header["MessageSize"] <= header["AllocationBodySize"] <= 4 * 1024 * 1024:
        raise BadBytesError(start + 36, "room for the body")
    header["Label"] = read.wide(header["LabelLength"]) if header["LabelLength"] else ""
    header["ExtensionData"] = read.take(header["ExtensionSize"]).hex()
    header["MessageBody"] = read.take(header["MessageSize"]).hex()
    read.take(header[room] - header["MessageSize"])
    read.align(4)
    return header


def debug_header(read: Bytes) -> Fields:
    flags = read.number(2)
    header: Fields = {"Flags": flags, "Flags.QT": flags & 3, "Reserved": read.number(2)}
    if header["Flags.QT"] > 1:
        raise BadBytesError(read.at - 4, "trace queue type")
    if header["Flags.QT"] == 1:
        header["QueueIdentifier"] = read.guid()
    return header


def soap_header(read: Bytes) -> Fields:
    header: Fields = {"HeaderSectionID": read.number(2), "Reserved": read.number(2)}
    if header["HeaderSectionID"] != 0x320:
        raise BadBytesError(read.at - 4, "soap header section")
    header["HeaderDataLength"] = read.number(4)
    header["Header"] = read.wide(header["HeaderDataLength"]) if header["HeaderDataLength"] else ""
    # Padding between the halves is not stated: look on both places for the second.
    if read.data[read.at : read.at + 2] != b"\x84\x03":
        read.align(4)
    header["BodySectionID"] = read.number(2)
    header["Reserved1"] = read.number(2)
    if header["BodySectionID"] != 0x384:
        raise BadBytesError(read.at - 4, "soap body section")
    header["BodyDataLength"] = read.number(4)
    header["Body"] = read.wide(header["BodyDataLength"]) if header["BodyDataLength"] else ""
    read.align(4)
    return header


def multi_queue_format_header(read: Bytes) -> Fields:
    header: Fields = {}
    for name, number in (("Destination", 100), ("Administration", 200), ("Response", 300)):
        header[name] = mqf_address_header(read, number)
    start = read.at
    signature: Fields = {"ID": read.number(2), "Reserved": read.number(2), "Size": read.number(4)}
    if signature["ID"] != 350:
        raise BadBytesError(start, "signature header")
    signature["Signature"] = read.take(signature["Size"]).hex()
    read.align(4)
    return header | {"Signature": signature}


def mqf_address_header(read: Bytes, number: int) -> Fields:
    start = read.at
    header: Fields = {
        "HeaderSize": read.number(4),
        "HeaderID": read.number(2),
        "Reserved": read.number(2),
        "ElementCount": read.number(4),
    }
    if header["HeaderID"] != number:
        raise BadBytesError(start + 4, f"address header {header['HeaderID']}, expected {number}")
    if header["HeaderSize"] < 12 or start + header["HeaderSize"] > read.stop:
        raise BadBytesError(start, "size of an address header")
    within = Bytes(read.data, read.at, start + header["HeaderSize"])
    elements = []
    for _ in range(header["ElementCount"]):
        elements.append(mqf_element(within))
    header["FormatNameList"] = elements
    # HeaderSize counts the padding behind the list or not.
    if up_to_four(within.at) != up_to_four(start + header["HeaderSize"]):
        raise BadBytesError(within.at, "something behind the list")
    read.take(header["HeaderSize"] - 12)
    read.align(4)
    return header


def up_to_four(number: int) -> int:
    while number % 4:
        number += 1
    return number


def mqf_element(read: Bytes) -> Fields:
    kind = read.number(2)
    if kind == 3:
        return {"FormatType": 3, "DirectFormatName": read.wide_until_nul()}
    read.align(4)
    if kind == 1:
        return {"FormatType": 1, "PublicQueueIdentifier": read.guid()}
    if kind == 2:
        name = {"SourceQueueManager": read.guid(), "PrivateQueueIdentifier": read.number(4)}
        return {"FormatType": 2, **name}
    if kind == 6:
        return {"FormatType": 6, "DistributionListGuid": read.guid()}
    raise BadBytesError(read.at, f"format type {kind}")


def order_queue_body(base: Fields, message: Fields) -> Fields:
    """The body of an OrderAck or FinalAck, when the message is one."""
    properties = message["MessagePropertiesHeader"]
    user = message["UserHeader"]
    queue = user.get("DestinationQueue", {})
    name = queue.get("DirectFormatName", "").lower()
    to_order_queue = (
        queue.get("PrivateQueueIdentifier") == 4
        if user["Flags.DQ"] == 3
        else name.endswith("\\private$\\order_queue$")
    )
    plain = not any(base[f"Flags.{name}"] for name in ("PR", "SH", "DH", "TR"))
    if not plain or user["Flags.TH"] or not to_order_queue:
        return {}
    kind = properties["MessageClass"]
    if properties["Label"] != "QM Ordering Ack" or (kind != 0xFF and kind < 0x4000):
        return {}
    if properties["MessageSize"] != 36:
        if kind == 0xFF:
            return {}
        raise BadBytesError(0, "a FinalAck has 36 bytes")
    body = Bytes(bytes.fromhex(properties["MessageBody"]), 0, 36)
    common = {
        "TxSequenceID": tx_sequence_id(body),
        "TxSequenceNumber": body.number(4),
        "TxPreviousSequenceNumber": body.number(4),
    }
    if common["TxSequenceNumber"] == 0 or common["TxPreviousSequenceNumber"] == 0xFFFFFFFF:
        raise BadBytesError(0, "sequence numbers of an acknowledgment")
    if kind == 0xFF:
        return {"OrderAckBody": common | {"Reserved": body.take(20).hex()}}
    return {"FinalAckBody": common | {"SourceGUID": body.guid(), "MessageID": body.number(4)}}
