# SPDX-License-Identifier: Apache-2.0
"""Files that pecia-pack does not read: what they are, by their names or first bytes, and how to convert them."""

from __future__ import annotations

from typing import NamedTuple


class Foreign(NamedTuple):
    what: str
    remedy: str

    def reason(self) -> str:
        return f"is {self.what}, which is not read. {self.remedy}"


_OFFICE = "Convert it with libreoffice --headless --convert-to docx"
_SLIDES = "Convert it with libreoffice --headless --convert-to pdf"
_SHEET = "Convert it with libreoffice --headless --convert-to csv"
_EBOOK = "Convert it to EPUB with Calibre's ebook-convert"
_SCAN = "Recognize its text first, as with ocrmypdf"
_UNPACK = "Unpack it, and name the files inside"
_NO_TEXT = "Name files with text"

# Documents, by the ends of their names. In folders they are named as well, since somebody may miss them.
DOCUMENTS = {
    ".doc": Foreign("a document of Microsoft Word 97", _OFFICE),
    ".odt": Foreign("an OpenDocument text", _OFFICE),
    ".rtf": Foreign("an RTF document", _OFFICE),
    ".pages": Foreign("a document of Apple Pages", "Export it as DOCX"),
    ".wpd": Foreign("a document of WordPerfect", _OFFICE),
    ".ppt": Foreign("a presentation of PowerPoint 97", _SLIDES),
    ".pptx": Foreign("a presentation of PowerPoint", _SLIDES),
    ".odp": Foreign("an OpenDocument presentation", _SLIDES),
    ".mobi": Foreign("a Mobipocket e-book", _EBOOK),
    ".azw": Foreign("a Kindle e-book", _EBOOK),
    ".azw3": Foreign("a Kindle e-book", _EBOOK),
    ".fb2": Foreign("a FictionBook e-book", _EBOOK),
    ".djvu": Foreign("a DjVu document", "Convert it with ddjvu -format=pdf, then with ocrmypdf"),
    ".ps": Foreign("a PostScript document", "Convert it with ps2pdf"),
}
# What folders often have beside documents: refused where it is named, else only counted.
OTHERS = {
    ".json": Foreign(
        "JSON, but perhaps not an object per line",
        "Write one per line, as with jq -c '.[]', into a file whose name ends in .jsonl; or say what it holds: "
        "pecia-pack --format jsonl, or --format text",
    ),
    ".xls": Foreign("a spreadsheet of Excel 97", _SHEET),
    ".xlsx": Foreign("a spreadsheet of Excel", _SHEET),
    ".ods": Foreign("an OpenDocument spreadsheet", _SHEET),
}
ARCHIVE = Foreign("a ZIP archive", _UNPACK)
OPEN_DOCUMENT = Foreign("an OpenDocument file (.odt, .ods, .odp)", _OFFICE)
# (offset, bytes there, what begins so)
FIRST_BYTES = (
    (0, rb"{\rtf", DOCUMENTS[".rtf"]),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", Foreign("a file of Microsoft Office 97", _OFFICE)),
    (0, b"%!PS", DOCUMENTS[".ps"]),
    (0, b"AT&TFORM", DOCUMENTS[".djvu"]),
    (60, b"BOOKMOBI", DOCUMENTS[".mobi"]),
    (0, b"\x89PNG\r\n\x1a\n", Foreign("a PNG picture", _SCAN)),
    (0, b"\xff\xd8\xff", Foreign("a JPEG picture", _SCAN)),
    (0, b"GIF87a", Foreign("a GIF picture", _SCAN)),
    (0, b"GIF89a", Foreign("a GIF picture", _SCAN)),
    (0, b"II*\0", Foreign("a TIFF picture", _SCAN)),
    (0, b"MM\0*", Foreign("a TIFF picture", _SCAN)),
    (
        0,
        b"\x89HDF\r\n\x1a\n",
        Foreign("an HDF5 file", "Shards are for pecia run; " + _NO_TEXT.lower()),
    ),
    (0, b"\x7fELF", Foreign("a program (ELF)", _NO_TEXT)),
    (0, b"SQLite format 3\0", Foreign("an SQLite database", "Export its texts as CSV")),
    (257, b"ustar", Foreign("a tar archive", _UNPACK)),
    (0, b"7z\xbc\xaf\x27\x1c", Foreign("a 7z archive", _UNPACK)),
    (0, b"Rar!\x1a\x07", Foreign("a RAR archive", _UNPACK)),
    (
        0,
        b"\xfd7zXZ\0",
        Foreign("compressed by xz", "Decompress it, or compress it with gzip or zstd"),
    ),
    (
        0,
        b"BZh91AY&SY",
        Foreign("compressed by bzip2", "Decompress it, or compress it with gzip or zstd"),
    ),
)
