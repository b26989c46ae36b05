"""`qm config check`: a configuration is judged before a node starts with it."""

from pathlib import Path

from click.testing import CliRunner, Result

from qm.cli.main import main
from tests.unit.node.config.test_loading import SOUND


def check(file: Path, exit_code: int) -> Result:
    result = CliRunner().invoke(main, ["config", "check", str(file)], catch_exceptions=False)
    assert result.exit_code == exit_code, result.output
    return result


def test_a_configuration_is_judged_as_a_node_would(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(SOUND.replace("/elsewhere/n1.pem", "n1.pem"), encoding="utf-8")
    missing = check(file, 1).stderr
    assert "`tls.authority`" in missing
    for name in ("a.pem", "n1.pem", "n1.key"):
        (tmp_path / name).touch()
    assert check(file, 0).stdout == f"{file}: node n1 at 127.0.0.11, valid\n"
    file.write_text(f"prot = 1\n{file.read_text(encoding='utf-8')}", encoding="utf-8")
    said = check(file, 1).stderr
    assert "unknown key 'prot'" in said
    assert said.count("\n") == 1
