"""A node's configuration file: what is accepted, and how errors help."""

from pathlib import Path

import pytest

from qm.node.config.loading import CONFIG_MAX_BYTES, ConfigError, load, parse

GUID = "00000000-0000-0000-0000-0000000000A7"
SOUND = """
name = "n1"
host = "127.0.0.11"
data = "data"
[tls]
authority = "a.pem"
certificate = "/elsewhere/n1.pem"
key = "n1.key"
[[members]]
name = "n1"
host = "127.0.0.11"
[[members]]
name = "n2"
host = "127.0.0.12"
"""
OIDC = """
[console.oidc]
issuer = "https://id.example.org/r"
client_id = "quorate"
ca_file = "ca.pem"
url = "https://queues.example.org:1815"
[console.oidc.roles]
staff = "client"
"""


@pytest.fixture(autouse=True)
def files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every file exist."""
    monkeypatch.setattr(Path, "is_file", lambda _: True)


@pytest.mark.spec("QB-2.1.1-02")
def test_paths_start_at_the_file_and_the_rest_has_defaults(tmp_path: Path) -> None:
    config = parse(SOUND, tmp_path)
    assert config.data == tmp_path / "data"
    assert config.tls.authority == tmp_path / "a.pem"
    assert config.tls.certificate == Path("/elsewhere/n1.pem")
    assert (config.msmq.port, config.msmq.ping_port, config.api.port) == (1801, 3527, 1811)
    assert [member.name for member in config.members] == ["n1", "n2"]


def test_a_provider_of_the_console_needs_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    oidc = parse(SOUND + OIDC, tmp_path).console.oidc
    assert oidc is not None
    assert (oidc.ca_file, oidc.client_secret_file) == (tmp_path / "ca.pem", None)
    assert oidc.roles == {"staff": "client"}
    assert parse(SOUND, tmp_path).console.oidc is None
    monkeypatch.setattr(Path, "is_file", lambda path: path.name != "ca.pem")
    with pytest.raises(ConfigError, match=r"`console\.oidc\.ca_file`: there is no file"):
        parse(SOUND + OIDC, tmp_path)


def insert(line: str, *, into: str = "") -> str:
    """Return the sound text with one more line at the top, or in its own section."""
    return f"{SOUND}\n[{into}]\n{line}\n" if into else f"{line}\n{SOUND}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (insert('prot = "x"'), "unknown key 'prot': did you mean"),
        (insert("prot = 1", into="msmq"), r"unknown key 'msmq\.prot': did you mean 'port'\?"),
        (insert("zzz = 1", into="http"), r"unknown key 'http\.zzz': known are listen, port"),
        (
            insert('nmae = "n3"', into="[members]"),
            r"unknown key 'members\[2\]\.nmae': did you mean 'name'\?",
        ),
        (insert("port = 65536", into="msmq"), r"<= 65535.*`msmq\.port`"),
        (insert('port = "1801"', into="msmq"), r"Expected `int`.*`msmq\.port`"),
        (insert('level = "loud"', into="log"), r"`log\.level`"),
        (insert('computer_name = "A-NAME-OF-17-CHARS"', into="birth"), r"`birth\.computer_name`"),
        (SOUND.replace('name = "n1"', 'name = "N 1"', 1), "`name`"),
        (SOUND.replace('host = "127.0.0.11"\n', "", 1), "missing required field `host`"),
        (SOUND.replace('host = "127.0.0.11"', 'host = "127.0.0.99"', 1), "disagree about n1"),
        (SOUND.replace('"n2"', '"n1"'), "names a node twice"),
        (SOUND.partition("[[members]]")[0], "members"),
        (insert('"not-a-guid" = "h"', into="peers"), "not a GUID"),
        (insert(f'"{GUID}" = "10.0.0.0/8"', into="peers"), "needs an address first"),
        (insert(f'"{GUID}" = ["h", "10.0.0.1/8"]', into="peers"), "has host bits set"),
        (insert('binding_shared = ["10.0.0.1/8"]', into="msmq"), r"`msmq\.binding_shared`"),
        (
            insert('insecure = true\nlisten = "0.0.0.0"', into="api"),
            "loopback",
        ),
        (
            insert('sealing_key_file = "k"\nsealing_key_command = ["x"]', into="storage"),
            "give one of them",
        ),
        ("name = ", "end of document"),
        *[
            (SOUND + OIDC.replace(*change), message)
            for change, message in (
                (("https://id", "http://id"), r"`console\.oidc\.issuer`.*https://host"),
                (("https://id.example.org", "https://"), r"`console\.oidc\.issuer`"),
                (("org/r", "org/r?x=1"), r"`console\.oidc\.issuer`"),
                (("quorate", ""), "needs `issuer` and `client_id`"),
                (("1815", "1815/console"), "scheme, host and port alone"),
                (('staff = "client"', ""), "nobody could sign in"),
                (('"client"', '"node"'), r"Invalid enum value 'node'"),
                (("client_id", "client"), "did you mean"),
                (("https://id", "https://[id"), r"`console\.oidc\.issuer`"),
            )
        ],
    ],
)
def test_errors_say_where_and_what_to_write(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        parse(text, tmp_path)
    assert "\n" not in str(caught.value)


def test_strings_may_hold_variables_of_the_environment(tmp_path: Path) -> None:
    text = SOUND.replace('"n1"', '"${POD}"').replace('"n1.key"', '"${DIR}/${POD}.key"')
    text += '[msmq]\naliases = ["$${POD}", "$1", "${DIR}"]\n'
    config = parse(text, tmp_path, {"POD": "n1", "DIR": "/${POD}"})
    assert config.name == "n1"
    assert config.members[0].name == "n1"
    assert config.tls.key == Path("/${POD}/n1.key"), "what a variable holds is taken as it is"
    assert config.msmq.aliases == ("${POD}", "$1", "/${POD}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            SOUND.replace('host = "127.0.0.12"', 'host = "${POD_IP}"'),
            r"`members\[1\]\.host`: the environment variable POD_IP is not set",
        ),
        (insert('aliases = ["a", "${b-c}"]', into="msmq"), r"`msmq\.aliases\[1\]`: '\$\{b-c\}'"),
        (insert('bind = "${POD"'), r"`bind`: '\$\{POD' names no variable"),
    ],
)
def test_a_variable_that_is_not_there_is_named_with_its_key(
    text: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(text, tmp_path, {"POD": "n1"})


def test_missing_certificates_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "is_file", lambda path: path.name != "n1.key")
    with pytest.raises(ConfigError, match=r"`tls\.key`.*n1\.key.*qm pki"):
        parse(SOUND, tmp_path)


def test_files_that_cannot_be_read_are_errors_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "none.toml")
    large = tmp_path / "large.toml"
    large.write_text("#" * (CONFIG_MAX_BYTES + 1))
    with pytest.raises(ConfigError, match="longer than"):
        load(large)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="utf-8"):
        load(binary)
    sound = tmp_path / "sound.toml"
    sound.write_text(SOUND)
    assert load(sound).name == "n1"
