"""`qm backup`: the cluster's whole state as a folder, and a new cluster made from it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qm.cli.cluster.node import CONFIG_OPTION
from qm.cli.lib.connection import Connection, connected
from qm.cli.lib.output import confirm, dry_run_option, output_option, show_one, yes_option
from qm.cli.lib.progress import progress
from qm.cli.lib.signers import signer_option

if TYPE_CHECKING:
    from qm.store.backup import Backup, BackupHead, BackupWriter, Progress


@click.group()
def backup() -> None:
    """Make, check and restore backups."""


@backup.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@output_option
@connected
def create(connection: Connection, folder: Path, output: str) -> None:
    """Copy the state of one node, messages included, into FOLDER.

    Queues keep working meanwhile. A follower is asked if there is one. FOLDER must be empty or
    absent; it will contain every message's body: protect it like the nodes' disks.
    """
    from qm.store.backup import BackupError, BackupWriter

    async def work(wire: Any) -> Backup:
        with progress("backup") as told, BackupWriter(folder) as writer:
            return await _receive(wire, writer, told)

    try:
        made = connection.run(work)
    except BackupError as error:
        raise click.ClickException(str(error)) from error
    show_one(_row(folder, made) | {"signer": _signer_of(folder)}, output)


def _signer_of(folder: Path) -> str:
    """Return who signed a backup that was just made; warn if nobody did."""
    from qm.store.backup import read_signed

    signer = read_signed(folder, None).signer
    if not signer:
        click.echo("Warning: the node had no sealing key to sign the backup with", err=True)
    return signer


async def _receive(wire: Any, writer: BackupWriter, told: Progress) -> Backup:
    """Write a whole stream to disk, and its description."""
    from grpc import aio

    from qm.client.errors import Unavailable, error_of
    from qm.pb import control_pb2

    await _prefer_follower(wire)
    head, total, done, last = None, 0, 0, None
    try:
        async for chunk in wire.stubs().nodes.CreateBackup(control_pb2.CreateBackupRequest()):
            if head is None:
                head, total = _head(chunk.head), chunk.total_bytes
            writer.write(chunk.data)
            done, last = done + len(chunk.data), chunk
            told(done, total)
    except aio.AioRpcError as failure:
        known = error_of(failure)
        raise known or Unavailable(f"{wire.endpoint}: {failure.details()}; run it again") from None
    if head is None or last is None or done != total:
        raise Unavailable(f"{wire.endpoint}: {done} of {total} bytes arrived; run it again")
    if not last.manifest:  # an older build
        return writer.finish(head)
    return writer.finish_signed(last.manifest, last.signature)


async def _prefer_follower(wire: Any) -> None:
    """Switch to the next node if the first one leads: the leader is busy enough."""
    from qm.pb import control_pb2

    for _ in wire.endpoints:
        status = await wire.call(
            lambda stubs: stubs.cluster.GetStatus, control_pb2.GetStatusRequest()
        )
        if status.leader != status.node:
            return
        wire.leave(wire.stubs())


def _head(head: Any) -> BackupHead:
    from qm.store.backup import BackupHead

    return BackupHead(
        cluster=head.cluster.hex(),
        index=head.index,
        term=head.term,
        digest=head.digest.hex(),
        state_version=head.state_version,
        created_ms=head.created_ms,
        source=head.source,
        build=head.build,
    )


@backup.command()
@CONFIG_OPTION
@click.option(
    "--key-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Of this key instead, as `qm backup signing-key` makes it.",
)
def signer(path: Path, key_file: Path | None) -> None:
    """Print the public key with which the nodes of this configuration sign backups and archives.

    Keep it where whoever can change a backup cannot change it, and name it with --signer.
    """
    from qm.node.config.loading import ConfigError, load
    from qm.node.membership.birth import sealing_key
    from qm.store.sealing import SealingError, key_from_file
    from qm.store.signing import Signer

    try:
        if key_file is not None:
            key = key_from_file(key_file)
        else:
            config = load(path)
            key = sealing_key(config.storage, config.data)
    except (ConfigError, SealingError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(Signer(key).public)


@backup.command("signing-key")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def signing_key(file: Path) -> None:
    """Make a key with which compaction signs its bases (`qm compact run --signing-key`).

    Prints its public key.
    """
    import os
    import secrets

    from qm.store.sealing import KEY_BYTES
    from qm.store.signing import Signer

    key = secrets.token_bytes(KEY_BYTES)
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as output:
            output.write(key.hex() + "\n")
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror}") from error
    click.echo(Signer(key).public)


@backup.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
@signer_option
@click.option(
    "--scratch",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Where the state is built temporarily; default: the system's temporary folder.",
)
@output_option
def verify(folder: Path, signers: frozenset[str] | None, scratch: Path | None, output: str) -> None:
    """Verify a backup without a cluster: its signature, files, the digest of the state, every
    message's body.

    Without --signer a signature only shows that nothing was changed since somebody signed it.
    Needs as much space as the backup. Exit code 1: it is damaged, or not by that signer.
    """
    from qm.names.guid import guid_text
    from qm.store.backup import BackupError, read_backup, verify_backup

    try:
        with progress("verify") as told:
            found = verify_backup(folder, scratch, told, signers)
        row = _row(folder, read_backup(folder))
    except (BackupError, OSError) as error:
        raise click.ClickException(str(error)) from error
    manager = guid_text(found.queue_manager) if found.queue_manager else ""
    show_one(
        row
        | {
            "queue_manager": manager,
            "computer_name": found.computer_name,
            "messages": found.messages,
            "signer": found.signer,
            "sound": True,
        },
        output,
    )


@backup.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
@CONFIG_OPTION
@signer_option
@click.option(
    "--unsigned",
    is_flag=True,
    help="Take a backup that nobody signed, such as one of an older build, or whose signer you do"
    " not know: its state may be anybody's.",
)
@click.option(
    "--outgoing",
    type=click.Choice(["hold", "send"]),
    default="hold",
    show_default=True,
    help="Messages for other queue managers, which may have been sent since the backup was made,"
    " wait for `qm outgoing resume`, or are sent (again).",
)
@yes_option
@dry_run_option
@output_option
def restore(
    folder: Path,
    path: Path,
    signers: frozenset[str] | None,
    unsigned: bool,
    outgoing: str,
    yes: bool,
    dry_run: bool,
    output: str,
) -> None:
    """Make the node of this configuration the first of a new cluster with the state in FOLDER.

    FOLDER must be signed by the cluster whose sealing key the configuration has, or by --signer.

    The node must not run, and its data folder must be empty. Start it afterwards (`qm node run`),
    then the other nodes with empty folders, and let each join (`qm node join`). The cluster that
    the backup was made from must be gone: otherwise the queue manager would exist twice.
    """
    from qm.node.config.loading import ConfigError, load
    from qm.node.membership.refounding import RefoundingRefused, own_signer
    from qm.node.membership.refounding import restore as restore_backup
    from qm.store.backup import BackupError, check_files, read_signed

    try:
        config = load(path)
        trusted = None if unsigned else signers or own_signer(config)
        found = read_signed(folder, trusted)
        row = _row(folder, found.backup) | {"signer": found.signer}
        if dry_run:
            with progress("check") as told:
                check_files(folder, found.backup, told)
            show_one(row | {"node": config.name, "data": str(config.data)}, output)
            return
        confirm(
            f"Is the cluster that this backup was made from gone? {config.name} will be its queue"
            " manager from now on.",
            yes=yes,
        )
        with progress("restore") as told:
            done = restore_backup(
                config,
                folder,
                holds_outgoing=outgoing == "hold",
                signers=trusted,
                progress=told,
            )
    except (ConfigError, BackupError, RefoundingRefused, OSError) as error:
        raise click.ClickException(str(error)) from error
    for warning in done.warnings:
        click.echo(f"Warning: {warning}", err=True)
    show_one(
        {
            "cluster": done.cluster.hex(),
            "node": done.raft_id,
            "computer_name": done.computer_name,
            "index": done.index,
            "outgoing": outgoing,
        },
        output,
    )


def _row(folder: Path, made: Backup) -> dict[str, Any]:
    from qm.cli.lib.output import instant

    head = made.head
    return {
        "folder": str(folder),
        "cluster": head.cluster,
        "index": head.index,
        "term": head.term,
        "digest": head.digest,
        "state_version": head.state_version,
        "created": instant(head.created_ms // 1000),
        "source": head.source,
        "build": head.build,
        "size_bytes": sum(file.size_bytes for file in made.files),
    }
