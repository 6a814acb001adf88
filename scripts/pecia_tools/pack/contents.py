# SPDX-License-Identifier: Apache-2.0
"""What a file holds, by its first bytes: names are often wrong."""

from __future__ import annotations

import codecs
import re
from typing import BinaryIO, Optional, Union

from .foreign import ARCHIVE, DOCUMENTS, FIRST_BYTES, OPEN_DOCUMENT, OTHERS, Foreign

HEAD_BYTES = 1024
NAMES = {
    "pdf": "a PDF",
    "epub": "an EPUB",
    "docx": "a DOCX",
    "html": "an HTML page",
    "table": "a table in parquet or Arrow",
}
COMPRESSIONS = {b"\x1f\x8b\x08": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_HTML = re.compile(
    rb"\s*(?:<\?xml[^>]*\?>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html)\b", re.I | re.S
)
_ZIP = b"PK\x03\x04"
_ZIP_END = b"PK\x05\x06"
_ZIP_END_BYTES = 22 + (1 << 16)  # with the longest comment
_ZIP_NAMES_BYTES = 1 << 22  # of the list of members that are looked at
# A member that only this kind of archive has.
_MEMBERS: tuple[tuple[bytes, Union[str, Foreign]], ...] = (
    (b"word/document.xml", "docx"),
    (b"META-INF/container.xml", "epub"),
    (b"ppt/presentation.xml", DOCUMENTS[".pptx"]),
    (b"xl/workbook.xml", OTHERS[".xlsx"]),
)


def compression_of(head: bytes) -> str:
    """ "gzip", "zstd", or "" for what is not compressed."""
    return next((name for magic, name in COMPRESSIONS.items() if head.startswith(magic)), "")


def contents_of(head: bytes, stream: Optional[BinaryIO]) -> Union[str, Foreign, None]:
    """One of formats.KINDS, or what it is that is not read; None: nothing says more than the file's name. `head`: the
    first HEAD_BYTES. `stream`: the whole file, to look into a ZIP archive; None: it is compressed as a whole."""
    if head.startswith(b"%PDF-"):
        return "pdf"
    if head.startswith((b"PAR1", b"ARROW1")):
        return "table"
    if head.startswith(_ZIP):
        return ARCHIVE if stream is None else _zip_contents(head, stream)
    for offset, magic, foreign in FIRST_BYTES:
        if head.startswith(magic, offset):
            return foreign
    return "html" if _HTML.match(head.removeprefix(codecs.BOM_UTF8)) else None


def _zip_contents(head: bytes, stream: BinaryIO) -> Union[str, Foreign]:
    """By the names of its members, of which only the first megabytes are read, however many there are."""
    if head.startswith(b"mimetypeapplication/vnd.oasis.opendocument.", 30):
        return OPEN_DOCUMENT
    size = stream.seek(0, 2)
    stream.seek(max(0, size - _ZIP_END_BYTES))
    tail = stream.read()
    end = tail.rfind(_ZIP_END)
    if end < 0 or len(tail) < end + 20:
        return ARCHIVE
    names_bytes = int.from_bytes(tail[end + 12 : end + 16], "little")
    stream.seek(max(0, size - len(tail) + end - names_bytes))
    names = stream.read(min(names_bytes, _ZIP_NAMES_BYTES))
    return next((kind for member, kind in _MEMBERS if member in names), ARCHIVE)
