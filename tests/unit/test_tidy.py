"""House rules that ruff and the import contracts cannot express."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from tests.house.modules import circles, imports, modules_per_folder, product_modules

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("qm", "raft", "spark")
GENERATED = ("qm/pb/", "raft/pb/")
PURE = (
    *("qm/wire/", "qm/names/", "qm/security/", "qm/session/", "qm/model/"),
    *("raft/core/", "raft/types.py"),
)
NOT_OURS = (".git", ".venv", "build", "dist", "__pycache__", ".hypothesis")
FILE_LINES_MAX = 600
MODULES_PER_FOLDER_MAX = 20
DOCSTRING_WORDS_MIN = 5

# What a function of a pure layer may not touch: the clock, chance, the world, and Python's
# per-process hash seed, which would make replicas differ.
IMPURE_MODULES = frozenset({"time", "random", "secrets", "os", "socket", "threading", "asyncio"})
IMPURE_CALLS = frozenset({"open", "print", "input", "hash", "id", "uuid.uuid1", "uuid.uuid4"})
IMPURE_METHODS = frozenset({"now", "utcnow", "today"})

UNIT_BEFORE_BOUND = re.compile(
    r"(^|_)(BYTES|CHARS|BITS|COUNT|TICKS|S|MS|US|NS)(_[A-Z0-9]+)*_(MAX|MIN)$"
)
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
WORKPLACE = re.compile(r"(?<![\w.~$}/-])/(wo" + r"rk|tm" + r"p|ro" + r"ot|home)/\w")


def tracked_files() -> list[str]:
    """Every file of the project: git's list, or the folder's content where git is absent."""
    command = ["git", "ls-files", "-z"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
        names = [name for name in listed.decode("utf-8").split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        names = [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*")]
    return sorted(
        name
        for name in names
        if (ROOT / name).is_file()
        and not any(part in NOT_OURS or part.endswith("_cache") for part in Path(name).parts)
    )


FILES = tracked_files()
PYTHON = [name for name in FILES if name.endswith(".py") and not name.startswith(GENERATED)]
PRODUCT_PYTHON = [name for name in PYTHON if name.split("/")[0] in PRODUCT]
TREES = {name: ast.parse((ROOT / name).read_text(encoding="utf-8"), name) for name in PYTHON}


def text_of(name: str) -> str | None:
    """The text of a file, or nothing when it is not text."""
    try:
        return (ROOT / name).read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        return None


def lines_matching(pattern: re.Pattern[str], names: list[str]) -> list[str]:
    """`file:line: text` of every line that matches."""
    return [
        f"{name}:{number}: {line.strip()[:120]}"
        for name in names
        for number, line in enumerate((text_of(name) or "").splitlines(), start=1)
        if pattern.search(line)
    ]


def imported_names(tree: ast.AST) -> dict[str, str]:
    """Return local name to dotted origin, for every import statement."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def impure_calls(name: str, tree: ast.AST) -> list[str]:
    """Calls of a pure file that reach for the world."""
    origin = imported_names(tree)
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        dotted = ast.unparse(node.func)
        head, _, rest = dotted.partition(".")
        full = origin.get(head, head) + ("." + rest if rest else "")
        is_clock = full.startswith("datetime.") and full.split(".")[-1] in IMPURE_METHODS
        if full.split(".")[0] in IMPURE_MODULES or full in IMPURE_CALLS or is_clock:
            found.append(f"{name}:{node.lineno}: {dotted}()")
    return found


def test_product_files_stay_readable_in_one_sitting() -> None:
    lengths = {name: (text_of(name) or "").count("\n") for name in PRODUCT_PYTHON}
    assert {n: count for n, count in lengths.items() if count > FILE_LINES_MAX} == {}


def test_no_folder_is_too_full_to_be_looked_through() -> None:
    counts = modules_per_folder(product_modules().values())
    assert {f: count for f, count in counts.items() if count > MODULES_PER_FOLDER_MAX} == {}


def test_no_imports_go_in_circles() -> None:
    assert circles(imports(product_modules())) == []


def test_every_package_says_what_belongs_in_it() -> None:
    packages = [name for name in PRODUCT_PYTHON if name.endswith("/__init__.py")]
    said = {name: ast.get_docstring(TREES[name]) or "" for name in packages}
    assert [n for n, text in said.items() if len(text.split()) < DOCSTRING_WORDS_MIN] == []


def test_folders_of_unit_tests_are_named_as_the_packages() -> None:
    """`tests/unit/raft/log` is about `raft/log`, `tests/unit/store` about `qm/store`."""
    packages = {str(Path(name).parent) for name in PRODUCT_PYTHON}
    folders = {
        str(path.parent.relative_to("tests/unit"))
        for path in map(Path, PYTHON)
        if path.is_relative_to("tests/unit") and path.name.startswith("test_")
    }
    assert {f for f in folders - {"."} if not {f, f"qm/{f}"} & packages} == set()


