"""Seals the bodies of runs for the disk, before the log knows them (`storage.encrypt_bodies`)."""

from itertools import pairwise

from msgspec.structs import replace
from zlib_ng.zlib_ng import crc32

from qm.cluster.sealing import Sealing
from qm.edge.batches import PacketRun
from qm.model.values.elements import SealedBodies
from qm.security.body_seals import BodySealer


def sealed_run(run: PacketRun, sealing: Sealing) -> PacketRun:
    """Return a run with those bodies sealed that are to be. Raises Unavailable."""
    which = sealing.which
    if which is SealedBodies.NONE:
        return run
    if which is SealedBodies.ALL:
        return _all_sealed(run, sealing.sealer())
    encrypted = {k for k, facts in run.other_facts.items() if facts.was_encrypted}
    return _some_sealed(run, encrypted, sealing.sealer()) if encrypted else run


def _all_sealed(run: PacketRun, sealer: BodySealer) -> PacketRun:
    block, offsets = sealer.sealed_run(run.block, run.offsets)
    return PacketRun(
        run.intake,
        run.last_position,
        block,
        offsets,
        [crc32(block[begin:end]) for begin, end in pairwise(offsets)],
        {k: replace(facts, is_sealed=True) for k, facts in run.other_facts.items()},
        is_sealed=True,
    )


def _some_sealed(run: PacketRun, chosen: set[int], sealer: BodySealer) -> PacketRun:
    pieces, offsets, checksums = [], [0], list(run.checksums)
    for k, (begin, end) in enumerate(pairwise(run.offsets)):
        piece = run.block[begin:end]
        if k in chosen:
            piece = sealer.sealed(piece)
            checksums[k] = crc32(piece)
        pieces.append(piece)
        offsets.append(offsets[-1] + len(piece))
    facts = {
        k: replace(found, is_sealed=True) if k in chosen else found
        for k, found in run.other_facts.items()
    }
    return PacketRun(run.intake, run.last_position, b"".join(pieces), offsets, checksums, facts)
