# SPDX-License-Identifier: Apache-2.0
"""HTML pages to text. Menus (nav), scripts and forms are left out."""

from __future__ import annotations

import codecs
import re
from typing import Any

from .decoding import BYTE_ORDER_MARKS, Decoder, find_encoding
from .html_text import HtmlText
from .structure import StructuredText
from .text_builder import TextBuilder, Unreadable

SEARCHED_BYTES = 4096
_CHARSET = re.compile(rb"""<(?:meta[^>]+charset|\?xml[^>]+encoding)\s*=\s*["']?([\w.:-]+)""", re.I)
_DECLARATION = re.compile(r"\s*<\?xml[^>]*\?>")


def read(data: bytes, decoder: Decoder) -> StructuredText:
    builder = TextBuilder()
    root = parse(decode(data, decoder))
    page = HtmlText(builder)
    page.add(root)
    for heading in page.headings:
        builder.heading(heading.begin, heading.depth, heading.title)
    title = root.find(".//title")
    return builder.finish("" if title is None else title.text_content())


def parse(text: str) -> Any:
    """The root element of a page; ids, links and text are as they were written."""
    import lxml.html
    from lxml import etree

    page = _DECLARATION.sub("", text, count=1)
    if not page.strip():
        raise Unreadable("the document is empty")
    try:
        return lxml.html.document_fromstring(page, parser=lxml.html.HTMLParser(huge_tree=True))
    except etree.XMLSyntaxError as error:
        if error.code == etree.ErrorTypes.ERR_NO_MEMORY:
            raise MemoryError from error
        raise


def decode(data: bytes, decoder: Decoder) -> str:
    """By the byte order mark, else by the encoding that the page names, else by the decoder's."""
    named = _CHARSET.search(data, 0, SEARCHED_BYTES)
    encoding = next((name for mark, name in BYTE_ORDER_MARKS if data.startswith(mark)), None)
    if encoding is None and named and not data.startswith(codecs.BOM_UTF8):
        try:
            encoding = find_encoding(named[1].decode())
        except LookupError:
            raise Unreadable(f"names an encoding that is not known: {named[1].decode()}") from None
    return decoder.with_encoding(encoding or decoder.encoding).decode(data, "", "")
