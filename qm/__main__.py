"""`python -m qm` and the script `qm` are the command line."""

import sys


def main() -> None:
    """Run the command line, or say how to install what only a client does not need."""
    try:
        from qm.cli.main import main as run
    except ModuleNotFoundError as error:
        sys.exit(f"qm: {error.name} is missing: pip install 'quorate[server]'")
    run(prog_name="qm")


if __name__ == "__main__":
    main()
