"""The manifest of a range: written last, so that a range exists when its manifest does."""

from typing import Final

import msgspec

MANIFEST_NAME: Final = "manifest.json"
RANGES_FOLDER: Final = "ranges"
_INDEX_DIGITS: Final = 20


class ManifestError(ValueError):
    """The bytes are not a manifest that this build understands."""


class ManifestFile(msgspec.Struct, frozen=True):
    """One file of a range."""

    part: str
    """Part's value."""
    name: str
    size_bytes: int
    rows: int
    sha256: str = ""
    """Hexadecimal, schemas 1 and 2 only."""
    blake3: str = ""
    """Hexadecimal, later schemas."""


class Manifest(msgspec.Struct, frozen=True):
    """What one node exported of its log between two indexes."""

    schema: int
    cluster: str
    """Hexadecimal."""
    node: str
    """name.incarnation."""
    group: int
    first: int
    last: int
    """Included in the range, as `first` is."""
    previous_index: int
    """Index of the last DATA entry before the range, 0 if there is none."""
    chain_before: str
    chain_after: str
    """Hexadecimal; the same as `chain_before` for a range without DATA entries."""
    files: tuple[ManifestFile, ...]
    is_gap_before: bool = False
    """Whether entries before `first` left the log before they were exported."""
    restored_at: int = 0
    """Index of the snapshot that this node installed before the range, 0 for none."""
    has_data: bool = True
    """Whether the range has its entries' data; always true in schemas 1 and 2."""


_DECODER: Final = msgspec.json.Decoder(Manifest)


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the contents of `manifest.json`."""
    return msgspec.json.format(msgspec.json.encode(manifest))


def decode_manifest(data: bytes) -> Manifest:
    """Decode `manifest.json`. Raises ManifestError."""
    try:
        return _DECODER.decode(data)
    except msgspec.DecodeError as error:
        raise ManifestError(str(error)) from error


def range_folder(cluster: str, node: str, first: int, last: int) -> str:
    """Return a range's folder within the archive; names sort as indexes do."""
    digits = _INDEX_DIGITS
    return f"{node_folder(cluster, node)}/{first:0{digits}}-{last:0{digits}}"


def node_folder(cluster: str, node: str) -> str:
    """Return the folder of all ranges of a node."""
    return f"{cluster}/{RANGES_FOLDER}/{node}"


def folder_indexes(name: str) -> tuple[int, int] | None:
    """Return (first, last) from a range's folder name; None for any other name."""
    first, _, last = name.partition("-")
    if not (first.isdecimal() and last.isdecimal()):
        return None
    return int(first), int(last)
