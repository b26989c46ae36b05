"""What leaves a node for a support case holds no secret; levels of loggers go back."""

import asyncio
import json
import logging
from pathlib import Path

import msgspec

from qm.node.config.schema import MemberSection, NodeConfig, StorageSection, TlsSection
from qm.node.upkeep.diagnosis import REDACTED, redacted
from qm.node.upkeep.log_levels import LogLevels
from qm.observe import logs
from tests.cluster.harness import run, until

LOGGER = "qm.test.levels"


def config_of(**changes: object) -> NodeConfig:
    tls = TlsSection(authority=Path("/a"), certificate=Path("/c"), key=Path("/k"))
    config = NodeConfig(
        name="n1", host="h", data=Path("/d"), tls=tls, members=(MemberSection(name="n1", host="h"),)
    )
    return msgspec.structs.replace(config, **changes)


def test_a_configuration_is_shown_without_its_secrets() -> None:
    storage = StorageSection(sealing_key_command=("vault", "--token", "s3cret"))
    config = config_of(storage=storage, peers={"guid": "scheme://user:s3cret@host/x?key=s3cret"})
    text = redacted(config)
    assert "s3cret" not in text
    shown = json.loads(text)
    assert shown["storage"]["sealing_key_command"] == REDACTED
    assert shown["peers"]["guid"] == f"scheme://{REDACTED}@host/x?{REDACTED}"
    assert (shown["name"], shown["tls"]["key"], shown["msmq"]["port"]) == ("n1", "/k", 1801)
    assert json.loads(redacted(config_of()))["storage"]["sealing_key_command"] == []


def test_a_level_goes_back_to_what_it_was_at_first() -> None:
    async def scenario() -> None:
        logger = logging.getLogger(LOGGER)
        logger.setLevel("ERROR")
        levels = LogLevels()
        assert levels.set("debug", LOGGER, 3_600) == "error"
        assert levels.set("info", LOGGER, 3_600) == "debug"
        levels.close()
        assert logger.level == logging.ERROR
        levels.set("debug", LOGGER, 3_600)
        levels.set("warning", LOGGER, 0)
        levels.close()
        assert logger.level == logging.WARNING

    asyncio.run(scenario())


def test_a_level_expires() -> None:
    async def scenario() -> None:
        logger = logging.getLogger(LOGGER)
        logger.setLevel(logging.NOTSET)
        LogLevels().set("debug", LOGGER, 1)
        assert logger.level == logging.DEBUG
        await until(lambda: logger.level == logging.NOTSET, lambda: logger.level)

    run(scenario())


def test_the_last_lines_are_kept() -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        logs.set_up("n1", "info")
        for number in range(logs.LINES_KEPT_MAX + 10):
            root.info("line %d %s", number, "x" * logs.LINE_KEPT_MAX_CHARS)
        lines = logs.recent_lines()
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    assert len(lines) == logs.LINES_KEPT_MAX
    assert all(len(line) <= logs.LINE_KEPT_MAX_CHARS for line in lines)
    assert "line 10 " in lines[0]
