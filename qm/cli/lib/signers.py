"""Which public keys may have signed a backup or an archive, and the key that signs a base."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from qm.store.signing import Signer


def _signers(
    _context: click.Context, _option: click.Parameter, texts: tuple[str, ...]
) -> frozenset[str] | None:
    from qm.store.signing import public_keys

    try:
        return public_keys(texts)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _signer(_context: click.Context, _option: click.Parameter, file: Path | None) -> Signer | None:
    from qm.store.sealing import SealingError, key_from_file
    from qm.store.signing import Signer

    try:
        return None if file is None else Signer(key_from_file(file))
    except SealingError as error:
        raise click.BadParameter(str(error)) from error


signer_option: Final = click.option(
    "--signer",
    "signers",
    multiple=True,
    metavar="KEY",
    envvar="QM_SIGNERS",
    show_envvar=True,
    callback=_signers,
    help="Public key that must have signed it (`qm backup signer`); may be repeated.",
)
signing_key_option: Final = click.option(
    "--signing-key",
    "signer",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="QM_SIGNING_KEY",
    show_envvar=True,
    callback=_signer,
    help="File with the key that signs what this run leaves (`qm backup signing-key`).",
)