def test_pure_layers_reach_for_nothing() -> None:
    pure = [name for name in PRODUCT_PYTHON if name.startswith(PURE)]
    assert pure
    assert [call for name in pure for call in impure_calls(name, TREES[name])] == []


def test_the_unit_of_a_limit_comes_last() -> None:
    """`BATCH_MAX_BYTES`; the counted thing may come first instead: `QUEUES_MAX`."""
    names = {
        (name, node.id)
        for name in PYTHON
        for node in ast.walk(TREES[name])
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    assert sorted(each for each in names if UNIT_BEFORE_BOUND.search(each[1])) == []


def test_docstrings_say_what_they_mean() -> None:
    """An inherited method is marked `@override`; its text is where it is declared."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    pointing = [
        f"{name}:{getattr(node, 'lineno', 1)}"
        for name in PRODUCT_PYTHON
        for node in ast.walk(TREES[name])
        if isinstance(node, documented) and (ast.get_docstring(node) or "").startswith("See ")
    ]
    assert pointing == []


def test_nothing_is_left_unfinished() -> None:
    assert lines_matching(UNFINISHED, [n for n in FILES if not n.endswith(".lock")]) == []


def test_no_path_of_somebody_s_machine() -> None:
    assert lines_matching(WORKPLACE, FILES) == []


def test_lock_files_name_no_registry() -> None:
    option = re.compile(r"^\s*(--(extra-)?index-url|-i|--find-links|--trusted-host)\b|https?://")
    assert lines_matching(option, [name for name in FILES if name.endswith(".lock")]) == []


def test_imports_are_absolute() -> None:
    relative = [
        f"{name}:{node.lineno}"
        for name in PYTHON
        for node in ast.walk(TREES[name])
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert relative == []


def test_every_product_module_is_reached() -> None:
    """Imported by product code or tests, or an entry point: a package, `-m`, a console script."""
    imported: set[str] = set()
    for tree in TREES.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported |= {node.module, *(f"{node.module}.{a.name}" for a in node.names)}
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                imported.add(node.value.split(":")[0])  # loaded late: "module:name"
    scripts = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    orphans = [
        name
        for name in PRODUCT_PYTHON
        if not name.endswith(("/__init__.py", "/__main__.py"))
        and (module := name.removesuffix(".py").replace("/", ".")) not in imported
        and f'"{module}:' not in scripts
    ]
    assert not orphans, "imported by nothing: " + " ".join(orphans)


def test_every_folder_of_tests_is_a_package() -> None:
    folders = {Path(name).parent for name in PYTHON if name.startswith("tests/")}
    assert [str(folder) for folder in folders if not (ROOT / folder / "__init__.py").exists()] == []


@pytest.mark.parametrize("word", ["skip", "skipif", "xfail", "importorskip"])
def test_no_test_is_skipped_or_expected_to_fail(word: str) -> None:
    found = [
        f"{name}:{node.lineno}"
        for name in PYTHON
        if name.startswith("tests/")
        for node in ast.walk(TREES[name])
        if isinstance(node, ast.Attribute)
        and node.attr == word
        and ast.unparse(node).startswith("pytest.")
    ]
    assert found == []


@pytest.mark.parametrize(
    ("line", "is_bad"),
    [
        ('open("/wo' + 'rk/main/x")', True),
        ("see /tm" + "p/x.log", True),
        ("cd /ho" + "me/someone", True),
        ("mountPath: /tm" + "p", False),
        ("deploy/wo" + "rk/x", False),
        ("https://example/ro" + "ot/x", False),
        ("$HOME/tm" + "p/x", False),
    ],
)
def test_the_rule_for_paths_means_what_it_says(line: str, is_bad: bool) -> None:
    assert bool(WORKPLACE.search(line)) == is_bad


@pytest.mark.parametrize(
    ("source", "is_bad"),
    [
        ("import time\nnow = time.monotonic()", True),
        ("from time import time as clock\nnow = clock()", True),
        ("import datetime\nnow = datetime.datetime.now()", True),
        ("from datetime import datetime\nnow = datetime.utcnow()", True),
        ("key = hash(name)", True),
        ("def f(time): return time.value", False),
        ("from datetime import datetime\nthen = datetime(2000, 1, 1)", False),
        ("x = hashed(name)", False),
    ],
)
def test_the_rule_for_pure_layers_means_what_it_says(source: str, is_bad: bool) -> None:
    assert bool(impure_calls("pure.py", ast.parse(source))) == is_bad
