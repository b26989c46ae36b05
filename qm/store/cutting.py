"""Columns cut out of the keys and rows of runs of positions, without looking at each of them.

Apart from `qm.store.kept` because numpy takes a while to load, and only a node that archives needs
it.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from qm.model.effects import PositionRun
from qm.model.rows import POSITION_KEY, POSITION_ROW

_KEY: Final = np.dtype(
    {
        "names": ["queue_id", "lookup_identifier"],
        "formats": [">u4", ">u8"],
        "offsets": [0, 4],
        "itemsize": POSITION_KEY.size,
    }
)
_ROW: Final = np.dtype(
    {
        "names": [
            "body_index", "body_ordinal", "stored_size", "source_queue_manager", "message_ordinal",
        ],
        "formats": ["<u8", "<u2", "<u4", "V16", "<u4"],
        "offsets": [4, 20, 26, 38, 54],
        "itemsize": POSITION_ROW.size,
    }
)  # fmt: skip


def columns_of_runs(runs: Sequence[PositionRun]) -> list[bytes]:
    """Return the packed columns that a row of EFFECTS has, in their order."""
    counts = [len(run.keys) for run in runs]
    keys = np.frombuffer(b"".join([b"".join(run.keys) for run in runs]), _KEY)
    rows = np.frombuffer(b"".join([b"".join(run.rows) for run in runs]), _ROW)
    kinds = [bytes((run.kind,)) * count for run, count in zip(runs, counts, strict=True)]
    reasons = [
        run.reason.to_bytes(2, "little") * count for run, count in zip(runs, counts, strict=True)
    ]
    return [
        b"".join(kinds),
        _little_endian(keys["queue_id"]),
        _little_endian(keys["lookup_identifier"]),
        b"".join(reasons),
        rows["message_ordinal"].tobytes(),
        rows["source_queue_manager"].tobytes(),
        rows["stored_size"].tobytes(),
        rows["body_index"].tobytes(),
        rows["body_ordinal"].tobytes(),
    ]


def _little_endian(column: "npt.NDArray[np.unsignedinteger]") -> bytes:
    return column.astype(column.dtype.newbyteorder("<")).tobytes()
