# SPDX-License-Identifier: Apache-2.0
"""What is to be packed, before any template or token: documents and conversations, and the files they come from."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Optional, Union

from .compressed import MAX_FILE_BYTES, decompressed, read_up_to
from .decoding import BadInput, Decoder, keeps_ascii
from .structure import Structure

SKIPPED_BYTES = 1 << 18  # read at a time of a line that is too long
PRODUCE = ("text", "vector", "score", "rerank")  # as /produce of a shard numbers them
VECTOR, SCORE, RERANK = 1, 2, 3


@dataclass(frozen=True)
class Sampling:
    """Options of a turn; None leaves them to the job file."""

    max_new_tokens: Optional[int] = None
    temperature: Optional[float] = None
    top_p: Optional[float] = None
    seed: Optional[int] = None
    stop: Optional[tuple[str, ...]] = None
    shape: Optional[str] = None  # what the answer must look like, as /shape of a shard says it
    top_k: Optional[int] = None
    min_p: Optional[float] = None
    repetition_penalty: Optional[float] = None
    presence_penalty: Optional[float] = None
    frequency_penalty: Optional[float] = None
    ignore_eos: Optional[bool] = None
    logit_bias: Optional[tuple[tuple[int, float], ...]] = None  # (token, what is added), by token
    logprobs: Optional[int] = None  # top log-probabilities that the answer has to have
    produce: Optional[int] = None  # of PRODUCE
    continuations: Optional[tuple[str, ...]] = None  # that are scored after the prompt
    spans: Optional[tuple[tuple[int, int], ...]] = None  # of its tokens, for a vector each

    def over(self, defaults: Sampling) -> Sampling:
        """These settings, else the defaults. Defaults of answers do not count for turns without text."""
        chosen = {}
        for option in fields(self):
            mine = getattr(self, option.name)
            chosen[option.name] = mine if mine is not None else getattr(defaults, option.name)
        if chosen["produce"]:
            chosen.update(max_new_tokens=self.max_new_tokens, stop=self.stop)
        return Sampling(**chosen)


@dataclass(frozen=True)
class Place:
    """Which part of which document a text is."""

    book: str
    title: str = ""  # the heading that the part begins under
    part: int = 1
    parts: int = 1
    begin: int = 0  # its tokens among those of the document
    end: int = 0
    book_tokens: int = 0


@dataclass(frozen=True)
class Document:
    """A text to which an instruction or questions are put."""

    name: str
    text: str
    origin: str  # file, or file:line, for messages
    sampling: Sampling = Sampling()
    arrival_s: Optional[float] = None
    num_choices: int = 1
    place: Optional[Place] = None
    structure: Optional[Structure] = None  # None: nobody will cite it
    begin: int = 0  # character of the whole document that the text begins at
    columns: dict[str, str] = field(default_factory=dict)  # of its row, that the template names
    variables: dict[str, Any] = field(default_factory=dict)  # of the chat template
    is_numbered: bool = False  # named by its file and line, since it has no id
    endpoint = ""


@dataclass(frozen=True)
class Conversation:
    """User turns as given, after messages that are already fixed (system, history)."""

    name: str
    turns: list[tuple[str, Sampling]]
    origin: str
    opening: list[dict[str, str]] = field(default_factory=list)
    arrival_s: Optional[float] = None
    num_choices: int = 1
    endpoint: str = ""  # of the OpenAI API that is asked; "": none
    variables: dict[str, Any] = field(default_factory=dict)
    is_continued: bool = False  # the only turn is the beginning of an answer
    is_numbered: bool = False


Plain = Union[str, tuple[int, ...]]  # a text, or its tokens


@dataclass(frozen=True)
class Completion:
    """What is to be continued, or to become vectors, without any template."""

    name: str
    prompts: tuple[Plain, ...]  # each by itself
    origin: str
    sampling: Sampling = Sampling()
    num_choices: int = 1
    endpoint: str = ""
    is_numbered: bool = False
    dimensions: Optional[int] = None  # of its embedding: the first ones; None: all
    encoding_format: str = ""  # of its embedding: "float" or "base64"; "": it has none
    arrival_s = None


Source = Union[Document, Conversation, Completion]


@dataclass(frozen=True)
class InputFile:
    path: Path  # "-" is standard input
    name: str  # of its document
    kind: str = "text"  # one of formats.KINDS
    compression: str = ""  # "", "gzip" or "zstd"
    max_bytes: int = MAX_FILE_BYTES  # of its document, or of one of its lines, decompressed

    @property
    def size_bytes(self) -> int:
        return self.path.stat().st_size if self.path.is_file() else 0

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """The file's bytes, decompressed. What is damaged in the compression is an OSError."""
        raw = open(self.path, "rb") if self.path.is_file() else io.BytesIO(self._content)  # noqa: SIM115
        with raw, decompressed(raw, self.compression) as stream:
            yield stream

    def read(self) -> bytes:
        """All of it. Raises OSError, and BadInput where it has more than max_bytes."""
        with self.open() as stream:
            data = read_up_to(stream, self.max_bytes)
        if data is None:
            raise BadInput(str(self.path), too_large(self.max_bytes))
        return data

    def loaded(self) -> InputFile:
        """Itself, ready to be sent to another process, which could not read a pipe of this one."""
        if not self.path.is_file() and not self.path.is_dir():
            _ = self._content
        return self

    def changed(self, **values: object) -> InputFile:
        """With other fields, and with what was already read of a pipe."""
        other = replace(self, **values)  # type: ignore[arg-type]
        if "_content" in self.__dict__:
            other.__dict__["_content"] = self._content
        return other

    @cached_property
    def _content(self) -> bytes:
        """A pipe is read once; what came is kept for the next reading."""
        if str(self.path) == "-":
            return sys.stdin.buffer.read()
        with open(self.path, "rb") as pipe:
            return pipe.read()


