"""What third parties' programs found, as JSON."""

import json
from collections.abc import Mapping
from pathlib import Path

BUILD = Path("build")


def write(target: str, figures: Mapping[str, int]) -> None:
    """Print figures and put them into build/<target>.json, beside those of the target's other
    programs.
    """
    path = BUILD / f"{target}.json"
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    text = json.dumps(kept | dict(figures), indent=1)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")
    print(text)
