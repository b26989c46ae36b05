"""`python -m tests.unit.raft.core.scripts [--rewrite-scripts]`: check, or rewrite, all
transcripts.
"""

import sys

from tests.unit.raft.core.scripts.interaction import rewritten, scripts


def main() -> int:
    """Return how many scripts do not print what they should."""
    differ = 0
    for path in scripts():
        before = path.read_text()
        after = rewritten(before)
        if after == before:
            continue
        differ += 1
        print(f"{path.name} differs")
        if "--rewrite-scripts" in sys.argv[1:]:
            path.write_text(after)
    return 0 if "--rewrite-scripts" in sys.argv[1:] else differ


if __name__ == "__main__":
    sys.exit(main())