def too_large(limit: int, found: str = "") -> str:
    return (
        f"has more than {limit} bytes, decompressed{found}. pecia-pack --max-file-bytes sets another "
        "limit"
    )


def read_document(file: InputFile, decoder: Decoder) -> Document:
    """The file's text without blank space at either end."""
    path = str(file.path)
    try:
        data = file.read()
    except OSError as error:
        raise BadInput(path, f"cannot be read ({error.strerror})") from error
    text = decoder.decode_document(data, path).strip()
    if not text:
        raise BadInput(path, "the document is empty")
    return Document(file.name, text, path, structure=Structure())


def line_id(file: InputFile, number: int) -> str:
    return f"{file.name}:{number}"


def read_lines(
    file: InputFile, decoder: Decoder
) -> Iterator[tuple[str, Union[str, BadInput], int]]:
    """(file:line, text or what is wrong with it, bytes) of each line that is not blank. `file.name` and the line's
    number are the id of a line that gives none."""
    path = str(file.path)
    offset = 0
    is_empty = True
    if not keeps_ascii(decoder.encoding):
        reason = f"lines of JSON cannot be read as {decoder.encoding}. Convert the file to UTF-8"
        yield path, BadInput(path, reason), 0
        return
    try:
        with file.open() as stream:
            lines = iter(lambda: stream.readline(file.max_bytes + 1), b"")
            for number, data in enumerate(lines, start=1):
                where = f"{path}:{number}"
                if len(data) > file.max_bytes:
                    is_empty = False
                    yield where, BadInput(where, f"the line {too_large(file.max_bytes)}"), len(data)
                    offset += len(data) + _skip_line(stream)
                    continue
                try:
                    text: Union[str, BadInput] = decoder.decode(data, path, where, offset)
                except BadInput as error:
                    text = error
                    text.name = line_id(file, number)
                offset += len(data)
                if isinstance(text, BadInput) or text.strip():
                    is_empty = False
                    yield where, text, len(data)
    except OSError as error:
        yield path, BadInput(path, f"cannot be read ({error.strerror})"), 0
        return
    if is_empty:
        yield path, BadInput(path, "the file holds no requests"), 0


def _skip_line(stream: BinaryIO) -> int:
    """The bytes up to the end of the line, which are not kept."""
    skipped = 0
    for piece in iter(lambda: stream.readline(SKIPPED_BYTES), b""):
        skipped += len(piece)
        if piece.endswith(b"\n"):
            break
    return skipped
