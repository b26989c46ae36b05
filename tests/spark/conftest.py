"""One Spark session for all tests of the jobs."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark.engine import Engine, session

_FOR_SMALL_DATA = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Compiling and planning again cost more than a few rows do."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with session(Engine("local[2]")) as made:
        for name, value in _FOR_SMALL_DATA.items():
            made.conf.set(name, value)
        yield made
