"""Reports of the audits in the node's archive, beside those in its folder for reports.

Whoever writes to the archive is not trusted: names are checked, what is read is bounded, and in a
folder of this machine links do not count. A silent object store keeps one thread waiting and no
more: until that ends, there are no reports of audits.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from typing_extensions import override

from qm.api.gate.operations import NotOffered, ReportFile, ReportList
from qm.node.reports import REPORT_MAX_BYTES, Reports, TooLarge

if TYPE_CHECKING:
    from qm.archive.audit_reports import AuditReports

PREFIX: Final = "archive:"
"""Begins the path of a report in the archive."""
NAMES: Final = ("report.html", "summary.json", "metrics.prom")
AUDITS_MAX: Final = 100
"""The newest are listed."""
ARCHIVE_WAIT_S: Final = 2.0
"""Less than the console waits for an answer."""
_COMPLETE: Final = "audited.json"
"""Written last."""
_FOLDER: Final = "audit"
_T = TypeVar("_T")


class Shelf:
    """All reports that a node shows."""

    def __init__(self, folder: Path | None, archive: str, cluster: bytes) -> None:
        """`archive`: URL, "" for none."""
        self._folder = Reports(folder) if folder is not None or not archive else None
        self._archive = _archive(archive, cluster.hex()) if archive else None
        self._threads: ThreadPoolExecutor | None = None
        self._waiting: Future[object] | None = None

    async def listed(self) -> ReportList:
        """Return all, the newest first. Raises NotOffered."""
        found: list[ReportFile] = []
        missing = ""
        if self._folder is not None:
            found += await asyncio.to_thread(self._folder.listed)
        if self._archive is not None:
            try:
                found += await self._asked(self._archive.listed)
            except _Silent as error:
                missing = str(error)
        return ReportList(sorted(found, key=lambda one: (-one.written_ms, one.path)), missing)

    async def read(self, path: str) -> bytes:
        """Return a report. Raises KeyError, ValueError, NotOffered."""
        if path.startswith(PREFIX) and self._archive is not None:
            folder, _, name = path.removeprefix(PREFIX).partition("/")
            if not _is_audit(folder) or name not in NAMES:
                raise KeyError(path)
            archive = self._archive
            try:
                return await self._asked(lambda: archive.read(folder, name))
            except _Silent as error:
                raise NotOffered(str(error)) from None
        if self._folder is None:
            raise KeyError(path)
        return await asyncio.to_thread(self._folder.read, path)

    async def _asked(self, work: Callable[[], _T]) -> _T:
        """Ask the archive in a thread of its own. Raises _Silent."""
        if self._waiting is not None and not self._waiting.done():
            raise _Silent("the archive does not answer yet: try again")
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, "audits")
        asked = self._threads.submit(work)
        self._waiting = asked  # type: ignore[assignment]
        try:
            async with asyncio.timeout(ARCHIVE_WAIT_S):
                return await asyncio.wrap_future(asked)
        except TimeoutError:
            raise _Silent(f"the archive did not answer within {ARCHIVE_WAIT_S:.0f} s") from None


class _Silent(Exception):
    """The archive cannot be asked; the text says why."""


class _Archive(Protocol):
    """What is asked of an archive; it blocks. Raises _Silent."""

    def listed(self) -> Sequence[ReportFile]:
        """Return the reports of complete audits."""

    def read(self, folder: str, name: str) -> bytes:
        """Return one. Raises KeyError, ValueError, too."""


class _FolderArchive(_Archive):
    """An archive on a disk of this machine."""

    def __init__(self, folder: Path) -> None:
        self._reports = Reports(folder)

    @override
    def listed(self) -> Sequence[ReportFile]:
        found = [(one, *one.path.partition("/")[::2]) for one in self._reports.listed()]
        complete = {folder for _, folder, name in found if name == _COMPLETE}
        return _shown((one, folder, name) for one, folder, name in found if folder in complete)

    @override
    def read(self, folder: str, name: str) -> bytes:
        return self._reports.read(f"{folder}/{name}")


class _StoreArchive(_Archive):
    """An archive elsewhere."""

    def __init__(self, url: str, cluster: str) -> None:
        self._url = url
        self._cluster = cluster

    def _opened(self) -> "AuditReports":
        from qm.archive.audit_reports import AuditReports  # loads Arrow

        return AuditReports(self._url, self._cluster)

    @override
    def listed(self) -> Sequence[ReportFile]:
        from qm.archive.destination import DestinationError

        try:
            reports = self._opened()
            newest = sorted(filter(_is_audit, reports.folders()))[-AUDITS_MAX:]
            found = reports.files(newest, (*NAMES, _COMPLETE))
        except DestinationError as error:
            raise _Silent(str(error)) from error
        complete = {one.folder for one in found if one.name == _COMPLETE}
        return _shown(
            (ReportFile("", one.size_bytes, one.written_ms), one.folder, one.name)
            for one in found
            if one.folder in complete
        )

    @override
    def read(self, folder: str, name: str) -> bytes:
        from qm.archive.destination import DestinationError

        try:
            content = self._opened().read(folder, name, REPORT_MAX_BYTES + 1)
        except DestinationError as error:
            raise _Silent(str(error)) from error
        if len(content) > REPORT_MAX_BYTES:
            raise TooLarge
        return content


def _archive(url: str, cluster: str) -> _Archive:
    scheme, separator, rest = url.partition("://")
    if not separator or scheme == "file":
        return _FolderArchive(Path(rest if separator else url) / cluster / _FOLDER)
    return _StoreArchive(url, cluster)


def _shown(found: Iterable[tuple[ReportFile, str, str]]) -> Sequence[ReportFile]:
    """Return reports of the newest audits under the names by which they are read."""
    by_folder: dict[str, list[ReportFile]] = {}
    for one, folder, name in found:
        if _is_audit(folder) and name in NAMES:
            path = f"{PREFIX}{folder}/{name}"
            by_folder.setdefault(folder, []).append(
                ReportFile(path, one.size_bytes, one.written_ms)
            )
    return [one for folder in sorted(by_folder)[-AUDITS_MAX:] for one in by_folder[folder]]


def _is_audit(folder: str) -> bool:
    """Whether a folder has the name of an audit: its first and last index."""
    first, _, last = folder.partition("-")
    return folder.isascii() and first.isdecimal() and last.isdecimal()
