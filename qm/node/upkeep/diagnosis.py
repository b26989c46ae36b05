"""What support needs to know of a running node, without secrets and without messages."""

import asyncio
import platform
import re
import resource
import ssl
import threading
import time
from collections.abc import Awaitable, Callable
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import msgspec
from prometheus_client import CollectorRegistry, generate_latest

from qm.api.gate.operations import Diagnostics
from qm.node.config.schema import NodeConfig
from qm.observe.logs import recent_lines

REDACTED: Final = "(not shown)"
_SECRET_KEYS: Final = frozenset({"sealing_key_command"})
"""Keys by section: programs that fetch secrets may have some as arguments."""
_URL_SECRETS: Final = re.compile(r"(?<=://)[^/?#]*(?=@)|(?<=\?).+")
"""User and password, and everything after a question mark."""
_LIBRARIES: Final = ("grpcio", "protobuf", "rocksdict", "uvloop", "msgspec", "cryptography")
_FDS: Final = Path("/proc/self/fd")


class Diagnosis:
    """Collects the diagnostics; created when the node starts."""

    def __init__(
        self,
        config: NodeConfig,
        registry: CollectorRegistry,
        refresh: Callable[[], Awaitable[None]],
    ) -> None:
        """`refresh` brings gauges up to date."""
        self._config = config
        self._registry = registry
        self._refresh = refresh
        self._started_ms = time.time_ns() // 1_000_000

    async def make(self) -> Diagnostics:
        """Return everything as it is now."""
        await self._refresh()
        return Diagnostics(
            platform=_platform(),
            configuration=redacted(self._config),
            metrics=await asyncio.to_thread(generate_latest, self._registry),
            log_lines=recent_lines(),
            started_ms=self._started_ms,
            memory_bytes=_memory_bytes(),
            threads=threading.active_count(),
            open_files=len(list(_FDS.iterdir())) if _FDS.is_dir() else 0,
        )


def redacted(config: NodeConfig) -> str:
    """Return a configuration as JSON, without what may be secret."""
    plain = msgspec.to_builtins(config, enc_hook=str)
    return msgspec.json.format(msgspec.json.encode(_hidden(plain))).decode()


def _hidden(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: REDACTED if key in _SECRET_KEYS and each else _hidden(each)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_hidden(each) for each in value]
    if isinstance(value, str):
        return _URL_SECRETS.sub(REDACTED, value)
    return value


def _platform() -> dict[str, str]:
    found = {
        "python": platform.python_version(),
        "system": platform.platform(),
        "openssl": ssl.OPENSSL_VERSION,
    }
    for library in _LIBRARIES:
        try:
            found[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            found[library] = "not installed"
    return found


def _memory_bytes() -> int:
    """Return the memory in use; where the system does not report it, the maximum so far."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * resource.getpagesize()
