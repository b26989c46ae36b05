"""What the archive already has of this node: after a crash the destination itself says so."""

from qm.archive.destination import Destination, DestinationError
from qm.archive.manifest import (
    MANIFEST_NAME,
    ManifestError,
    decode_manifest,
    folder_indexes,
    node_folder,
    range_folder,
)
from qm.archive.ranges import Identity
from qm.store.effects.effects_log import Exported


def find_exported(destination: Destination, identity: Identity, known: Exported) -> Exported:
    """Return how far this node's ranges go, at least as far as `known`.

    A crash may come between the manifest of the last range and the row that records it, or a power
    loss may take the row away. Folders above `known` without a manifest of this node and of these
    entries are removed: they may end elsewhere than the range that will begin there. Raises
    DestinationError.
    """
    folder = node_folder(identity.cluster, identity.node)
    found = known
    for name in destination.folders(folder):
        indexes = folder_indexes(name)
        if indexes is None or indexes[1] <= known.upto:
            continue
        path = f"{folder}/{name}"
        data = destination.read(f"{path}/{MANIFEST_NAME}")
        if data is None:
            destination.remove_folder(path)
            continue
        try:
            manifest = decode_manifest(data)
            exported = Exported(manifest.last, bytes.fromhex(manifest.chain_after))
        except (ManifestError, ValueError) as error:
            raise DestinationError(f"{path}/{MANIFEST_NAME} is damaged: {error}") from error
        if range_folder(manifest.cluster, manifest.node, manifest.first, manifest.last) != path:
            destination.remove_folder(path)  # it was copied here
        elif exported.upto > found.upto:
            found = exported
    return found
