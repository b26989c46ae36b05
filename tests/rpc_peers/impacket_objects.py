"""impacket's DCOM and automation against a node's objects; it imports nothing of qm.

python impacket_objects.py HOST MAPPER_PORT
"""

import sys
from typing import Any

from impacket.dcerpc.v5 import transport
from impacket.dcerpc.v5.dcom.oaut import (
    BSTR,
    DISPATCH_METHOD,
    DISPATCH_PROPERTYGET,
    DISPATCH_PROPERTYPUT,
    DISPPARAMS,
    TYPEKIND,
    VARENUM,
    VARIANT,
    IDispatch,
)
from impacket.dcerpc.v5.dcomrt import (
    DCOMANSWER,
    DCOMCALL,
    INTERFACE,
    OBJREF_STANDARD,
    DCOMConnection,
    IObjectExporter,
)
from impacket.dcerpc.v5.dtypes import NULL
from impacket.dcerpc.v5.rpcrt import DCERPCException
from impacket.uuid import string_to_bin, uuidtup_to_bin

HOST, PORT = sys.argv[1], sys.argv[2]
IID_IDISPATCH = uuidtup_to_bin(("00020400-0000-0000-c000-000000000046", "0.0"))
IID_ITYPECOMP = uuidtup_to_bin(("00020403-0000-0000-c000-000000000046", "0.0"))
IID_INFO4 = uuidtup_to_bin(("eba96b21-2168-11d3-898c-00e02c074f6b", "0.0"))
CLASSES = {
    "MSMQQueueInfo": "d7d6e07c-dccd-11d0-aa4b-0060970debae",
    "MSMQMessage": "d7d6e075-dccd-11d0-aa4b-0060970debae",
    "MSMQTransactionDispenser": "d7d6e084-dccd-11d0-aa4b-0060970debae",
    "MSMQApplication": "d7d6e086-dccd-11d0-aa4b-0060970debae",
}
DISPID_PROPERTYPUT = 0xFFFF_FFFD
"""-3: which argument is the new value."""
RESTRICTED = 1
PATH = ".\\private$\\objects"


def patched(binding: str, make: Any = transport.DCERPCTransportFactory) -> Any:
    """impacket knows port 135 alone."""
    return make(binding if "[" in binding else f"{binding}[{PORT}]")


transport.DCERPCTransportFactory = patched


class GetPathName(DCOMCALL):  # type: ignore[misc]
    opnum = 12
    structure = ()


class GetPathNameResponse(DCOMANSWER):  # type: ignore[misc]
    structure = (("pbstrPathName", BSTR), ("ErrorCode", "<L"))


class PutPathName(DCOMCALL):  # type: ignore[misc]
    opnum = 13
    structure = (("bstrPathName", BSTR),)


class PutPathNameResponse(DCOMANSWER):  # type: ignore[misc]
    structure = (("ErrorCode", "<L"),)


RESPONSES = {GetPathName: GetPathNameResponse, PutPathName: PutPathNameResponse}


class Late:
    """An object by name."""

    def __init__(self, dispatch: IDispatch) -> None:
        self.dispatch = dispatch

    def number(self, name: str) -> int:
        found: int = self.dispatch.GetIDsOfNames((name,))[0]
        return found

    def invoke(self, name: str, flags: int, values: list[VARIANT]) -> Any:
        parameters = DISPPARAMS(None, False)
        if values:
            for each in reversed(values):
                parameters["rgvarg"].append(each)
        else:
            parameters["rgvarg"] = NULL
        is_put = flags == DISPATCH_PROPERTYPUT
        if is_put:
            parameters["rgdispidNamedArgs"].append(DISPID_PROPERTYPUT)
        else:
            parameters["rgdispidNamedArgs"] = NULL
        parameters["cArgs"] = len(values)
        parameters["cNamedArgs"] = int(is_put)
        answer = self.dispatch.Invoke(self.number(name), 0x409, flags, parameters, 0, [], [])
        return answer["pVarResult"]["_varUnion"]

    def get(self, name: str) -> Any:
        return self.invoke(name, DISPATCH_PROPERTYGET, [])

    def put(self, name: str, value: VARIANT) -> None:
        self.invoke(name, DISPATCH_PROPERTYPUT, [value])

    def call(self, name: str, *values: VARIANT) -> Any:
        return self.invoke(name, DISPATCH_METHOD, list(values))

    def object(self, union: Any) -> "Late":
        """The object in a result."""
        raw = b"".join(union["pdispVal"]["abData"])
        ref = OBJREF_STANDARD(raw)
        old = self.dispatch
        made = INTERFACE(
            old.get_cinstance(),
            raw,
            old.get_ipidRemUnknown(),
            ref["std"]["ipid"],
            ref["std"]["oxid"],
            ref["std"]["oid"],
            old.get_target(),
        )
        return Late(IDispatch(made))


def text(value: str) -> VARIANT:
    made = VARIANT(None, False)
    made["clSize"] = 5
    made["vt"] = VARENUM.VT_BSTR
    made["_varUnion"]["tag"] = VARENUM.VT_BSTR
    made["_varUnion"]["bstrVal"]["asData"] = value
    return made


