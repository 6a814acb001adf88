# SPDX-License-Identifier: Apache-2.0
"""What it costs that answers have a shape. 16 sequences make 160 tokens each, with generation.schema (a list of books,
each with three texts and a number) and without a shape, in turn, on one rank with all cores. The answers with a shape
end before their list does, so these runs end with 3. Prints tokens/s of decode of each, and the median of what a
round's shape costs.

Needs models/SmolLM2-135M-Instruct (scripts/quickstart.sh) and a build with XGrammar (scripts/setup.sh grammar).
PECIA_PROGRAM names other programs, "A B", which are measured in turn, too.
"""

from __future__ import annotations

import json
import os
import statistics

from ..pack import main as pack
from .common import BIN, MODEL, Work, bench_parser

TEXTS = ("title", "author", "summary")
BOOK = {"type": "object", "properties": {**{name: {"type": "string"} for name in TEXTS}, "year": {"type": "integer"}}}
SCHEMA = {"type": "array", "items": {**BOOK, "required": [*TEXTS, "year"]}, "minItems": 20}


def main(arguments: list[str]) -> int:
    options = bench_parser("shapes", __doc__, "--rounds 3", rounds=5).parse_args(arguments)
    programs = os.environ.get("PECIA_PROGRAM", str(BIN / "pecia")).split()
    work = Work("shapes", options.json)
    lines, shard, schema = (work.folder / name for name in ("prompts.jsonl", "prompts.h5", "schema.json"))
    prompts = ({"id": f"list-{i:02}", "prompt": f"List {i + 20} books about number {i}."} for i in range(16))
    lines.write_text("".join(json.dumps(line) + "\n" for line in prompts), encoding="utf-8")
    schema.write_text(json.dumps(SCHEMA), encoding="utf-8")
    pack.main(["--model", str(MODEL), "--output", str(shard), str(lines)])
    jobs = {
        name: work.job(
            name,
            model={"path": str(MODEL)},
            input=[str(shard)],
            output=str(work.folder / "run"),
            batch={"max_sequences": 16},
            generation={"max_new_tokens": 160, **generation},
            report={"trace": "off"},
        )
        for name, generation in (("shape", {"schema": str(schema)}), ("none", {"ignore_eos": True}))
    }
    for number in work.rounds(options.rounds):
        for program in programs:
            for name, job in jobs.items():
                work.logged(program, "run", "--fresh", job, codes=(0, 3))
                report = json.loads((work.folder / "run" / "report.json").read_text("utf-8"))
                about = {"bench": "bench_shapes", "commit": report["build"]["commit"], "cpu": report["machine"]["cpu"]}
                rate = report["phases"]["decode"]["tokens_per_s"]
                work.keep([{**about, "program": program, "name": name, "round": number, "tokens_per_s": rate}])
    for program in programs:
        rates = {
            name: [one["tokens_per_s"] for one in work.lines if (one["program"], one["name"]) == (program, name)]
            for name in jobs
        }
        for name, of in rates.items():
            print(f"{program}, {name}: " + ", ".join(f"{rate:.0f}" for rate in of) + " tokens/s of decode")
        cost = statistics.median(1 - shape / none for shape, none in zip(rates["shape"], rates["none"]))
        print(f"{program}: a shape costs {100 * cost:.1f} %, the median of the rounds")
    return 0
