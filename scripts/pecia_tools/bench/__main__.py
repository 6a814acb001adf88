# SPDX-License-Identifier: Apache-2.0
"""bench NAME [OPTION…]: builds what it measures, runs it, appends JSON lines to a file, and prints tables. Other work
on the machine moves the figures: the load is printed. `bench NAME --help` explains one.
"""

from __future__ import annotations

import argparse
from importlib import import_module

from ..command import UserError, run, suggestion

PROGRAM = "bench"
NAMES = {
    "accuracy": "the loss of number formats and other settings, in nats per token of a text",
    "auto": "the layout that `auto` chooses against every legal layout",
    "chunked": "sparse attention with answers by all ranks beside chunked prefill, by length",
    "csa": "sparse attention by levels beside a dense ring and Ulysses",
    "drafts": "drafts from texts, beside prompt lookup of transformers and llama.cpp",
    "drift": "hybrids over a long text beside float64",
    "elastic": "elastic teams of two ranks beside every static grid",
    "foresight": "predictions of `pecia plan` beside what is measured",
    "growth": "how time and memory grow with a prompt's length and with ranks",
    "job": "the job layer, a start, a signal and a fault",
    "layout": "`reproducible: layout` against the fast path",
    "modes": "every parallel mode in turn",
    "needle": "whether a needle in a haystack is found with dense and sparse attention",
    "peers": "pecia beside transformers, llama.cpp and OpenVINO",
    "questions": "questions whose prompts begin with the same document",
    "regress": "whether this tree is slower than another commit",
    "shapes": "the cost of answers with a shape",
    "stages": "weights in four stages that no rank has memory for",
    "start": "the start of a run with a million requests",
    "trace": "bursty requests on two ranks, by every way to share them",
    "vectors": "vectors of abstracts, beside sentence-transformers",
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description=__doc__,
        epilog="names:\n"
        + "".join(f"  {name:<10} {what}\n" for name, what in NAMES.items())
        + "\nexample: scripts/bench modes local --rounds 2",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="NAME")
    name = parser.parse_args(arguments[:1]).name
    if name not in NAMES:
        known = suggestion(name, NAMES) or f"; there are {', '.join(NAMES)}"
        raise UserError(f"'{name}' is no measurement{known}")
    code: int = import_module(f".{name}", __package__).main(arguments[1:])
    return code


if __name__ == "__main__":
    run(PROGRAM, main)
