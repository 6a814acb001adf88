#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench-questions.sh [QUESTIONS [ALONE]]: what it saves that requests with the same document compute it once.
# Packs QUESTIONS (100) requests about 32,000 characters of the GPL, each with the whole document in its prompt, and
# answers them with batch.prefix_sharing on, and the first ALONE (8) of them with it off, on one rank with all cores.
# Prints the seconds of a question in both, start included, how many times as fast it is, and how many of the ALONE
# answers are the same. Products and keys are fp32, so that answers do not depend on what else is in a batch, except
# where two tokens are nearly equally likely. Needs models/SmolLM2-135M-Instruct (scripts/quickstart.sh).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
questions=${1:-100} alone=${2:-8}
model=$root/models/SmolLM2-135M-Instruct
work=$root/runs/bench-questions
program=${PECIA_PROGRAM:-$root/build/release/bin/pecia}
text=/usr/share/common-licenses/GPL-3

rm -rf "$work"
mkdir -p "$work"
"$root/.venv/bin/python" - "$text" "$questions" "$alone" "$work" <<'PYTHON'
import json
import pathlib
import sys

text, questions, alone, work = sys.argv[1:]
document = pathlib.Path(text).read_text(encoding="utf-8")[:32000]
topics = ("warranty", "source code", "patents", "termination", "propagation", "conveying object code",
          "additional terms", "liability", "downstream recipients", "network interaction")
for name, count in (("all", int(questions)), ("alone", int(alone))):
    with open(f"{work}/{name}.jsonl", "w", encoding="utf-8") as file:
        for i in range(count):
            ask = f"Question {i + 1}: what does section {i // 10 + 1} say about {topics[i % 10]}?"
            file.write(json.dumps({"id": f"q{i:04}", "prompt": f"{document}\n\n{ask}"}) + "\n")
PYTHON

run() { # run NAME SHARING
  "$root/scripts/pecia-pack" --model "$model" --output "$work/$1.h5" "$work/$1.jsonl" >/dev/null
  printf '{model: {path: "%s", compute: fp32}, input: [%s.h5], output: %s, kv: {dtype: fp32},\n' "$model" "$1" "$1"
  printf ' generation: {max_new_tokens: 32}, batch: {prefix_sharing: %s}, report: {trace: "off"}}\n' "$2"
}
run all true >"$work/all.yaml"
run alone false >"$work/alone.yaml"
for name in all alone; do
  PECIA_NO_CACHE=1 "$program" run "$work/$name.yaml"
done
"$root/.venv/bin/python" - "$work" "$questions" "$alone" <<'PYTHON'
import json
import sys

import h5py

work, questions, alone = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def answers(name):
    with h5py.File(f"{work}/{name}/results.h5") as file:
        begins, counts = file["slot_offsets"][()], file["output_tokens"][()]
        return [file["tokens"][begin : begin + count].tolist() for begin, count in zip(begins, counts)]


reports = {name: json.load(open(f"{work}/{name}/report.json")) for name in ("all", "alone")}
together = reports["all"]["seconds"] / questions
each = reports["alone"]["seconds"] / alone
same = sum(a == b for a, b in zip(answers("all"), answers("alone")))
print(f"{questions} questions, {reports['all']['prefix_sharing']['spared_tokens']} prompt tokens spared: "
      f"{together:.3f} s each; alone {each:.2f} s: {each / together:.1f} times as fast; "
      f"{same} of {alone} answers are the same")
PYTHON
