"""Loads and checks a node's configuration file; errors say what to write instead."""

import os
import tomllib
import types
from collections.abc import Mapping
from difflib import get_close_matches
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, Final, TypeVar, Union, get_args, get_origin
from urllib.parse import urlsplit

import msgspec

from qm.model.values.limits import PINS_MAX, SHARED_NETWORKS_MAX
from qm.names.guid import guid_from_text
from qm.node.config.addresses import peer_hosts
from qm.node.config.environment import NotExpanded, expand
from qm.node.config.schema import ConsoleSection, NodeConfig, OidcSection, Section

CONFIG_MAX_BYTES: Final = 1 << 20
SectionT = TypeVar("SectionT", bound=Section)


class ConfigError(Exception):
    """The configuration cannot be used; the text is one line that says where and why."""


def load(path: Path) -> NodeConfig:
    """Return the configuration in a TOML file. Relative paths in it are relative to its folder, and
    `${NAME}` in its strings is a variable of this process's environment. Raises ConfigError.
    """
    text = read_text(path)
    try:
        return parse(text, path.parent)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def read_text(path: Path) -> str:
    """Return the text of a configuration file. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            text = file.read(CONFIG_MAX_BYTES + 1)
        if len(text) > CONFIG_MAX_BYTES:
            raise ConfigError(f"{path}: longer than {CONFIG_MAX_BYTES} bytes")
        return text.decode()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: {error}") from error


def parse(text: str, folder: Path, environment: Mapping[str, str] = os.environ) -> NodeConfig:
    """Return the configuration in TOML text. Raises ConfigError."""
    config = _at(section(text, NodeConfig, environment), folder)
    _check(config)
    return config


def section(
    text: str, kind: type[SectionT], environment: Mapping[str, str] = os.environ
) -> SectionT:
    """Return TOML text as a section of this kind, which must name every key. Raises ConfigError."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(str(error)) from error
    _check_keys(tables, kind, "")
    try:
        return msgspec.convert(expand(tables, environment), kind, strict=True, dec_hook=_path)
    except NotExpanded as error:
        raise ConfigError(str(error)) from error
    except msgspec.ValidationError as error:
        raise ConfigError(str(error).replace("`$.", "`").replace("`$`", "the file")) from error


def _path(kind: type[Any], value: Any) -> Any:
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise NotImplementedError


def _check_keys(table: dict[str, Any], kind: type[Section], place: str) -> None:
    """Report an unknown key together with the known one that is most like it."""
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for key, value in table.items():
        if key not in fields:
            near = get_close_matches(key, fields, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(fields)}"
            raise ConfigError(f"unknown key {place + key!r}: {hint}")
        section = _section(fields[key])
        if section is None:
            continue
        for k, part in enumerate(value if isinstance(value, list) else [value]):
            index = f"[{k}]" if isinstance(value, list) else ""
            if isinstance(part, dict):
                _check_keys(part, section, f"{place}{key}{index}.")


def _section(kind: Any) -> type[Section] | None:
    """Return the section that a field holds, itself or as the items of a list."""
    if get_origin(kind) in (tuple, list, Union, types.UnionType):
        return next(filter(None, map(_section, get_args(kind))), None)
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def _at(config: NodeConfig, folder: Path) -> NodeConfig:
    """Return the configuration with absolute paths."""
    tls, storage, kubernetes = config.tls, config.storage, config.kubernetes
    replace = msgspec.structs.replace
    return replace(
        config,
        data=folder / config.data,
        tls=replace(
            tls,
            authority=folder / tls.authority,
            certificate=folder / tls.certificate,
            key=folder / tls.key,
            peer_authority=tls.peer_authority and folder / tls.peer_authority,
            peer_certificate=tls.peer_certificate and folder / tls.peer_certificate,
            peer_key=tls.peer_key and folder / tls.peer_key,
            revoked=tls.revoked and folder / tls.revoked,
            peer_revoked=tls.peer_revoked and folder / tls.peer_revoked,
        ),
        storage=replace(
            storage,
            sealing_key_file=storage.sealing_key_file and folder / storage.sealing_key_file,
        ),
        console=_console_at(config.console, folder),
        kubernetes=replace(kubernetes, service_account=folder / kubernetes.service_account),
    )


def _console_at(console: ConsoleSection, folder: Path) -> ConsoleSection:
    """Return the section with absolute paths."""
    replace, oidc = msgspec.structs.replace, console.oidc
    if oidc is not None:
        oidc = replace(
            oidc,
            client_secret_file=oidc.client_secret_file and folder / oidc.client_secret_file,
            ca_file=oidc.ca_file and folder / oidc.ca_file,
        )
    return replace(console, reports=console.reports and folder / console.reports, oidc=oidc)


