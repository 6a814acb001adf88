# SPDX-License-Identifier: Apache-2.0
"""Reads all inputs one after the other, and finds what is wrong with any of them before work begins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, count, islice
from typing import Callable, Optional, Union

from ..command import UserError
from .columns import NO_COLUMNS, Columns
from .convert import Conversions
from .decoding import BadInput, Decoder, Undecodable
from .formats import CONVERTED
from .inputs import InputFile, Source, line_id, read_document, read_lines
from .jsonl import parse
from .read_csv import read_csv
from .read_table import read_rows
from .request_keys import JobSettings

LISTED = 1000  # bad inputs in the message that refuses them


@dataclass(frozen=True)
class Reading:
    """How files become documents and lines."""

    decoder: Decoder
    job: JobSettings
    conversions: Conversions  # of all files that need one
    text_column: str  # of tables
    id_column: Optional[str]
    columns: Columns = NO_COLUMNS  # that the template takes from rows and lines


def read_sources(
    files: Iterable[Union[InputFile, BadInput]],
    reading: Reading,
    progress: Callable[[int], object],
) -> Iterator[Union[Source, BadInput]]:
    """Documents and lines in the order of the files. `progress` is told the bytes that were read."""
    for file in files:
        if isinstance(file, BadInput):
            yield file
        elif file.kind == "jsonl":
            for where, text, size_bytes in read_lines(file, reading.decoder):
                if isinstance(text, BadInput):
                    yield text
                else:
                    name = line_id(file, int(where.rpartition(":")[2]))
                    yield _or_problem(parse, where, text, reading.job, name, reading.columns)
                progress(0 if file.compression else size_bytes)
            progress(file.size_bytes if file.compression else 0)
        elif file.kind == "table":
            yield from read_rows(file, reading.text_column, reading.id_column, reading.columns)
            progress(file.size_bytes)
        elif file.kind == "csv":
            yield from read_csv(
                file, reading.decoder, reading.text_column, reading.id_column, reading.columns
            )
            progress(file.size_bytes)
        else:
            if file.kind in CONVERTED:
                yield _or_problem(reading.conversions.document, file)
            else:
                yield _or_problem(read_document, file, reading.decoder)
            progress(file.size_bytes)


def _or_problem(read: Callable[..., Source], *arguments: object) -> Union[Source, BadInput]:
    try:
        return read(*arguments)
    except BadInput as problem:
        return problem


@dataclass
class Survey:
    """What a first look at all inputs found."""

    num_documents_and_lines: int = 0
    is_limited: bool = False  # whether there is more than the limit allows
    problems: list[BadInput] = field(default_factory=list)
    # By origin, lines that have no id and whose file and number another request has as its id.
    renamed: dict[str, str] = field(default_factory=dict)

    @property
    def has_good(self) -> bool:
        return len(self.problems) < self.num_documents_and_lines

    @property
    def encoding_hint(self) -> str:
        """What helps where bytes are no text; "": nothing is wrong with any."""
        if not any(isinstance(problem, Undecodable) for problem in self.problems):
            return ""
        return "Bytes that are no text: name the --encoding, or use --encoding-errors replace"

    def check(self, remedy: str) -> None:
        """One error that lists all problems, and says what to do about "them"."""
        if not self.problems:
            return
        remedy = ". ".join(filter(None, [remedy, self.encoding_hint]))
        if len(self.problems) == 1:
            raise UserError(f"{self.problems[0]}. {remedy.replace('them', 'it')}")
        raise UserError(
            f"{len(self.problems)} of {self.num_documents_and_lines} documents and lines cannot be packed; "
            f"nothing was written. {remedy}:\n{listed(self.problems)}"
        )


def survey(sources: Iterator[Union[Source, BadInput]], limit: Optional[int]) -> Survey:
    """Names must be unique: of two inputs with one name the second is a problem. A line without an id gives way."""
    found = Survey()
    origins: dict[str, str] = {}
    numbered: dict[str, str] = {}  # names by origin
    for source in islice(sources, limit):
        found.num_documents_and_lines += 1
        if isinstance(source, BadInput):
            found.problems.append(source)
        elif source.is_numbered:
            numbered[source.origin] = source.name
        elif source.name in origins:
            found.problems.append(taken_name(source.origin, source.name, origins[source.name]))
        else:
            origins[source.name] = source.origin
    for origin, name in numbered.items():
        others = (f"{origin}/{number}" for number in count(2))
        unique = next(n for n in chain((name, origin), others) if n not in origins)
        origins[unique] = origin
        if unique != name:
            found.renamed[origin] = unique
    found.is_limited = limit is not None and next(sources, None) is not None
    return found


def good_sources(
    sources: Iterator[Union[Source, BadInput]], limit: Optional[int], found: Survey
) -> Iterator[Source]:
    """The second reading, without what the first one found wrong."""
    bad = {problem.where for problem in found.problems}
    for source in islice(sources, limit):
        if isinstance(source, BadInput):
            if source.where not in bad:  # it has changed since
                raise source
        elif source.origin not in bad:
            name = found.renamed.get(source.origin) if source.is_numbered else None
            yield source if name is None else replace(source, name=name)


def taken_name(origin: str, name: str, other: str) -> BadInput:
    reason = f"the name '{name}' is taken by {other}. Names must be unique in a job: rename one"
    return BadInput(origin, reason, name)


def listed(problems: list[BadInput], most: int = LISTED) -> str:
    lines = [f"  {problem}" for problem in problems[:most]]
    if len(problems) > most:
        lines.append(f"  … and {len(problems) - most} more")
    return "\n".join(lines)
