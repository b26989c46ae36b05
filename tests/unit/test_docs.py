"""What the pages say is so: links lead somewhere, commands exist, design pages name modules."""

import re
from collections import Counter
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
DESIGN_PAGES = sorted(
    page for folder in ("qm", "raft", "spark") for page in (ROOT / folder).rglob("design.md")
)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_COMMAND = re.compile(r"(?:`|^    (?:\w+=\S+ )*(?:sudo )?)qm ([^`\n#]+)", re.MULTILINE)
_WORD = re.compile(r"[a-z][a-z-]*")
_OPTION = re.compile(r"--?[a-z][a-z-]*")
_NAME = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"(?<![\w/<.-])(?:[\w-]+/)*[\w-]+\.(?:py|md|proto)\b")
_DOTTED = re.compile(r"(?<![\w/.])(?:qm|raft|spark|tests)(?:\.\w+)+")
_SECTION = re.compile(r"((?:\w+/)*design\.md), ([A-Z][\w ]*\w)")
_MEMBER = re.compile(r"`([a-z]\w*)\.([A-Z]\w*[a-z]\w*)[^`]*`")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).with_suffix("").as_posix()


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.parametrize("page", PAGES + DESIGN_PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES + DESIGN_PAGES, ids=name_of)
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


def is_apart(folder: Path) -> bool:
    """Whether a package is named as a whole: it is generated, or has its own design page."""
    return folder.name == "pb" or (folder / "design.md").exists()


def parts_of(folder: Path, prefix: str = "") -> set[str]:
    """What a design page has to name: `module`, `package/`, `package/module`."""
    parts = {prefix + module.stem for module in folder.glob("*.py") if module.name != "__init__.py"}
    for init in folder.glob("*/__init__.py"):
        package = f"{prefix}{init.parent.name}/"
        parts.add(package)
        if not is_apart(init.parent):
            parts |= parts_of(init.parent, package)
    return parts


def nearest_page(module: Path) -> Path:
    """The design page that a module means by "design.md"."""
    return next(
        folder / "design.md" for folder in module.parents if (folder / "design.md").exists()
    )


def named_in_tables(text: str) -> list[str]:
    """The first column of the tables whose first heading is "module"."""
    named: list[str] = []
    is_inside = False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) < 3:
            is_inside = False
        elif cells[1] == "module":
            is_inside = True
        elif is_inside:
            named += _NAME.findall(cells[1])
    return named


def defines(module: Path, name: str) -> bool:
    """Whether a module, or a package's `__init__`, says a name at its beginning of a line."""
    source = (module / "__init__.py" if module.is_dir() else module).read_text(encoding="utf-8")
    return bool(
        re.search(rf"^(?:async def|def|class) {name}\b|^{name}\b|^    (?:\"{name}\"|{name}),",
                  source, re.MULTILINE)
    )  # fmt: skip


def leads_somewhere(dotted: str, root: Path) -> bool:
    """Whether `package.module.name` is a module, or a name in one."""
    place = root
    for word in dotted.split("."):
        if place.is_dir() and (place / word).is_dir():
            place = place / word
        elif place.is_dir() and (place / f"{word}.py").exists():
            place = place / f"{word}.py"
        else:
            return place != root and defines(place, word)
    return True


def faults_of(page: Path, root: Path) -> list[str]:
    """What is wrong with a design page, each fault with the name that it is about."""
    folder, text = page.parent, page.read_text(encoding="utf-8")
    parts, named = parts_of(folder), Counter(named_in_tables(text))
    faults = [f"`{part}` is missing in the table" for part in sorted(parts - named.keys())]
    faults += [f"`{name}` of the table does not exist" for name in sorted(named.keys() - parts)]
    faults += [f"`{name}` is named twice" for name in sorted(named) if named[name] > 1]
    for path in _PATH.findall(text):
        is_there = (root / path).exists() or (folder / path).exists()
        if not is_there and not ("/" not in path and any(folder.rglob(path))):
            faults.append(f"{path} does not exist")
    faults += [
        f"{dotted} does not exist"
        for dotted in _DOTTED.findall(text)
        if not leads_somewhere(dotted, root)
    ]
    for stem, name in _MEMBER.findall(text):
        if not any(defines(module, name) for module in folder.rglob(f"{stem}.py")):
            faults.append(f"`{stem}.{name}` does not exist")
    return faults


@pytest.mark.parametrize("page", DESIGN_PAGES, ids=name_of)
def test_a_design_page_names_each_module_once_and_nothing_else(page: Path) -> None:
    faults = faults_of(page, ROOT)
    assert not faults, f"{name_of(page)}: " + "; ".join(faults)


@pytest.mark.parametrize("folder", ["qm", "raft", "spark"])
def test_code_refers_to_headings_that_its_design_pages_have(folder: str) -> None:
    for module in (ROOT / folder).rglob("*.py"):
        source = " ".join(module.read_text(encoding="utf-8").split())
        for path, heading in _SECTION.findall(source):
            page = ROOT / path if "/" in path else nearest_page(module)
            headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
            assert any(one.startswith(heading) for one in headings), f"{module}: {heading}"


def test_faults_of_a_design_page_are_found_by_name(tmp_path: Path) -> None:
    house = tmp_path / "qm" / "house"
    for path in ("__init__", "room", "door", "cellar/__init__", "cellar/wine", "loft/__init__"):
        (house / path).parent.mkdir(parents=True, exist_ok=True)
        (house / f"{path}.py").write_text("class Key:\n    pass\n", encoding="utf-8")
    (house / "loft" / "design.md").write_text("", encoding="utf-8")
    (house / "loft" / "box.py").write_text("", encoding="utf-8")
    page = house / "design.md"
    sound = """
| module | what it is |
|---|---|
| `room`, `door` | parts, see `door.Key`, room.py and `qm.house.cellar.wine.Key` |
| `cellar/` | below |
| `cellar/wine` | in qm/house/cellar/wine.py |
| `loft/` | has a page of its own |

| table of others | |
|---|---|
| `room` | is no module here |
"""
    page.write_text(sound, encoding="utf-8")
    assert faults_of(page, tmp_path) == []
    unsound = sound.replace("`room`, `door`", "`door`, `attic`").replace("`loft/`", "`door`")
    unsound += "See `door.Lock`, qm.house.cellar.beer, qm/house/cellar/beer.py and gate.py."
    page.write_text(unsound, encoding="utf-8")
    assert faults_of(page, tmp_path) == [
        "`loft/` is missing in the table",
        "`room` is missing in the table",
        "`attic` of the table does not exist",
        "`door` is named twice",
        "qm/house/cellar/beer.py does not exist",
        "gate.py does not exist",
        "qm.house.cellar.beer does not exist",
        "`door.Lock` does not exist",
    ]
