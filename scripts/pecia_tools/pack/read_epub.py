# SPDX-License-Identifier: Apache-2.0
"""EPUB 2 and 3: the pages of the spine in their order. Chapters and printed pages are those of the navigation document,
else of the NCX; a book without a table of contents has the headings of its pages."""

from __future__ import annotations

import io
import posixpath
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Optional
from urllib.parse import unquote

from .decoding import Decoder
from .html_text import HtmlText
from .read_html import decode, parse
from .structure import StructuredText
from .text_builder import TextBuilder, Unreadable

PAGES = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml")
FONT_MANGLING = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")


@dataclass(frozen=True)
class Entry:
    """A line of a table of contents or of a list of pages."""

    label: str
    depth: int
    file: str
    anchor: str  # "": the file's beginning


def read(data: bytes, decoder: Decoder) -> StructuredText:
    return _Book(data, decoder).read()


class _Book:
    def __init__(self, data: bytes, decoder: Decoder) -> None:
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(data))
        except zipfile.BadZipFile as error:
            raise Unreadable(f"not an EPUB: {error}") from error
        self._names = set(self._archive.namelist())
        self._decoder = decoder
        self._refuse_encrypted()
        rootfile = self._xml("META-INF/container.xml").find(".//{*}rootfile")
        if rootfile is None or not rootfile.get("full-path"):
            raise Unreadable("not an EPUB: META-INF/container.xml names no package document")
        self._package_path = rootfile.get("full-path")
        self._package = self._xml(self._package_path)
        self._items = {
            item.get("id"): item for item in self._package.iterfind(".//{*}manifest/{*}item")
        }

    def read(self) -> StructuredText:
        contents, pages = self._navigation()
        wanted: dict[str, set[str]] = {}
        for entry in (*contents, *pages):
            wanted.setdefault(entry.file, set()).add(entry.anchor)
        builder = TextBuilder()
        begins: dict[tuple[str, str], int] = {}
        for file in self._spine():
            page = HtmlText(builder)
            before = builder.length
            page.add(self._page(file), wanted.get(file, ()))
            begins[file, ""] = before + 2 if 0 < before < builder.length else before
            begins.update(((file, anchor), at) for anchor, at in page.anchors.items())
            for heading in () if contents else page.headings:
                builder.heading(heading.begin, heading.depth, heading.title)
        for entry in contents:
            if (at := _begin_of(entry, begins)) is not None:
                builder.heading(at, entry.depth, entry.label)
        for entry in pages:
            if (at := _begin_of(entry, begins)) is not None:
                builder.page(at, entry.label)
        title = self._package.find(".//{http://purl.org/dc/elements/1.1/}title")
        return builder.finish(title.text or "" if title is not None else "")

    def _spine(self) -> Iterator[str]:
        spine = self._package.find(".//{*}spine")
        for reference in () if spine is None else spine.iterfind("{*}itemref"):
            item = self._items.get(reference.get("idref"))
            if item is None:
                raise Unreadable(f"its spine names '{reference.get('idref')}', which is not there")
            if item.get("media-type") in PAGES and reference.get("linear") != "no":
                yield self._path(self._package_path, item.get("href"))

    def _navigation(self) -> tuple[list[Entry], list[Entry]]:
        """The table of contents and the list of printed pages."""
        for item in self._items.values():
            if "nav" in (item.get("properties") or "").split():
                path = self._path(self._package_path, item.get("href"))
                lists = {nav.get("epub:type"): nav for nav in self._page(path).iter("nav")}
                contents = self._of_nav(path, lists.get("toc"))
                if contents:
                    return contents, self._of_nav(path, lists.get("page-list"))
        spine = self._package.find(".//{*}spine")
        ncx = self._items.get(spine.get("toc")) if spine is not None else None
        if ncx is None:
            return [], []
        path = self._path(self._package_path, ncx.get("href"))
        root = self._xml(path)
        return self._of_ncx(path, root, "navPoint"), self._of_ncx(path, root, "pageTarget")

    def _of_nav(self, path: str, nav: Any) -> list[Entry]:
        if nav is None:
            return []
        return [
            self._entry(
                path,
                " ".join(link.text_content().split()),
                sum(ancestor.tag == "ol" for ancestor in link.iterancestors()),
                link.get("href"),
            )
            for link in nav.iter("a")
            if link.get("href")
        ]

    def _of_ncx(self, path: str, root: Any, kind: str) -> list[Entry]:
        entries = []
        for point in root.iterfind(f".//{{*}}{kind}"):
            label = point.find("{*}navLabel/{*}text")
            content = point.find("{*}content")
            if content is None or not content.get("src"):
                continue
            depth = 1 + sum(str(a.tag).endswith("}navPoint") for a in point.iterancestors())
            text = " ".join((label.text or "").split()) if label is not None else ""
            entries.append(self._entry(path, text, depth, content.get("src")))
        return entries

    def _entry(self, base: str, label: str, depth: int, link: str) -> Entry:
        target, _, anchor = link.partition("#")
        return Entry(label, depth, self._path(base, target) if target else base, unquote(anchor))

    def _path(self, base: str, link: str) -> str:
        return posixpath.normpath(posixpath.join(posixpath.dirname(base), unquote(link)))

    def _page(self, path: str) -> Any:
        return parse(decode(self._member(path), self._decoder))

    def _xml(self, path: str) -> Any:
        from lxml import etree

        parser = etree.XMLParser(resolve_entities=False, no_network=True, recover=True)
        root = etree.fromstring(self._member(path), parser)
        if root is None:
            raise Unreadable(f"{path} inside it is no XML")
        return root

    def _member(self, path: str) -> bytes:
        if path not in self._names:
            raise Unreadable(f"{path} is missing inside it")
        try:
            return self._archive.read(path)
        except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError) as error:
            raise Unreadable(f"{path} inside it is damaged: {error}") from error

    def _refuse_encrypted(self) -> None:
        if "META-INF/encryption.xml" not in self._names:
            return
        methods = self._xml("META-INF/encryption.xml").iterfind(".//{*}EncryptionMethod")
        if any(method.get("Algorithm") not in FONT_MANGLING for method in methods):
            raise Unreadable("it is encrypted (DRM)")


def _begin_of(entry: Entry, begins: dict[tuple[str, str], int]) -> Optional[int]:
    """None where the file is not part of the text; a lost anchor is the beginning of its file."""
    return begins.get((entry.file, entry.anchor), begins.get((entry.file, "")))
