# SPDX-License-Identifier: Apache-2.0
"""The options of pecia-text."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..options import add_version
from ..runs.results import STATES


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pecia-text",
        description="Turn the results of a run, also of one that is going on, into text or a table.",
        epilog="""\
examples:
  pecia-text runs/books --output texts/             one text per request, one per book, and index.csv
  pecia-text runs/books --output texts/             again, when more is done: refreshes what it wrote
  pecia-text runs/books --jsonl > answers.jsonl     OpenAI batch output
  pecia-text runs/books --csv > answers.csv         a row for each answer, with its chapters and pages
  pecia-text runs/books --parquet --output answers.parquet
  pecia-text runs/texts --vectors --output vectors.npy
  pecia-text runs/books --output failed/ --only failed

A part of a book stands in parts/, all parts together in BOOK.txt. Files that someone else wrote or changed are
kept and named, unless --force is given. The last line counts what was written.

Exit codes: 0 all turns are done and written; 3 some failed or are not finished, or a file was kept;
2 something in the options or inputs is wrong; 1 anything else.
""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
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
    prompts = parser.add_mutually_exclusive_group()
    prompts.add_argument(
        "--prompts",
        type=Path,
        metavar="DIR",
        help="folder that holds the run's prompt shards (default: where the run found them)",
    )
    prompts.add_argument(
        "--no-prompts",
        action="store_true",
        help="do without the shards, and so without questions, books and choices",
    )
    parser.add_argument(
        "--only",
        choices=STATES[1:],
        action="append",
        metavar="STATE",
        help="turns in this state: done, failed, partial (repeatable; default: done and failed)",
    )
    parser.add_argument(
        "--finish-reason",
        action="store_true",
        help="in text, mark answers that were cut at max_new_tokens",
    )
    parser.add_argument(
        "--cite",
        action="store_true",
        help="in text, name the chapters and pages of the source below each answer",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--jsonl",
        action="store_true",
        help="OpenAI batch-output JSONL, to stdout unless --output names a file",
    )
    form.add_argument(
        "--csv",
        action="store_true",
        help="a table of answers, to stdout unless --output names a file",
    )
    form.add_argument(
        "--vectors",
        action="store_true",
        help="vectors of turns that are done, to the file that --output names: .parquet, or .npy with NAME.npy.csv, "
        "which says what its rows are",
    )
    form.add_argument(
        "--scores",
        action="store_true",
        help="a table of scores as CSV, to stdout unless --output names a file",
    )
    form.add_argument(
        "--parquet",
        action="store_true",
        help="the same table as a parquet file, which --output names",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="PATH",
        help="folder for one text file per request and per book; with --jsonl, --csv or --parquet the file to write",
    )
    parser.add_argument(
        "--force", action="store_true", help="overwrite files that someone else wrote or changed"
    )
    add_version(parser)
    return parser
