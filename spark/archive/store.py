"""Where an archive is: small files by pyarrow, tables by Spark, under one URL."""

from typing import BinaryIO, Final

from pyarrow import fs

from qm.archive.destination import DestinationError, file_system, open_destination
from qm.store.signing import SIGNATURE_SUFFIX, SignatureError, Signer, check

_SPARK_SCHEMES: Final = {"s3": "s3a", "gs": "gs", "abfs": "abfs", "file": "file"}
"""Spark's names of file systems that pyarrow names differently."""
_BUCKETS: Final = frozenset({"s3", "gs"})
"""Schemes whose root is a bucket and a folder, whatever else the URL contains."""


class ArchiveStore:
    """Paths are relative to the archive's root and use "/"."""

    def __init__(self, url: str, signers: frozenset[str] | None = None) -> None:
        """`url`: a folder, or what a node's `archive.url` may be; `signers`: public keys that may
        have signed manifests, None takes any, and none. Raises ValueError.
        """
        self.signers: Final = signers
        self.url: Final = url.rstrip("/")
        try:
            if "://" in url:
                self._files, self._root = file_system(self.url)
            else:
                self._files, self._root = fs.LocalFileSystem(), self.url
        except DestinationError as error:
            raise ValueError(
                f"{url!r} is not an archive that this machine can reach: {error}"
            ) from error

    def spark_path(self, path: str) -> str:
        """Return a path in the form that Spark's readers and writers expect.

        Spark takes an object store's server and credentials from its settings, not from the URL.
        """
        scheme, separator, rest = self.url.partition("://")
        if not separator:
            return f"{self.url}/{path}"
        place = self._root if scheme in _BUCKETS else rest
        return f"{_SPARK_SCHEMES.get(scheme, scheme)}://{place}/{path}"

    def names(self, folder: str, base: str) -> list[str]:
        """Return the paths of all files called `base` below a folder, sorted."""
        selector = fs.FileSelector(self._full(folder), recursive=True, allow_not_found=True)
        found = [info for info in self._files.get_file_info(selector) if info.base_name == base]
        return sorted(info.path[len(self._root) :].lstrip("/") for info in found)

    def parquet_files(self, folder: str) -> list[str]:
        """Return the paths of all Parquet files below a folder, sorted; none without a folder."""
        selector = fs.FileSelector(self._full(folder), recursive=True, allow_not_found=True)
        found = [
            info for info in self._files.get_file_info(selector) if info.extension == "parquet"
        ]
        return sorted(info.path[len(self._root) :].lstrip("/") for info in found)

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders in a folder, sorted; none when it does not exist."""
        selector = fs.FileSelector(self._full(folder), allow_not_found=True)
        found = self._files.get_file_info(selector)
        return sorted(info.base_name for info in found if info.type is fs.FileType.Directory)

    def size_bytes(self, path: str) -> int | None:
        """Return a file's length, None when it does not exist."""
        info = self._files.get_file_info(self._full(path))
        return None if info.type is not fs.FileType.File else int(info.size)

    def read(self, path: str) -> bytes:
        """Return a small file. Raises OSError."""
        with self._files.open_input_stream(self._full(path)) as stream:
            data: bytes = stream.read()
            return data

    def read_signed(self, path: str) -> bytes:
        """Return a small file that one of the signers signed. Raises OSError."""
        data = self.read(path)
        if self.signers is not None:
            try:
                signature: bytes | None = self.read(path + SIGNATURE_SUFFIX)
            except FileNotFoundError:
                signature = None
            try:
                check(path.rpartition("/")[2], data, signature, self.signers)
            except SignatureError as error:
                raise OSError(str(error)) from error
        return data

    def write_signed(self, path: str, data: bytes, signer: Signer | None) -> None:
        """Write a small file, and its signature before it. Raises OSError."""
        if signer is not None:
            self.write(path + SIGNATURE_SUFFIX, signer.sign(path.rpartition("/")[2], data))
        self.write(path, data)

    def open(self, path: str) -> object:
        """Return a file for random access, for a Parquet footer. Raises OSError."""
        return self._files.open_input_file(self._full(path))

    def open_input(self, path: str) -> BinaryIO:
        """Return a file for reading from its beginning. Raises OSError."""
        stream: BinaryIO = self._files.open_input_stream(self._full(path))
        return stream

    def open_output(self, path: str) -> BinaryIO:
        """Return a new file for writing; it replaces an old one. Raises OSError."""
        self._files.create_dir(self._full(path).rpartition("/")[0], recursive=True)
        stream: BinaryIO = self._files.open_output_stream(self._full(path))
        return stream

    def write(self, path: str, data: bytes) -> None:
        """Create or replace a small file, completely or not at all. Raises OSError."""
        try:
            open_destination(self.url).write(path, data)
        except DestinationError as error:
            raise OSError(str(error)) from error

    def remove(self, path: str) -> None:
        """Remove a file if it exists."""
        if self.size_bytes(path) is not None:
            self._files.delete_file(self._full(path))

    def remove_folder(self, folder: str) -> None:
        """Remove a folder if it exists."""
        if self._files.get_file_info(self._full(folder)).type is fs.FileType.Directory:
            self._files.delete_dir(self._full(folder))

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}"
