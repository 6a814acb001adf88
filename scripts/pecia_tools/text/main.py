# SPDX-License-Identifier: Apache-2.0
"""pecia-text: results to text files, to OpenAI batch-output JSONL, or to a table as CSV or parquet."""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional, Union

from ..command import UserError, note, run
from ..model_folder import ModelFolder
from ..options import parse
from ..pack.formats import require_package
from ..runs.books import Book, books_of
from ..runs.prompt_shard import open_shards
from ..runs.requests import Request, read_requests
from ..runs.results import Results
from .answer_table import INDEX_COLUMNS, index_rows, write_csv
from .files import INDEX, TextLayout, file_name, request_file
from .notes import PROGRAM, say_coverage, say_outcome, say_turns
from .one_file import OneFile
from .options import make_parser
from .own_files import Outcome, OwnFiles
from .products import write_scores, write_vectors

RECORD = ".pecia-text.json"
EXIT_INCOMPLETE = 3


def find_tokenizer(results: Results, model: Optional[Path]) -> ModelFolder:
    found = model or results.model_path()
    if found is None:
        raise UserError(
            f"{results.path}: the run does not name its model. Name it with --model DIR"
        )
    if model is None and not found.is_dir():
        raise UserError(
            f"{found}: the model that the run names is not there. Name it with --model DIR"
        )
    return ModelFolder(found)


def source_of(results: Results) -> dict[str, str]:
    """What makes two calls calls for one run: its file, or if that was moved what it calculates."""
    identity = results.attribute("identity")
    return {
        "results": str(results.path.resolve()),
        "identity_sha256": hashlib.sha256(identity.encode()).hexdigest() if identity else "",
    }


def make_plan(
    requests: Sequence[Request], books: Sequence[Book], layout: TextLayout
) -> dict[str, Union[Request, Book]]:
    """What stands in which file."""
    plan: dict[str, Union[Request, Book]] = {}

    def place(name: str, what: Union[Request, Book]) -> None:
        if name in plan:
            raise _collision(name, what, plan[name])
        plan[name] = what

    for request in requests:
        if layout.is_shown(request):
            place(request_file(request), request)
    for book in books:
        if book.is_cut and any(map(layout.is_shown, book.parts)):
            place(file_name(book.name), book)
    for name, what in plan.items():
        for folder in map(str, Path(name).parents):
            if folder in plan:
                raise _collision(folder, what, plan[folder])
    return plan


def _collision(name: str, *both: Union[Request, Book]) -> UserError:
    a, b = (
        f"the book '{x.name}'" if isinstance(x, Book) else f"request '{x.request_id}'" for x in both
    )
    return UserError(f"{a} and {b} would both be written to {name}. --jsonl can hold both")


def write_texts(
    results: Results,
    model: ModelFolder,
    requests: Sequence[Request],
    options: argparse.Namespace,
    states: set[str],
) -> Outcome:
    layout = TextLayout(results, model, states, options.finish_reason, options.cite)
    plan = make_plan(requests, books_of(requests), layout)
    with OwnFiles(options.output, RECORD, source_of(results), options.force) as files:
        for name, what in plan.items():
            files.write(name, layout.book(what) if isinstance(what, Book) else layout.request(what))
        with files.open(INDEX) as file:
            write_csv(file, INDEX_COLUMNS, index_rows(requests))
        return files.commit()


def own_files(results: Results, options: argparse.Namespace, names: Sequence[str]) -> OwnFiles:
    """The files of these names beside --output. Refuses to replace others' files without --force."""
    record = f".{options.output.name}{RECORD}"
    files = OwnFiles(options.output.parent, record, source_of(results), options.force)
    for name in names:
        if files.is_foreign(name) and not options.force:
            raise UserError(
                f"{options.output.parent / name}: exists, and is not as {PROGRAM} left it. Choose another name, or "
                "overwrite it with --force"
            )
    return files


def write_one_file(results: Results, one: OneFile, options: argparse.Namespace) -> str:
    if options.output is None:
        one.write_text(sys.stdout, options.jsonl)
        sys.stdout.flush()
        return one.said()
    name = options.output.name
    with own_files(results, options, [name]) as files:
        if options.parquet:
            with files.path(name) as path:
                one.write_parquet(path)
        else:
            with files.open(name) as file:
                one.write_text(file, options.jsonl)
        files.commit()
    return f"{one.said()} → {options.output}"


def write_products(
    results: Results,
    requests: Sequence[Request],
    states: set[str],
    options: argparse.Namespace,
) -> str:
    if options.scores and options.output is None:
        count = write_scores(results, requests, states, sys.stdout)
        sys.stdout.flush()
        return f"{count} scores written"
    name = options.output.name
    names = [name] if options.scores or name.endswith(".parquet") else [name, f"{name}.csv"]
    with own_files(results, options, names) as files:
        if options.scores:
            with files.open(name) as file:
                count = write_scores(results, requests, states, file)
        elif len(names) == 1:
            with files.path(name) as path:
                count = write_vectors(results, requests, states, path, None)
        else:
            with files.path(name) as path, files.open(names[1]) as index:
                count = write_vectors(results, requests, states, path, index)
        files.commit()
    return f"{count} {'scores' if options.scores else 'vectors'} written → {options.output}"


def check_options(options: argparse.Namespace) -> None:
    is_one_file = (
        options.jsonl or options.csv or options.parquet or options.vectors or options.scores
    )
    if options.vectors and options.output is None:
        raise UserError("--vectors needs --output FILE, which ends in .npy or .parquet")
    if options.vectors and options.output.suffix not in (".npy", ".parquet"):
        raise UserError(f"--output {options.output}: --vectors writes .npy or .parquet")
    if options.vectors and options.output.suffix == ".parquet":
        require_package("pyarrow", "--vectors with .parquet needs")
    if not is_one_file and options.output is None:
        raise UserError(
            "--output DIR says where the text files go (or --jsonl or --csv writes to stdout)"
        )
    if options.parquet and options.output is None:
        raise UserError("--parquet needs --output FILE: a table in parquet is no text")
    for name in ("finish_reason", "cite"):
        if is_one_file and getattr(options, name):
            raise UserError(
                f"--{name.replace('_', '-')} is for text; JSONL and tables always say it"
            )
    if options.parquet:
        require_package("pyarrow", "--parquet needs")


def main(arguments: list[str]) -> int:
    options = parse(make_parser(), arguments)
    check_options(options)
    states = set(options.only or ("done", "failed"))
    results = Results(options.results)
    model = find_tokenizer(results, options.model)
    shards = [] if options.no_prompts else open_shards(results, options.prompts)
    requests = read_requests(results, shards)
    skipped = [skipped for shard in shards for skipped in shard.skipped()]
    kept = 0
    if options.vectors or options.scores:
        said = write_products(results, requests, states, options)
    elif options.jsonl or options.csv or options.parquet:
        said = write_one_file(results, OneFile(results, model, requests, states, skipped), options)
    else:
        outcome = write_texts(results, model, requests, options, states)
        said, kept = say_outcome(outcome, options.output), len(outcome.kept)
        say_coverage(books_of(requests))
    results.close()
    turns, all_done = say_turns(requests)
    not_packed = f" · {len(skipped)} left out when they were packed" if skipped else ""
    note(PROGRAM, f"{said} · {turns}{not_packed}")
    return 0 if all_done and not kept and not skipped else EXIT_INCOMPLETE


def script() -> None:
    run(PROGRAM, main)


if __name__ == "__main__":
    script()
