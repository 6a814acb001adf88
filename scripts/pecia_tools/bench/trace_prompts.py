# SPDX-License-Identifier: Apache-2.0
"""make-trace-prompts [TRACE]: a prompt shard of a service's trace, with random tokens, for batch.arrivals: replay.

TRACE is a Mooncake JSONL (timestamp, input_length, output_length, hash_ids), whose equal blocks become equal
tokens, or a CSV of lengths. The same options give the same prompts.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from ..command import UserError, note, refuse_existing, run, temporary_file
from ..pack.inputs import Sampling
from ..pack.packed import PackedRequest, PackedTurn
from ..pack.shard import ShardWriter
from .traces import TraceRequest, gamma_arrivals, read_lengths, read_mooncake, scaled

PROGRAM = "make-trace-prompts"
CREATED_BY = "make-trace-prompts 1"
FIRST_TOKEN = 3  # below stand the special tokens of most vocabularies
BLOCKS, REQUESTS = 0, 1  # what random tokens belong to


def positive(text: str) -> float:
    value = float(text)
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return value


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description=__doc__,
        epilog="example: scripts/make-trace-prompts azure.csv --poisson 2 --vocab 49152 --requests 200 "
        "--output prompts/azure.h5",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("trace", type=Path, nargs="?", metavar="TRACE")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the shard")
    parser.add_argument("--force", action="store_true", help="overwrite it")
    parser.add_argument(
        "--vocab",
        type=int,
        required=True,
        metavar="N",
        help="vocab_size in the model's config.json",
    )
    parser.add_argument("--requests", type=int, metavar="N", help="the first N (default: all)")
    parser.add_argument(
        "--columns", nargs=2, metavar=("PROMPT", "ANSWER"), help="of a CSV that has others"
    )
    parser.add_argument(
        "--lengths",
        nargs=2,
        type=int,
        metavar=("PROMPT", "ANSWER"),
        help="tokens of every request, in place of TRACE",
    )
    arrivals = parser.add_mutually_exclusive_group()
    arrivals.add_argument(
        "--poisson", type=positive, metavar="RATE", help="requests per second, at random"
    )
    arrivals.add_argument(
        "--gamma",
        nargs=2,
        type=positive,
        metavar=("RATE", "CV"),
        help="the same with gaps of this coefficient of variation; above 1 they come in bursts",
    )
    parser.add_argument("--scale-time", type=positive, default=1.0, metavar="F")
    parser.add_argument("--scale-lengths", type=positive, default=1.0, metavar="F")
    parser.add_argument(
        "--max-tokens", type=int, metavar="N", help="cut requests to N tokens, answer included"
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    check(options)
    return options


def check(options: argparse.Namespace) -> None:
    if (options.trace is None) == (options.lengths is None):
        raise UserError("give either a TRACE or --lengths")
    if options.lengths and options.requests is None:
        raise UserError("--lengths needs --requests")
    for name, least in (
        ("vocab", FIRST_TOKEN + 1),
        ("requests", 1),
        ("max_tokens", 2),
        ("seed", 0),
    ):
        value = getattr(options, name)
        if value is not None and value < least:
            raise UserError(f"--{name.replace('_', '-')} is {value}; it must be at least {least}")
    if options.lengths and min(options.lengths) < 1:
        raise UserError(f"--lengths {' '.join(map(str, options.lengths))}: each must be at least 1")


def read_trace(options: argparse.Namespace) -> list[TraceRequest]:
    if options.lengths:
        return [TraceRequest("--lengths", *options.lengths)] * options.requests
    if not options.trace.is_file():
        raise UserError(f"{options.trace}: no such trace")
    mooncake = options.trace.suffix == ".jsonl"
    if not mooncake and options.trace.suffix != ".csv":
        raise UserError(f"{options.trace}: a trace is a .jsonl or a .csv file")
    reader = (
        read_mooncake(options.trace) if mooncake else read_lengths(options.trace, options.columns)
    )
    requests = list(islice(reader, options.requests))
    if not requests or (options.requests is not None and len(requests) < options.requests):
        raise UserError(f"{options.trace}: has {len(requests)} requests; ask for no more")
    return requests


def with_arrivals(requests: list[TraceRequest], options: argparse.Namespace) -> list[TraceRequest]:
    """Times as asked, else those of the trace, counted from the first."""
    rate, variation = options.gamma or (options.poisson, 1.0)
    given = [request.arrival_s for request in requests if request.arrival_s is not None]  # all have one, or none
    if rate:
        times = gamma_arrivals(rate, variation, len(requests), options.seed).tolist()
    elif given:
        first = min(given)
        times = [time - first for time in given]
    else:
        return requests
    return [
        replace(request, arrival_s=time * options.scale_time)
        for request, time in zip(requests, times)
    ]


def tokens_of(request: TraceRequest, index: int, vocab: int, seed: int) -> np.ndarray:
    def draw(kind: int, number: int, count: int) -> np.ndarray:
        return np.random.default_rng([seed, kind, number]).integers(FIRST_TOKEN, vocab, size=count)

    if not request.blocks:
        return draw(REQUESTS, index, request.input_tokens)
    blocks = [draw(BLOCKS, block, request.block_tokens) for block in request.blocks]
    return np.concatenate(blocks)[: request.input_tokens]


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    refuse_existing(options.output, options.force)
    requests = with_arrivals(
        [scaled(r, options.scale_lengths, options.max_tokens) for r in read_trace(options)], options
    )
    name = options.trace.stem if options.trace else "request"
    with temporary_file(options.output) as temporary:
        writer = ShardWriter(temporary, "", options.vocab, "chain", CREATED_BY)
        try:
            for index, request in enumerate(requests):
                turn = PackedTurn(
                    tokens_of(request, index, options.vocab, options.seed),
                    Sampling(max_new_tokens=request.output_tokens),
                )
                writer.add(
                    PackedRequest(f"{name}-{index:06d}", request.origin, [turn], request.arrival_s)
                )
            writer.finish()
        finally:
            writer.close()
    last = max((r.arrival_s for r in requests if r.arrival_s is not None), default=None)
    note(
        PROGRAM,
        f"{len(requests)} requests, {sum(r.input_tokens for r in requests)} tokens, "
        f"{sum(r.output_tokens for r in requests)} to answer, "
        + ("no arrival times" if last is None else f"over {last:.1f} s")
        + f" → {options.output}",
    )
    return 0


if __name__ == "__main__":
    run(PROGRAM, main)
