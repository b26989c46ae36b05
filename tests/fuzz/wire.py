"""Invariant: any bytes at all end in a value, in "more is needed", or in one `ProtocolError`.

No other exception, the same result however a stream is cut, and what was read is written and read
again as the same value (`tests.fuzz.invariants`). Coverage-guided, with atheris:

    python -m tests.fuzz.wire [libFuzzer options]     default: -max_total_time=60

`make fuzz` installs atheris in an environment of its own and runs this. The corpus grows in
build/fuzz/wire/corpus; an input that breaks the invariant is left in build/fuzz/wire, and
`python -m tests.fuzz.wire build/fuzz/wire/crash-...` runs it alone.
"""

from __future__ import annotations

import sys
from pathlib import Path
from struct import pack_into

from tests.fuzz.corpus import write_corpus, write_dictionary
from tests.fuzz.invariants import check_packet, check_ping, check_stream

FOLDER = Path("build") / "fuzz" / "wire"
INPUT_MAX_BYTES = 4096
DURATION_DEFAULT_S = 60
MISSING = """atheris is not installed here: it has an environment of its own. Either `make fuzz`, or
    python3.11 -m venv .venv-fuzz
    .venv-fuzz/bin/pip install 'atheris>=3,<4' 'msgspec>=0.20,<0.23'
    .venv-fuzz/bin/python -m tests.fuzz.wire"""


def repaired(raw: bytes) -> bytes:
    """The same bytes with a BaseHeader in order, so that what lies behind it is reached."""
    fixed = bytearray(raw)
    fixed[0] = 0x10
    fixed[4:8] = b"LIOR"
    has_session_header = fixed[2] & 0x18 == 0x10
    pack_into("<I", fixed, 8, max(len(fixed) - (16 if has_session_header else 0), 0))
    return bytes(fixed)


def check_input(raw: bytes) -> None:
    """Put one input through every door."""
    check_packet(raw)
    check_ping(raw)
    check_stream(raw, raw[:16])
    if len(raw) >= 16:
        fixed = repaired(raw)
        check_packet(fixed)
        check_stream(fixed + raw, raw[16:32])


def main(arguments: list[str]) -> int:
    """Fuzz until the time is over or an input breaks the invariant."""
    try:
        import atheris
    except ImportError:
        print(MISSING, file=sys.stderr)
        return 2
    corpus = FOLDER / "corpus"
    dictionary = FOLDER / "tokens.dict"
    write_corpus(corpus)
    write_dictionary(dictionary)
    atheris.instrument_all()
    options = [
        f"-max_total_time={DURATION_DEFAULT_S}",
        f"-max_len={INPUT_MAX_BYTES}",
        f"-dict={dictionary}",
        f"-artifact_prefix={FOLDER}/",
    ]
    is_replay = any(not argument.startswith("-") for argument in arguments)
    targets = [] if is_replay else [str(corpus)]
    # A later option overrides an earlier one.
    atheris.Setup([sys.argv[0], *options, *arguments, *targets], check_input)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
