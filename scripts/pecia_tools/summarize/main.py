# SPDX-License-Identifier: Apache-2.0
"""pecia-summarize: books to summaries, in rounds of `pecia run`."""

from __future__ import annotations

import argparse
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Optional

from tqdm import tqdm

from ..command import UserError, note, run
from ..model_folder import ModelFolder
from ..pack.convert import Conversions, available_cores
from ..pack.decoding import BadInput, Decoder
from ..pack.find_files import find_files
from ..pack.formats import CONVERTED, require_packages
from ..pack.inputs import Document, InputFile, Place, Sampling, Source
from ..pack.packed import PackedRequest
from ..pack.parts import Splitter
from ..pack.prompts import PromptMaker, encode
from ..pack.request_keys import JobSettings
from ..pack.sources import Reading, Survey, good_sources, listed, read_sources, survey
from ..pack.structure import CHAPTER
from ..runs.books import Book, books_of
from ..runs.citations import citation_of
from ..runs.requests import Request
from .files import write_summaries
from .options import parse_options
from .prompts import DEFAULTS, make_prompt
from .round import Answer, Round
from .run import DRAINED, PROGRAM, Drained, Runner
from .tree import SEPARATOR, Gap, Group, Node, groups, merged

EXIT_INCOMPLETE = 3
SPARE_TOKENS = (
    64  # of a prompt: for titles that its template names, and for tokens that join at edges
)
LABEL_TOKENS = 64  # above each summary in a prompt to merge
TOLD = 20


class Summarizer:
    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._model = ModelFolder(options.model)
        self._runner = Runner(options.launch, options.pecia, options.set, options.job, self._model)
        self._prompts = {
            kind: make_prompt(kind, getattr(options, f"prompt_{kind}")) for kind in DEFAULTS
        }
        sampling = Sampling(options.max_new_tokens)
        self._makers = {
            kind: PromptMaker(self._model, not options.no_chat, None, prompt, [], sampling)
            for kind, prompt in self._prompts.items()
        }
        context = options.context or self._model.max_positions
        if context is None:
            raise UserError(
                f"{options.model / 'config.json'}: has no max_position_embeddings. Say --context N"
            )
        overheads = {kind: self._overhead(kind) for kind in DEFAULTS}
        left = context - options.max_new_tokens - SPARE_TOKENS
        self._room = left - max(overheads["whole"], overheads["part"])
        self._merge_room = left - overheads["merge"]
        if min(self._room, self._merge_room) < 2 * (options.max_new_tokens + LABEL_TOKENS):
            raise UserError(
                f"{context} tokens are too few: prompts must have room for two summaries of --max-new-tokens "
                f"{options.max_new_tokens}. Choose fewer, or a model that reads more"
            )

    def run(self) -> int:
        """The exit code."""
        options = self._options
        if options.fresh:
            shutil.rmtree(options.output / "rounds", ignore_errors=True)
        first = self._round(1)
        found = self._read_books(first)
        with self._runner:
            first.run(self._runner)
            answers = first.answers()
            books = books_of([answer.request for answer in answers])
            levels = [_nodes_of(answers)]
            self._gaps = _gaps_of(answers)
            while any(count > 1 for count in Counter(node.book for node in levels[-1]).values()):
                levels.append(self._merge(levels[-1], len(levels) + 1))
        return self._write(books, levels, found)

    def _write(self, books: list[Book], levels: list[list[Node]], found: Survey) -> int:
        outcome = write_summaries(self._options.output, books, levels, self._gaps)
        for name in outcome.kept:
            note(PROGRAM, f"{self._options.output / name}: kept, since somebody changed it")
        whole = sum(book.is_whole for book in outcome.books)
        for book in [book for book in outcome.books if not book.is_whole][:TOLD]:
            note(PROGRAM, "\n".join([f"{book.name}: {book.statement}", *_told(book.gaps)]))
        if found.problems:
            note(
                PROGRAM,
                f"{len(found.problems)} could not be read:\n{listed(found.problems, TOLD)}",
            )
        note(
            PROGRAM,
            f"books: {len(books)} · covered in full: {whole} · rounds: {len(levels)} → {self._options.output}",
        )
        is_complete = whole == len(books) and not found.problems and not outcome.kept
        return 0 if is_complete else EXIT_INCOMPLETE

    def _round(self, number: int) -> Round:
        return Round(self._options.output / "rounds" / str(number), self._model)

    def _overhead(self, kind: str) -> int:
        """Tokens of a prompt beside the text."""
        document = Document("name", "x", "the prompt", place=Place("name", "", 999, 999))
        (request,) = encode(self._model, [self._makers[kind].of_document(document)])
        return len(request.turns[0].tokens)

    def _read_books(self, first: Round) -> Survey:
        options = self._options
        given = find_files(options.books, options.glob, "auto")
        for path, texts in given.notes.items():
            note(PROGRAM, f"{path}: {', '.join(texts)}")
        if left_out := given.left_out_text():
            note(PROGRAM, f"files of other kinds were left out of folders: {left_out}")
        files = given.files
        _check_kinds(files)
        decoder = Decoder()
        books = [f for f in files if isinstance(f, InputFile) and f.kind in CONVERTED]
        with Conversions(decoder, options.processes or available_cores()) as conversions:
            size = sum(file.size_bytes for file in books)
            bar = tqdm(
                total=size, unit="B", unit_scale=True, desc="reading", disable=None, leave=False
            )
            with bar:
                conversions.run(books, bar.update)
            job = JobSettings((), 0, self._model.vocab_size)
            reading = Reading(decoder, job, conversions, options.text_column, options.id_column)
            found = survey(read_sources(files, reading, _ignore), None)
            good = good_sources(read_sources(files, reading, _ignore), None, found)
            first.pack(self._requests(good), options.fresh)
        return found

    def _requests(self, sources: Iterable[Source]) -> Iterator[PackedRequest]:
        parts = Splitter(self._model.tokenizer, self._room, None, 0).split_all(sources)
        prompts = (
            self._makers["part" if part.place.parts > 1 else "whole"].of_document(part)
            for part in parts
            if isinstance(part, Document) and part.place is not None
        )
        yield from encode(self._model, prompts)

    def _merge(self, nodes: list[Node], number: int) -> list[Node]:
        """The summaries after a round that merges some of them."""
        planned = [
            group
            for name in dict.fromkeys(node.book for node in nodes)
            for group in groups(
                [node for node in nodes if node.book == name], self._merge_room, self._num_tokens
            )
        ]
        asked = {_merge_id(group, number): group for group in planned if len(group) > 1}
        maker = self._makers["merge"]
        prompts = (maker.of_document(_merge_document(name, g)) for name, g in asked.items())
        this = self._round(number)
        this.pack(encode(self._model, prompts), replaces=True)
        this.run(self._runner)
        answers = {answer.request.request_id: answer for answer in this.answers()}
        after = []
        for group in planned:
            if len(group) == 1:
                after.append(group[0])
            elif (answer := answers[_merge_id(group, number)]).text:
                after.append(merged(group, answer.text, answer.is_cut))
            else:
                parts = tuple(part for node in group for part in node.parts)
                self._gaps.append(Gap(group[0].book, parts, group[0].num_parts, number, answer.why))
        return after

    def _num_tokens(self, text: str) -> int:
        return len(self._model.tokenizer.encode(text, add_special_tokens=False))


