"""KeyControl: the queue manager's own key pairs, as others see them, and their replacement."""

from typing import Final

from typing_extensions import override

from qm.api.gate.calls import Context, caller
from qm.api.gate.errors import Conflict, InvalidArgument, check
from qm.api.gate.operations import NotOffered, Operations
from qm.api.propose.control_once import UNNUMBERED, Decider
from qm.cluster.cluster import Cluster
from qm.model.queries import manager_keys, queue_manager
from qm.model.values.commands import SetManagerKeys
from qm.model.values.limits import VERSION_OF_MANAGER_KEYS
from qm.pb import control_pb2 as pb
from qm.pb import control_pb2_grpc
from qm.wire.enums import PublicKeyAlgorithm
from qm.wire.structures.public_key import parse_mqds_public_keys, write_public_key_blob

ACCEPTED_MAX_S: Final = 366 * 24 * 3600
"""How long replaced keys may stay accepted."""


class KeyControl(control_pb2_grpc.KeyControlServicer):
    """Implements `quorate.control.v1.KeyControl`."""

    def __init__(self, cluster: Cluster, operations: Operations, decider: Decider) -> None:
        self._cluster = cluster
        self._operations = operations
        self._decider = decider

    @override
    async def GetKeys(self, request: pb.GetKeysRequest, context: Context) -> pb.ManagerKeys:
        await self._cluster.read_barrier()
        return self._shown()

    @override
    async def ReplaceKeys(self, request: pb.ReplaceKeysRequest, context: Context) -> pb.ManagerKeys:
        if request.accepted_s > ACCEPTED_MAX_S:
            raise InvalidArgument("accepted_s", f"at most {ACCEPTED_MAX_S} seconds")
        await self._cluster.read_barrier()
        if self._cluster.view.counters().apply_version < VERSION_OF_MANAGER_KEYS:
            raise Conflict("first upgrade the members that do not run this release yet")
        try:
            new = await self._operations.next_keys()
        except NotOffered as error:
            raise Conflict(f"{error}: call another node") from None
        command = SetManagerKeys(
            UNNUMBERED,
            new.sealed_private_keys,
            new.exchange_keys,
            new.signing_keys,
            new.generation,
            request.accepted_s * 1000,
            caller().sids,
        )
        outcome = await self._decider.once(request, lambda: command)
        check(outcome.status)
        return self._shown()

    def _shown(self) -> pb.ManagerKeys:
        view = self._cluster.view
        known, found = manager_keys(view), queue_manager(view)
        shown = pb.ManagerKeys(generation=known.generation, since_ms=known.since_ms)
        shown.accepted.extend(
            pb.AcceptedKeys(generation=number, until_ms=until) for number, until in known.replaced
        )
        if found is not None:
            attributes = found.attributes
            for encoded in (
                attributes.public_encryption_key_list,
                attributes.public_signing_key_list,
            ):
                shown.keys.extend(_keys(encoded))
        return shown


def _keys(encoded: bytes) -> list[pb.ManagerKey]:
    if not encoded:
        return []
    return [
        pb.ManagerKey(
            provider=one.provider_name,
            is_for_signatures=one.key.algorithm is PublicKeyAlgorithm.RSA_SIGN,
            bits=one.key.bit_length,
            blob=write_public_key_blob(one.key),
        )
        for one in parse_mqds_public_keys(encoded, 0, len(encoded))[0]
    ]