def _check(config: NodeConfig) -> None:
    """Check what the types do not express. Raises ConfigError."""
    if not config.members:
        raise ConfigError("`members` is empty: name the founders, or seeds of the cluster to join")
    names = [member.name for member in config.members]
    if len(set(names)) != len(names):
        raise ConfigError("`members` names a node twice")
    own = next((member for member in config.members if member.name == config.name), None)
    if own is not None and (own.host, own.raft_port, own.relay_port) != (
        config.host,
        config.raft.port,
        config.raft.relay_port,
    ):
        raise ConfigError(
            f"`members` and `host`, `raft.port`, `raft.relay_port` disagree about {config.name}"
        )
    api_host = config.api.listen or config.bind or config.host
    if config.api.insecure and not _is_loopback(api_host):
        raise ConfigError(
            f"`api.insecure` on {api_host}: without certificates the API may listen on loopback"
            " addresses only"
        )
    if config.storage.sealing_key_file and config.storage.sealing_key_command:
        raise ConfigError(
            "`storage.sealing_key_file` and `storage.sealing_key_command`: give one of them"
        )
    _check_peers(config)
    for key, networks in (
        ("outgoing.allow", config.outgoing.allow),
        ("outgoing.deny", config.outgoing.deny),
        ("msmq.binding_shared", config.msmq.binding_shared),
    ):
        for network in networks:
            _check_network(key, network)
    if len(config.msmq.binding_shared) > SHARED_NETWORKS_MAX:
        raise ConfigError(f"`msmq.binding_shared`: more than {SHARED_NETWORKS_MAX} networks")
    _check_files(config)
    if config.console.oidc is not None:
        _check_oidc(config.console.oidc)


def _check_network(key: str, text: str) -> None:
    try:
        ip_network(text)
    except ValueError as error:
        raise ConfigError(f"`{key}`: {error}") from None


def _check_peers(config: NodeConfig) -> None:
    for guid, hosts in config.peers.items():
        if guid_from_text(guid) is None:
            raise ConfigError(f"`peers`: {guid!r} is not a GUID: write 8-4-4-4-12 hex digits")
        first = hosts if isinstance(hosts, str) else next(iter(hosts), "")
        if not first or "/" in first:
            raise ConfigError(f"`peers`: {guid} needs an address first, to which answers go")
        for host in (hosts,) if isinstance(hosts, str) else hosts:
            if "/" in host:
                _check_network("peers", host)
    if sum(map(len, peer_hosts(config).values())) > PINS_MAX:
        raise ConfigError(f"`peers`: more than {PINS_MAX} addresses")


def _check_files(config: NodeConfig) -> None:
    tls = config.tls
    own = (tls.peer_authority, tls.peer_certificate, tls.peer_key)
    if any(own) and not all(own):
        raise ConfigError(
            "`tls.peer_authority`, `tls.peer_certificate` and `tls.peer_key` go together: give all"
            " three, or none"
        )
    if tls.peer_revoked and not all(own):
        raise ConfigError(
            "`tls.peer_revoked` belongs to `tls.peer_authority`, which is not given: use"
            " `tls.revoked`"
        )
    for key, path in (
        ("authority", tls.authority),
        ("certificate", tls.certificate),
        ("key", tls.key),
        ("peer_authority", tls.peer_authority),
        ("peer_certificate", tls.peer_certificate),
        ("peer_key", tls.peer_key),
        ("revoked", tls.revoked),
        ("peer_revoked", tls.peer_revoked),
    ):
        if path is not None and not path.is_file():
            raise ConfigError(f"`tls.{key}`: there is no file {path}; `qm pki` makes it")


def _check_oidc(oidc: OidcSection) -> None:
    for key, text in (("issuer", oidc.issuer), ("url", oidc.url)):
        if text and not _is_https(text):
            raise ConfigError(f"`console.oidc.{key}`: {text!r} is not of the form https://host/...")
    if not oidc.issuer or not oidc.client_id:
        raise ConfigError("`console.oidc` needs `issuer` and `client_id`")
    if urlsplit(oidc.url).path:
        raise ConfigError("`console.oidc.url`: give scheme, host and port alone")
    if not oidc.roles:
        raise ConfigError("`console.oidc.roles` is empty: nobody could sign in")
    for key, path in (
        ("client_secret_file", oidc.client_secret_file),
        ("ca_file", oidc.ca_file),
    ):
        if path is not None and not path.is_file():
            raise ConfigError(f"`console.oidc.{key}`: there is no file {path}")


def _is_https(text: str) -> bool:
    """Whether it is https://host, perhaps with a port and a path."""
    try:
        parts = urlsplit(text)
        is_bare = not (parts.query or parts.fragment or parts.username) and parts.port != 0
    except ValueError:
        return False
    return parts.scheme == "https" and bool(parts.hostname) and is_bare


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
