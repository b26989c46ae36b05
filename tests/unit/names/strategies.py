"""Hypothesis strategies that make legal names, and texts that are nearly names."""

from ipaddress import IPv4Address, IPv6Address

from hypothesis import strategies as st

from qm.names import (
    ConnectorName,
    DirectAddress,
    DirectName,
    DirectProtocol,
    DirectSystemName,
    DistributionListName,
    MachineName,
    MulticastName,
    MultipleElementName,
    PathKind,
    PathName,
    PrivateName,
    PublicName,
    SingleFormatName,
    SystemQueue,
    is_read_only,
)

COMPUTER_CHARS = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '\\/;,"')
QUEUE_CHARS = "".join(chr(code) for code in range(0x21, 0x80) if chr(code) not in '\\;,"+')
RESERVED = {"private$", "system$"}
SUFFIXES = {"journal", "deadletter", "deadxact", "xactonly"}

computers = st.text(COMPUTER_CHARS, min_size=1, max_size=256)
# A queue whose name starts like a prefix of another kind would be mixed up when slashes are folded.
queues = st.text(QUEUE_CHARS, min_size=1, max_size=124).filter(
    lambda name: (
        name.lower() not in RESERVED and not name.lower().startswith(("private$/", "system$/"))
    )
)
subqueues = st.text(QUEUE_CHARS, min_size=1, max_size=32).filter(
    lambda name: name.lower() not in SUFFIXES
)
guids = st.binary(min_size=16, max_size=16)
system_queues = st.sampled_from(SystemQueue)
ip_texts = st.ip_addresses().map(str)
# None, a subqueue, or the journal.
suffixes = st.one_of(
    st.just((None, False)),
    st.just((None, True)),
    subqueues.map(lambda name: (name, False)),
)


def bracketed(address: IPv4Address | IPv6Address) -> str:
    return f"[{address}]" if address.version == 6 else str(address)


tcp_addresses = st.builds(
    DirectAddress,
    st.just(DirectProtocol.TCP),
    st.one_of(ip_texts, st.ip_addresses(v=6).map(bracketed)),
)
os_addresses = st.builds(DirectAddress, st.just(DirectProtocol.OS), st.one_of(computers, ip_texts))
ipx_addresses = st.builds(
    lambda protocol, network, node: DirectAddress(protocol, f"{network:x}:{node:012X}"),
    st.sampled_from([DirectProtocol.IPX, DirectProtocol.SPX]),
    st.integers(0, 0xFFFF_FFFF),
    st.integers(0, 0xFFFF_FFFF_FFFF),
)
http_addresses = st.builds(
    DirectAddress,
    st.sampled_from([DirectProtocol.HTTP, DirectProtocol.HTTPS]),
    st.one_of(
        st.text(COMPUTER_CHARS.replace(":", ""), min_size=1, max_size=256).filter(
            lambda host: not host.startswith("[")
        ),
        st.ip_addresses().map(bracketed),
    ),
    st.one_of(st.none(), st.integers(0, 65535)),
    st.sampled_from("\\/"),
)
addresses = st.one_of(tcp_addresses, os_addresses, ipx_addresses, http_addresses)
direct_names = st.builds(
    lambda address, queue, private, suffix: DirectName(address, queue, private, *suffix),
    addresses,
    queues,
    st.booleans(),
    suffixes,
)
direct_system_names = st.builds(DirectSystemName, addresses, system_queues)
public_names = st.builds(PublicName, guids, st.booleans())
private_names = st.builds(PrivateName, guids, st.integers(0, 0xFFFF_FFFF), st.booleans())
distribution_list_names = st.builds(
    DistributionListName,
    guids,
    st.text("".join(map(chr, range(0x21, 0x7F))).replace(",", ""), max_size=255),
)
machine_names = st.builds(MachineName, guids, system_queues)
connector_names = st.builds(ConnectorName, guids, st.booleans())
multicast_names = st.builds(
    MulticastName, st.ip_addresses(network="224.0.0.0/4").map(str), st.integers(0, 65535)
)

single_names: st.SearchStrategy[SingleFormatName] = st.one_of(
    direct_names,
    direct_system_names,
    public_names,
    private_names,
    distribution_list_names,
    machine_names,
    connector_names,
    multicast_names,
)
multiple_names = st.builds(
    lambda elements: MultipleElementName(tuple(elements)),
    st.lists(single_names.filter(lambda name: not is_read_only(name)), min_size=1, max_size=5),
)
path_names = st.one_of(
    st.builds(
        lambda computer, queue, kind, suffix: PathName(computer, queue, kind, *suffix),
        computers,
        queues,
        st.sampled_from([PathKind.PUBLIC, PathKind.PRIVATE]),
        suffixes,
    ),
    st.builds(PathName, computers, queues, st.just(PathKind.SYSTEM)),
)

_PIECES = (
    *("DIRECT=", "PUBLIC=", "PRIVATE=", "DL=", "MACHINE=", "CONNECTOR=", "MULTICAST="),
    *("TCP:", "OS:", "HTTP:", "HTTPS:", "IPX:", "SPX:", "//", "/MSMQ", "\\", "/", ";", ",", ":"),
    *("PRIVATE$", "SYSTEM$;", "JOURNAL", "DEADLETTER", "XACTONLY", "@", "[", "]", "%", "."),
    *("10.0.0.5", "2001:db8::5", "6B29FC40-CA47-1067-B31D-00DD010662DA", "F", "0", "65536", "q"),
)
near_names = st.lists(st.one_of(st.sampled_from(_PIECES), st.text(max_size=3)), max_size=12).map(
    "".join
)
"""Texts glued from the pieces of names, with strange characters between them."""
