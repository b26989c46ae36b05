"""Where a cluster's nodes are called, and why one of them is not reached."""

import asyncio
import os
import socket
import ssl
from typing import Final

API_PORT: Final = 1811
"""Port of a node's API where an endpoint names none."""
_PORT_MAX: Final = 0xFFFF
_GREETING_S: Final = 0.5
"""A node that does not like the caller's certificate says so right after the handshake."""


def full_endpoint(text: str) -> str:
    """Return host:port, with the API's port where none is given. Raises ValueError."""
    host, port = _parts(text)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def cause_of(
    endpoint: str, context: ssl.SSLContext | None, server_name: str, limit_s: float
) -> str:
    """Return why a node is not reached within `limit_s`, "" if it is: resolve its name, connect,
    shake hands, which tells more than the failure of a call. `server_name`: the name expected in
    its certificate, "" for the endpoint's host.
    """
    host, port = _parts(endpoint)
    try:
        async with asyncio.timeout(limit_s):
            return await _cause(host, port, context, server_name or host)
    except TimeoutError:
        return f"no answer from {host} port {port} within {limit_s:g} s"


async def _cause(host: str, port: int, context: ssl.SSLContext | None, server_name: str) -> str:
    try:
        await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        return f"the name {host!r} cannot be resolved: {error.strerror}"
    except UnicodeError:
        return f"{host!r} is not a host name"
    try:
        reader, writer = await asyncio.open_connection(
            host, port, ssl=context, server_hostname=server_name if context else None
        )
    except ssl.SSLCertVerificationError as error:
        return (
            f"the certificate of {host} port {port} is not trusted: {error.verify_message};"
            " is that the authority that signed it, and the name in it?"
        )
    except ssl.SSLError as error:
        return f"no TLS with {host} port {port}: {_reason(error)}; is that the API's port?"
    except OSError as error:
        return f"{host} port {port}: {_words(error)}"
    try:
        return await _greeting(reader, host, port, has_tls=context is not None)
    finally:
        writer.transport.abort()


async def _greeting(reader: asyncio.StreamReader, host: str, port: int, *, has_tls: bool) -> str:
    """HTTP/2 lets the server speak first."""
    try:
        async with asyncio.timeout(_GREETING_S):
            said = await reader.read(1)
    except TimeoutError:
        silent = f"{host} port {port} says nothing to a caller without TLS: give its certificate"
        return "" if has_tls else silent
    except ssl.SSLError as error:
        return f"{host} port {port} may refuse this certificate: {_reason(error)}"
    except OSError as error:
        return f"{host} port {port}: {_words(error)}"
    after = " after the handshake: it may refuse this certificate" if has_tls else ""
    return "" if said else f"{host} port {port} closed the connection{after}"


def _words(error: OSError) -> str:
    # A connection that is tried at several addresses ends without a number of its own.
    return os.strerror(error.errno).lower() if error.errno else str(error)


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).lower().replace("_", " ")


def _parts(text: str) -> tuple[str, int]:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        host = host if bracket else ""
    elif text.count(":") > 1:
        host, rest = text, ""
    else:
        host, colon, number = text.partition(":")
        rest = colon + number
    if not rest:
        port = API_PORT
    elif rest[1:].isascii() and rest[1:].isdigit() and rest[0] == ":":
        port = int(rest[1:])
    else:
        port = 0
    if not host or not 0 < port <= _PORT_MAX:
        raise ValueError(f"{text!r} is not an endpoint: write HOST or HOST:PORT")
    return host, port
