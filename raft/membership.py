"""Membership changes, one at a time (raft/design.md, Membership): pure functions on values."""

from typing import TypeAlias

import msgspec

from raft.types import Configuration, NodeId


class BadChange(Exception):
    """The change is not allowed; the text says why and what to do."""


class AddLearner(msgspec.Struct, frozen=True, tag=True):
    """A new id starts to replicate. It must never have been a member."""

    node: NodeId


class PromoteLearner(msgspec.Struct, frozen=True, tag=True):
    """A learner that has caught up becomes a voter."""

    node: NodeId


class RemoveMember(msgspec.Struct, frozen=True, tag=True):
    """A voter or learner leaves for good: its id is retired."""

    node: NodeId


class ReplaceMember(msgspec.Struct, frozen=True, tag=True):
    """`lost` leaves and `fresh`, its next incarnation, enters as a learner: one change."""

    lost: NodeId
    fresh: NodeId


MemberChange: TypeAlias = AddLearner | PromoteLearner | RemoveMember | ReplaceMember


def changed(configuration: Configuration, change: MemberChange) -> Configuration:
    """Return the configuration after `change`. Raises BadChange."""
    raise NotImplementedError


def encode_configuration(configuration: Configuration) -> bytes:
    """Return the data of a CONFIG entry."""
    raise NotImplementedError


def decode_configuration(data: bytes) -> Configuration:
    """Read the data of a CONFIG entry. Raises ValueError for anything that is none."""
    raise NotImplementedError
