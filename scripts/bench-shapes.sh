#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench-shapes.sh [ROUNDS]: what it costs that answers have a shape. 16 sequences make 160 tokens each, with
# generation.schema (a list of books, each with three texts and a number) and without a shape, in turn, ROUNDS (5)
# times, on one rank with all cores. The answers with a shape end before their list does, so these runs end with 3.
# Prints tokens/s of decode of each, and the median of what a round's shape costs. Needs models/SmolLM2-135M-Instruct
# (scripts/quickstart.sh) and a build with XGrammar (scripts/setup.sh grammar). PECIA_PROGRAM names other programs,
# "A B", which are measured in turn, too.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
rounds=${1:-5}
model=$root/models/SmolLM2-135M-Instruct
work=$root/runs/bench-shapes
read -r -a programs <<<"${PECIA_PROGRAM:-$root/build/release/bin/pecia}"

rm -rf "$work"
mkdir -p "$work"
"$root/.venv/bin/python" - "$work" <<'PYTHON'
import json
import sys

work = sys.argv[1]
with open(f"{work}/prompts.jsonl", "w", encoding="utf-8") as file:
    for i in range(16):
        file.write(json.dumps({"id": f"list-{i:02}", "prompt": f"List {i + 20} books about number {i}."}) + "\n")
texts = {name: {"type": "string"} for name in ("title", "author", "summary")}
book = {"type": "object", "properties": {**texts, "year": {"type": "integer"}}}
book["required"] = list(book["properties"])
json.dump({"type": "array", "items": book, "minItems": 20}, open(f"{work}/schema.json", "w", encoding="utf-8"))
PYTHON
"$root/scripts/pecia-pack" --model "$model" --output "$work/prompts.h5" "$work/prompts.jsonl" >/dev/null

job() { # job GENERATION
  printf '{model: {path: "%s"}, input: [prompts.h5], output: run, batch: {max_sequences: 16},\n' "$model"
  printf ' generation: {max_new_tokens: 160, %s}, report: {trace: "off"}}\n' "$1"
}
job 'schema: schema.json' >"$work/shape.yaml"
job 'ignore_eos: true' >"$work/none.yaml"
for ((round = 0; round < rounds; ++round)); do
  for which in "${!programs[@]}"; do
    for name in shape none; do
      code=0
      "${programs[which]}" run --fresh "$work/$name.yaml" 2>"$work/log" || code=$?
      if ((code != 0 && code != 3)); then
        cat "$work/log" >&2
        exit 1
      fi
      mv "$work/run/report.json" "$work/$which-$name-$round.json"
    done
  done
done
"$root/.venv/bin/python" - "$work" "$rounds" "${programs[@]}" <<'PYTHON'
import json
import statistics
import sys

work, rounds, programs = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
for which, program in enumerate(programs):
    rates = {}
    for name in ("shape", "none"):
        reports = [json.load(open(f"{work}/{which}-{name}-{i}.json")) for i in range(rounds)]
        rates[name] = [report["phases"]["decode"]["tokens_per_s"] for report in reports]
        print(f"{program}, {name}: " + ", ".join(f"{rate:.0f}" for rate in rates[name]) + " tokens/s of decode")
    cost = statistics.median(1 - shape / none for shape, none in zip(rates["shape"], rates["none"]))
    print(f"{program}: a shape costs {100 * cost:.1f} %, the median of the rounds")
PYTHON
