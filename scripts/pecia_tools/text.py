# SPDX-License-Identifier: Apache-2.0
"""pecia-text: results to text files, or to OpenAI batch-output JSONL."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Optional, Union

from .batch_output import BatchWriter, Line, lines_of
from .books import Book, books_of
from .command import UserError, note, run
from .model_folder import ModelFolder
from .options import parse
from .own_files import Outcome, OwnFiles
from .prompt_shard import open_shards
from .results import STATES, Results
from .run_requests import Request, read_requests
from .text_files import INDEX, TextLayout, file_name, request_file, write_index
from .text_notes import PROGRAM, say_coverage, say_outcome, say_turns
from .text_options import make_parser

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
    layout = TextLayout(results, model, states, options.finish_reason)
    plan = make_plan(requests, books_of(requests), layout)
    with OwnFiles(options.output, RECORD, source_of(results), options.force) as files:
        for name, what in plan.items():
            files.write(name, layout.book(what) if isinstance(what, Book) else layout.request(what))
        with files.open(INDEX) as file:
            write_index(file, requests)
        return files.commit()


def selected(lines: Sequence[Line], states: set[str], counts: Counter[str]) -> Iterator[Line]:
    for line in lines:
        is_wanted = line.state in states
        counts["written" if is_wanted else f"left out: {line.state}"] += 1
        if is_wanted:
            yield line


def write_jsonl(
    results: Results,
    model: ModelFolder,
    requests: Sequence[Request],
    options: argparse.Namespace,
    states: set[str],
) -> str:
    writer = BatchWriter(results, model)
    counts: Counter[str] = Counter()
    texts = (
        json.dumps(writer.write(line), ensure_ascii=False) + "\n"
        for line in selected(lines_of(requests), states, counts)
    )
    where = ""
    if options.output is None:
        sys.stdout.writelines(texts)
        sys.stdout.flush()
    else:
        name = options.output.name
        record = f".{name}{RECORD}"
        files = OwnFiles(options.output.parent, record, source_of(results), options.force)
        if files.is_foreign(name) and not options.force:
            raise UserError(
                f"{options.output}: exists, and is not as {PROGRAM} left it. Choose another name, or "
                "overwrite it with --force"
            )
        with files:
            with files.open(name) as file:
                file.writelines(texts)
            files.commit()
        where = f" → {options.output}"
    left_out = {key.split(": ")[1]: count for key, count in counts.items() if key != "written"}
    said = f"{counts['written']} line{'s' if counts['written'] != 1 else ''} written"
    if left_out:
        said += f", {sum(left_out.values())} left out ({_list(left_out)})"
    return said + where


def _list(counts: dict[str, int]) -> str:
    return ", ".join(f"{counts[state]} {state}" for state in STATES if counts.get(state))


def main(arguments: list[str]) -> int:
    options = parse(make_parser(), arguments)
    if not options.jsonl and options.output is None:
        raise UserError("--output DIR says where the text files go (or --jsonl writes to stdout)")
    if options.jsonl and options.finish_reason:
        raise UserError("--finish-reason is for text; in JSONL every choice has its finish_reason")
    states = set(options.only or ("done", "failed"))
    results = Results(options.results)
    model = find_tokenizer(results, options.model)
    shards = [] if options.no_prompts else open_shards(results, options.prompts)
    requests = read_requests(results, shards)
    kept = 0
    if options.jsonl:
        said = write_jsonl(results, model, requests, options, states)
    else:
        outcome = write_texts(results, model, requests, options, states)
        said, kept = say_outcome(outcome, options.output), len(outcome.kept)
        say_coverage(books_of(requests))
    results.close()
    turns, all_done = say_turns(requests)
    note(PROGRAM, f"{said} · {turns}")
    return 0 if all_done and not kept else EXIT_INCOMPLETE


if __name__ == "__main__":
    run(PROGRAM, main)
