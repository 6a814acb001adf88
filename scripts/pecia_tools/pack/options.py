# SPDX-License-Identifier: Apache-2.0
"""The options of pecia-pack."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Callable

from ..command import suggestion
from ..options import add_version
from .compressed import MAX_FILE_BYTES
from .decoding import find_encoding
from .formats import KINDS
from .inputs import PRODUCE
from .model_prompts import NAMES

SPLIT_AT = ("chapter", "heading", "paragraph")
FEWEST_SPLIT_TOKENS = 16
EXAMPLES = """\
examples:
  pecia-pack --model models/qwen3 --output books.h5 books/ --instruction "Summarize the book in one page."
  pecia-pack --model models/qwen3 --output qa.h5 book.txt --question "Who is Ishmael?" --question "What is a whale?"
  pecia-pack --model models/qwen3 --output parts.h5 book.txt --split-at chapter --split-tokens 8000 --overlap 200
  pecia-pack --model models/qwen3 --output batch.h5 batch.jsonl
  pecia-pack --model models/qwen3 --output library.h5 library/ --split-at chapter

A request's name is its document's: the file's name without the suffix, in a folder its path there, in JSONL and
tables the id. Files that would have the same name keep their suffixes, else the folders in which they differ.
PDF, EPUB, HTML, DOCX, parquet, Arrow and .zst need packages of Python; pecia-setup books installs them.

