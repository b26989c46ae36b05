"""Credentials for Kubernetes' API server from a kubeconfig, for a drill outside of a pod."""

import base64
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml

from qm.drill.targets.ability import Refused
from qm.node.leader.kubernetes import Grant

_UNSUPPORTED: Final = ("exec", "auth-provider", "username")


def kubeconfig(path: Path, namespace: str = "") -> Callable[[], Grant]:
    """Return a function that reads the credentials of a file's current context each time.

    `namespace`: instead of the context's. Raises Refused at once if the file cannot be used.
    """
    _grant(path, namespace)
    return lambda: _grant(path, namespace)


def _grant(path: Path, namespace: str) -> Grant:
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        context = _named(config, "context", config["current-context"])
        cluster = _named(config, "cluster", context["cluster"])
        user = _named(config, "user", context["user"])
        return Grant(
            cluster["server"].rstrip("/"),
            namespace or context.get("namespace", "default"),
            _token(path, user),
            _tls(path, cluster, user),
        )
    except (OSError, yaml.YAMLError, LookupError, TypeError, AttributeError, ValueError) as error:
        raise Refused(f"{path}: {error}: is it a kubeconfig with a current context?") from error


def _named(config: Any, kind: str, name: str) -> Any:
    for entry in config[f"{kind}s"]:
        if entry["name"] == name:
            return entry[kind]
    raise LookupError(f"no {kind} {name!r}")


def _token(path: Path, user: Any) -> str:
    for key in _UNSUPPORTED:
        if key in user:
            raise Refused(
                f"{path}: users of kind `{key}` are not supported: make a token with"
                " `kubectl create token` and put it under `token`"
            )
    if "tokenFile" in user:
        text = (path.parent / user["tokenFile"]).read_text(encoding="utf-8")
        return str(text).strip()
    return str(user.get("token", ""))


def _tls(path: Path, cluster: Any, user: Any) -> ssl.SSLContext:
    authority = _pem(path, cluster, "certificate-authority")
    tls = ssl.create_default_context(cadata=authority.decode("ascii") if authority else None)
    certificate, key = _pem(path, user, "client-certificate"), _pem(path, user, "client-key")
    if certificate and key:
        # The interpreter accepts a certificate only from files.
        with tempfile.NamedTemporaryFile() as file:
            file.write(certificate + b"\n" + key)
            file.flush()
            tls.load_cert_chain(file.name)
    return tls


def _pem(path: Path, section: Any, key: str) -> bytes:
    if f"{key}-data" in section:
        return base64.b64decode(section[f"{key}-data"], validate=True)
    return (path.parent / section[key]).read_bytes() if key in section else b""
