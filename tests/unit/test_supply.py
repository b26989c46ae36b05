"""What the project installs: by hash, each with a licence."""

import re
from pathlib import Path

import pytest

from tests.sbom import NONE, licences

ROOT = Path(__file__).resolve().parents[2]
LOCKS = sorted(ROOT.glob("requirements*.lock"))
_INSTALL = re.compile(r"pip\b.*\binstall\b(.*)")


def test_make_installs_nothing_without_a_hash() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    installs = [line for line in _INSTALL.findall(makefile) if "--no-deps" not in line]
    assert installs
    for line in installs:
        assert "--require-hashes" in line, line


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_a_lock_file_pins_each_package_with_a_hash_and_is_renewed_by_make(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    for requirement in re.split(r"\n(?=\w)", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)):
        assert "==" in requirement, requirement
        assert "--hash=sha256:" in requirement, requirement
    assert f"-o {lock.name} " in (ROOT / "Makefile").read_text(encoding="utf-8")


BSD = {"content": "BSD\nand what it says"}


def test_licences_are_read_in_each_form() -> None:
    components = [
        {"name": "b", "version": "2", "licenses": [{"license": {"id": "MIT"}}]},
        {"name": "a", "version": "1", "licenses": [{"expression": "Apache-2.0 OR MIT"}]},
        {"name": "c", "version": "3", "licenses": [{"license": {"name": "c's", "text": BSD}}]},
        {"name": "d", "version": "4"},
    ]
    assert licences({"components": components}) == [
        ("a", "1", "Apache-2.0 OR MIT"),
        ("b", "2", "MIT"),
        ("c", "3", "BSD"),
        ("d", "4", NONE),
    ]