Exit codes: 0 packed; 3 packed, without what OUTPUT.skipped.txt lists; 2 the options or inputs are wrong and the message
says where, nothing was written; 1 anything else, as a full disk."""


def whole(minimum: int, maximum: int = 2**31 - 1) -> Callable[[str], int]:
    def convert(text: str) -> int:
        value = int(text)
        if not minimum <= value <= maximum:
            raise argparse.ArgumentTypeError(f"must be from {minimum} to {maximum}, not {value}")
        return value

    convert.__name__ = "whole number"
    return convert


def real(
    legal_text: str, minimum: float, maximum: float, open_below: bool
) -> Callable[[str], float]:
    def convert(text: str) -> float:
        value = float(text)
        if not (minimum <= value <= maximum) or (open_below and value == minimum):
            raise argparse.ArgumentTypeError(f"must be {legal_text}, not {text}")
        return value

    convert.__name__ = "number"
    return convert


def json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"not JSON ({error})") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError('must be an object of JSON, as {"enable_thinking": false}')
    return value


def encoding(name: str) -> str:
    try:
        return find_encoding(name)
    except LookupError:
        raise argparse.ArgumentTypeError(f"'{name}' is no encoding of text that is known") from None


def some_text(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return text


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pecia-pack",
        description="Turn documents into prompt shards (HDF5) for `pecia run`.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="INPUT",
        help="files and folders of text (.txt, .md), books (.pdf, .epub, .html, .docx), tables (.csv, .tsv, .parquet, "
        ".arrow, .feather) and requests (.jsonl); of text, HTML, CSV and JSONL also .gz and .zst; pipes; - for stdin",
    )
    parser.add_argument(
        "--model", required=True, type=Path, metavar="DIR", help="Hugging Face folder of the model"
    )
    parser.add_argument(
        "--output",
        required=True,
        type=Path,
        metavar="FILE",
        help="the shard to write, e.g. books.h5",
    )
    parser.add_argument("--force", action="store_true", help="overwrite existing shards")
    reading = parser.add_argument_group("reading")
    reading.add_argument(
        "--glob",
        action="append",
        default=[],
        metavar="PATTERN",
        help="names to take from folders instead of all kinds of files that can be read (repeatable)",
    )
    reading.add_argument(
        "--format",
        choices=("auto", *KINDS),
        default="auto",
        help="what all files hold (default: what their first bytes and names say, else text)",
    )
    reading.add_argument(
        "--text-column",
        default="text",
        metavar="NAME",
        help="of tables, the column with the documents (default: %(default)s)",
    )
    reading.add_argument(
        "--id-column",
        metavar="NAME",
        help="of tables, the column with their names (default: id if there is one, else NAME/ROW)",
    )
    reading.add_argument(
        "--processes",
        type=whole(1, 4096),
        metavar="N",
        help="how many books are read at a time (default: one for each core)",
    )
    reading.add_argument(
        "--limit", type=whole(1), metavar="N", help="only the first N documents and JSONL lines"
    )
    reading.add_argument(
        "--max-file-bytes",
        type=whole(1, 2**63 - 1),
        default=MAX_FILE_BYTES,
        metavar="N",
        help="refuse a document or a line that has more bytes when it is decompressed (default: %(default)s, 1 GiB)",
    )
    bad = reading.add_mutually_exclusive_group()
    bad.add_argument(
        "--strict",
        action="store_true",
        help="write nothing where a file, row or line cannot be packed; else the others are packed, OUTPUT.skipped.txt "
        "lists what was left out, and the exit code is 3",
    )
    bad.add_argument(
        "--skip-bad",
        action="store_true",
        help="also go on without bad rows and lines of a single input file, for which --strict is the default; with "
        "several files this option changes nothing",
    )
    reading.add_argument(
        "--encoding",
        type=encoding,
        default="utf-8",
        metavar="NAME",
        help="of the files, e.g. cp1252 or utf-16 (default: %(default)s)",
    )
    reading.add_argument(
        "--encoding-errors",
        choices=("strict", "replace"),
        default="strict",
        help="refuse a file of text with bytes that are no text, and NUL, or replace and count them "
        "(default: %(default)s)",
    )
    asking = parser.add_argument_group("asking")
    asking.add_argument(
        "--instruction", metavar="TEXT", help="put after each document, with an empty line between"
    )
    asking.add_argument(
        "--template",
        type=Path,
        metavar="FILE",
        help="the user message instead: {text}, {name}, {book}, {title}, {part}, {parts} and, with --question, "
        "{question} are filled in, and as {COLUMN} any column of a table's row or key of a JSONL line",
    )
    asking.add_argument(
        "--examples",
        type=Path,
        metavar="FILE",
        help='examples that come before each document as earlier messages: lines of JSON, {"user": …, '
        '"assistant": …}',
    )
    asking.add_argument(
        "--question",
        action="append",
        default=[],
        metavar="TEXT",
        help="ask this about each document, read only once for all questions (repeatable)",
    )
    asking.add_argument(
        "--fork",
        action="store_true",
        help="in JSONL the first of a line's turns is a document, every later one a question about it",
    )
    asking.add_argument("--system", metavar="TEXT", help="system message")
    asking.add_argument(
        "--chat-template-kwargs",
        type=json_object,
        default={},
        metavar="JSON",
        help="variables of the chat template, e.g. '{\"enable_thinking\": false}'; a line's own come before them",
    )
    asking.add_argument(
        "--no-chat", action="store_true", help="plain prompts, without a chat template"
    )
    asking.add_argument(
        "--for",
        dest="for_model",
        choices=NAMES,
        help="the prompts that these models want, without a chat template: qwen3-embedding, a vector of each document "
        "or, with --instruction as the task, of each query; qwen3-reranker, the probability that a document answers "
        "--query, or the column query of its row or line",
    )
    asking.add_argument("--query", metavar="TEXT", help="of a reranker, for all documents")
    giving = parser.add_argument_group("what a run gives, besides text")
    giving.add_argument(
        "--produce",
        choices=PRODUCE,
        help="vector: of hidden states; score: log-probabilities of --continuation, or without any of the prompt "
        "itself; rerank: probabilities of --continuation, of one token each, among these (default: what the job file "
        "says; lines of /v1/embeddings give vectors)",
    )
    giving.add_argument(
        "--continuation",
        action="append",
        default=[],
        type=some_text,
        metavar="TEXT",
        help="what is scored after each prompt, encoded by itself: a word after a space brings that along (repeatable)",
    )
    cutting = parser.add_argument_group("lengths")
    cutting.add_argument(
        "--split-tokens",
        type=whole(FEWEST_SPLIT_TOKENS),
        metavar="N",
        help="cut documents into parts of at most N tokens, named name#001 and so on: before chapters and headings "
        "where it can, else between paragraphs, sentences, lines or words",
    )
    cutting.add_argument(
        "--split-at",
        choices=SPLIT_AT,
        help="cut at each of these; --split-tokens cuts what is still too long",
    )
    cutting.add_argument(
        "--overlap",
        type=whole(0),
        default=0,
        metavar="N",
        help="begin a part with up to N tokens of the part before, whole sentences where it can",
    )
    cutting.add_argument(
        "--max-tokens",
        type=whole(1),
        metavar="N",
        help="longest prompt that is allowed, templates and all turns before included (default: what the model's "
        "config.json says)",
    )
    cutting.add_argument(
        "--over-length",
        choices=("warn", "error", "skip"),
        help="what to do with a longer one: pack it with a warning, refuse all, or leave it out and name it "
        "(default: warn; with --max-tokens error)",
    )
    cutting.add_argument(
        "--shard-requests",
        type=whole(1),
        metavar="N",
        help="begin a new file name-0001.h5, name-0002.h5, … after N requests",
    )
    options = parser.add_argument_group(
        "sampling, for requests that do not say (else the job file's)"
    )
    options.add_argument("--max-new-tokens", type=whole(1), metavar="N")
    options.add_argument("--temperature", type=real("from 0 to 1e6", 0, 1e6, False), metavar="X")
    options.add_argument("--top-p", type=real("above 0 and at most 1", 0, 1, True), metavar="X")
    options.add_argument("--seed", type=whole(1 - 2**63, 2**63 - 1), metavar="N")
    options.add_argument(
        "--stop",
        action="append",
        type=some_text,
        metavar="TEXT",
        help="end the answer before this text (repeatable; a newline is $'\\n' in bash)",
    )
    batch = parser.add_argument_group("OpenAI batch files")
    batch.add_argument(
        "--served-model-name",
        action="append",
        default=[],
        metavar="NAME",
        help="name by which lines may call the model, besides its folder's (repeatable)",
    )
    batch.add_argument(
        "--logprobs",
        type=whole(-1),
        default=0,
        metavar="K",
        help="generation.logprobs of the job file, so that lines may ask for up to K (-1: all)",
    )
    add_version(parser)
    return parser


def parse(arguments: list[str]) -> argparse.Namespace:
    """Inputs may stand between options. Exits with 2 and a message when something is wrong."""
    parser = make_parser()
    known = [name for action in parser._actions for name in action.option_strings]
    words = arguments[: arguments.index("--")] if "--" in arguments else arguments
    for name in (word.partition("=")[0] for word in words if word.startswith("--")):
        if not any(option.startswith(name) for option in known):
            parser.error(f"unknown option {name}{suggestion(name, known)}")
    return parser.parse_intermixed_args(arguments)


if __name__ == "__main__":  # --help where the helpers' packages are not installed
    parse(sys.argv[1:])
