"""Rules of activation and of references, on real sockets, each where it could be broken alone."""

import secrets

import pytest
from msgspec.structs import replace

from qm.rpc.dcom.automation.dispatch import IDISPATCH, InvokeFlag, arguments_of
from qm.rpc.dcom.automation.variant import SafeArray, Variant, array_of
from qm.rpc.dcom.automation.vartypes import VarType
from qm.rpc.dcom.client import Logon, Server
from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.mqac.wire import object_interfaces
from qm.rpc.dcom.runtime.activation import IACTIVATION, IREMOTESCMACTIVATOR
from qm.rpc.dcom.runtime.identifiers import (
    CLSID_INSTANCE,
    CLSID_PROPERTIES_OUT,
    CLSID_SCM_REPLY,
    IID_IUNKNOWN,
)
from qm.rpc.dcom.runtime.objref import parse_standard, write_objref
from qm.rpc.dcom.runtime.properties import (
    _SCM_REPLY,
    Wanted,
    _deserialized,
    _properties,
    parse_reply,
    write_wanted,
)
from qm.rpc.dcom.runtime.rem_unknown import IREMUNKNOWN, IREMUNKNOWN2, InterfaceRef
from qm.rpc.dcom.runtime.resolver import IOBJECTEXPORTER
from qm.rpc.interface import Fault
from qm.rpc.pdu.codes import AuthLevel
from qm.rpc.security.ntlm import NtlmClient
from tests.cluster.harness import run
from tests.unit.rpc.dcom.scripts import (
    RECEIVE,
    SEND,
    Program,
    clsid,
    dcom_world,
    iid,
    opnum,
    play,
    pointed,
)
from tests.unit.rpc.dcom.test_references import blob, instantiation
from tests.unit.rpc.reading import MAPPER_PORT

MESSAGE4 = object_interfaces()[iid("IMSMQMessage4")]
E_NOTIMPL, E_NOINTERFACE, CLASS_NOT_REGISTERED = 0x80004001, 0x80004002, 0x80040154
DISCONNECTED = 0x80010108


@pytest.mark.spec(
    "RP-DCOM-2.2.13.3-02",
    "RP-DCOM-2.2.18-02",
    "RP-DCOM-3.1.1.5.4-01",
    "RP-DCOM-3.1.1.5.4-04",
    "RP-DCOM-3.1.1.5.6.1.1-01",
)
def test_statuses_of_calls_have_their_numbers() -> None:
    numbers = {one.name: int(one) for one in Hresult}
    assert numbers["RPC_E_INVALID_HEADER"] == 0x80010111
    assert numbers["RPC_E_INVALID_OBJREF"] == 0x8001011D
    assert numbers["RPC_E_DISCONNECTED"] == 0x80010108
    assert numbers["RPC_E_INVALID_OBJECT"] == 0x80010114
    assert numbers["E_ACCESSDENIED"] == 0x80070005


@pytest.mark.spec(
    "RP-DCOM-3.1.1.5.6.1.2-01",
    "RP-OAUT-3.1.4.2-01",
    "RP-OAUT-3.5.4.1-01",
    "RP-OAUT-3.7.4.9-01",
    "RP-OAUT-3.7.4.11-01",
)
def test_statuses_of_references_and_types_have_their_numbers() -> None:
    numbers = {one.name: int(one) for one in Hresult}
    assert numbers["CO_E_OBJNOTREG"] == 0x800401FB
    assert numbers["DISP_E_BADINDEX"] == 0x8002000B
    assert numbers["TYPE_E_TYPEMISMATCH"] == 0x80028CA0
    assert numbers["TYPE_E_BADMODULEKIND"] == 0x800288BD
    assert numbers["TYPE_E_ELEMENTNOTFOUND"] == 0x8002802B


