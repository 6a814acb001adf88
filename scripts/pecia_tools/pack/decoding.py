# SPDX-License-Identifier: Apache-2.0
"""Bytes to text, with a count of what had to be changed."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, field

from ..command import UserError

BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark is the beginning of this one
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
COUNTING = "pecia.count_replaced"


class BadInput(UserError):
    """A document or a line that cannot be packed: where it stands, why, and the id that its answer would have had, if
    that is known."""

    def __init__(self, where: str, reason: str, name: str = "") -> None:
        super().__init__(f"{where}: {reason}")
        self.where = where
        self.reason = reason
        self.name = name


class Undecodable(BadInput):
    """Bytes that are no text in the encoding."""


@dataclass
class Repairs:
    """What reading changed, by file."""

    replaced_bytes: dict[str, int] = field(default_factory=dict)
    line_ends: dict[str, int] = field(default_factory=dict)


def find_encoding(name: str) -> str:
    """Python's own name of an encoding of text; LookupError for any other name."""
    codec = codecs.lookup(name)
    try:
        "".encode(codec.name)
    except UnicodeError:
        raise LookupError(name) from None
    return "utf-8" if codec.name == "utf-8-sig" else codec.name


def keeps_ascii(encoding: str) -> bool:
    """Whether lines can be told apart before they are decoded."""
    return "\n{}".encode(encoding) == b"\n{}"


class Decoder:
    """Decodes with one encoding. With `replace`, bytes that are no text become U+FFFD and are counted."""

    def __init__(self, encoding: str = "utf-8", replace: bool = False) -> None:
        self.encoding = encoding
        self.repairs = Repairs()
        self._replace = replace

    @property
    def replaces(self) -> bool:
        return self._replace

    def with_encoding(self, encoding: str) -> Decoder:
        """The same for another encoding; both count repairs in one place."""
        other = Decoder(encoding, self._replace)
        other.repairs = self.repairs
        return other

    def decode(self, data: bytes, file: str, where: str, offset: int = 0) -> str:
        """Without byte order mark and NUL. `offset` is where `data` begins in the file."""
        mark = next((m for m in BYTE_ORDER_MARKS if offset == 0 and data.startswith(m[0])), None)
        start = len(codecs.BOM_UTF8) if mark and mark[1] == self.encoding == "utf-8" else 0
        other = mark[1] if mark and not self.encoding.startswith(mark[1]) else None
        hint = f"; its byte order mark says {other}: try --encoding {other}" if other else ""
        replaced = 0
        try:
            text = data[start:].decode(self.encoding)
        except UnicodeDecodeError as error:
            if not self._replace:
                byte, value = offset + start + error.start, error.object[error.start]
                reason = f"byte {byte} (0x{value:02x}) is not {self.encoding}{hint}"
                raise Undecodable(where, reason) from None
            text, replaced = _decode_replacing(data[start:], self.encoding)
        if mark and text.startswith("\ufeff"):  # utf-16-le and utf-16-be leave it there
            text = text[1:]
        if "\0" in text:
            if not self._replace:
                place = (
                    f"byte {offset + data.index(0)}"
                    if keeps_ascii(self.encoding)
                    else f"character {text.index(chr(0))}"
                )
                raise Undecodable(where, f"{place} is NUL, which no text has{hint}")
            replaced += text.count("\0")
            text = text.replace("\0", "\ufffd")
        if replaced:
            counts = self.repairs.replaced_bytes
            counts[file] = counts.get(file, 0) + replaced
        return text

    def decode_document(self, data: bytes, file: str) -> str:
        """A whole document; all its lines end in LF."""
        text = self.decode(data, file, file)
        if "\r" in text:
            unix = text.replace("\r\n", "\n")
            self.repairs.line_ends[file] = len(text) - len(unix) + unix.count("\r")
            text = unix.replace("\r", "\n")
        return text


def _decode_replacing(data: bytes, encoding: str) -> tuple[str, int]:
    """The text, and how many bytes were no text."""
    replaced = 0

    def count(error: UnicodeError) -> tuple[str, int]:
        nonlocal replaced
        assert isinstance(error, UnicodeDecodeError)
        replaced += error.end - error.start
        return "\ufffd", error.end

    codecs.register_error(COUNTING, count)
    return data.decode(encoding, errors=COUNTING), replaced
