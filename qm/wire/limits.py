"""Every bound that a peer can reach, and the protocol's defaults; the unit comes last.

Sections are those of MS-MQMQ and MS-MQQB.
"""

from typing import Final

# MS-MQMQ 2.2.19.1: a packet, headers and padding included, without a trailing SessionHeader.
PACKET_SIZE_MAX_BYTES: Final = 0x0040_0000
# MS-MQQB 2.2.1: the smallest packet is a BaseHeader and an InternalHeader (QB-A17).
PACKET_SIZE_MIN_BYTES: Final = 20
# MS-MQQB 2.2.3: EstablishConnection is the longest internal packet.
INTERNAL_PACKET_SIZE_MAX_BYTES: Final = 572
# MS-MQMQ 2.2.20: BaseHeader, UserHeader without names, MessagePropertiesHeader without data.
USER_PACKET_SIZE_MIN_BYTES: Final = 120
# What follows PacketSize bytes in a UserMessage (MS-MQMQ 2.2.20.4, QB-A17).
SESSION_HEADER_SIZE_BYTES: Final = 16
# MS-MQQB 2.2.7: a ping is one datagram of exactly this size.
PING_SIZE_BYTES: Final = 24

# Headers start on a multiple of this, from the start of the packet (MS-MQMQ 2.2.20).
HEADER_ALIGNMENT_BYTES: Final = 4

U16_MAX: Final = 0xFFFF
U32_MAX: Final = 0xFFFF_FFFF

# MS-MQMQ 2.2.19.1 and 2.2.19.2: infinite TimeToReachQueue and TimeToBeReceived.
TIME_INFINITE_S: Final = 0xFFFF_FFFF
# MS-MQMQ 2.2.19.1: BaseHeader.Flags.PR of a message whose sender sets no priority.
PRIORITY_DEFAULT: Final = 3
# MS-MQMQ 2.2.19.2: routing servers a packet may have passed (UserHeader.Flags.RC, MQ-A32).
HOPS_MAX: Final = 0x1D
# MS-MQMQ 2.2.18.1.5.2: Count is a u16 of whole WCHARs, the terminating NUL included.
DIRECT_NAME_MAX_BYTES: Final = 0xFFFE

# MS-MQMQ 2.2.19.3: LabelLength counts the NUL (MQ-A33), so a text has 249 WCHARs at most.
LABEL_LENGTH_MAX_CHARS: Final = 0xFA
CORRELATION_ID_SIZE_BYTES: Final = 20

# MS-MQMQ 2.2.20.5: the local transaction tag is 20 bits wide (MQ-A7).
TRANSACTION_ID_MAX: Final = 0x000F_FFFF
PREVIOUS_TX_SEQUENCE_NUMBER_MAX: Final = 0xFFFF_FFFE

# MS-MQMQ 2.2.20.6: SenderCertSize is a u32 with the range of a u16.
SENDER_CERT_MAX_BYTES: Final = 0xFFFF

# MS-MQMQ 2.2.20.2: HeaderSize of an empty list.
MQF_ADDRESS_HEADER_MIN_BYTES: Final = 12
# Elements of one list of a multiple-element format name. The specification limits it by PacketSize
# only, which would turn 4 MiB of 4-byte elements into a million values.
MQF_ELEMENTS_MAX: Final = 4096

# MS-MQQB 2.2.2.1, in milliseconds; outside the range the session ends (QB-A45).
RECOVERABLE_ACK_TIMEOUT_MIN_MS: Final = 500
RECOVERABLE_ACK_TIMEOUT_MAX_MS: Final = 120_000
ACK_TIMEOUT_MIN_MS: Final = 20_000
ACK_TIMEOUT_MAX_MS: Final = 120_000
# MS-MQMQ 2.2.20.4 and MS-MQQB 3.1.3.2: messages in flight before an acknowledgement.
WINDOW_SIZE_MIN: Final = 1
WINDOW_SIZE_DEFAULT: Final = 64
# MS-MQMQ 2.2.20.4: recoverable messages that one RecoverableMsgAckFlags can name.
RECOVERABLE_ACK_FLAGS_COUNT: Final = 32

# MS-MQQB 2.2.3.1: the padding of EstablishConnection and the byte a response fills it with.
ESTABLISH_CONNECTION_PADDING_BYTES: Final = 512
ESTABLISH_CONNECTION_PADDING_BYTE: Final = 0x5A
# MS-MQQB 2.2.4.1 and 2.2.5.1: bodies of OrderAck and FinalAck.
ACK_BODY_SIZE_BYTES: Final = 36