@pytest.mark.spec(
    "RP-DCOM-2.2.22.2.8-01",
    "RP-DCOM-2.2.22.2.8-02",
    "RP-DCOM-2.2.22.2.9-01",
    "RP-DCOM-2.2.22.2.9-02",
)
def test_an_activation_tells_each_interface_and_where_it_is() -> None:
    async def scenario(program: Program) -> None:
        wanted = (iid("IMSMQQueue4"), iid("IMSMQMessage4"), IID_IUNKNOWN)
        client = await program.server.resolver()
        given = [program.server.this(), None, write_wanted(Wanted(clsid("MSMQMessage"), wanted))]
        _, raw, status = await client.call(IREMOTESCMACTIVATOR, 4, given)
        assert status == 0
        reply = parse_reply(raw)
        assert (tuple(reply.iids), list(reply.statuses)) == (wanted, [E_NOINTERFACE, 0, 0])
        assert reply.pointers[0] is None
        refs = [pointed(one) for one in reply.pointers[1:] if one is not None]
        assert [one.iid for one in refs] == [iid("IMSMQMessage4"), IID_IUNKNOWN]
        assert {(one.oxid, one.oid) for one in refs} == {(reply.oxid, refs[0].oid)}
        bindings, ipid, hint, status = await client.call(IOBJECTEXPORTER, 0, [reply.oxid, 1, [7]])
        assert (bindings, ipid, hint, status) == (reply.bindings, reply.ipid_rem_unknown, 5, 0)
        assert reply.hint == 5
        assert all(one.endswith("]") and "[" in one for one in reply.bindings.addresses)
        place = _deserialized(_SCM_REPLY, _properties(raw, CLSID_PROPERTIES_OUT)[CLSID_SCM_REPLY])
        assert place[1][4] == (5, 7), "COMVERSION of the server"
        # What is told leads to the object, and its first pointer to its own interface.
        await program.server.reach(reply.bindings, reply.ipid_rem_unknown)
        get = opnum("IMSMQMessage4", "Label", "get")
        assert await program.server.call(refs[0].ipid, MESSAGE4, get, []) == ["", 0]

    play(scenario)


@pytest.mark.spec("RP-DCOM-3.1.2.5.2.3-01")
@pytest.mark.parametrize("unknown", [bytes(16), b"\1" * 16, iid("IMSMQMessage4")])
def test_a_class_that_nobody_has_is_not_registered(unknown: bytes) -> None:
    async def scenario(program: Program) -> None:
        for make in (program.server.create, program.server.class_object):
            with pytest.raises(ComError) as none:
                await make(unknown, IID_IUNKNOWN)
            assert none.value.status == CLASS_NOT_REGISTERED
        client = await program.server.resolver()
        await client.add(IACTIVATION)
        for mode in (0, 0xFFFF_FFFF):
            head = [program.server.this(), unknown, None, None, 2, mode]
            found = await client.call(IACTIVATION, 0, [*head, 1, [IID_IUNKNOWN], 1, [7]])
            assert (found[-4], found[-3]) == (CLASS_NOT_REGISTERED, [None])

    play(scenario)


@pytest.mark.spec("RP-DCOM-2.2.22.2.3-01")
def test_objects_are_not_made_from_files() -> None:
    async def scenario(program: Program) -> None:
        client = await program.server.resolver()
        for state, wanted in (((), 0), (((CLSID_INSTANCE, bytes(40)),), E_NOTIMPL)):
            given = [program.server.this(), None, blob(instantiation(), *state)]
            _, raw, status = await client.call(IREMOTESCMACTIVATOR, 4, given)
            assert (status, raw is None) == (wanted, bool(wanted))
        await client.add(IACTIVATION)
        for name, storage, wanted in (
            (None, None, 0),
            ("C:\\queue.dat", None, E_NOTIMPL),
            (None, b"MEOW", E_NOTIMPL),
        ):
            head = [program.server.this(), clsid("MSMQMessage"), name, storage, 2, 0]
            found = await client.call(IACTIVATION, 0, [*head, 1, [IID_IUNKNOWN], 1, [7]])
            assert found[-4] == wanted

    play(scenario)


