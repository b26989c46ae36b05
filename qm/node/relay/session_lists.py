"""Lists of sessions, as members ask each other for them."""

from typing import Any

from msgspec.structs import asdict, fields

from qm.cluster.peer_sessions import (
    SESSIONS_LISTED_MAX,
    PeerSession,
    SessionsFound,
    SessionsWanted,
)
from qm.pb import relay_pb2

_FIELDS = tuple(field.name for field in fields(PeerSession))


def sessions_request(wanted: SessionsWanted) -> relay_pb2.SessionsRequest:
    """Return what asks another member."""
    return relay_pb2.SessionsRequest(**asdict(wanted))


def sessions_wanted(request: relay_pb2.SessionsRequest) -> SessionsWanted:
    """Return what a member asks for."""
    return SessionsWanted(
        min(request.limit, SESSIONS_LISTED_MAX), request.address, request.queue_manager
    )


def sessions_reply(found: SessionsFound) -> relay_pb2.SessionsReply:
    """Return the answer to a member."""
    return relay_pb2.SessionsReply(
        sessions=[relay_pb2.PeerSession(**asdict(one)) for one in found.sessions],
        left_out=found.left_out,
    )


def sessions_found(reply: Any) -> SessionsFound:
    """Return what a member answered."""
    return SessionsFound([_session(one) for one in reply.sessions], reply.left_out)


def _session(told: Any) -> PeerSession:
    return PeerSession(**{name: getattr(told, name) for name in _FIELDS})
