"""pecia-text: results to text files, or to OpenAI batch-output JSONL."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Optional

from tokenizers import Tokenizer

from .batch_output import answer_text, batch_line
from .command import UserError, note, refuse_existing, run, temporary_file
from .model_folder import ModelFolder
from .results import STATES, Results, TurnRow

PROGRAM = "pecia-text"
UNSAFE = re.compile(r'[\x00-\x1f\x7f\\:*?"<>|%]')


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Turn the results of a run, also of one that is going on, into text.",
    )
    parser.add_argument(
        "results", type=Path, metavar="RESULTS", help="a run folder or its results.h5"
    )
    parser.add_argument(
        "--model",
        type=Path,
        metavar="DIR",
        help="Hugging Face folder with the tokenizer (default: the one that the run names)",
    )
    parser.add_argument(
        "--only",
        choices=STATES[1:],
        action="append",
        metavar="STATE",
        help="turns in this state: done, failed, partial (repeatable; default: done and failed)",
    )
    parser.add_argument(
        "--jsonl",
        action="store_true",
        help="OpenAI batch-output JSONL, to stdout unless --output names a file",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="PATH",
        help="folder for one text file per request; with --jsonl the file to write",
    )
    parser.add_argument("--force", action="store_true", help="overwrite existing files")
    return parser


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


def file_name(request_id: str) -> str:
    """A relative path; what could leave the folder or confuse a file system is written %XX."""
    parts = []
    for part in request_id.split("/"):
        if part in ("", ".", ".."):
            parts.append("%2E" * len(part) or "%2F")
        else:
            parts.append(UNSAFE.sub(lambda m: f"%{ord(m.group()):02X}", part))
    return "/".join(parts) + ".txt"


def generating_turns(
    results: Results, states: set[str], counts: Counter[str]
) -> Iterator[tuple[str, int, list[TurnRow]]]:
    """(request, number of its turns that generate, those of them that are in `states`)."""
    for request_id, group in groupby(results.rows(), key=lambda row: row.request_id):
        # The shared document of a fork generates nothing and is of interest only when it failed.
        rows = [row for row in group if row.slots > 0 or row.state == "failed"]
        counts.update(row.state for row in rows)
        yield request_id, len(rows), [row for row in rows if row.state in states]


def request_text(tokenizer: Tokenizer, rows: list[TurnRow], num_turns: int) -> str:
    texts = []
    for row in rows:
        text = (
            f"[failed: {row.error}]"
            if row.state == "failed"
            else answer_text(tokenizer, row).strip()
        )
        texts.append(f"--- turn {row.turn} ---\n{text}" if num_turns > 1 else text)
    return "\n\n".join(texts) + "\n"


def write_texts(
    results: Results, tokenizer: Tokenizer, folder: Path, states: set[str], force: bool
) -> Counter[str]:
    counts: Counter[str] = Counter()
    for request_id, num_turns, rows in generating_turns(results, states, counts):
        if not rows:
            continue
        path = folder / file_name(request_id)
        refuse_existing(path, force)
        with temporary_file(path) as temporary:
            temporary.write_text(request_text(tokenizer, rows, num_turns), encoding="utf-8")
    return counts


def jsonl_lines(
    results: Results, model: ModelFolder, states: set[str], counts: Counter[str]
) -> Iterator[str]:
    """With several turns, custom_id is the request's id, '@' and the turn."""
    for request_id, num_turns, rows in generating_turns(results, states, counts):
        for row in rows:
            custom_id = request_id if num_turns == 1 else f"{request_id}@{row.turn}"
            line = batch_line(
                model.tokenizer, row, custom_id, model.path.resolve().name, results.modified
            )
            yield json.dumps(line, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    options = make_parser().parse_args(arguments)
    states = set(options.only or ("done", "failed"))
    if not options.jsonl and options.output is None:
        raise UserError("--output DIR says where the text files go (or --jsonl writes to stdout)")
    results = Results(options.results)
    model = find_tokenizer(results, options.model)
    counts: Counter[str] = Counter()
    if not options.jsonl:
        counts = write_texts(results, model.tokenizer, options.output, states, options.force)
    elif options.output is None:
        sys.stdout.writelines(jsonl_lines(results, model, states, counts))
    else:
        refuse_existing(options.output, options.force)
        with (
            temporary_file(options.output) as temporary,
            open(temporary, "w", encoding="utf-8") as file,
        ):
            file.writelines(jsonl_lines(results, model, states, counts))
    results.close()
    summary = ", ".join(
        f"{counts[state]} {state}"
        for state in ("done", "failed", "partial", "open")
        if counts[state]
    )
    note(PROGRAM, f"{summary or 'no turns'}" + (f" → {options.output}" if options.output else ""))
    return 0


if __name__ == "__main__":
    run(PROGRAM, main)
