#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench-elastic.sh local|net [--tokens N] [--rounds N] [--load F] [--mbit N] [--json FILE]: elastic teams of two ranks
# beside every static grid of them (DP, CP, CP with chunked prefill, TP, SP), with short requests, long ones, both
# mixed, and lengths of a Zipf law: as a batch (the longest first), and as they come in bursts (in that order). It
# prints throughput, times to the first token, and goodput: the part of requests that are answered within 25 times
# their latency on idle ranks.
#   local   both ranks on this machine
#   net     on two servers of one rack, made of network namespaces, with links of N Mbit/s (1000); needs root
# N prompt tokens of each kind (default 40000). Requests come at a rate that would keep DP busy for F of the time
# (default 0.8; gaps of coefficient of variation 3). Other work on the machine moves the figures: the load is printed.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
name=bench-elastic
pecia=$root/build/release/bin/pecia
model=$root/models/bench-17m
tokens=40000 rounds=1 load=0.8 mbit=1000 more_options="tokens load mbit"

usage() {
  sed -n '/^# SPDX-/d; /^set -/q; s/^# //p' "$0" >&2
  exit 2
}

# shellcheck source=scripts/pecia_tools/bench/bench_common.sh
source "$root/scripts/pecia_tools/bench/bench_common.sh"

tool() { "$root/scripts/pecia_tools/launch.sh" bench.elastic "$@"; }

# one ROUND KIND SHARD ARRIVALS NAME SETTING…: a run, and its line.
one() {
  local round=$1 kind=$2 shard=$3 arrivals=$4 grid=$5 where=() settings=() setting order=longest_first
  local out=$work/$kind-$grid-$arrivals-$round
  for setting in "${@:6}"; do settings+=(--set "$setting"); done
  if [[ $mode == net ]]; then where=(-H "n1,n2"); fi
  if [[ $arrivals == replay ]]; then order=fcfs; fi
  say "round $round, $kind, arrivals $arrivals, $grid"
  logged mpirun -np 2 "${where[@]}" --bind-to none "$pecia" run "$work/job.yaml" --fresh --set "input=[$shard]" \
    --set "output=$out" --set "batch.arrivals=$arrivals" --set "batch.order=$order" "${settings[@]}"
  tool line "$round" "$kind" "$arrivals" "$grid" "$out" >>"$lines"
}

# all ROUND KIND SHARD ARRIVALS: the runs that are compared.
all() {
  one "$@" DP parallel.dp=2
  one "$@" CP parallel.cp=2
  one "$@" CP-chunked parallel.cp=2 batch.policy=chunked
  one "$@" TP parallel.tp=2
  one "$@" SP parallel.sp=2 parallel.decode=sp
  one "$@" elastic parallel.cp=elastic
}

bench() {
  local round kind shard
  export OMP_NUM_THREADS=1 # of each rank, which has a core
  for round in $(seq "$rounds"); do
    for kind in short long mixed zipf; do
      say "load $(load)"
      shard=$work/$kind.h5
      make_shard "$kind" "$shard" 1000
      all "$round" "$kind" "$shard" ignore
      one "$round" "$kind" "$shard" ignore alone-DP parallel.dp=2 batch.max_sequences=1
      one "$round" "$kind" "$shard" ignore alone-CP parallel.cp=2 batch.max_sequences=1
      make_shard "$kind" "$shard" "$(tool rate "$lines" "$kind" "$load")"
      all "$round" "$kind" "$shard" replay
    done
  done
}

# make_shard KIND SHARD RATE: the same requests, at a rate per second.
make_shard() {
  tool trace "$1" "$tokens" >"$work/$1.jsonl"
  logged "$root/scripts/make-trace-prompts" "$work/$1.jsonl" --gamma "$3" 3 --vocab 8192 --force --output "$2"
}

mode=${1:-} inside=
if [[ $mode == --inside ]]; then mode=net inside=yes; fi
if [[ $mode != local && $mode != net ]]; then usage; fi
shift
json=$root/runs/bench-elastic-$mode.jsonl
take_options "$@"
work=$root/runs/bench-elastic-$mode
log=$work/log lines=$work/lines.jsonl
if [[ $inside == yes ]]; then
  bench
  exit
fi
if [[ $mode == net ]]; then needs_root; fi
rm -rf "$work"
mkdir -p "$work" "$(dirname "$json")"
build pecia
"$root/scripts/make-bench-model" "$model" --hidden 384 --heads 6 --kv-heads 6 --head-dim 64 --ffn 1024 --layers 8 \
  --vocab 8192
cat >"$work/job.yaml" <<JOB
model: {path: $model}
input: []
output: $work/out
generation: {ignore_eos: true}
report: {progress: lines}
JOB
if [[ $mode == net ]]; then
  "$root/scripts/pecia_tools/bench/shaped_network.sh" "$mbit" "$mbit" "$0" --inside --rounds "$rounds" --tokens "$tokens" \
    --load "$load"
else
  on_this_machine
  bench
fi
say "done, load $(load)"
cat "$lines" >>"$json"
tool table "$lines"
