"""Roles of certificates are the API's (`qm.api.identity`)."""

from qm.api.identity import Role, role_uri

__all__ = ["Role", "role_uri"]
