"""What is to be packed, before any template or token: documents and conversations, and the files they come from."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Optional

from .command import UserError

FOLDER_PATTERNS = ("*.txt", "*.md", "*.jsonl")


@dataclass(frozen=True)
class Sampling:
    """Options of a turn; None leaves them to the job file."""

    max_new_tokens: Optional[int] = None
    temperature: Optional[float] = None
    top_p: Optional[float] = None
    seed: Optional[int] = None

    def over(self, defaults: Sampling) -> Sampling:
        """These, and where they are silent the defaults."""
        return Sampling(
            *(
                mine if mine is not None else theirs
                for mine, theirs in zip(self.values(), defaults.values())
            )
        )

    def values(self) -> tuple[Optional[int], Optional[float], Optional[float], Optional[int]]:
        return (self.max_new_tokens, self.temperature, self.top_p, self.seed)


@dataclass(frozen=True)
class Document:
    """A text to which an instruction or questions are put."""

    name: str
    text: str
    origin: str  # file, or file:line, for messages
    sampling: Sampling = Sampling()
    arrival_s: Optional[float] = None


@dataclass(frozen=True)
class Conversation:
    """User turns as given, after messages that are already fixed (system, history)."""

    name: str
    turns: list[tuple[str, Sampling]]
    origin: str
    opening: list[dict[str, str]] = field(default_factory=list)
    arrival_s: Optional[float] = None


@dataclass(frozen=True)
class InputFile:
    path: Path  # "-" is standard input
    name: str  # of its document
    is_jsonl: bool

    @property
    def size_bytes(self) -> int:
        return 0 if str(self.path) == "-" else self.path.stat().st_size

    def open(self) -> BinaryIO:
        return sys.stdin.buffer if str(self.path) == "-" else open(self.path, "rb")


def find_files(arguments: Sequence[str], patterns: Sequence[str], form: str) -> list[InputFile]:
    """Files in the order given; those of a folder sorted by path. `form`: auto, text or jsonl."""

    def input_file(path: Path, name: str) -> InputFile:
        is_jsonl = form == "jsonl" or (
            form == "auto" and path.suffix.lower() in (".jsonl", ".ndjson")
        )
        return InputFile(path, name, is_jsonl)

    files: list[InputFile] = []
    for argument in arguments:
        path = Path(argument)
        if argument == "-":
            files.append(input_file(path, "stdin"))
        elif path.is_dir():
            wanted = patterns or FOLDER_PATTERNS
            inside = sorted(
                entry
                for entry in path.rglob("*")
                if entry.is_file()
                and any(fnmatch.fnmatch(entry.name, pattern) for pattern in wanted)
            )
            if not inside:
                raise UserError(
                    f"{path}: no file in this folder matches {' '.join(wanted)}. Name others with --glob"
                )
            files += [
                input_file(entry, entry.relative_to(path).with_suffix("").as_posix())
                for entry in inside
            ]
        elif path.is_file():
            files.append(
                input_file(path, path.stem if path.suffix.lower() in (".txt", ".md") else path.name)
            )
        else:
            raise UserError(f"{path}: no such file or folder")
    return files


def decode(data: bytes, where: str, offset: int, errors: str) -> str:
    """UTF-8 without byte order mark and NUL. `offset` is where `data` begins in the file."""
    start = 3 if offset == 0 and data.startswith(b"\xef\xbb\xbf") else 0
    remedy = "Convert the file to UTF-8 text, or replace such bytes with --encoding-errors replace"
    try:
        text = data[start:].decode("utf-8", errors=errors)
    except UnicodeDecodeError as error:
        byte = offset + start + error.start
        raise UserError(
            f"{where}: byte {byte} (0x{error.object[error.start]:02x}) is not UTF-8. {remedy}"
        ) from error
    if "\0" in text:
        if errors == "strict":
            raise UserError(
                f"{where}: byte {offset + data.index(0)} is NUL, which no text has. {remedy}"
            )
        text = text.replace("\0", "\ufffd")
    return text


def read_document(file: InputFile, errors: str) -> Document:
    """The file's text without blank space at either end."""
    with file.open() as stream:
        text = decode(stream.read(), str(file.path), 0, errors).strip()
    if not text:
        raise UserError(f"{file.path}: the document is empty. Leave it out")
    return Document(file.name, text, str(file.path))


def read_lines(file: InputFile, errors: str) -> Iterator[tuple[str, str, int]]:
    """(file:line, text, bytes) of each line that is not blank."""
    offset = 0
    with file.open() as stream:
        for number, data in enumerate(stream, start=1):
            where = f"{file.path}:{number}"
            text = decode(data, where, offset, errors)
            offset += len(data)
            if text.strip():
                yield where, text, len(data)