@pytest.mark.spec("RP-DCOM-3.1.1.5.4-03", "RP-DCOM-3.1.2.5.2.3-02")
@pytest.mark.parametrize("level", [AuthLevel.CONNECT, AuthLevel.CALL, AuthLevel.PACKET])
def test_who_does_not_sign_makes_no_object_and_calls_none(level: AuthLevel) -> None:
    async def scenario() -> None:
        async with dcom_world() as world:
            program = await world.program()
            message = await program.create("MSMQMessage")
            bindings, ipid, *_ = await (await program.server.resolver()).call(
                IOBJECTEXPORTER, 0, [message.ref.oxid, 1, [7]]
            )
            node = await world.harness.leader()
            logon = Logon(lambda: NtlmClient("alice", "pw", "", secrets.token_bytes), level=level)
            low = Server(node.host, MAPPER_PORT, logon)
            client = await low.resolver()
            await client.add(IACTIVATION)
            head = [low.this(), clsid("MSMQMessage"), None, None, 2, 0]
            for made in (
                low.create(clsid("MSMQMessage"), IID_IUNKNOWN),
                low.class_object(clsid("MSMQMessage"), IID_IUNKNOWN),
                client.call(IACTIVATION, 0, [*head, 1, [IID_IUNKNOWN], 1, [7]]),
            ):
                with pytest.raises(Fault) as refused:
                    await made
                assert refused.value.status == 5
            await low.reach(bindings, ipid)
            count = await message.number("Label")
            for to, interface, number, values in (
                (message.ref.ipid, IDISPATCH, 3, []),
                (ipid, IREMUNKNOWN, 3, [message.ref.ipid, 1, 1, [IID_IUNKNOWN]]),
                (ipid, IREMUNKNOWN, 5, [1, [InterfaceRef(message.ref.ipid, 5, 0)]]),
            ):
                with pytest.raises(Fault) as refused:
                    await low.call(to, interface, number, values)
                assert refused.value.status == 5
            assert await message.number("Label") == count
            assert await message.get("Label") == "", "it was not released"
            low.close()
            program.close()

    run(scenario())


@pytest.mark.spec("RP-DCOM-3.1.1.5.3-01", "RP-DCOM-3.1.1.5.3-02")
def test_an_object_of_this_node_is_known_by_its_exporter_and_its_own_number() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        queue = await program.opened(SEND)
        message = await program.create("MSMQMessage")
        await message.call("Send", queue)
        ref = queue.ref
        for change in (
            {"oxid": ref.oxid + 1},
            {"oxid": 0},
            {"oxid": ref.oid},
            {"oid": ref.oid + 1},
            {"oid": 0},
        ):
            raw = write_objref(replace(ref, **change))
            with pytest.raises(ComError):
                await message.call("Send", Variant(VarType.DISPATCH, raw))
        received = await program.opened(RECEIVE)
        await received.call("Receive", ReceiveTimeout=1_000)
        with pytest.raises(ComError):
            await received.call("Receive", ReceiveTimeout=0)

    play(scenario)


@pytest.mark.spec("RP-DCOM-3.1.1.5.6.1.1-03")
def test_a_query_says_whether_all_some_or_none_was_found() -> None:
    async def scenario(program: Program) -> None:
        server = program.server
        (message,) = await server.create(clsid("MSMQMessage"), MESSAGE4.syntax.uuid)
        has, lacks = [iid("IMSMQMessage2"), iid("IMSMQMessage3")], [iid("IMSMQQueue"), b"\1" * 16]
        for iids, wanted in (
            (has, 0),
            (has[:1], 0),
            ([*has, *lacks], 1),
            ([*lacks, *has], 1),
            (lacks, E_NOINTERFACE),
        ):
            statuses = [0 if one in has else E_NOINTERFACE for one in iids]
            given = [message.ipid, 1, len(iids), iids]
            results, status = await server.call(server.ipid_rem_unknown, IREMUNKNOWN, 3, given)
            assert ([one for one, _ in results], status) == (statuses, wanted)
            given = [message.ipid, len(iids), iids]
            found, pointers, status = await server.call(
                server.ipid_rem_unknown, IREMUNKNOWN2, 6, given
            )
            assert (found, status) == (statuses, wanted)
            assert [one is None for one in pointers] == [one not in has for one in iids]

    play(scenario)


@pytest.mark.spec("RP-DCOM-3.1.1.5.6-01", "RP-DCOM-2.2.18.2-01")
def test_both_kinds_of_rem_unknown_are_at_the_ipid_that_everybody_tells() -> None:
    async def scenario(program: Program) -> None:
        server = program.server
        (message,) = await server.create(clsid("MSMQMessage"), MESSAGE4.syntax.uuid)
        at = server.ipid_rem_unknown
        resolver = await server.resolver()
        for number in (0, 4):
            found = await resolver.call(IOBJECTEXPORTER, number, [message.oxid, 1, [7]])
            assert found[1] == at
        await resolver.add(IACTIVATION)
        head = [server.this(), clsid("MSMQMessage"), None, None, 2, 0]
        activated = await resolver.call(IACTIVATION, 0, [*head, 1, [IID_IUNKNOWN], 1, [7]])
        assert activated[3] == at
        for interface in (IREMUNKNOWN, IREMUNKNOWN2):
            given = [message.ipid, 2, 1, [IID_IUNKNOWN]]
            ((each, raw),), status = await server.call(at, interface, 3, given)
            assert (each, status) == (0, 0)
            ref = parse_standard(raw, IID_IUNKNOWN)
            assert (ref.flags, ref.public_refs) == (0, 2)
            assert (ref.oxid, ref.oid) == (message.oxid, message.oid)
            refs = [InterfaceRef(ref.ipid, 1, 0)]
            assert await server.call(at, interface, 4, [1, refs]) == [[0], 0]
            assert await server.call(at, interface, 5, [1, refs]) == [0]
            with pytest.raises(Fault):
                await server.call(message.ipid, interface, 3, given)
        given = [message.ipid, 1, [IID_IUNKNOWN]]
        (each,), (pointer,), status = await server.call(at, IREMUNKNOWN2, 6, given)
        assert (each, status, pointed(pointer).oid) == (0, 0, message.oid)
        with pytest.raises(Fault):
            await server.call(message.ipid, IREMUNKNOWN2, 6, given)

    play(scenario)


