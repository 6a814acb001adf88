# SPDX-License-Identifier: Apache-2.0
"""Documents from CSV and TSV files, whose first row names the columns. Quotes are those of RFC 4180, and a field in
quotes may have several lines."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from typing import BinaryIO, Optional, Union

from .columns import NO_COLUMNS, Columns
from .decoding import BadInput, Decoder, keeps_ascii
from .inputs import Document, InputFile, too_large
from .read_table import check_columns, id_of, row_document

DELIMITERS = ",;\t|"


def read_csv(
    file: InputFile,
    decoder: Decoder,
    text_column: str,
    id_column: Optional[str],
    columns: Columns = NO_COLUMNS,
) -> Iterator[Union[Document, BadInput]]:
    """A document for each row, named as by read_table.read_rows; its place is the line that it begins in."""
    path = str(file.path)
    if not keeps_ascii(decoder.encoding):
        reason = f"rows of CSV cannot be read as {decoder.encoding}. Convert the file to UTF-8"
        yield BadInput(path, reason)
        return
    try:
        with file.open() as stream:
            yield from _rows(stream, file, decoder, text_column, id_column, columns)
    except BadInput as problem:
        yield problem
    except OSError as error:
        yield BadInput(path, f"cannot be read ({error.strerror or error})")


def _rows(
    stream: BinaryIO,
    file: InputFile,
    decoder: Decoder,
    text_column: str,
    id_column: Optional[str],
    columns: Columns,
) -> Iterator[Union[Document, BadInput]]:
    path = str(file.path)
    csv.field_size_limit(sys.maxsize)  # a row is bounded by file.max_bytes
    lines = _Lines(stream, file, decoder)
    names, delimiter = _header(lines, path, text_column, id_column, columns)
    of_text = text_column if text_column in names else None
    name = id_of(names, id_column)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    row = 0
    while True:
        where = f"{path}:{lines.begin_row()}"
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            row += 1
            yield BadInput(where, f"the row is not CSV ({error})")
            continue
        if not fields:
            continue
        row += 1
        if lines.problem is not None:
            yield lines.problem
        elif len(fields) != len(names):
            count = f"the row has {len(fields)} fields, the first row of the file {len(names)}"
            yield BadInput(where, f"{count}. Put texts that have '{delimiter}' into quotes")
        else:
            of_row = f"{file.name}/{row}" if name is None else fields[names.index(name)]
            cells = {n: field or None for n, field in zip(names, fields) if n in columns.names}
            text = None if of_text is None else fields[names.index(of_text)]
            yield row_document(of_row, text, where, of_text, cells, columns)


def _header(
    lines: _Lines, path: str, text_column: str, id_column: Optional[str], columns: Columns
) -> tuple[list[str], str]:
    """The columns, and the delimiter that tells the wanted one from the others."""
    line = next(lines, "")
    if lines.problem is not None:
        raise lines.problem
    if not line.strip():
        raise BadInput(path, "its first line is empty: it should name the columns")
    try:
        found = [next(csv.reader([line], delimiter=one, strict=True)) for one in DELIMITERS]
    except csv.Error as error:
        raise BadInput(f"{path}:1", f"the names of the columns are not CSV ({error})") from error
    best = max(range(len(found)), key=lambda i: (text_column in found[i], len(found[i]), -i))
    check_columns(found[best], path, text_column, id_column, columns)
    return found[best], DELIMITERS[best]


class _Lines:
    """The decoded lines of a file, as the reader takes them. `problem`: what is wrong with one of the row's."""

    def __init__(self, stream: BinaryIO, file: InputFile, decoder: Decoder) -> None:
        self.problem: Optional[BadInput] = None
        self._stream = stream
        self._file = file
        self._decoder = decoder
        self._number = 0
        self._offset = 0
        self._row_offset = 0

    def begin_row(self) -> int:
        """The number of its first line."""
        self.problem = None
        self._row_offset = self._offset
        return self._number + 1

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        most = self._file.max_bytes
        data = self._stream.readline(most + 1)
        if not data:
            raise StopIteration
        self._number += 1
        path = str(self._file.path)
        where = f"{path}:{self._number}"
        begin, self._offset = self._offset, self._offset + len(data)
        if self._offset - self._row_offset > most:
            raise BadInput(where, f"the row {too_large(most, ': perhaps a quote is not closed')}")
        try:
            return self._decoder.decode(data, path, where, begin)
        except BadInput as problem:
            self.problem = self.problem or problem
            return data.decode(self._decoder.encoding, "replace").replace("\0", "\ufffd")
