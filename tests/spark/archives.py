"""Small archives, row by row, for the rules: three nodes that agree, until a test breaks them."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from qm.archive.schema import SCHEMAS, Part
from qm.store.effects.chain import CHAIN_START, chained, hash_of
from spark.archive.altered import ALTERED, altered_rows
from spark.archive.tables import Tables
from spark.rules.chain import proven

NODES = ("n1.1", "n2.1", "n3.1")
SOURCE = bytes(range(16))
QUEUE = "private$\\orders"
TRANSACTION = b"t" * 16

Row = dict[str, Any]


class Archive:
    """What every node exports; `rows` of a part can be changed before `tables` is asked."""

    def __init__(self, group: int = 1, upgraded_at: int = 0) -> None:
        """`upgraded_at`: the last entry of which SHA-256 was the hash."""
        self.group = group
        self._upgraded_at = upgraded_at
        self.index = 0
        self._previous = 0
        self._chain = CHAIN_START
        self.rows: dict[Part, list[Row]] = {part: [] for part in Part}
        self.replayed: list[Row] = []
        """Marks that a replay passed."""
        self.bases: list[tuple[int, int, bytes]] = []
        """Group, index and chain value of bases."""

    def entry(
        self,
        *operations: Row,
        mark: int | None = None,
        data: bytes | None = None,
        state: bytes | None = None,
    ) -> int:
        """Append an entry with operations, on all nodes; return its index.

        `data` is its bytes, `state` what nodes tell at a mark; without them they are made up.
        """
        self.index += 1
        data = f"entry {self.index}".encode() if data is None else data
        is_blake3 = self.index > self._upgraded_at
        digest = hash_of(data, is_blake3=is_blake3)
        chain = chained(self._chain, self.index, 1, digest)
        place = {"group": self.group, "index": self.index, "term": 1, "time_ms": self.index * 10}
        row = {
            **place, "previous_index": self._previous, "leader": "n1", "data_bytes": len(data),
            "data": data, "data_sha256": None if is_blake3 else digest,
            "data_blake3": digest if is_blake3 else None,
            "chain_before": self._chain, "chain": chain,
            "operations": len(operations), "commands": 1, "audit_mark": mark,
            "digest": None if mark is None else state or sha256(chain).digest()[:16],
        }  # fmt: skip
        for node in NODES:
            self.rows[Part.ENTRIES].append({**row, "node": node, "range_first": 1})
            for ordinal, given in enumerate(operations):
                full = {**operation(""), **place, "ordinal": ordinal, **given}
                self.rows[Part.OPERATIONS].append({**full, "node": node, "range_first": 1})
        self._previous, self._chain = self.index, chain
        return self.index

    def report(self, mark: int, messages: int, size_bytes: int, quota_kb: int = 0xFFFFFFFF) -> None:
        """Have every node report what the queue holds at the last entry."""
        row = {
            "group": self.group, "index": self.index, "audit_mark": mark,
            "queue_id": 7, "queue": QUEUE, "messages": messages, "bytes": size_bytes,
            "quota_kb": quota_kb,
        }  # fmt: skip
        for node in NODES:
            self.rows[Part.QUEUES].append({**row, "node": node, "range_first": 1})

    def ack(self, depends_on: int, known: int, *, exported_with: int = 0) -> None:
        """Have an edge acknowledge a message.

        `exported_with`: an entry behind the one that it depends on, for one that left late.
        """
        self.rows[Part.ACKS].append(
            {
                "group": self.group, "edge": "n2", "session": 4, "position": 1, "node": "n2.1",
                "depends_on_index": depends_on, "commit_index_known": known, "range_first": 1,
                "exported_with": exported_with or depends_on,
            }
        )  # fmt: skip

    def replay(self, mark: int) -> None:
        """Have a replay give what nodes told at a mark."""
        row = self.of(Part.ENTRIES, audit_mark=mark)[0]
        self.replayed.append(
            {
                "group": self.group, "index": row["index"], "audit_mark": mark,
                "replayed": row["digest"],
            }
        )  # fmt: skip

    def base(self, index: int) -> None:
        """Have a base that stands for everything up to an entry."""
        chain = self.of(Part.ENTRIES, index=index)[0]["chain"]
        self.bases.append((self.group, index, chain))

    def of(self, part: Part, **wanted: Any) -> list[Row]:
        """Return the rows with these values, to be changed in place."""
        return [
            row
            for row in self.rows[part]
            if all(row[name] == value for name, value in wanted.items())
        ]

    def drop(self, part: Part, **wanted: Any) -> None:
        """Remove the rows with these values."""
        gone = [id(row) for row in self.of(part, **wanted)]
        assert gone, wanted
        self.rows[part] = [row for row in self.rows[part] if id(row) not in gone]

    def tables(self, spark: SparkSession, base_index: int = 0) -> Tables:
        """Return it as the job reads it."""
        return tables(spark, [self], base_index)


def tables(spark: SparkSession, archives: list[Archive], base_index: int = 0) -> Tables:
    """Return several archives, of different groups, as one; the first node's copy counts."""
    frames = {
        part.value: frame(spark, part, [row for archive in archives for row in archive.rows[part]])
        for part in Part
    }
    frames["entries"] = proven(frames["entries"])
    altered = [row for archive in archives for row in altered_in(archive)]
    whole = F.col("node") == NODES[0]
    one_copy_of_operations = frames["operations"].where(whole).drop("node", "range_first")
    file = F.concat_ws("/", "node", F.concat("range_first", F.lit("-0")), F.lit("operations"))
    operations = frames.pop("operations").withColumn("file", file).drop("node", "range_first")
    return Tables(
        base_index=base_index,
        incomparable=frozenset(),
        altered_entries=spark.createDataFrame(altered, ALTERED),
        one_copy_of_entries=frames["entries"].where(whole),
        operations=operations,
        one_copy_of_operations=one_copy_of_operations,
        entries=frames["entries"],
        queues=frames["queues"],
        acks=frames["acks"],
    )


