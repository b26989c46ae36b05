"""Which address a queue manager's GUID belongs to: MSMQ proves no GUID, so that anyone could go on
with another's sequence, or acknowledge what others were sent (docs/security.md).

A GUID is bound to the address from which its first message was accepted. Addresses are compared as
places: an IPv4 address, an IPv6 /64, or all networks that the configuration says are shared.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

from qm.model.state.ledger import Ledger
from qm.model.state.tables import Table
from qm.model.values.commands import SetBindings
from qm.model.values.effects import Outcome
from qm.model.values.elements import BindingMode
from qm.model.values.limits import (
    ALARM_PEER_ELSEWHERE,
    ALARM_PEER_MOVED,
    BINDING_GRAIN_MS,
    PINS_MAX,
    SHARED_NETWORKS_MAX,
    VERSION_OF_BINDINGS,
)
from qm.model.values.records import Binding, BindingPolicy
from qm.names.guid import guid_from_text
from qm.wire.codes import ErrorCode

MQ_OK: Final = 0
META_BINDINGS: Final = b"bindings"
"""In META, once a SetBindings was applied."""
BINDING: Final = b"\x06"
"""In STREAM, precedes the GUID."""
_HOST_PREFIX_BITS: Final = 64
_SHARED: Final = "shared"
"""The place of all addresses in shared networks."""
_U64_MAX: Final = (1 << 64) - 1
PLACES_IN_HAND_MAX: Final = 65_536
BINDINGS_IN_HAND_MAX: Final = 16_384

Network: TypeAlias = IPv4Network | IPv6Network


class Rules:
    """A BindingPolicy, parsed. Raises ValueError for one that cannot be."""

    def __init__(self, policy: BindingPolicy) -> None:
        if len(policy.pins) > PINS_MAX or len(policy.shared) > SHARED_NETWORKS_MAX:
            raise ValueError("too many pins or networks")
        self.policy: Final = policy
        self._shared = tuple(map(ip_network, policy.shared))
        self._pins: dict[bytes, tuple[Network, ...]] = {}
        for pin in policy.pins:
            text, _, network = pin.partition(" ")
            guid = guid_from_text(text)
            if guid is None:
                raise ValueError(f"{text!r} is not a GUID")
            self._pins[guid] = (*self._pins.get(guid, ()), ip_network(network))
        self._places: dict[str, str] = {}

    def pins_of(self, queue_manager: bytes) -> tuple[Network, ...]:
        """Return the networks that a queue manager is pinned to, none if it is not."""
        return self._pins.get(queue_manager, ())

    def place(self, address: str) -> str:
        """Return what is compared of an address."""
        place = self._places.get(address)
        if place is None:
            if len(self._places) >= PLACES_IN_HAND_MAX:
                self._places.clear()
            place = self._places[address] = self._place(address)
        return place

    def _place(self, address: str) -> str:
        literal = _literal(address)
        if literal is None:
            return address
        if is_in(address, self._shared):
            return _SHARED
        if isinstance(literal, IPv6Address):
            return str(IPv6Network((literal, _HOST_PREFIX_BITS), strict=False))
        return str(literal)


def is_in(address: str, networks: Iterable[Network]) -> bool:
    """Return whether an address lies in one of the networks."""
    literal = _literal(address)
    return literal is not None and any(literal in network for network in networks)


def _literal(address: str) -> IPv4Address | IPv6Address | None:
    try:
        literal = ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return getattr(literal, "ipv4_mapped", None) or literal


class Bindings:
    """Reads and writes the bindings of all GUIDs."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._rules: Rules | None = None
        self._is_loaded = False
        self._bound: dict[bytes, Binding] = {}
        """Decoded rows of GUIDs that are not pinned, while there are rules."""

    def forget(self) -> None:
        """Drop everything derived; only rows remain."""
        self._is_loaded = False
        self._rules = None
        self._bound.clear()

    def apply_set_bindings(self, command: SetBindings) -> Outcome:
        """Follow the leader's configuration from now on; what is bound stays bound."""
        if command.mode not in tuple(BindingMode) or not 0 <= command.silence_ms <= _U64_MAX:
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        policy = BindingPolicy(
            BindingMode(command.mode), command.silence_ms, command.shared, command.pins
        )
        try:
            Rules(policy)
        except ValueError:
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        self._ledger.put_record(Table.META, META_BINDINGS, policy)
        self.forget()
        self._ledger.version += 1
        return Outcome(MQ_OK)

    @property
    def rules(self) -> Rules | None:
        """The rules in force, None if GUIDs are not bound."""
        if not self._is_loaded:
            policy = self._ledger.record(Table.META, META_BINDINGS, BindingPolicy)
            is_off = policy is None or policy.mode is BindingMode.OFF
            self._rules = None if policy is None or is_off else Rules(policy)
            self._is_loaded = True
        return self._rules if self._ledger.behaviour >= VERSION_OF_BINDINGS else None

    def bound(self, queue_manager: bytes) -> Binding | None:
        """Return where a GUID is bound to, None if it is not bound, or is pinned."""
        rules = self.rules
        if rules is None or rules.pins_of(queue_manager):
            return None
        binding = self._bound.get(queue_manager)
        if binding is None:
            binding = self._ledger.record(Table.STREAM, BINDING + queue_manager, Binding)
            if binding is not None:
                self._keep(queue_manager, binding)
        return binding

    def _keep(self, queue_manager: bytes, binding: Binding) -> None:
        if len(self._bound) >= BINDINGS_IN_HAND_MAX:
            self._bound.clear()
        self._bound[queue_manager] = binding

    def admits(self, queue_manager: bytes, address: str) -> bool:
        """Return whether a GUID may speak from an address; a refusal raises an alarm."""
        binding = self._bound.get(queue_manager)
        if binding is not None and binding.address == address:
            return True
        rules = self.rules
        if rules is None:
            return True
        pins = rules.pins_of(queue_manager)
        if pins:
            if is_in(address, pins):
                return True
            self._ledger.suspect(
                ALARM_PEER_ELSEWHERE, queue_manager, address, ", ".join(map(str, pins))
            )
            return False
        binding = self.bound(queue_manager)
        if binding is None or rules.place(binding.address) == rules.place(address):
            return True
        if rules.policy.mode is BindingMode.BIND and self._is_silent(rules, binding):
            return True
        self._ledger.suspect(ALARM_PEER_ELSEWHERE, queue_manager, address, binding.address)
        return False

    def _is_silent(self, rules: Rules, binding: Binding) -> bool:
        wait_ms = rules.policy.silence_ms + BINDING_GRAIN_MS
        return self._ledger.now_ms - binding.heard_ms >= wait_ms

    def is_settled(self, queue_manager: bytes, address: str) -> bool:
        """Return whether `heard` has nothing more to decide than that the GUID speaks."""
        rules = self.rules
        if rules is None or rules.pins_of(queue_manager):
            return True
        binding = self.bound(queue_manager)
        return binding is not None and rules.place(binding.address) == rules.place(address)

    def heard(self, queue_manager: bytes, address: str) -> None:
        """Note that a GUID speaks from an address which it may speak from: the first is where it
        is bound to, and another one where it has moved to.
        """
        rules = self.rules
        if rules is None or rules.pins_of(queue_manager):
            return
        binding, now_ms = self.bound(queue_manager), self._ledger.now_ms
        if binding is not None and rules.place(binding.address) == rules.place(address):
            if now_ms - binding.heard_ms < BINDING_GRAIN_MS:
                return
            if self._is_silent(rules, binding):
                self._ledger.version += 1  # lanes of other addresses were open meanwhile
            binding.heard_ms = now_ms
        else:
            if binding is not None:
                self._ledger.suspect(ALARM_PEER_MOVED, queue_manager, address, binding.address)
            binding = Binding(address, now_ms, now_ms)
            self._keep(queue_manager, binding)
            self._ledger.version += 1
        self._ledger.put_record(Table.STREAM, BINDING + queue_manager, binding)

    def is_at(self, queue_manager: bytes, address: str) -> bool:
        """Return whether a GUID is pinned or bound to an address."""
        rules = self.rules
        if rules is None:
            return False
        pins, binding = rules.pins_of(queue_manager), self.bound(queue_manager)
        if pins:
            return is_in(address, pins)
        return binding is not None and rules.place(binding.address) == rules.place(address)

    def may_answer(
        self, peers: Iterable[tuple[bytes, str]], queue_manager: bytes, address: str
    ) -> bool:
        """Return whether an acknowledgement comes from one of the peers that messages went to: from
        its address, or from where its queue manager is bound or pinned.
        """
        rules, known = self.rules, tuple(peers)
        if rules is None or not known:
            return True  # of what was sent before VERSION_OF_BINDINGS this is not known
        if any(rules.place(place) == rules.place(address) for _, place in known):
            return True
        return any(guid == queue_manager for guid, _ in known) and self.is_at(
            queue_manager, address
        )

    def unbind(self, queue_manager: bytes) -> None:
        """Forget where a GUID is bound to."""
        self._bound.pop(queue_manager, None)
        self._ledger.state.delete(Table.STREAM, BINDING + queue_manager)
        self._ledger.version += 1
