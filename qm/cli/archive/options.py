"""Shared by `qm audit` and `qm compact`: the archive's options, and Spark in this process."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click

if TYPE_CHECKING:
    from spark.engine import Engine

EXIT_FOUND: Final = 1
EXIT_DAMAGED: Final = 2
EXIT_BROKEN_OFF: Final = 3
EXIT_PARTIAL: Final = 4
CORES_MAX: Final = 1024
SPARK_PACKAGES: Final = ("pyspark", "py4j")
_Command = TypeVar("_Command", bound=Callable[..., Any])


def archive_options(command: _Command) -> _Command:
    """Add `--archive` and `--cluster` to a command, which gets them as `url` and `cluster`."""
    cluster = click.option(
        "--cluster", help="Hexadecimal id of the cluster; needed when the archive holds several."
    )
    archive = click.option(
        "--archive",
        "url",
        required=True,
        envvar="QM_ARCHIVE",
        show_envvar=True,
        help="Folder or URL of the archive.",
    )
    return archive(cluster(command))


def spark_options(command: _Command) -> _Command:
    """Add options for Spark's resources to a command, as `cores` and `memory_mib`."""
    memory = click.option(
        "--memory-mib",
        type=click.IntRange(512),
        default=1024,
        show_default=True,
        help="Heap of Spark's Java process.",
    )
    cores = click.option(
        "--cores",
        type=click.IntRange(1, CORES_MAX),
        default=2,
        show_default=True,
        help="Number of parallel tasks.",
    )
    return cores(memory(command))


def hash_files_option(command: _Command) -> _Command:
    """Add `--hash-files` to a command, on by default."""
    option = click.option(
        "--hash-files/--no-hash-files", default=True, help="Compare every file with its manifest."
    )
    return option(command)


def embedded_engine(cores: int, memory_mib: int) -> "Engine":
    """Return a Spark engine in this process, which logs its progress to stderr.

    Ends the command if Spark is not installed.
    """
    try:
        from spark.engine import Engine
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in SPARK_PACKAGES:
            raise
        fail(
            "PySpark is not installed: pip install 'quorate[spark]', and Java 17 or newer"
            " (Debian: apt-get install openjdk-17-jre-headless); or use the image with Spark"
        )
    engine = Engine(f"local[{cores}]", memory_mib)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    return engine


@contextmanager
def ending_on_failure() -> Iterator[None]:
    """End the command when the archive cannot be used, or Spark aborted."""
    from spark.archive.standing import NoArchive
    from spark.engine import SparkFailed

    try:
        yield
    except (NoArchive, ValueError) as error:
        fail(str(error))
    except SparkFailed as error:
        fail(str(error), EXIT_BROKEN_OFF)


def fail(text: str, exit_code: int = EXIT_DAMAGED) -> NoReturn:
    """End the command with an error."""
    click.echo(f"Error: {text}", err=True)
    sys.exit(exit_code)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is never visible half written."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_bytes(data)
    fresh.replace(path)