@pytest.mark.spec("RP-DCOM-3.1.1.5.6.1.2-01", "RP-DCOM-3.1.1.5.6.1.3-01")
@pytest.mark.parametrize(("public", "private"), [(0, 0), (3, 0), (0, 2), (1, 1)])
def test_each_kind_of_reference_is_counted_by_itself(public: int, private: int) -> None:
    async def scenario(program: Program) -> None:
        server = program.server
        refs = [(await program.create("MSMQMessage")).ref for _ in range(2)]

        async def change(opnum: int, *counts: tuple[int, int]) -> list[object]:
            given = [InterfaceRef(ref.ipid, *two) for ref, two in zip(refs, counts, strict=True)]
            return await server.call(server.ipid_rem_unknown, IREMUNKNOWN, opnum, (2, given))

        async def is_there(ipid: bytes) -> bool:
            try:
                assert (await server.call(ipid, IDISPATCH, 3, []))[-1] == 0
            except Fault as gone:
                assert gone.status == DISCONNECTED
                return False
            return True

        async def are_there() -> list[bool]:
            return [await is_there(one.ipid) for one in refs]

        half = (public // 2, private // 2)
        for added in (half, (public - half[0], private - half[1])):
            assert await change(4, added, (1, 0)) == [[0, 0], 0]
        # What came with the objects goes; of the first what was added, twice, stays.
        await change(5, (5, 0), (7, 0))
        assert await are_there() == [public + private > 0, False]
        if private:
            # Public ones that were never there are not taken from private ones.
            await change(5, (1_000, private - 1), (1, 1))
            assert await are_there() == [True, False]
        await change(5, (public, private), (1, 1))
        assert await are_there() == [False, False]

    play(scenario)


@pytest.mark.spec("RP-OAUT-3.1.4.4-02")
def test_a_member_may_be_a_property_or_a_method_for_who_cannot_tell() -> None:
    async def scenario(program: Program) -> None:
        info = await program.new_queue()
        await info.put("Label", "a property")
        either = InvokeFlag.PROPERTYGET | InvokeFlag.METHOD
        result, *_, status = await info.invoke("Label", either, arguments_of([]))
        assert (status, result.value) == (0, "a property")
        # A method is called, by the same flags.
        assert (await info.invoke("Delete", either, arguments_of([])))[-1] == 0
        with pytest.raises(ComError):
            await program.opened(RECEIVE)

    play(scenario)


@pytest.mark.spec("RP-OAUT-2.2.30-01")
@pytest.mark.parametrize("body", [b"", b"x", bytes(range(256)) * 40])
def test_a_body_is_an_array_of_bytes_both_ways(body: bytes) -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        await program.send(array_of(VarType.UI1, body))
        queue = await program.opened(RECEIVE)
        found = await queue.call("Receive", ReceiveTimeout=1_000)
        result, *_, status = await found.invoke("Body", InvokeFlag.PROPERTYGET, arguments_of([]))
        assert (status, result.vt) == (0, 0x2011), "VT_ARRAY | VT_UI1"
        assert (result.value.items, result.value.bounds) == (body, [(len(body), 0)])
        # An array of two dimensions is no body, and leaves what was put before.
        square = Variant(0x2011, SafeArray(VarType.UI1, b"abcd", [(2, 0), (2, 0)]))
        with pytest.raises(ComError):
            await found.put("Body", square)
        assert await found.get("Body") == body

    play(scenario)
