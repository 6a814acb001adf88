# SPDX-License-Identifier: Apache-2.0
"""Small books in several formats, made on the spot."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from typing import Optional

from pecia_tools.pack.inputs import InputFile
from pecia_tools.pack.structure import StructuredText, positions


def make_pdf(
    pages: Sequence[Sequence[str]],
    bookmarks: Sequence[tuple[str, int]] = (),
    title: str = "",
    first_label: Optional[int] = None,
) -> bytes:
    """Pages of lines in Helvetica; a page without lines is blank. `bookmarks`: (title, page from 0)."""
    objects: list[bytes] = [b"", b"", b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]

    def add(content: bytes) -> int:
        objects.append(content)
        return len(objects)

    kids = []
    for lines in pages:
        shown = b" ".join(b"(%s) Tj 0 -14 Td" % line.encode("latin-1") for line in lines)
        drawn = b"BT /F1 11 Tf 72 720 Td " + shown + b" ET"
        stream = add(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(drawn), drawn))
        kids.append(
            add(
                b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R "
                b"/Resources << /Font << /F1 3 0 R >> >> >>" % stream
            )
        )
    first = len(objects) + 2  # the first bookmark, after the root of the outline
    count = len(bookmarks)
    outline = add(
        b"<< /Type /Outlines /First %d 0 R /Last %d 0 R /Count %d >>"
        % (first, first + count - 1, count)
    )
    for number, (text, page) in enumerate(bookmarks):
        after = b" /Next %d 0 R" % (first + number + 1) if number + 1 < count else b""
        before = b" /Prev %d 0 R" % (first + number - 1) if number else b""
        add(
            b"<< /Title (%s) /Parent %d 0 R /Dest [%d 0 R /Fit]%s%s >>"
            % (text.encode("latin-1"), outline, kids[page], after, before)
        )
    information = add(b"<< /Title (%s) >>" % title.encode("latin-1"))
    labels = b"" if first_label is None else b" /PageLabels << /Nums [0 << /S /D /St %d >>] >>"
    labels = labels % first_label if labels else b""
    outlines = b" /Outlines %d 0 R" % outline if bookmarks else b""
    objects[0] = b"<< /Type /Catalog /Pages 2 0 R%s%s >>" % (outlines, labels)
    listed = b" ".join(b"%d 0 R" % kid for kid in kids)
    objects[1] = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (listed, len(kids))
    return _pdf_file(objects, information)


def _pdf_file(objects: Sequence[bytes], information: int) -> bytes:
    file = io.BytesIO(b"%PDF-1.4\n")
    file.seek(0, io.SEEK_END)
    places = []
    for number, content in enumerate(objects, start=1):
        places.append(file.tell())
        file.write(b"%d 0 obj\n%s\nendobj\n" % (number, content))
    table = file.tell()
    file.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    for place in places:
        file.write(b"%010d 00000 n \n" % place)
    file.write(
        b"trailer\n<< /Size %d /Root 1 0 R /Info %d 0 R >>\nstartxref\n%d\n%%%%EOF\n"
        % (len(objects) + 1, information, table)
    )
    return file.getvalue()


CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="OPS/book.opf" media-type="application/oebps-package+xml"/>'
    "</rootfiles></container>"
)


def make_epub(
    pages: dict[str, str], nav: str = "", ncx: str = "", more: Optional[dict[str, str]] = None
) -> bytes:
    """`pages`: the bodies of the spine's files in their order. `nav` is the body of an EPUB 3 navigation document,
    `ncx` the inside of an EPUB 2 one."""
    items = [
        f'<item id="{name}" href="text/{name}" media-type="application/xhtml+xml"/>'
        for name in pages
    ]
    spine = "".join(f'<itemref idref="{name}"/>' for name in pages)
    toc = ""
    if nav:
        items.append('<item id="n" href="nav.xhtml" properties="nav" media-type="text/html"/>')
    if ncx:
        items.append('<item id="x" href="toc.ncx" media-type="application/x-dtbncx+xml"/>')
        toc = ' toc="x"'
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata '
        'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>The Scribes</dc:title></metadata>'
        f"<manifest>{''.join(items)}</manifest><spine{toc}>{spine}</spine></package>"
    )
    members = {"META-INF/container.xml": CONTAINER, "OPS/book.opf": package}
    members.update((f"OPS/text/{name}", _page(body)) for name, body in pages.items())
    if nav:
        members["OPS/nav.xhtml"] = _page(nav)
    if ncx:
        members["OPS/toc.ncx"] = (
            f'<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/" version="2005-1">{ncx}</ncx>'
        )
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("mimetype", "application/epub+zip")
        for name, text in {**members, **(more or {})}.items():
            archive.writestr(name, text)
    return file.getvalue()


def _page(body: str) -> str:
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE html>\n<html xmlns="http://www.w3.org/1999/xhtml" '
        f'xmlns:epub="http://www.idpf.org/2007/ops"><head><title/></head><body>{body}</body></html>'
    )


def cited(found: StructuredText) -> list[tuple[str, int, str, str]]:
    """(kind, depth, label, the text of its range) of all chapters and pages."""
    return [
        (p.kind, p.depth, p.label, found.text[p.begin : p.end].strip())
        for p in positions(found.structure, 0, len(found.text))
    ]


def named(path: object) -> InputFile:
    from pecia_tools.pack.find_files import find_files

    (file,) = find_files([str(path)], (), "auto").files
    assert isinstance(file, InputFile)
    return file
