# SPDX-License-Identifier: Apache-2.0
"""What it saves that requests with the same document compute it once.

Packs --questions requests about 32,000 characters of the GPL, each with the whole document in its prompt, and answers
them with batch.prefix_sharing on, and the first --alone of them with it off, on one rank with all cores. Prints the
seconds of a question in both, start included, how many times as fast it is, and how many of the answers alone are the
same. Products and keys are fp32, so that answers do not depend on what else is in a batch, except where two tokens are
nearly equally likely. Needs the model, by default the one that scripts/quickstart.sh gets. PECIA_PROGRAM names another
program.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import h5py

from ..pack import main as pack
from .common import BIN, MODEL, Work, bench_parser, positive

TEXT = Path("/usr/share/common-licenses/GPL-3")
TOPICS = (
    *("warranty", "source code", "patents", "termination", "propagation", "conveying object code"),
    *("additional terms", "liability", "downstream recipients", "network interaction"),
)


def requests(document: str, count: int) -> str:
    lines = []
    for i in range(count):
        ask = f"Question {i + 1}: what does section {i // 10 + 1} say about {TOPICS[i % 10]}?"
        lines.append(json.dumps({"id": f"q{i:04}", "prompt": f"{document}\n\n{ask}"}) + "\n")
    return "".join(lines)


def answers(path: Path) -> list[list[int]]:
    with h5py.File(path) as file:
        begins, counts = file["slot_offsets"][()], file["output_tokens"][()]
        return [file["tokens"][begin : begin + count].tolist() for begin, count in zip(begins, counts)]


def main(arguments: list[str]) -> int:
    parser = bench_parser("questions", __doc__, "--questions 20 --alone 4", rounds=0)
    parser.add_argument("--questions", type=positive, default=100, help="default: %(default)s")
    parser.add_argument("--alone", type=positive, default=8, help="default: %(default)s")
    parser.add_argument(
        "--model",
        type=Path,
        default=MODEL,
        help="a Hugging Face folder with a tokenizer (default: SmolLM2-135M-Instruct)",
    )
    options = parser.parse_args(arguments)
    model = options.model.resolve()
    work = Work("questions", options.json)
    document = TEXT.read_text(encoding="utf-8")[:32000]
    found, reports = {}, {}
    for name, count in (("all", options.questions), ("alone", options.alone)):
        lines, shard, output = (work.folder / f"{name}{suffix}" for suffix in (".jsonl", ".h5", ""))
        lines.write_text(requests(document, count), encoding="utf-8")
        pack.main(["--model", str(model), "--output", str(shard), str(lines)])
        job = work.job(
            name,
            model={"path": str(model), "compute": "fp32"},
            input=[str(shard)],
            output=str(output),
            kv={"dtype": "fp32"},
            generation={"max_new_tokens": 32},
            batch={"prefix_sharing": name == "all"},
            report={"trace": "off"},
        )
        work.logged(os.environ.get("PECIA_PROGRAM", BIN / "pecia"), "run", job, env={"PECIA_NO_CACHE": "1"})
        found[name] = answers(output / "results.h5")
        reports[name] = json.loads((output / "report.json").read_text("utf-8"))
    together = reports["all"]["seconds"] / options.questions
    each = reports["alone"]["seconds"] / options.alone
    spared = reports["all"]["prefix_sharing"]["spared_tokens"]
    same = sum(a == b for a, b in zip(found["all"], found["alone"]))
    work.keep(
        [
            {
                "bench": "bench_questions",
                "commit": reports["all"]["build"]["commit"],
                "cpu": reports["all"]["machine"]["cpu"],
                "questions": options.questions,
                "spared_tokens": spared,
                "seconds_each": together,
                "alone": options.alone,
                "seconds_alone": each,
                "same": same,
            }
        ]
    )
    print(
        f"{options.questions} questions, {spared} prompt tokens spared: {together:.3f} s each; alone {each:.2f} s: "
        f"{each / together:.1f} times as fast; {same} of {options.alone} answers are the same"
    )
    return 0
