"""ITypeInfo, ITypeLib and ITypeComp as interfaces [MS-OAUT 3.5, 3.7, 3.9, 3.11, 3.13]."""

from collections.abc import Sequence
from typing import Any, Final

from qm.rpc.dcom.automation.descriptions import (
    CUSTOM_DATA,
    FUNC_DESC,
    LIB_ATTR,
    TYPE_ATTR,
    VAR_DESC,
)
from qm.rpc.dcom.automation.variant import BSTR, VARIANT
from qm.rpc.dcom.limits import NAME_MAX_CHARS
from qm.rpc.dcom.runtime.identifiers import (
    IID_ITYPECOMP,
    IID_ITYPEINFO,
    IID_ITYPEINFO2,
    IID_ITYPELIB,
    IID_ITYPELIB2,
)
from qm.rpc.dcom.runtime.orpc import INTERFACE, orpc_interface, orpc_operation
from qm.rpc.interface import Operation
from qm.rpc.ndr.types import GUID, I32, U16, U32, Type, Unique, VaryingArray, WideString

_NAME: Final = WideString(NAME_MAX_CHARS)
_FUNC_DESC: Final = Unique(FUNC_DESC)
_VAR_DESC: Final = Unique(VAR_DESC)


def _operation(name: str, takes: Sequence[Type[Any]], *gives: Type[Any]) -> Operation:
    return orpc_operation(name, takes, (*gives, U32))


def _custom(name: str, *takes: Type[Any]) -> tuple[Operation, Operation]:
    """Return the two methods of custom data: of one item, and of all."""
    one = _operation(f"get_{name}cust_data", (*takes, GUID), VARIANT)
    return one, _operation(f"get_all_{name}cust_data", takes, CUSTOM_DATA)


_OF_TYPE, _OF_FUNCTION, _OF_PARAMETER, _OF_VARIABLE, _OF_IMPLEMENTED = (
    _custom(""),
    _custom("func_", U32),
    _custom("param_", U32, U32),
    _custom("var_", U32),
    _custom("impl_type_", U32),
)
_TYPE_INFO: Final = {
    3: _operation("get_type_attr", (), Unique(TYPE_ATTR), U32),
    4: _operation("get_type_comp", (), INTERFACE),
    5: _operation("get_func_desc", (U32,), _FUNC_DESC, U32),
    6: _operation("get_var_desc", (U32,), _VAR_DESC, U32),
    7: _operation("get_names", (I32, U32), VaryingArray(BSTR), U32),
    8: _operation("get_ref_type_of_impl_type", (U32,), U32),
    9: _operation("get_impl_type_flags", (U32,), U32),
    12: _operation("get_documentation", (I32, U32), BSTR, BSTR, U32, BSTR),
    13: _operation("get_dll_entry", (I32, U32, U32), BSTR, BSTR, U16),
    14: _operation("get_ref_type_info", (U32,), INTERFACE),
    16: _operation("create_instance", (GUID,), INTERFACE),
    17: _operation("get_mops", (I32,), BSTR),
    18: _operation("get_containing_type_lib", (), INTERFACE, U32),
}
_TYPE_INFO_2: Final = {
    22: _operation("get_type_kind", (), U32),
    23: _operation("get_type_flags", (), U32),
    24: _operation("get_func_index_of_mem_id", (I32, U32), U32),
    25: _operation("get_var_index_of_mem_id", (I32,), U32),
    26: _OF_TYPE[0],
    27: _OF_FUNCTION[0],
    28: _OF_PARAMETER[0],
    29: _OF_VARIABLE[0],
    30: _OF_IMPLEMENTED[0],
    31: _operation("get_documentation_2", (I32, U32, U32), BSTR, U32, BSTR),
    32: _OF_TYPE[1],
    33: _OF_FUNCTION[1],
    34: _OF_PARAMETER[1],
    35: _OF_VARIABLE[1],
    36: _OF_IMPLEMENTED[1],
}
_TYPE_LIB: Final = {
    3: _operation("get_type_info_count", (), U32),
    4: _operation("get_type_info", (U32,), INTERFACE),
    5: _operation("get_type_info_type", (U32,), U32),
    6: _operation("get_type_info_of_guid", (GUID,), INTERFACE),
    7: _operation("get_lib_attr", (), Unique(LIB_ATTR), U32),
    8: _operation("get_type_comp", (), INTERFACE),
    9: _operation("get_documentation", (I32, U32), BSTR, BSTR, U32, BSTR),
    10: _operation("is_name", (_NAME, U32), U32, BSTR),
    11: _operation(
        "find_name", (_NAME, U32, U16), VaryingArray(INTERFACE), VaryingArray(I32), U16, BSTR
    ),
}
_TYPE_LIB_2: Final = {
    13: _OF_TYPE[0],
    14: _operation("get_lib_statistics", (), U32, U32),
    15: _operation("get_documentation_2", (I32, U32, U32), BSTR, U32, BSTR),
    16: _OF_TYPE[1],
}
ITYPEINFO: Final = orpc_interface("ITypeInfo", IID_ITYPEINFO, _TYPE_INFO)
ITYPEINFO2: Final = orpc_interface("ITypeInfo2", IID_ITYPEINFO2, _TYPE_INFO | _TYPE_INFO_2)
ITYPELIB: Final = orpc_interface("ITypeLib", IID_ITYPELIB, _TYPE_LIB)
ITYPELIB2: Final = orpc_interface("ITypeLib2", IID_ITYPELIB2, _TYPE_LIB | _TYPE_LIB_2)
ITYPECOMP: Final = orpc_interface(
    "ITypeComp",
    IID_ITYPECOMP,
    {
        3: _operation(
            "bind", (_NAME, U32, U16), INTERFACE, U32, _FUNC_DESC, _VAR_DESC, INTERFACE, U32
        ),
        4: _operation("bind_type", (_NAME, U32), INTERFACE),
    },
)
