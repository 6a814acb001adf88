# SPDX-License-Identifier: Apache-2.0
"""Documents from tables: parquet files, and Arrow files and streams (Feather 2 is an Arrow file)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, Optional, Union

from ..command import suggestion
from .columns import NO_COLUMNS, Columns
from .decoding import BadInput
from .inputs import Document, InputFile
from .structure import Structure

PARQUET_MAGIC, ARROW_MAGIC = b"PAR1", b"ARROW1"
ROWS = 1024  # read at a time
ID = "id"
TEXTS = ("string", "large_string", "string_view")


def read_rows(
    file: InputFile, text_column: str, id_column: Optional[str], columns: Columns = NO_COLUMNS
) -> Iterator[Union[Document, BadInput]]:
    """A document for each row. Its name is the row's id: of `id_column`, else of the column "id" if there is one, else
    the file's name and the row's number from 1, NAME/12. `columns` are those that the template names."""
    import pyarrow

    path = str(file.path)
    row = 0
    try:
        names = (text_column, id_column, columns)
        with file.open() as stream, _batches(stream, path, *names) as batches:
            for batch in batches:
                texts, ids = _columns(batch, path, text_column, id_column)
                named = [n for n in batch.schema.names if n in columns.names]
                values = [batch.column(n).to_pylist() for n in named]
                for index in range(batch.num_rows):
                    row += 1
                    name = f"{file.name}/{row}" if ids is None else ids[index]
                    text = texts[index] if texts else None
                    cells = {n: column[index] for n, column in zip(named, values)}
                    of = text_column if texts else None
                    yield row_document(name, text, f"{path}:{row}", of, cells, columns)
    except BadInput as problem:
        yield problem
    except OSError as error:
        yield BadInput(path, f"cannot be read ({error.strerror or error})")
    except UnicodeDecodeError as error:
        yield BadInput(path, f"a text after row {row} is not UTF-8 ({error})")
    except pyarrow.ArrowException as error:
        yield BadInput(path, f"cannot be read after row {row} ({error})")


def row_document(
    name: Any,
    text: Any,
    where: str,
    text_column: Optional[str],
    cells: dict[str, Any],
    columns: Columns,
) -> Union[Document, BadInput]:
    """The document of a row. `text_column` is None where the template needs other columns alone."""
    try:
        read = "" if text_column is None else _text(text, where, text_column)
        return _document(name, read, where, cells, columns)
    except BadInput as problem:
        problem.name = "" if name is None else str(name)
        return problem


def _text(value: Any, where: str, column: str) -> str:
    text = value.replace("\r\n", "\n").replace("\r", "\n").strip() if value is not None else ""
    if not text:
        raise BadInput(where, f"the column '{column}' has no text in this row")
    if "\0" in text:
        raise BadInput(where, f"the column '{column}' has a NUL, which no text has")
    return text


def _document(
    name: Any, text: str, where: str, cells: dict[str, Any], columns: Columns
) -> Document:
    if name is None or not str(name):
        raise BadInput(where, "the row has no id")
    row = columns.of(cells, lambda reason: BadInput(where, reason))
    for column, cell in row.items():
        if "\0" in cell:
            raise BadInput(where, f"the column '{column}' has a NUL, which no text has")
    return Document(str(name), text, where, structure=Structure(), columns=row)


@contextmanager
def _batches(
    stream: BinaryIO, path: str, text_column: str, id_column: Optional[str], columns: Columns
) -> Iterator[Iterator[Any]]:
    import pyarrow
    from pyarrow import ipc, parquet

    magic = stream.read(len(ARROW_MAGIC))
    stream.seek(0)
    if magic.startswith(PARQUET_MAGIC):
        table = parquet.ParquetFile(stream)
        names = table.schema_arrow.names
        check_columns(names, path, text_column, id_column, columns)
        wanted = [n for n in (text_column, id_of(names, id_column), *columns.names) if n in names]
        yield table.iter_batches(ROWS, columns=list(dict.fromkeys(wanted)))
        return
    reader = ipc.open_file(stream) if magic == ARROW_MAGIC else ipc.open_stream(stream)
    check_columns(reader.schema.names, path, text_column, id_column, columns)
    if isinstance(reader, pyarrow.RecordBatchFileReader):
        yield (reader.get_batch(i) for i in range(reader.num_record_batches))
    else:
        yield iter(reader)


def check_columns(
    names: Sequence[str], path: str, text_column: str, id_column: Optional[str], columns: Columns
) -> None:
    for name in sorted(columns.needed):
        if name not in names:
            hint = suggestion(name, names) or f"; it has {', '.join(names)}"
            raise BadInput(path, f"has no column '{name}', which the template names{hint}")
    text = text_column if columns.needs_text else None
    for option, chosen in (("--text-column", text), ("--id-column", id_column)):
        if chosen is not None and chosen not in names:
            hint = suggestion(chosen, names) or f"; it has {', '.join(names)}"
            raise BadInput(path, f"has no column '{chosen}'{hint}. Name one with {option}")


def id_of(names: Sequence[str], id_column: Optional[str]) -> Optional[str]:
    return id_column or (ID if ID in names else None)


def _columns(
    batch: Any, path: str, text_column: str, id_column: Optional[str]
) -> tuple[list[Optional[str]], Optional[list[Any]]]:
    import pyarrow

    if text_column not in batch.schema.names:  # the template has other columns
        name = id_of(batch.schema.names, id_column)
        return [], None if name is None else batch.column(name).to_pylist()
    column = batch.column(text_column)
    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if str(column.type) not in TEXTS:
        raise BadInput(
            path,
            f"the column '{text_column}' holds {column.type}, no text. Name another one with --text-column",
        )
    name = id_of(batch.schema.names, id_column)
    return column.to_pylist(), None if name is None else batch.column(name).to_pylist()