def _merge_id(group: Group, number: int) -> str:
    return f"{group[0].book}@{number}.{group[0].parts[0]:03d}"


def _merge_document(name: str, group: Group) -> Document:
    text = SEPARATOR.join(node.block for node in group)
    place = Place(group[0].book, group[0].chapter, group[0].parts[0], group[0].num_parts)
    return Document(name, text, name, place=place)


def _nodes_of(answers: list[Answer]) -> list[Node]:
    """The summaries of the first round, without requests that failed."""
    of_books: dict[str, list[Request]] = {}
    for answer in answers:
        of_books.setdefault(answer.request.origin.book, []).append(answer.request)
    depths = {name: _chapter_depth(requests) for name, requests in of_books.items()}
    return [
        Node(
            answer.request.origin.book,
            (answer.request.origin.part,),
            answer.request.origin.num_parts,
            _chapter_of(answer.request, depths[answer.request.origin.book]),
            citation_of(answer.request),
            answer.text,
            answer.is_cut,
        )
        for answer in answers
        if answer.text
    ]


def _gaps_of(answers: list[Answer]) -> list[Gap]:
    """The parts that the first round has no summary of."""
    return [
        Gap(origin.book, (origin.part,), origin.num_parts, 1, answer.why)
        for answer in answers
        if not answer.text
        for origin in [answer.request.origin]
    ]


def _told(gaps: Sequence[Gap]) -> list[str]:
    lines = [f"  missing: {gap}" for gap in gaps[:TOLD]]
    return [*lines, f"  … and {len(gaps) - TOLD} more"] if len(gaps) > TOLD else lines


def _chapter_depth(requests: list[Request]) -> Optional[int]:
    """The outermost depth of a book's headings that has two of them."""
    count: Counter[int] = Counter()
    for depth, _ in {
        (p.depth, p.label)
        for request in requests
        if request.shard is not None
        for p in request.shard.positions(request.turns[0].request)
        if p.kind == CHAPTER
    }:
        count[depth] += 1
    return min((depth for depth, number in count.items() if number > 1), default=None)


def _chapter_of(request: Request, depth: Optional[int]) -> str:
    """The chapter that the request's text begins in."""
    assert request.shard is not None
    found = request.shard.positions(request.turns[0].request)
    begin = min((p.begin for p in found), default=0)
    return next(
        (p.label for p in found if p.kind == CHAPTER and p.depth == depth and p.begin == begin), ""
    )


def _check_kinds(files: Iterable[object]) -> None:
    needed: dict[str, str] = {}
    for file in files:
        if isinstance(file, InputFile):
            if file.kind == "jsonl":
                raise UserError(f"{file.path}: holds requests, not a book. pecia-pack packs them")
            needed.setdefault(file.kind, str(file.path))
            needed.setdefault(file.compression, str(file.path))
        elif isinstance(file, BadInput) and "no such file" in file.reason:
            raise file
    require_packages(needed.items())


def _ignore(size_bytes: int) -> None:
    """Sizes are told where books are read, not again."""


def main(arguments: list[str]) -> int:
    options = parse_options(arguments)
    try:
        return Summarizer(options).run()
    except Drained:
        note(PROGRAM, "the run was drained; the same command continues it")
        return DRAINED


def script() -> None:
    run(PROGRAM, main)


if __name__ == "__main__":
    script()
