"""`qm completion`: completion of nouns, verbs and options in a shell."""

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of a shell: eval "$(qm completion bash)"."""
    from qm.cli.main import main

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(main, {}, "qm", "_QM_COMPLETE").source())
