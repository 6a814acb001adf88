# SPDX-License-Identifier: Apache-2.0
"""The text layer of a PDF, page by page. Chapters are its bookmarks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from .decoding import Decoder
from .structure import StructuredText
from .text_builder import LINE, PARAGRAPH, TextBuilder, Unreadable, find_title

DEEPEST_BOOKMARK = 6
_HYPHEN = re.compile("[\x02\ufffe\xad]\n?")  # of a word that goes on in the next line
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_SPACE_BEFORE_END = re.compile(r"[ \t\u00a0]+\n")
_NUMBERING = re.compile(r"[\w.]{1,10}\s+")  # before a title that its bookmark does not number
_SENTENCE_END = re.compile(r"[.!?:…。！？][\"'”’»)\]]*\Z")


def read(data: bytes, decoder: Decoder) -> StructuredText:
    """`decoder` is not needed: a PDF says how its characters are encoded."""
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise Unreadable("it is locked by a password") from error
        raise Unreadable(f"not a readable PDF: {error}") from error
    builder = TextBuilder()
    texts = [_page_text(document, index) for index in range(len(document))]
    empty = [index + 1 for index, text in enumerate(texts) if not text]
    if len(empty) == len(texts):
        raise Unreadable(
            f"none of its {len(texts)} pages has text: it holds pictures of pages. Recognize their text first, as "
            "with ocrmypdf"
        )
    begins = _add_pages(builder, texts)
    for index, begin in enumerate(begins):
        builder.page(begin, document.get_page_label(index) or str(index + 1))
    _add_bookmarks(builder, document, texts, begins)
    if empty:
        builder.note(f"{len(empty)} of {len(texts)} pages have no text: {ranges(empty)}")
    return builder.finish(document.get_metadata_value("Title"))


def _page_text(document: Any, index: int) -> str:
    import pypdfium2

    try:
        page = document[index]
        layer = page.get_textpage()
    except pypdfium2.PdfiumError as error:
        raise Unreadable(f"its page {index + 1} of {len(document)} is damaged: {error}") from error
    text = layer.get_text_range().replace("\r\n", "\n").replace("\r", "\n")
    layer.close()
    page.close()
    return _SPACE_BEFORE_END.sub("\n", _CONTROL.sub("", _HYPHEN.sub("", text))).strip()


def _add_pages(builder: TextBuilder, texts: Sequence[str]) -> list[int]:
    """The characters that the pages begin at; one without text begins where the next one does."""
    begins = []
    previous = ""
    waiting = 0  # pages without text
    for text in texts:
        if not text:
            waiting += 1
            continue
        goes_on = previous and not _SENTENCE_END.search(previous)
        begin = builder.add(text, LINE if goes_on else PARAGRAPH)
        begins += [begin] * (waiting + 1)
        previous, waiting = text, 0
    return begins + [builder.length] * waiting


def _add_bookmarks(
    builder: TextBuilder, document: Any, texts: Sequence[str], begins: Sequence[int]
) -> None:
    """A chapter begins where its title stands on the page that its bookmark names, else where this page begins."""
    for bookmark in document.get_toc(max_depth=DEEPEST_BOOKMARK):
        target = bookmark.get_dest()
        index = target.get_index() if target is not None else None
        if index is None or not 0 <= index < len(texts):
            continue
        found = find_title(texts[index], bookmark.get_title())
        at = found.start() if found else 0
        line = texts[index].rfind("\n", 0, at) + 1
        if _NUMBERING.fullmatch(texts[index], line, at):
            at = line
        builder.heading(begins[index] + at, bookmark.level + 1, bookmark.get_title())


def ranges(numbers: Sequence[int]) -> str:
    """'3, 7-9' of rising numbers."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
