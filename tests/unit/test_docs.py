"""What the pages say can be done: links lead somewhere, commands exist."""

import re
from pathlib import Path

import click
import pytest

from qm.cli.main import main
from tests.architecture import PICTURE, packages_and_imports, picture

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    page
    for folder in (ROOT, ROOT / "docs", ROOT / "deploy", ROOT / "helm" / "quorate")
    for page in folder.glob("*.md")
)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_COMMAND = re.compile(r"(?:`|^    (?:\w+=\S+ )*(?:sudo )?)qm ([^`\n#]+)", re.MULTILINE)
_WORD = re.compile(r"[a-z][a-z-]*")
_OPTION = re.compile(r"--?[a-z][a-z-]*")


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_exists_with_its_options(page: Path) -> None:
    for line in _COMMAND.findall(page.read_text(encoding="utf-8")):
        words = line.split()
        found: click.Command = main
        with click.Context(found) as context:
            while words and isinstance(found, click.Group) and _WORD.fullmatch(words[0]):
                next_one = found.get_command(context, words.pop(0))
                assert next_one is not None, f"qm {line}"
                found = next_one
            known = {"--help"}
            for parameter in found.params:
                known |= {*parameter.opts, *parameter.secondary_opts}
            used = {option[0] for word in words if (option := _OPTION.match(word.strip("[")))}
            assert used <= known, f"qm {line}"


def test_the_picture_of_the_house_is_current() -> None:
    """`make architecture` draws it."""
    assert PICTURE.read_text(encoding="utf-8") == picture(packages_and_imports())
