"""OpenTelemetry for programs that send and receive: `pip install 'quorate[telemetry]'`."""

from qm.client.telemetry.headers import read_headers, write_headers
from qm.client.telemetry.tracing import Tracing

__all__ = ["Tracing", "read_headers", "write_headers"]
