"""The lines of tests/data/names, expanded."""

import re
from pathlib import Path
from typing import Final, NamedTuple

GUID: Final = "6B29FC40-CA47-1067-B31D-00DD010662DA"
"""What {G} stands for."""

_FOLDER: Final = Path(__file__).parents[2] / "data" / "names"
_REPEAT: Final = re.compile(r"\{(.)\*(\d+)\}")


class NameVector(NamedTuple):
    line: str
    kind: str
    name: str


def read_vectors(file_name: str) -> list[NameVector]:
    vectors = []
    for line in (_FOLDER / file_name).read_text(encoding="utf-8").splitlines():
        _, kind, name = line.partition(" ## ")[0].split(" ", 2)
        expanded = name.replace("{G}", GUID)
        expanded = _REPEAT.sub(lambda match: match[1] * int(match[2]), expanded)
        vectors.append(NameVector(line, kind, expanded))
    return vectors
