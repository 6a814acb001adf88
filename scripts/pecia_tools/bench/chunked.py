# SPDX-License-Identifier: Apache-2.0
"""Sparse attention by levels, whose answers are decoded by all ranks that have parts of the prompt, beside chunked
prefill of tensor parallelism (as in Sarathi) and a dense ring: times to the first token and between tokens, by length
of the prompts. All prompts of a length come at once. The model has random weights, since only times count. A figure is
the median of the rounds.
  local  the ranks on this machine
  net    on up to four servers in two racks, made of network namespaces: N Mbit/s for a server, and a quarter of that
         between racks; needs root
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..command import UserError
from .common import (
    SERVERS,
    Work,
    bench_model,
    bench_parser,
    enter_network,
    lengths,
    on_this_machine,
    positive,
    show,
    write_prompts,
)
from .trace import answered

VOCAB = 8192
CASES = {
    "TP, chunked": "parallel.tp={ranks} batch.policy=chunked batch.max_batch_tokens={chunk}",
    "CP, dense ring": "parallel.cp={ranks}",
    "csa, drop 0 %": "parallel.cp={ranks} attention.sparse=csa attention.drop=0",
    "csa, drop 22 %": "parallel.cp={ranks} attention.sparse=csa attention.drop=0.22",
    "csa, drop 50 %": "parallel.cp={ranks} attention.sparse=csa attention.drop=0.5",
}
HEADS = ("prompt", "case", "TTFT p50 s", "p99 s", "TBT p50 ms", "p99 ms", "tokens/s")


def line(tokens: int, case: str, number: int, path: Path) -> dict[str, Any]:
    report, facts = answered(path)
    return {
        "bench": "bench_chunked",
        "round": number,
        "tokens": tokens,
        "case": case,
        **facts,
        "ttft_s": report["ttft_s"],
        "tbt_s": report["tbt_s"],
        "tokens_per_s": (facts["prompt_tokens"] + facts["output_tokens"]) / facts["seconds"],
    }


def rows(lines: Sequence[dict[str, Any]]) -> list[list[str]]:
    found: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for one in lines:
        found.setdefault((one["tokens"], one["case"]), []).append(one)

    def median(of: Sequence[dict[str, Any]], key: str, at: str) -> float:
        return statistics.median(one[key][at] for one in of)

    return [
        [
            str(tokens),
            case,
            f"{median(of, 'ttft_s', 'p50'):.2f}",
            f"{median(of, 'ttft_s', 'p99'):.2f}",
            f"{1e3 * median(of, 'tbt_s', 'p50'):.1f}",
            f"{1e3 * median(of, 'tbt_s', 'p99'):.1f}",
            f"{statistics.median(one['tokens_per_s'] for one in of):.0f}",
        ]
        for (tokens, case), of in found.items()
    ]


def main(arguments: list[str]) -> int:
    parser = bench_parser("chunked", __doc__, "net --ranks 4 --tokens 2048,8192", rounds=1, where=("local", "net"))
    add = parser.add_argument
    add("--ranks", type=positive, default=4, help="default: %(default)s")
    add("--tokens", type=lengths, default=[2048, 8192], help="of the prompts (default: 2048,8192)")
    add("--requests", type=positive, default=4, help="of each length (default: %(default)s)")
    add("--answers", type=positive, default=32, help="tokens of an answer (default: %(default)s)")
    add("--chunk", type=positive, default=512, help="tokens of a chunked pass (default: %(default)s)")
    add("--mbit", type=positive, default=1000, help="speed of the servers' links (default: %(default)s)")
    options = parser.parse_args(arguments)
    hosts = ""
    if options.where == "net":
        if not 2 <= options.ranks <= len(SERVERS):
            raise UserError(f"--ranks is {options.ranks}; net has 2 to {len(SERVERS)} servers")
        enter_network(options.where, options.mbit, options.mbit // 4)
        names = ("n1", "n3") if options.ranks == 2 else SERVERS[: options.ranks]
        hosts = ",".join(f"{name}:1" for name in names)
    else:
        on_this_machine()
    work = Work(f"chunked-{options.where}", options.json)
    work.build("pecia")
    model = bench_model(
        "bench-chunked", hidden=512, heads=8, kv_heads=4, head_dim=64, ffn=1408, layers=8, vocab=VOCAB
    )
    job = work.job(
        "job",
        model={"path": str(model)},
        input=[],
        output="out",
        generation={"ignore_eos": True, "max_new_tokens": options.answers},
        report={"progress": "off", "trace": "off"},
    )
    draw = np.random.default_rng(1)
    for number in work.rounds(options.rounds):
        for tokens in options.tokens:
            shard = work.folder / f"prompts-{tokens}.h5"
            of_prompts = [tokens] * options.requests
            write_prompts(shard, draw.integers(3, VOCAB, sum(of_prompts)), of_prompts)
            for case, words in CASES.items():
                work.note(f"round {number}, {tokens} tokens, {case}")
                settings = [f"input=[{shard}]", f"output={work.folder / 'run'}"]
                settings += words.format(ranks=options.ranks, chunk=options.chunk).split()
                path = work.run(options.ranks, job, settings, hosts=hosts, threads=1)
                work.keep([line(tokens, case, number, path)])
    show(f"{options.requests} prompts at once on {options.ranks} ranks", HEADS, rows(work.lines))
    return 0
