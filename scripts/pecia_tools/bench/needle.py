# SPDX-License-Identifier: Apache-2.0
"""Whether a model finds a needle in a haystack under several settings of the program: a sentence with a number at some
depth of a text, which its end asks for. Every setting is a run of `pecia run` on the same prompts, with greedy answers.
It counts answers that begin with the number. The default settings are dense attention and sparse attention by levels,
which need a number of ranks that share the prompt.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..command import UserError, note
from ..gguf import demo_model
from ..model_folder import ModelFolder
from ..pack.inputs import Sampling
from ..pack.packed import PackedRequest, PackedTurn
from ..pack.shard import ShardWriter
from ..runs.results import STATES, Results
from .accuracy import (
    HEADS,
    Bench,
    Refused,
    chosen_settings,
    default_texts,
    parse_common,
    read_tokens,
    work_cells,
)
from .common import MODEL, append, bench_parser, positive, show

PROGRAM = "bench needle"
CSA = ["attention.sparse=csa"]
SETTINGS = {
    "dense": ["attention.sparse=off"],
    "drop 0": [*CSA, "attention.drop=0"],
    "drop 13 %": [*CSA, "attention.drop=0.13"],
    "drop 20 %": [*CSA, "attention.drop=0.2"],
    "drop 50 %": [*CSA, "attention.drop=0.5"],
    "drop 80 %": [*CSA, "attention.drop=0.8"],
    "drop 95 %": [*CSA, "attention.drop=0.95"],
    "each rank alone": [*CSA, "attention.levels=1"],
}
PLACES = ("Lisbon", "Oslo", "Cairo", "Quito", "Hanoi", "Dublin", "Lagos", "Seoul", "Turin", "Perth")
DIGITS = 5
ANSWER = 8  # tokens, in which a number of DIGITS digits fits


@dataclass(frozen=True)
class Needle:
    depth: float  # of the text before it, 0 to 1
    place: str
    number: str

    def sentence(self) -> str:
        return f" The secret number of {self.place} is {self.number}. "

    def question(self) -> str:
        return f"\n\nWhat is the secret number of {self.place}? The secret number of {self.place} is"


def needles(count: int, depths: int, seed: int) -> list[Needle]:
    """`count` at each depth, from the beginning to the end of the text."""
    draw = random.Random(seed)
    return [
        Needle(
            step / max(1, depths - 1),
            PLACES[(number + step) % len(PLACES)],
            "".join(draw.choice("123456789") for _ in range(DIGITS)),
        )
        for number in range(count)
        for step in range(depths)
    ]


def prompt_of(model: ModelFolder, needle: Needle, hay: Sequence[int], tokens: int) -> list[int]:
    """`tokens` tokens: the text with the needle, and the question."""
    encode = model.tokenizer.encode
    sentence = encode(needle.sentence(), add_special_tokens=False).ids
    question = encode(needle.question(), add_special_tokens=False).ids
    room = tokens - len(sentence) - len(question)
    if room < 1:
        raise UserError(f"--tokens {tokens}: a needle and its question alone have {tokens - room}")
    before = round(needle.depth * room)
    return [*hay[:before], *sentence, *hay[before:room], *question]


def answers(folder: Path, model: ModelFolder) -> list[str]:
    results = Results(folder)
    try:
        columns = results.columns(["state", "slot_offsets", "output_tokens", "tokens"])
    finally:
        results.close()
    found = []
    for row, state in enumerate(columns["state"]):
        if state != STATES.index("done"):
            raise UserError(f"{folder}: turn {row} is not done")
        begin = columns["slot_offsets"][row]
        tokens = columns["tokens"][begin : begin + columns["output_tokens"][row]]
        found.append(model.tokenizer.decode([int(token) for token in tokens]))
    return found


def is_found(needle: Needle, answer: str) -> bool:
    return answer.lstrip().startswith(needle.number)


def parse(arguments: list[str]) -> argparse.Namespace:
    example = "--ranks 4 --text moby-dick.txt"
    parser = bench_parser("needle", __doc__, example, rounds=0, json=False)
    parser.add_argument(
        "--tokens", type=positive, default=1900, help="of a prompt (default: %(default)s)"
    )
    parser.add_argument(
        "--depths", type=positive, default=11, help="of needles (default: %(default)s)"
    )
    parser.add_argument("--count", type=positive, default=2, help="needles at each depth (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the numbers (default: %(default)s)")
    return parse_common(parser, arguments, SETTINGS, ranks=4)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    settings = chosen_settings(options.setting, SETTINGS)
    if options.model is None:
        options.model = MODEL
        demo_model.main([str(options.model)])
    model = ModelFolder(options.model)
    longest = model.config.get("max_position_embeddings", options.tokens + ANSWER)
    if options.tokens + ANSWER > longest:
        raise UserError(f"--tokens {options.tokens} and an answer are more than the model's {longest}")
    hay = read_tokens(model, options.text or default_texts(), options.tokens)
    looked_for = needles(options.count, options.depths, options.seed)
    with tempfile.TemporaryDirectory(prefix="bench-needle-") as scratch:
        folder = Path(scratch)
        shard = ShardWriter(folder / "prompts.h5", model.tokenizer_sha256, model.vocab_size, "chain", PROGRAM)
        for number, needle in enumerate(looked_for):
            turn = PackedTurn(prompt_of(model, needle, hay, options.tokens), Sampling(max_new_tokens=ANSWER))
            shard.add(PackedRequest(f"needle-{number}", PROGRAM, [turn], None))
        shard.finish()
        job = folder / "job.json"
        job.write_text(
            json.dumps(
                {
                    "model": {"path": str(options.model.resolve())},
                    "input": ["prompts.h5"],
                    "output": "run",
                    "generation": {"ignore_eos": True},
                    "report": {"trace": "off", "progress": "off"},
                }
            ),
            encoding="utf-8",
        )
        about = {"tokens": options.tokens, "needles": len(looked_for), "seed": options.seed}
        bench = Bench(folder, job, options, about, 0, [])
        lines, refused = [], {}
        for number, (name, values) in enumerate(settings.items()):
            note(PROGRAM, f"{name}: {' '.join(values)}")
            try:
                output = bench.run(number, values)
            except Refused as error:
                refused[name] = str(error)
                continue
            line = {**bench.line(name, values, output), "bench": "bench_needle"}
            hits = [is_found(needle, answer) for needle, answer in zip(looked_for, answers(output, model))]
            line["found"] = sum(hits) / len(hits)
            line["found_by_depth"] = [
                [needle.depth, sum(hits[step :: options.depths]) / options.count]
                for step, needle in enumerate(looked_for[: options.depths])
            ]
            lines.append(line)
    rows = [
        [
            line["setting"],
            f"{100 * line['found']:.0f} %",
            " ".join(f"{100 * share:.0f}" for _, share in line["found_by_depth"]),
            *work_cells(line),
        ]
        for line in lines
    ]
    heads = ("setting", "found", "% by depth, from the beginning to the end", *HEADS[-2:])
    show(f"{len(looked_for)} needles in {options.tokens} tokens on {options.ranks} ranks", heads, rows)
    if options.json is not None:
        append(options.json, lines)
    for name, words in refused.items():
        note(PROGRAM, f"{name} was not measured: {words}")
    return 1 if refused else 0
