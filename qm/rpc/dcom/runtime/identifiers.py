"""Well-known GUIDs of COM and DCOM [MS-DCOM 1.9] [MS-OAUT 1.9], as PDUs carry them."""

from typing import Final

from qm.names.guid import guid_from_text
from qm.wire.guid import Guid

NULL: Final = bytes(16)


def guid(text: str) -> Guid:
    """Return the GUID that a text means."""
    raw = guid_from_text(text)
    assert raw is not None, text
    return raw


def _com(first: str) -> Guid:
    return guid(f"{first}-0000-0000-c000-000000000046")


IID_IUNKNOWN: Final = _com("00000000")
IID_ICLASSFACTORY: Final = _com("00000001")
IID_IREMUNKNOWN: Final = _com("00000131")
IID_IREMUNKNOWN2: Final = _com("00000143")
IID_IDISPATCH: Final = _com("00020400")
IID_ITYPEINFO: Final = _com("00020401")
IID_ITYPELIB: Final = _com("00020402")
IID_ITYPECOMP: Final = _com("00020403")
IID_IENUMVARIANT: Final = _com("00020404")
IID_ITYPELIB2: Final = _com("00020411")
IID_ITYPEINFO2: Final = _com("00020412")
IID_PROPERTIES_IN: Final = _com("000001a2")
IID_PROPERTIES_OUT: Final = _com("000001a3")

CLSID_PROPERTIES_IN: Final = _com("00000338")
CLSID_PROPERTIES_OUT: Final = _com("00000339")
"""Of the reply's blob, and of PropsOutInfo in it."""
CLSID_INSTANTIATION: Final = _com("000001ab")
CLSID_SCM_REQUEST: Final = _com("000001aa")
CLSID_INSTANCE: Final = _com("000001ad")
CLSID_SCM_REPLY: Final = _com("000001b6")
