"""Credentials for Kubernetes, and what the command refuses before any request."""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from qm.api.gate.identity import Role
from qm.cli.drills.drill import drill
from qm.drill.targets.ability import Refused
from qm.drill.targets.kubeconfig import kubeconfig
from qm.node.upkeep.pki import AUTHORITY_CERTIFICATE, create_authority, issue


def config(folder: Path, user: dict[str, Any], **context: str) -> Path:
    create_authority(folder, "kubernetes")
    authority = (folder / AUTHORITY_CERTIFICATE).read_bytes()
    cluster = {
        "server": "https://192.0.2.1:6443/",
        "certificate-authority-data": base64.b64encode(authority).decode(),
    }
    path = folder / "config"
    text = yaml.safe_dump(
        {
            "current-context": "here",
            "contexts": [
                {"name": "here", "context": {"cluster": "c", "user": "u", **context}},
                {"name": "there", "context": {"cluster": "d", "user": "v"}},
            ],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
        }
    )
    path.write_text(text, encoding="utf-8")
    return path


def test_a_token_of_the_current_context(tmp_path: Path) -> None:
    grant = kubeconfig(config(tmp_path, {"token": "secret"}, namespace="messaging"))()
    assert (grant.url, grant.namespace, grant.token) == (
        "https://192.0.2.1:6443",
        "messaging",
        "secret",
    )
    assert len(grant.tls.get_ca_certs()) == 1


def test_a_token_in_a_file_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    grant = kubeconfig(config(tmp_path, {"tokenFile": "token"}), "other")
    (tmp_path / "token").write_text("second\n")
    assert (grant().token, grant().namespace) == ("second", "other")


def test_a_certificate_needs_no_token(tmp_path: Path) -> None:
    path = config(tmp_path, {})
    certificate, key = issue(tmp_path, "someone", Role.ADMIN)
    data = {
        "client-certificate-data": base64.b64encode(certificate.read_bytes()).decode(),
        "client-key": key.name,
    }
    text = yaml.safe_load(path.read_text())
    text["users"][0]["user"] = data
    path.write_text(yaml.safe_dump(text))
    assert kubeconfig(path)().token == ""


@pytest.mark.parametrize(
    ("user", "says"),
    [({"exec": {"command": "aws"}}, "kubectl create token"), ({"tokenFile": "absent"}, "absent")],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, user: dict[str, Any], says: str) -> None:
    with pytest.raises(Refused, match=says):
        kubeconfig(config(tmp_path, user))


@pytest.mark.parametrize("text", ["", "[]", "a: [", "current-context: absent\ncontexts: []"])
def test_a_file_that_is_no_kubeconfig_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(Refused, match="is it a kubeconfig"):
        kubeconfig(tmp_path / "config")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ([], "needs --stateful-set"),
        (["--stateful-set", "q", "--pod-host", "{name}"], "{pod}, {service}, {namespace}"),
        (["--stateful-set", "q", "--kubeconfig", "absent"], "is it a kubeconfig"),
    ],
)
def test_options_of_the_command(tmp_path: Path, more: list[str], says: str) -> None:
    arguments = ["run", "drain", "--target", "kubernetes", "--yes", "--folder", str(tmp_path)]
    for part in ("authority", "certificate", "key"):
        arguments += [f"--tls-{part}", part]
    result = CliRunner().invoke(drill, [*arguments, *more])
    assert result.exit_code == 2
    assert says in result.output
