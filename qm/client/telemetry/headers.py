"""Headers of a message in its extension: an ArrayOfHeaderInfo, as NServiceBus carries them.

The names and values of the headers are an XML document in UTF-8, one HeaderInfo with Key and Value
for each. Programs that fill up the extension have bytes behind it, which are passed over.
"""

from collections.abc import Mapping
from typing import Final
from xml.etree.ElementTree import Element, SubElement, tostring

from qm.client.formatters.formatter import FormatError
from qm.client.formatters.xml import document

EXTENSION_MAX_BYTES: Final = 65_536
"""Longer extensions are not searched for headers."""
_HEAD: Final = b'<?xml version="1.0"?>\r\n'
_ARRAY: Final = "ArrayOfHeaderInfo"
_HEADER: Final = "HeaderInfo"
_END: Final = f"</{_ARRAY}>".encode()
_EMPTY: Final = f"<{_ARRAY}".encode()


def read_headers(extension: bytes) -> dict[str, str] | None:
    """Return an extension's headers; None when it holds something else."""
    if not extension.rstrip(b"\0"):
        return {}
    end = extension.rfind(_END)
    if len(extension) > EXTENSION_MAX_BYTES or _EMPTY not in extension:
        return None
    try:
        root = document(extension[: end + len(_END)] if end >= 0 else extension.rstrip(b"\0"))
    except FormatError:
        return None
    if root.tag != _ARRAY:
        return None
    return {
        key: header.findtext("Value") or ""
        for header in root.iterfind(_HEADER)
        if (key := header.findtext("Key"))
    }


def write_headers(headers: Mapping[str, str]) -> bytes:
    """Return the extension that holds the headers; their texts are of characters of XML."""
    root = Element(
        _ARRAY,
        {
            "xmlns:xsd": "http://www.w3.org/2001/XMLSchema",
            "xmlns:xsi": "http://www.w3.org/2001/XMLSchema-instance",
        },
    )
    for key, value in headers.items():
        header = SubElement(root, _HEADER)
        SubElement(header, "Key").text = key
        SubElement(header, "Value").text = value
    text: bytes = tostring(root, encoding="utf-8")
    return _HEAD + text
