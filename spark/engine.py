"""The Spark session of a job, and the names that its stages show."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

EMBEDDED_MEMORY_MIB: Final = 1024
"""Heap of a Spark that runs within the job's own process."""
PARTITION_ROWS: Final = 250_000
"""Rows of one copy of the operations: some 50 MB in memory, regardless of compression."""
PARTITIONS_MIN: Final = 2
PARTITIONS_MAX: Final = 20_000
SMALL_ROWS: Final = PARTITIONS_MIN * PARTITION_ROWS
"""Up to so many, a job takes less time than what makes the rate of larger ones."""
LISTINGS_PER_SLOT: Final = 4
"""Tasks that look for the files of a table: Spark would use one for each file."""
FILE_OPEN_BYTES: Final = 256 << 10
"""Bytes that are read in the time in which a file is opened: small ones share a task."""
_SMALL_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC"
"""Without the second compiler a small audit took 48 s of processor time instead of 68; it repays
only where the same code runs for minutes.
"""
POOL_PROPERTY: Final = "spark.scheduler.pool"
"""Property of a thread: jobs in different pools share the slots, whichever came first."""


class SparkFailed(Exception):
    """A job was aborted by an error of Spark or a bug. Running it again does no harm."""


@dataclass(frozen=True)
class Engine:
    """Where a job runs."""

    master: str | None = None
    """For example local[2]; None: spark-submit's, which also sets the memory."""
    memory_mib: int = EMBEDDED_MEMORY_MIB
    event_log: str | None = None
    """Folder for Spark's own event log, which holds the peak memory of every stage."""
    rows: int | None = None
    """Rows of one copy of the operations, where that is known before Java starts."""


@contextmanager
def session(engine: Engine) -> Iterator[SparkSession]:
    """Yield a session and stop it afterwards. Raises SparkFailed for errors within it."""
    builder = (
        SparkSession.builder.appName("quorate")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.parquet.int96RebaseModeInRead", "CORRECTED")
        .config("spark.sql.files.openCostInBytes", FILE_OPEN_BYTES)
        .config("spark.python.sql.dataFrameDebugging.enabled", "false")
        .config("spark.scheduler.mode", "FAIR")
        .config("spark.ui.showConsoleProgress", str(sys.stderr.isatty()).lower())
    )
    if engine.master:
        # Tasks need this interpreter's packages, and Spark finds it in no other way.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = (
            builder.master(engine.master)
            .config("spark.driver.memory", f"{engine.memory_mib}m")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.ui.enabled", "false")
        )
        if engine.rows is not None and engine.rows <= SMALL_ROWS:
            builder = builder.config("spark.driver.defaultJavaOptions", _SMALL_JAVA)
    if engine.event_log:
        builder = (
            builder.config("spark.eventLog.enabled", "true")
            .config("spark.eventLog.compress", "false")
            .config("spark.eventLog.dir", engine.event_log)
        )
    try:
        spark = builder.getOrCreate()
    except (Py4JError, PySparkException) as error:
        raise SparkFailed(
            f"Spark does not start: {str(error).partition(chr(10))[0]} Is Java 17 or newer on the"
            " path, or in JAVA_HOME, and does this machine's name resolve?"
        ) from error
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    except (Py4JError, PySparkException) as error:
        raise SparkFailed(
            f"Spark broke off: {str(error).partition(chr(10))[0]}; more memory"
            " (--memory-mib) or disk may help; an aborted run leaves nothing"
        ) from error
    finally:
        spark.stop()


def size_queries(spark: SparkSession, rows: int) -> None:
    """Use as many partitions and tasks as a table of this many rows needs, and no more.

    Spark merges small partitions by itself but never splits its 200, and each of them costs a task.
    Where there is nothing to merge, it does not plan again after each stage.
    """
    partitions = min(max(-(-rows // PARTITION_ROWS), PARTITIONS_MIN), PARTITIONS_MAX)
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    spark.conf.set("spark.sql.adaptive.enabled", rows > SMALL_ROWS)
    spark.conf.set(
        "spark.sql.sources.parallelPartitionDiscovery.parallelism",
        spark.sparkContext.defaultParallelism * LISTINGS_PER_SLOT,
    )


def stage(spark: SparkSession, job: str, name: str) -> None:
    """Name the following steps, in the job's log and in Spark's own progress and UI."""
    spark.sparkContext.setJobDescription(f"quorate {job}: {name}")
    logger.info("%s: %s", job, name)
