"""The typed errors for names that cannot be used, each with the MQ_ERROR code to answer.

The codes are numbers here because names are below the codec; `qm.wire.codes` has the whole table.
"""

from typing import Final

from typing_extensions import override

MQ_ERROR_ILLEGAL_QUEUE_PATHNAME: Final = 0xC00E0014
"""The text is not a path name (MS-MQMQ 2.4)."""
MQ_ERROR_ILLEGAL_FORMATNAME: Final = 0xC00E001E
"""The text is not a format name."""
MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION: Final = 0xC00E0020
"""The name is well formed, but its kind does not support what was asked for."""

EXCERPT_MAX_CHARS: Final = 64


class QueueNameError(Exception):
    """A name that cannot be used; `code` is the HRESULT, `reason` says what to change."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason

    @override
    def __str__(self) -> str:
        return f"{self.reason} (0x{self.code:08X})"


class FormatNameError(QueueNameError):
    """A format name that is malformed, or of a kind that cannot do what was asked."""


class PathNameError(QueueNameError):
    """A path name, or the computer part of one, that is malformed."""


def illegal_format_name(reason: str) -> FormatNameError:
    """Return the error for a malformed format name."""
    return FormatNameError(MQ_ERROR_ILLEGAL_FORMATNAME, reason)


def illegal_path_name(reason: str) -> PathNameError:
    """Return the error for a malformed path name."""
    return PathNameError(MQ_ERROR_ILLEGAL_QUEUE_PATHNAME, reason)


def unsupported_operation(reason: str) -> FormatNameError:
    """Return the error for a well-formed name of an unusable kind."""
    return FormatNameError(MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION, reason)


def excerpt(text: str) -> str:
    """Quote the start of an untrusted text, so that an error stays short."""
    return repr(text[:EXCERPT_MAX_CHARS])
