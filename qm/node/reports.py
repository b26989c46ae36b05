"""Reports of drills and audits in a folder of this node: listed and read, never written.

Whoever writes there is not trusted: only plain files count, links and what begins with a dot do
not, and what is read is bounded.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from qm.api.gate.operations import NotOffered, ReportFile

REPORT_MAX_BYTES: Final = 4 << 20
"""A larger one is listed and not read."""
REPORTS_MAX: Final = 1_000
"""The newest are listed."""
SCANNED_MAX: Final = 10_000
"""Files and folders that are looked at."""
FOLDERS_MAX: Final = 3
"""Within each other."""
PATH_MAX_CHARS: Final = 512
KINDS: Final = (".html", ".json", ".md", ".prom", ".txt")
WRITTEN_MAX_MS: Final = 253_402_300_799_999
"""The end of the year 9999: whoever writes a file can give it any time, also one before 1970."""
_NO_LINKS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_BYTES: Final = 1 << 20


class Reports:
    """The reports in one folder."""

    def __init__(self, folder: Path | None) -> None:
        """`folder`: None for none."""
        self._folder = folder

    def listed(self) -> Sequence[ReportFile]:
        """Return the reports, the newest first. Raises NotOffered. It blocks."""
        found = sorted(self._found(), key=lambda one: (-one.written_ms, one.path))
        return found[:REPORTS_MAX]

    def read(self, path: str) -> bytes:
        """Return a report's content. Raises KeyError if there is none, ValueError if it is too
        large, NotOffered. It blocks.
        """
        parts = path.split("/")
        is_sound = len(parts) <= FOLDERS_MAX + 1 and not any(map(_is_hidden, parts))
        if not is_sound or "\0" in path or not parts[-1].endswith(KINDS):
            raise KeyError(path)
        try:
            with _Descriptor(os.open(self._root(), _NO_LINKS & ~os.O_NOFOLLOW)) as root:
                return _read(root, parts)
        except (OSError, ValueError) as error:
            if isinstance(error, TooLarge):
                raise
            raise KeyError(path) from None

    def _root(self) -> Path:
        if self._folder is None:
            raise NotOffered(
                "this node shows no reports: set `console.reports` to their folder, or"
                " `archive.url`"
            )
        return self._folder

    def _found(self) -> Iterator[ReportFile]:
        folders = [(self._root(), "", 0)]
        scanned = 0
        while folders:
            folder, prefix, depth = folders.pop()
            for entry in _entries(folder):
                scanned += 1
                if scanned > SCANNED_MAX:
                    return
                path = prefix + entry.name
                if _is_hidden(entry.name) or len(path) > PATH_MAX_CHARS or not _is_text(path):
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:  # it is gone
                    continue
                if stat.S_ISDIR(status.st_mode) and depth < FOLDERS_MAX:
                    folders.append((folder / entry.name, f"{path}/", depth + 1))
                elif stat.S_ISREG(status.st_mode) and path.endswith(KINDS):
                    yield ReportFile(path, status.st_size, written_ms(status.st_mtime_ns))


def written_ms(nanoseconds: int) -> int:
    """Return when a file was written, as near as it can be told and shown."""
    return min(max(nanoseconds // 1_000_000, 0), WRITTEN_MAX_MS)


class TooLarge(ValueError):
    """A report has more than REPORT_MAX_BYTES."""

    def __init__(self) -> None:
        super().__init__(f"it is longer than {REPORT_MAX_BYTES >> 20} MiB: read it where it is")


class _Descriptor:
    """An open file or folder, closed at the end."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __enter__(self) -> int:
        return self._number

    def __exit__(self, *_: object) -> None:
        os.close(self._number)


def _read(folder: int, parts: Sequence[str]) -> bytes:
    """Return the content of a plain file. Raises OSError, ValueError."""
    if len(parts) > 1:
        flags = _NO_LINKS | os.O_DIRECTORY
        with _Descriptor(os.open(parts[0], flags, dir_fd=folder)) as inner:
            return _read(inner, parts[1:])
    # Without O_NONBLOCK a pipe would wait for its writer.
    with _Descriptor(os.open(parts[0], _NO_LINKS | os.O_NONBLOCK, dir_fd=folder)) as file:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("no plain file")
        content = bytearray()
        while len(content) <= REPORT_MAX_BYTES:
            part = os.read(file, _READ_BYTES)
            if not part:
                return bytes(content)
            content += part
    raise TooLarge


def _entries(folder: Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as found:
            return [entry for entry, _ in zip(found, range(SCANNED_MAX), strict=False)]
    except OSError:  # it is gone, or closed to this process
        return []


def _is_hidden(name: str) -> bool:
    return not name or name.startswith(".")


def _is_text(path: str) -> bool:
    """Whether a path has an encoding: file names may have none."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return path.isprintable()
