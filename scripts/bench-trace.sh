#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench-trace.sh local|net [--trace FILE] [--requests N] [--rate R] [--json FILE] [--rounds N]: plays a bursty stream of
# requests to two ranks that share them in turn by SP alone, by SP with shift, by TP alone, as two replicas (DP), by CP
# and as elastic teams, and prints latencies; and the same requests as a batch, for throughput.
#   local   both ranks on this machine
#   net     on two servers of one rack, made of network namespaces, with a link of 1000 Mbit/s each; needs root
# FILE is what make-trace-prompts reads, here for its lengths, times 0.4; without it prompts are 300 and answers 60
# tokens. R requests arrive per second, in bursts (gaps of coefficient of variation 3). Other work on the machine moves
# the figures: the load is printed before and after.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
name=bench-trace
pecia=$root/build/release/bin/pecia
model=$root/models/bench-111m
requests=60 rate=1 rounds=2 trace="" more_options="requests rate trace"

usage() {
  sed -n '/^# SPDX-/d; /^set -/q; s/^# //p' "$0" >&2
  exit 2
}

# shellcheck source=scripts/pecia_tools/bench/bench_common.sh
source "$root/scripts/pecia_tools/bench/bench_common.sh"

# one ROUND ARRIVALS NAME SETTING…: a run, and its line.
one() {
  local round=$1 arrivals=$2 grid=$3 where=() settings=()
  local out=$work/$grid-$arrivals-$round
  for setting in "${@:4}"; do settings+=(--set "parallel.$setting"); done
  if [[ $mode == net ]]; then where=(-H "n1,n2"); fi
  say "round $round, arrivals $arrivals, $grid"
  logged mpirun -np 2 "${where[@]}" --bind-to none "$pecia" run "$work/job.yaml" --set "output=$out" \
    --set "batch.arrivals=$arrivals" "${settings[@]}"
  "$root/scripts/pecia_tools/launch.sh" bench.trace line "$grid" "$arrivals" "$out/report.json" >>"$lines"
}

bench() {
  local round arrivals
  export OMP_NUM_THREADS=1 # of each rank, which has a core
  for round in $(seq "$rounds"); do
    say "load $(load)"
    for arrivals in replay ignore; do
      one "$round" "$arrivals" SP sp=2 decode=sp
      one "$round" "$arrivals" "SP+shift" sp=2 decode=shift
      one "$round" "$arrivals" TP tp=2
      one "$round" "$arrivals" DP dp=2
      one "$round" "$arrivals" CP cp=2
      one "$round" "$arrivals" elastic cp=elastic
    done
  done
}

mode=${1:-} inside=
if [[ $mode == --inside ]]; then mode=net inside=yes; fi
if [[ $mode != local && $mode != net ]]; then usage; fi
shift
json=$root/runs/bench-trace-$mode.jsonl
take_options "$@"
if [[ -n $trace ]]; then trace=$(readlink -f "$trace"); fi
work=$root/runs/bench-trace-$mode
log=$work/log lines=$work/lines.jsonl
if [[ $inside == yes ]]; then
  bench
  exit
fi
if [[ $mode == net ]]; then needs_root; fi
rm -rf "$work"
mkdir -p "$work" "$(dirname "$json")"
build pecia
"$root/scripts/make-bench-model" "$model" --layers 24 --ffn 2048
source=(--lengths 300 60)
if [[ -n $trace ]]; then source=("$trace" --scale-lengths 0.4); fi
"$root/scripts/make-trace-prompts" "${source[@]}" --gamma "$rate" 3 --requests "$requests" --vocab 32768 \
  --output "$work/prompts.h5"
cat >"$work/job.yaml" <<JOB
model: {path: $model}
input: [$work/prompts.h5]
output: $work/out
generation: {ignore_eos: true}
batch: {order: fcfs}
report: {progress: lines}
JOB
if [[ $mode == net ]]; then
  "$root/scripts/pecia_tools/bench/shaped_network.sh" 1000 1000 "$0" --inside --rounds "$rounds"
else
  on_this_machine
  bench
fi
say "done, load $(load)"
cat "$lines" >>"$json"
"$root/scripts/pecia_tools/launch.sh" bench.trace table "$lines"
