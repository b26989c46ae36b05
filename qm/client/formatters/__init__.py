"""Bodies as the formatters of .NET's System.Messaging write and read them.

`XmlFormatter`, `BinaryFormatter` and `ActiveXFormatter` stand for XmlMessageFormatter,
BinaryMessageFormatter and ActiveXMessageFormatter. Each makes a `Message` of a value, and the value
of a received message.
"""

from qm.client.formatters.active_x import ActiveXFormatter
from qm.client.formatters.binary import BinaryFormatter
from qm.client.formatters.formatter import FormatError, Formatter
from qm.client.formatters.xml import XmlFormatter

__all__ = ["ActiveXFormatter", "BinaryFormatter", "FormatError", "Formatter", "XmlFormatter"]
