# SPDX-License-Identifier: Apache-2.0
"""What the Python benchmarks share: the options that all have, and scripts that are run for them."""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path

from ..command import Failure

ROOT = Path(__file__).resolve().parents[3]
MODEL = ROOT / "models" / "SmolLM2-135M-Instruct"


def lengths(text: str) -> list[int]:
    """The numbers of "512,2048", in ascending order."""
    words = [word for word in text.split(",") if word]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of token counts as 512,2048")
    return sorted({int(word) for word in words})


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def cores() -> int:
    """Physical ones that this process may use: two threads of one core make neither faster."""
    siblings = set()
    for cpu in os.sched_getaffinity(0):
        topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        siblings.add(topology.read_text() if topology.is_file() else str(cpu))
    return len(siblings)


def bench_parser(program: str, description: str, example: str) -> argparse.ArgumentParser:
    """--model, --rounds, --threads and --json; JSON lines go to runs/PROGRAM.jsonl by default."""
    parser = argparse.ArgumentParser(
        prog=program,
        description=description,
        epilog=f"example: scripts/{program} {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--model",
        type=Path,
        default=MODEL,
        help="a Hugging Face folder of a Llama (default: SmolLM2-135M-Instruct as quickstart.sh gets it)",
    )
    add("--rounds", type=positive, default=3, help="default: %(default)s")
    add("--threads", type=positive, default=cores(), help="default: the cores, here %(default)s")
    add(
        "--json",
        type=Path,
        default=ROOT / "runs" / f"{program}.jsonl",
        help=f"JSON lines are appended to it (default: runs/{program}.jsonl)",
    )
    return parser


def run_script(program: str, log: Path, text: str, *words: object) -> None:
    """`text` in bash, as `program`; its words are $0, $1, …, and what it logs goes to `log`."""
    names = {"root": str(ROOT), "name": program, "log": str(log)}
    command = ["bash", "-c", text, *map(str, words)]
    code = subprocess.run(command, env={**os.environ, **names}, check=False).returncode
    if code != 0:
        raise Failure(f"{Path(str(words[0])).name} ended with code {code}; its words stand above")


def build(program: str, log: Path, *targets: str) -> None:
    """Those programs of the release preset."""
    common = ROOT / "scripts" / "pecia_tools" / "bench" / "bench_common.sh"
    run_script(program, log, 'source "$0"; build "$@"', common, *targets)
