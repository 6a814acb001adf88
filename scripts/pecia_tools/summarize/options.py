# SPDX-License-Identifier: Apache-2.0
"""The options of pecia-summarize."""

from __future__ import annotations

import argparse
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from ..command import UserError
from ..options import add_version, parse
from ..pack.options import whole
from .job import OF_JOB, SECTION, take_job
from .prompts import DEFAULTS

BUILT = Path(__file__).resolve().parents[3] / "build/release/bin/pecia"
FEWEST_TOKENS = 16


def parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = make_parser()
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--job", type=Path)
    job = first.parse_known_args(arguments)[0].job
    if job is not None:
        take_job(parser, job)
    options = parse(parser, arguments)
    for setting in options.set:
        key = setting.partition("=")[0]
        if key in OF_JOB:
            raise UserError(f"--set {setting}: say --{OF_JOB[key].replace('_', '-')} instead")
        if key == "input" or key.partition(".")[0] == SECTION:
            raise UserError(f"--set {setting}: {key} belongs to the rounds; leave it out")
    return options


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pecia-summarize",
        description="Summarize books: as a whole where the model can read it, else by parts, chapters, and these "
        "together.",
        epilog="""\
examples:
  pecia-summarize library/ --model models/qwen3 --output summaries/ --launch "mpirun -np 4 --bind-to none"
  pecia-summarize book.epub --model models/qwen3 --output summaries/ --set kv.dtype=bf16 --prompt-merge merge.txt
  pecia-summarize --job summaries.yaml
  srun is a launch as well: --launch srun. The same command continues what was interrupted.

A job file has all keys of pecia run but input, and pipeline: {kind: summary, books: [library/], launch: srun} with the
options of this command by their names, as prompt_merge. They and its model.path, output and
generation.max_new_tokens count where the command line says nothing.

Below OUTPUT stand BOOK.txt with the summary and what it covers, levels/BOOK.txt with those of parts and chapters,
index.csv, and rounds/ with the runs.

Exit codes: 0 the summaries cover all of all books; 3 the rest is written, but a book could not be read, or some of its
text is not in its summary; 75 the run was drained, the same command continues; 2 the options are wrong; 1 anything
else.
""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("books", nargs="+", metavar="BOOK", help="files and folders, as pecia-pack takes them")
    add("--job", type=Path, metavar="FILE", help="a job file with the section pipeline")
    add("--model", required=True, type=Path, metavar="DIR", help="Hugging Face folder of the model")
    add("--output", required=True, type=Path, metavar="DIR", help="folder for summaries and runs")
    add(
        "--launch",
        type=shlex.split,
        default=[],
        metavar="COMMAND",
        help="what starts the ranks, e.g. 'mpirun -np 4 --bind-to none' (default: one rank)",
    )
    add(
        "--pecia",
        type=Path,
        default=Path(shutil.which("pecia") or BUILT),
        metavar="FILE",
        help="the program (default: pecia on PATH, else this tree's release build)",
    )
    add(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a key of the job files, as in pecia run (repeatable)",
    )
    add(
        "--max-new-tokens",
        type=whole(FEWEST_TOKENS),
        default=400,
        metavar="N",
        help="longest summary (default: %(default)s)",
    )
    add(
        "--context",
        type=whole(1),
        metavar="N",
        help="longest prompt with its answer, in tokens (default: the model's length)",
    )
    for kind in DEFAULTS:
        add(
            f"--prompt-{kind}",
            type=Path,
            metavar="FILE",
            help=f"replaces what is asked of {_WHAT[kind]}; {{text}} and pecia-pack's other places are filled in",
        )
    add("--no-chat", action="store_true", help="plain prompts, without a chat template")
    add("--glob", action="append", default=[], metavar="PATTERN", help="names to take from folders")
    add("--text-column", default="text", metavar="NAME", help="of tables (default: %(default)s)")
    add("--id-column", metavar="NAME", help="of tables (default: id if there is one)")
    add("--processes", type=whole(1, 4096), metavar="N", help="how many books are read at a time")
    add("--fresh", action="store_true", help="begin anew where other books or options began")
    add_version(parser)
    return parser


_WHAT = {"whole": "a whole book", "part": "a part", "merge": "several summaries"}
