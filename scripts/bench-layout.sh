#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench-layout.sh [--json FILE] [--rounds N]: what `reproducible: layout` costs. Whole runs of one rank of two threads and
# of CP 2, SP 2 and TP 2 with one thread each, with it and without, in turn; prints a table.
# Other work on the machine moves the figures: the load is printed before and after.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
name=bench-layout
model=$root/models/bench-111m
work=$root/runs/bench-layout
log=$work/log lines=$work/lines.jsonl
json=$root/runs/bench-layout.jsonl rounds=3
# shellcheck source=scripts/pecia_tools/bench/bench_common.sh
source "$root/scripts/pecia_tools/bench/bench_common.sh"

usage() {
  sed -n '/^# SPDX-/d; /^set -/q; s/^# //p' "$0" >&2
  exit 2
}

take_options "$@"

# prompts PHASE LENGTHS REQUESTS: a shard whose runs do little else than that phase.
prompts() {
  logged "$root/scripts/make-trace-prompts" --lengths "${@:2:2}" --poisson 1 --requests "$4" --vocab 32768 \
    --output "$work/$1.h5"
}

# one NAME RANKS SETTING…
one() {
  local phase reproducible out
  for phase in prefill decode; do
    for reproducible in run layout; do
      out=$work/out
      say "$1, $phase, reproducible: $reproducible"
      OMP_NUM_THREADS=$((2 / $2)) logged mpirun -np "$2" --bind-to none "$root/build/release/bin/pecia" run \
        "$work/job.yaml" --fresh --set "input=[$work/$phase.h5]" --set "output=$out" \
        --set "reproducible=$reproducible" "${@:3}"
      "$root/scripts/pecia_tools/launch.sh" bench.modes layout-line "$1" "$phase" "$reproducible" \
        "$out/report.json" >>"$lines"
    done
  done
}

rm -rf "$work"
mkdir -p "$work" "$(dirname "$json")"
build pecia
logged "$root/scripts/make-bench-model" "$model" --layers 24 --ffn 2048
prompts prefill 2048 1 4
prompts decode 512 64 1
cat >"$work/job.yaml" <<JOB
model: {path: $model}
input: [$work/prefill.h5]
output: $work/out
generation: {ignore_eos: true}
report: {progress: off}
JOB
on_this_machine
for round in $(seq "$rounds"); do
  say "round $round of $rounds, load $(load)"
  one "1 rank × 2 threads" 1
  one "CP 2" 2 --set parallel.cp=2
  one "SP 2" 2 --set parallel.sp=2
  one "TP 2" 2 --set parallel.tp=2
done
say "done, load $(load)"
cat "$lines" >>"$json"
"$root/scripts/pecia_tools/launch.sh" bench.modes layout "$lines"
