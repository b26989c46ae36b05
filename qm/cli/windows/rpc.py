"""`qm rpc`: calls of RPC interfaces, ours or a Windows machine's, to see what answers."""

from typing import Any, Final

import click

_MAPPER_PORT: Final = 135


@click.group()
def rpc() -> None:
    """Ask what Windows programs would be answered, by us or by a Windows machine."""


def _to(command: Any) -> Any:
    """Add the options that say where."""
    for option in (
        click.option("--to", "host", required=True, metavar="HOST", help="Name or address."),
        click.option("--mapper-port", default=_MAPPER_PORT, show_default=True),
    ):
        command = option(command)
    return command


def _as(command: Any) -> Any:
    """Add the options that say where and who."""
    for option in (
        click.option("--port", default=0, help="Of the interface; left out: the mapper is asked."),
        click.option("--user", default="", help="Account; left out: without logging on."),
        click.option("--domain", default=""),
        click.option("--password", envvar="QM_RPC_PASSWORD", default=None),
        click.option("--spnego/--ntlm", default=True, show_default=True),
        click.option(
            "--kerberos", is_flag=True, help="Log on with the ticket that `kinit` got, in SPNEGO."
        ),
        click.option("--level", type=click.Choice(["privacy", "integrity"]), default="privacy"),
    ):
        command = option(command)
    return _to(command)


@rpc.command("ping")
@_to
def ping(host: str, mapper_port: int) -> None:
    """Ask the endpoint mapper for all interfaces."""
    from qm.cli.windows import questions

    questions.run(questions.ping(host, mapper_port))


@rpc.command("map")
@_to
def map_(host: str, mapper_port: int) -> None:
    """Ask for the ports of remote read and remote management."""
    from qm.cli.windows import questions

    questions.run(questions.ports(host, mapper_port))


@rpc.command("open")
@click.argument("queue")
@_as
def open_(queue: str, **where: Any) -> None:
    r"""Open a queue by its format name, such as DIRECT=OS:host\private$\orders, and close it."""
    from qm.cli.windows import questions

    questions.run(questions.open_and_close(queue, where))


@rpc.command("receive")
@click.argument("queue")
@click.option("--peek", is_flag=True, help="Leave the message in its queue.")
@click.option("--timeout", "timeout_ms", default=0, metavar="MS", help="How long to wait.")
@_as
def receive(queue: str, peek: bool, timeout_ms: int, **where: Any) -> None:
    """Receive a message by remote read, and accept it; its body goes to standard output."""
    from qm.cli.windows import questions

    questions.run(questions.receive(queue, peek, timeout_ms, where))
