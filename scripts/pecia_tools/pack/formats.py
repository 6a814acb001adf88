# SPDX-License-Identifier: Apache-2.0
"""The kinds of files that pecia-pack reads, told by the ends of their names, and the packages that read them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import NamedTuple

from ..command import UserError

SUFFIXES = {
    ".txt": "text",
    ".md": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".pdf": "pdf",
    ".epub": "epub",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".docx": "docx",
    ".parquet": "table",
    ".arrow": "table",
    ".feather": "table",
    ".csv": "csv",
    ".tsv": "csv",
}
KINDS = tuple(dict.fromkeys(SUFFIXES.values()))
COMPRESSED = {".gz": "gzip", ".zst": "zstd"}
STREAMED = ("text", "jsonl", "html", "csv")  # what may be compressed as a whole
ROWS = ("jsonl", "table", "csv")  # what holds many requests
CONVERTED = ("pdf", "epub", "html", "docx")  # what becomes text by a library
PACKAGES = {
    "pdf": ("pypdfium2",),
    "epub": ("lxml",),
    "html": ("lxml",),
    "docx": ("docx", "lxml"),
    "table": ("pyarrow",),
    "zstd": ("zstandard",),
}
DISTRIBUTIONS = {"docx": "python-docx"}  # where a package has another name than its module


class Format(NamedTuple):
    kind: str  # one of KINDS
    compression: str  # "", "gzip" or "zstd"
    stem: str  # the file's name without the suffixes that were understood
    is_known: bool  # whether the suffixes say what the file holds


def format_of(path: PurePath, form: str = "auto") -> Format:
    """`form`: one of KINDS, whatever the name says, or auto; a name that says nothing is of text."""
    stem = path.name
    compression = COMPRESSED.get(path.suffix.lower(), "")
    inner = PurePath(path.stem) if compression else path
    kind = SUFFIXES.get(inner.suffix.lower(), "")
    is_known = bool(kind) and (not compression or kind in STREAMED)
    if is_known:
        stem = inner.stem
    elif compression:
        stem = inner.name
    kind = form if form != "auto" else kind or "text"
    return Format(kind, compression if kind in STREAMED else "", stem, is_known)


def kind_of_name(name: str) -> str:
    """How a name that says nothing to pecia-pack is counted: by its end, .tar.gz as well as .png."""
    path = PurePath(name.lower())
    inner = PurePath(path.stem).suffix if path.suffix in COMPRESSED else ""
    return f"{inner}{path.suffix}" or "without a suffix"


def require_packages(needed: Iterable[tuple[str, str]]) -> None:
    """`needed`: (kind of file or compression, the first such file). Refuses where a package is not installed."""
    for kind, example in needed:
        for package in PACKAGES.get(kind, ()):
            require_package(package, f"{example}: is read with")


def require_package(package: str, what: str) -> None:
    if importlib.util.find_spec(package) is None:
        name = DISTRIBUTIONS.get(package, package)
        setup = Path(__file__).resolve().parents[2] / "pecia-setup"
        raise UserError(
            f"{what} the Python package {name}, which is not installed. Install it with {setup} books"
        )
