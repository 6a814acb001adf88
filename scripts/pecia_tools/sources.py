# SPDX-License-Identifier: Apache-2.0
"""Reads all inputs one after the other, and finds what is wrong with any of them before work begins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Callable, Optional, Union

from .command import UserError
from .convert import Conversions
from .decoding import BadInput, Decoder, Undecodable
from .formats import CONVERTED
from .inputs import InputFile, Source, read_document, read_lines
from .jsonl import parse
from .openai_batch import JobSettings
from .read_csv import read_csv
from .read_table import read_rows

LISTED = 1000  # bad inputs in the message that refuses them


@dataclass(frozen=True)
class Reading:
    """How files become documents and lines."""

    decoder: Decoder
    job: JobSettings
    conversions: Conversions  # of all files that need one
    text_column: str  # of tables
    id_column: Optional[str]


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
                    yield _or_problem(parse, where, text, reading.job)
                progress(0 if file.compression else size_bytes)
            progress(file.size_bytes if file.compression else 0)
        elif file.kind == "table":
            yield from read_rows(file, reading.text_column, reading.id_column)
            progress(file.size_bytes)
        elif file.kind == "csv":
            yield from read_csv(file, reading.decoder, reading.text_column, reading.id_column)
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
    """Names must be unique: of two inputs with one name the second is a problem."""
    found = Survey()
    origins: dict[str, str] = {}
    for source in islice(sources, limit):
        found.num_documents_and_lines += 1
        if isinstance(source, BadInput):
            found.problems.append(source)
        elif source.name in origins:
            found.problems.append(taken_name(source.origin, source.name, origins[source.name]))
        else:
            origins[source.name] = source.origin
    found.is_limited = limit is not None and next(sources, None) is not None
    return found


def good_sources(
    sources: Iterator[Union[Source, BadInput]], limit: Optional[int], problems: Iterable[BadInput]
) -> Iterator[Source]:
    """The second reading, without what the first one found wrong."""
    bad = {problem.where for problem in problems}
    for source in islice(sources, limit):
        if isinstance(source, BadInput):
            if source.where not in bad:  # it has changed since
                raise source
        elif source.origin not in bad:
            yield source


def taken_name(origin: str, name: str, other: str) -> BadInput:
    reason = f"the name '{name}' is taken by {other}. Names must be unique in a job: rename one"
    return BadInput(origin, reason)


def listed(problems: list[BadInput], most: int = LISTED) -> str:
    lines = [f"  {problem}" for problem in problems[:most]]
    if len(problems) > most:
        lines.append(f"  … and {len(problems) - most} more")
    return "\n".join(lines)
