# SPDX-License-Identifier: Apache-2.0
"""Which files the arguments name, what each of them holds, and what folders have besides."""

from __future__ import annotations

import fnmatch
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Union

from .compressed import MAX_FILE_BYTES
from .contents import HEAD_BYTES, NAMES, compression_of, contents_of
from .decoding import BadInput
from .file_names import with_names_of_their_own
from .foreign import ARCHIVE, DOCUMENTS, OTHERS, Foreign
from .formats import format_of, kind_of_name
from .inputs import InputFile


@dataclass
class FoundFiles:
    files: list[Union[InputFile, BadInput]] = field(default_factory=list)
    notes: dict[Path, tuple[str, ...]] = field(
        default_factory=dict
    )  # of what is not as its name says
    left_out: Counter[str] = field(
        default_factory=Counter
    )  # in folders, by the ends of their names

    def left_out_text(self) -> str:
        """'3 .png, 1 .xlsx', the most frequent first; "": nothing was left out."""
        counts = sorted(self.left_out.items(), key=lambda entry: (-entry[1], entry[0]))
        return ", ".join(f"{count} {kind}" for kind, count in counts)


def find_files(
    arguments: Sequence[str],
    patterns: Sequence[str],
    form: str,
    max_file_bytes: int = MAX_FILE_BYTES,
) -> FoundFiles:
    """Files in the order given; a folder's files sorted by path: those that match a pattern, without patterns those
    whose names say that they can be read, or that they are documents. `form`: auto, or what all files hold
    (formats.KINDS)."""
    search = _Search(patterns, form, max_file_bytes)
    files = [file for argument in arguments for file in search.of_argument(argument)]
    search.found.files = with_names_of_their_own(files)
    return search.found


class _Search:
    def __init__(self, patterns: Sequence[str], form: str, max_file_bytes: int) -> None:
        self._patterns = patterns
        self._form = form
        self._max_file_bytes = max_file_bytes
        self.found = FoundFiles()

    def of_argument(self, argument: str) -> Iterator[Union[InputFile, BadInput]]:
        path = Path(argument)
        try:
            if argument == "-":
                yield self._file(path, "stdin", "text", "")
            elif path.is_dir():
                yield from self._in_folder(path)
            elif path.exists():
                yield self._named_file(path, "")
            else:
                yield BadInput(argument, "no such file or folder")
        except OSError as error:
            yield BadInput(argument, f"cannot be read ({error.strerror})")

    def _in_folder(self, folder: Path) -> Iterator[Union[InputFile, BadInput]]:
        refused: list[OSError] = []
        wanted: list[Path] = []
        left_out: Counter[str] = Counter()
        for inside, _, names in os.walk(folder, onerror=refused.append):
            for name in names:
                if self._is_wanted(name):
                    wanted.append(Path(inside, name))
                elif not self._patterns and not name.startswith("."):
                    left_out[kind_of_name(name)] += 1
        self.found.left_out += left_out
        for error in refused:
            yield BadInput(str(error.filename), f"cannot be searched ({error.strerror})")
        if not wanted and not refused:
            what = (
                f"matches {' '.join(self._patterns)}"
                if self._patterns
                else "is of a kind that can be read"
            )
            holds = FoundFiles(left_out=left_out).left_out_text()
            has = f"; it has {holds}" if holds else ""
            yield BadInput(
                str(folder), f"no file in this folder {what}{has}. Name others with --glob"
            )
        for path in sorted(wanted):
            if path.is_file():
                yield self._named_file(path, path.relative_to(folder).parent.as_posix())
            elif path.is_symlink():
                yield BadInput(str(path), "a link that leads nowhere")
            else:
                yield BadInput(str(path), "is no regular file")

    def _is_wanted(self, name: str) -> bool:
        if self._patterns:
            return any(fnmatch.fnmatch(name, pattern) for pattern in self._patterns)
        return format_of(Path(name)).is_known or Path(name).suffix.lower() in DOCUMENTS

    def _named_file(self, path: Path, inside: str) -> Union[InputFile, BadInput]:
        """`inside`: the folder that holds it, relative to the one that was named; "" for a file that was named
        itself."""
        found = format_of(path, self._form)
        stem = found.stem if found.is_known or not inside else Path(found.stem).stem
        name = (Path(inside) / stem).as_posix()
        try:
            name.encode()
        except UnicodeEncodeError:
            return BadInput(
                str(path), "its name, which would be the request's, is not UTF-8. Rename it"
            )
        return self._file(path, name, found.kind, found.compression)

    def _file(
        self, path: Path, name: str, kind: str, compression: str
    ) -> Union[InputFile, BadInput]:
        """What its first bytes say goes before what its name says; what the user says goes before both."""
        if self._form != "auto":
            return InputFile(path, name, self._form, compression, self._max_file_bytes)
        file = InputFile(path, name, kind, compression, self._max_file_bytes)
        contents = None
        try:
            file = self._with_compression(file)
            contents = _contents(file)
        except (OSError, ImportError):
            pass  # whoever reads it says what is wrong, or which package is missing
        if contents is ARCHIVE and kind in ("docx", "epub"):
            return file  # damaged, as its reader will say
        if contents is None and path.suffix.lower() in DOCUMENTS | OTHERS:
            contents = (DOCUMENTS | OTHERS)[path.suffix.lower()]
        if isinstance(contents, Foreign):
            return BadInput(str(path), contents.reason())
        if contents is None or contents == kind:
            return file
        if contents == "html" and kind != "text":
            return BadInput(
                str(path),
                "holds an HTML page, perhaps of an error where it was downloaded. If it is meant, rename it to end "
                "in .html",
            )
        if contents == "table" and file.compression:
            return BadInput(
                str(path), f"is a table compressed by {file.compression}. Decompress it"
            )
        self._note(path, f"holds {NAMES[contents]}, and is read as such")
        return file.changed(kind=contents)

    def _with_compression(self, file: InputFile) -> InputFile:
        if file.compression:
            return file
        with file.open() as stream:
            compression = compression_of(stream.read(4))
        if not compression:
            return file
        self._note(file.path, f"is compressed by {compression}, and is read so")
        return file.changed(compression=compression)

    def _note(self, path: Path, text: str) -> None:
        self.found.notes[path] = (*self.found.notes.get(path, ()), text)


def _contents(file: InputFile) -> Union[str, Foreign, None]:
    with file.open() as stream:
        head = stream.read(HEAD_BYTES)
        return contents_of(head, None if file.compression else stream)
