"""Roles that certificates carry, as a URI among the subject alternative names."""

from enum import Enum


class Role(Enum):
    """What the holder of a certificate may do."""

    ADMIN = "admin"
    """Everything that the API offers."""
    OPERATOR = "operator"
    """Looks at everything, changes nothing that loses messages."""
    CLIENT = "client"
    """Sends and receives as queues' access lists allow."""
    NODE = "node"
    """A member: consensus and relay."""


def role_uri(role: Role) -> str:
    """Return the alternative name that gives a role."""
    return f"quorate:role/{role.value}"
