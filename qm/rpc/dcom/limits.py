"""Limits on what a DCOM client can make this node keep or do."""

from typing import Final

OBJECTS_MAX: Final = 100_000
"""Exported by a node at once."""
OBJECTS_PER_CALLER_MAX: Final = 20_000
"""Of them those of one account at one address."""
INTERFACES_PER_OBJECT_MAX: Final = 32
INTERFACES_PER_REQUEST_MAX: Final = 64
"""In one activation or query."""
REFERENCES_MAX: Final = 0x7FFF_FFFF
"""Of one interface pointer."""
REFERENCES_PER_CALL_MAX: Final = 4_096
"""Interface pointers in one RemAddRef or RemRelease."""
PING_SETS_MAX: Final = 16_384
PING_SETS_PER_CALLER_MAX: Final = 512
"""Each computer has one: as many as one address may have connections, since all of an office, or
behind a balancer, may have one address and their programs one account."""
CALLERS_MAX: Final = 4_096
"""Accounts at addresses that hold objects."""
ACTIVATION_WAIT_MAX_S: Final = 20.0
"""How long a program waits for its first object while the cluster does not answer: less than the
30 s after which our own client goes without an answer, so that it learns why there is none."""
CALLS_WAITING_MAX: Final = 512
"""Calls of objects that wait for the cluster at once, blocked reads among them: each has a
thread."""
CALLS_WAITING_PER_CALLER_MAX: Final = 256
"""Of them those of one account at one address."""
PING_PERIOD_S: Final = 120.0
"""[MS-DCOM] 3.2.6.1."""
UNPINGED_MAX_S: Final = 3 * PING_PERIOD_S
"""After this time without a ping or a call an object is released [MS-DCOM 3.1.2.2]."""
POINTERS_PER_REQUEST_MAX: Final = 4_096
"""Of one ORPC call, such as elements of arrays: what is read is read at once, in the event loop."""
OBJREF_MAX_BYTES: Final = 4_096
STRING_BINDINGS_MAX: Final = 64
EXTENSIONS_MAX: Final = 16
EXTENSION_MAX_BYTES: Final = 65_536
PROPERTIES_MAX: Final = 10
"""In a blob of activation properties [MS-DCOM 2.2.28.1]."""
PROTOCOLS_MAX: Final = 32_768
"""Protocol sequences that a client lists [MS-DCOM 2.2.28.1]."""
STRING_MAX_CHARS: Final = 2 << 20
"""Of a BSTR: a whole body."""
NAMES_MAX: Final = 64
"""Of one GetIDsOfNames."""
NAME_MAX_CHARS: Final = 256
ARGUMENTS_MAX: Final = 64
"""Of one Invoke."""
DIMENSIONS_MAX: Final = 8
"""Of a SAFEARRAY."""
ELEMENTS_MAX: Final = 65_536
"""Of a SAFEARRAY of anything but bytes."""
SINKS_PER_CALLER_MAX: Final = 256
"""Events that one account at one address waits for, and that its sinks are being told."""
SINK_BUSY_MAX_S: Final = 600.0
"""How long a program may take to handle an event before this node waits no more for its answer."""