def number(value: int) -> VARIANT:
    made = VARIANT(None, False)
    made["clSize"] = 3
    made["vt"] = VARENUM.VT_I4
    made["_varUnion"]["tag"] = VARENUM.VT_I4
    made["_varUnion"]["lVal"] = value
    return made


def pointer(late: Late) -> VARIANT:
    made = VARIANT(None, False)
    made["clSize"] = 5
    made["vt"] = VARENUM.VT_DISPATCH
    made["_varUnion"]["tag"] = VARENUM.VT_DISPATCH
    raw = late.dispatch.get_objRef()
    made["_varUnion"]["pdispVal"]["ulCntData"] = len(raw)
    made["_varUnion"]["pdispVal"]["abData"] = list(raw)
    return made


def connected() -> DCOMConnection:
    """impacket binds anew for each creation, so each has a connection."""
    return DCOMConnection(HOST, "alice", "pw", "")


def described(late: Late) -> None:
    """Read what an object's type information says of Open."""
    assert late.dispatch.GetTypeInfoCount()["pctinfo"] == 1
    info = late.dispatch.GetTypeInfo()
    attributes = info.GetTypeAttr()["ppTypeAttr"]
    assert attributes["typeKind"] == TYPEKIND.TKIND_DISPATCH
    assert text_of(info.GetDocumentation(-1)["pBstrName"]) == "IMSMQQueueInfo4"
    functions = [info.GetFuncDesc(k)["ppFuncDesc"] for k in range(attributes["cFuncs"])]
    found = {}
    for one in functions:
        names = info.GetNames(one["memid"], 255)
        listed = [text_of(each) for each in names["rgBstrNames"]]
        assert len(listed) == names["pcNames"]
        found[listed[0]] = (one, listed[1:])
    assert {"PathName", "Label", "Create", "Open", "QueryInterface"} <= found.keys()
    opens, parameters = found["Open"]
    assert parameters == ["Access", "ShareMode"]
    assert opens["memid"] == late.number("Open")
    types = [one["tdesc"]["vt"] for one in opens["lprgelemdescParam"]]
    assert types == [VARENUM.VT_I4, VARENUM.VT_I4]
    assert opens["elemdescFunc"]["tdesc"]["vt"] == VARENUM.VT_PTR
    assert opens["wFuncFlags"] == 0
    assert found["QueryInterface"][0]["wFuncFlags"] == RESTRICTED
    assert info.GetTypeComp().RemQueryInterface(1, (IID_ITYPECOMP,)) is not None
    info.RemRelease()
    print(f"type information: {len(functions)} functions")


def text_of(value: Any) -> str:
    found: str = value["asData"]
    return found


def main() -> None:
    flow()
    try:
        DCOMConnection(HOST, "alice", "wrong", "").CoCreateInstanceEx(
            string_to_bin(CLASSES["MSMQMessage"]), IID_IDISPATCH
        )
        raise AssertionError("a wrong password was accepted")
    except DCERPCException:
        pass


def flow() -> None:
    def create(name: str) -> Late:
        clsid = string_to_bin(CLASSES[name])
        return Late(IDispatch(connected().CoCreateInstanceEx(clsid, IID_IDISPATCH)))

    info = create("MSMQQueueInfo")
    info.put("PathName", text(PATH))
    info.put("Label", text("by impacket"))
    info.call("Create")
    assert info.get("Label")["bstrVal"]["asData"] == "by impacket"
    print("late bound: created, named")

    described(info)
    early = info.dispatch.RemQueryInterface(1, (IID_INFO4,))
    request = GetPathName()
    answer = early.request(request, IID_INFO4, uuid=early.get_iPid())
    assert answer["pbstrPathName"]["asData"].casefold().endswith("objects"), answer.dump()
    put = PutPathName()
    put["bstrPathName"]["asData"] = PATH
    early.request(put, IID_INFO4, uuid=early.get_iPid())
    print("vtable: read and put a path name")

    message = create("MSMQMessage")
    message.put("Body", text("hello from impacket"))
    message.put("Label", text("greeting"))
    to = info.object(info.call("Open", number(2), number(0)))
    message.call("Send", pointer(to))
    source = info.object(info.call("Open", number(1), number(0)))
    found = source.object(source.call("Receive", number(0), number(0), number(1), number(2000)))
    assert found.get("Body")["bstrVal"]["asData"] == "hello from impacket"
    assert found.get("Label")["bstrVal"]["asData"] == "greeting"
    print("sent and received")

    application = create("MSMQApplication")
    assert application.get("MSMQVersionMajor")["iVal"] >= 4
    assert IObjectExporter(connected().get_dce_rpc()).ServerAlive2()
    exporter = IObjectExporter(connected().get_dce_rpc())
    ping = exporter.ComplexPing(0, 1, [info.dispatch.get_oid()], [])
    exporter.SimplePing(ping["pSetId"])
    print("pinged")
    found.dispatch.RemRelease()
    info.call("Delete")


if __name__ == "__main__":
    main()
