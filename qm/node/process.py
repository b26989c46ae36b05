"""`qm node run`: one node as a process, from its configuration to its exit."""

import asyncio
import errno
import logging
import signal
import sys
from pathlib import Path
from typing import Final

import msgspec
import uvloop

from qm.node.config.loading import ConfigError, load
from qm.node.config.schema import NodeConfig
from qm.node.loop_watch import LoopWatch
from qm.node.node import Node
from qm.node.upkeep.descriptors import raise_limit, sessions_allowed
from qm.observe import logs
from raft.driver import EXIT_STATUS_FATAL
from raft.identity import IdentityRefused
from raft.log.files import FatalDiskError
from raft.process import prepare
from raft.replica import StartRefused
from raft.transport.tls import TlsError

logger = logging.getLogger(__name__)

EXIT_STATUS_CONFIG: Final = 78
"""EX_CONFIG: the file, or the data folder it names, must be corrected."""
EXIT_STATUS_UNAVAILABLE: Final = 69
"""EX_UNAVAILABLE: an address cannot be had."""
_DISK_ERRORS: Final = frozenset({errno.EIO, errno.EROFS, errno.EUCLEAN})
STOP_MAX_S: Final = 25.0
"""For draining, handing over and closing; what is unfinished then is aborted."""


def run(path: Path) -> int:
    """Run a node until it is told to stop; return the exit status.

    A configuration that cannot be used gives one line on stderr, before any port opens.
    """
    try:
        config = load(path)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_STATUS_CONFIG
    logs.set_up(config.name, config.log.level)
    prepare()
    sessions = sessions_allowed(config.msmq.sessions_max, raise_limit())
    msmq = msgspec.structs.replace(config.msmq, sessions_max=sessions)
    config = msgspec.structs.replace(config, msmq=msmq)
    return uvloop.run(_serve(config))


def status_of(error: OSError) -> int:
    """Return the exit status for what the system refused at the start: of the disk or of a port."""
    is_of_disk = isinstance(error, FatalDiskError) or error.errno in _DISK_ERRORS
    return EXIT_STATUS_FATAL if is_of_disk else EXIT_STATUS_UNAVAILABLE


async def _started(node: Node, stop: asyncio.Event) -> bool:
    """Start a node, which may wait for space on its disk; return whether it runs."""
    starting = asyncio.create_task(node.start())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.wait((starting,))
        return False
    await starting
    return True


async def _serve(config: NodeConfig) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        node = Node(config)
        if not await _started(node, stop):
            return 0
    except (IdentityRefused, StartRefused, TlsError) as error:
        logger.critical("this node cannot start: %s", error)
        return EXIT_STATUS_CONFIG
    except OSError as error:
        logger.critical("this node cannot start: %s", error)
        return status_of(error)
    except Exception:
        logger.critical("this node cannot start", exc_info=True)
        return EXIT_STATUS_FATAL
    logger.info("node %s runs", config.name)
    watch = LoopWatch(node.metrics.histogram("quorate_event_loop_lag_seconds"))
    watch.start()
    await stop.wait()
    watch.stop()
    logger.info("node %s stops", config.name)
    try:
        await asyncio.wait_for(node.stop(), STOP_MAX_S)
    except TimeoutError:
        logger.warning("not everything was finished within %d s", STOP_MAX_S)
    return 0
