# SPDX-License-Identifier: Apache-2.0
"""Word documents: paragraphs, tables and notes in the order of the text. Headings are the paragraphs with a style
"Heading 1" to "Heading 9" or an outline level. A DOCX has no pages before a program lays it out."""

from __future__ import annotations

import io
import re
import zipfile
from typing import Any, Optional

from .decoding import Decoder
from .html_text import ITEM
from .mathematics import OMML, word_formula
from .structure import StructuredText
from .text_builder import LINE, PARAGRAPH, TextBuilder, Unreadable

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
# What stands in a paragraph twice, or is deleted in a revision.
HIDDEN = (FALLBACK, f"{W}del", f"{W}moveFrom")
BREAKS = {f"{W}tab": "\t", f"{W}br": "\n", f"{W}cr": "\n", f"{W}noBreakHyphen": "-"}
NOTES = ("footnote", "endnote")
_HEADING = re.compile(r"heading ([1-9])", re.IGNORECASE)


def read(data: bytes, decoder: Decoder) -> StructuredText:
    """`decoder` is not needed: the text is XML, which says how it is encoded."""
    import docx
    from docx.opc.exceptions import OpcError

    try:
        document = docx.Document(io.BytesIO(data))
    except (zipfile.BadZipFile, OpcError, KeyError, ValueError) as error:
        raise Unreadable(f"not a readable DOCX: {error}") from error
    return _Reader(document).read()


class _Reader:
    def __init__(self, document: Any) -> None:
        self._document = document
        self._builder = TextBuilder()
        self._notes = {kind: _notes_of(document, kind) for kind in NOTES}
        self._levels = {
            style.style_id: level
            for style in document.styles
            if (level := _style_level(style)) is not None
        }

        self._item_styles = {
            style.style_id
            for style in document.styles
            if style.element.find(f"{W}pPr/{W}numPr") is not None
        }
        self._after_item = False

    def read(self) -> StructuredText:
        self._add_all(self._document.element.body)
        return self._builder.finish(self._document.core_properties.title or "")

    def _add_all(self, parent: Any) -> None:
        for element in parent:
            if element.tag == f"{W}p":
                self._add_paragraph(element)
            elif element.tag == f"{W}tbl":
                self._add_table(element)
            elif element.tag in (f"{W}sdt", f"{W}sdtContent", f"{W}ins", f"{W}customXml"):
                self._add_all(element)

    def _add_paragraph(self, paragraph: Any) -> None:
        text = self._text(paragraph).strip()
        if not text:
            return
        level = self._level(paragraph)
        is_item = level is None and self._is_item(paragraph)
        separator = LINE if is_item and self._after_item else PARAGRAPH
        begin = self._builder.add(f"{ITEM}{text}" if is_item else text, separator)
        self._after_item = is_item
        if level is not None:
            self._builder.heading(begin, level, text)

    def _is_item(self, paragraph: Any) -> bool:
        """Whether it, or else its style, is numbered or has a bullet."""
        number = paragraph.find(f"{W}pPr/{W}numPr/{W}numId")
        if number is not None:
            return number.get(f"{W}val") != "0"  # 0 takes back what the style says
        style = paragraph.find(f"{W}pPr/{W}pStyle")
        return style is not None and style.get(f"{W}val") in self._item_styles

    def _add_table(self, table: Any) -> None:
        separator = PARAGRAPH
        for row in table.iterfind(f".//{W}tr"):
            cells = [
                " ".join(self._text(p).strip() for p in cell.iterfind(f".//{W}p")).strip()
                for cell in row.iterfind(f"{W}tc")
            ]
            if any(cells):
                self._builder.add("\t".join(cells).strip(), separator)
                separator = LINE
                self._after_item = False

    def _level(self, paragraph: Any) -> Optional[int]:
        """1 to 9, of the paragraph itself or of its style; None: it is no heading."""
        own = paragraph.find(f"{W}pPr/{W}outlineLvl")
        if own is not None:
            level = int(own.get(f"{W}val", "9")) + 1
            return level if level <= 9 else None
        style = paragraph.find(f"{W}pPr/{W}pStyle")
        return self._levels.get(style.get(f"{W}val")) if style is not None else None

    def _text(self, paragraph: Any) -> str:
        pieces = []
        stack = [paragraph]
        while stack:
            element = stack.pop()
            if element.tag == f"{W}t":
                pieces.append(element.text or "")
            elif element.tag == f"{OMML}oMath":
                is_display = element.getparent().tag == f"{OMML}oMathPara"
                pieces.append(word_formula(element, is_display))
            elif element.tag in BREAKS:
                # A w:tab among the properties of a paragraph is a tab stop, not a character.
                if element.getparent().tag != f"{W}tabs":
                    pieces.append(BREAKS[element.tag])
            elif element.tag in (f"{W}footnoteReference", f"{W}endnoteReference"):
                kind = element.tag.removeprefix(W).removesuffix("Reference")
                if note := self._notes[kind].get(element.get(f"{W}id")):
                    pieces.append(f" [{note}]")
            elif element.tag not in HIDDEN:
                if element.tag == f"{W}p" and element is not paragraph:
                    pieces.append("\n")  # in a text box
                stack.extend(reversed(element))
        return "".join(pieces)


def _style_level(style: Any) -> Optional[int]:
    match = _HEADING.fullmatch(style.name or "")
    if match:
        return int(match[1])
    level = style.element.find(f"{W}pPr/{W}outlineLvl")
    number = int(level.get(f"{W}val", "9")) + 1 if level is not None else 10
    return number if number <= 9 else None


def _notes_of(document: Any, kind: str) -> dict[str, str]:
    """The texts of footnotes or endnotes by their id."""
    from lxml import etree

    for relation in document.part.rels.values():
        if relation.reltype.endswith(f"/{kind}s") and not relation.is_external:
            root = etree.fromstring(relation.target_part.blob)
            return {
                note.get(f"{W}id"): "".join(t.text or "" for t in note.iter(f"{W}t")).strip()
                for note in root.iterfind(f"{W}{kind}")
            }
    return {}