def altered_in(archive: Archive) -> list[tuple[Any, ...]]:
    """Return what reading an archive's files finds of entries' data."""
    schema = SCHEMAS[Part.ENTRIES]
    return [
        row
        for node in NODES
        for row in altered_rows(
            node, pa.Table.from_pylist(archive.of(Part.ENTRIES, node=node), schema=schema)
        )
    ]


def frame(spark: SparkSession, part: Part, rows: list[Row]) -> DataFrame:
    """Return rows of a part, with the columns that reading adds."""
    schema = SCHEMAS[part].append(pa.field("node", pa.string()))
    schema = schema.append(pa.field("range_first", pa.int64()))
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema=schema))


def operation(name: str, lookup_identifier: int = 1, **more: Any) -> Row:
    """Return an operation on the queue; `more` replaces columns."""
    return {
        "operation": name, "queue_id": 7, "queue": QUEUE, "lookup_identifier": lookup_identifier,
        "source_queue_manager": SOURCE, "message_ordinal": lookup_identifier,
        "sender_sequence_id": None, "sender_sequence": None, "sender_previous": None,
        "destination": None, "transaction": None, "reason": 0, "size_bytes": 100,
        "body_index": 1, "body_ordinal": 0, "body_sha256": None, **more,
    }  # fmt: skip


def sent(
    number: int, previous: int | None = None, sequence: int = 9, key: int | None = None
) -> Row:
    """Return the acceptance of a transactional message of one stream."""
    return operation(
        "arrived",
        number if key is None else key,
        sender_sequence_id=sequence,
        sender_sequence=number,
        sender_previous=number - 1 if previous is None else previous,
        destination="DIRECT=OS:q\\private$\\orders",
    )


def refused(number: int, sequence: int) -> Row:
    """Return the final refusal of a transactional message of the stream."""
    return {**sent(number, sequence=sequence), "operation": "refused", "queue_id": 0,
            "lookup_identifier": 0, "queue": "", "reason": 0x8004}  # fmt: skip
