"""`python -m qm` is the command line."""

from qm.cli.main import main

if __name__ == "__main__":
    main(prog_name="qm")
