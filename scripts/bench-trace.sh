#!/usr/bin/env bash
# bench-trace.sh local|net [--trace FILE] [--requests N] [--rate R] [--json FILE] [--rounds N]: plays a bursty stream of
# requests to two ranks that share them in turn by SP alone, by SP with shift, by TP alone and as two replicas (DP), and
# prints latencies; and the same requests as a batch, for throughput.
#   local   both ranks on this machine
#   net     on two servers of one rack, made of network namespaces, with a link of 1000 Mbit/s each; needs root
# FILE is what make-trace-prompts reads, here for its lengths, times 0.4; without it prompts are 300 and answers 60
# tokens. R requests arrive per second, in bursts (gaps of coefficient of variation 3). Other work on the machine moves
# the figures: the load is printed before and after.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
pecia=$root/build/release/bin/pecia
model=$root/models/bench-111m
requests=60 rate=1 rounds=2 trace=

usage() {
  sed -n '2,9s/^# //p' "$0" >&2
  exit 2
}

say() { echo "bench-trace: $*" >&2; }

# one ROUND ARRIVALS NAME SETTING…: a run, and its line.
one() {
  local round=$1 arrivals=$2 name=$3 where=() settings=()
  local out=$work/$name-$arrivals-$round
  for setting in "${@:4}"; do settings+=(--set "parallel.$setting"); done
  if [[ $mode == net ]]; then where=(-H "n1,n2"); fi
  say "round $round, arrivals $arrivals, $name"
  mpirun -np 2 "${where[@]}" --bind-to none "$pecia" run "$work/job.yaml" --set "output=$out" \
    --set "batch.arrivals=$arrivals" "${settings[@]}" >>"$log" 2>&1 </dev/null || {
    tail -n 20 "$log" >&2
    say "that run failed; the whole output is in $log"
    exit 1
  }
  "$root/scripts/pecia_tools/launch.sh" trace_report line "$name" "$arrivals" "$out/report.json" >>"$lines"
}

bench() {
  local round arrivals
  export OMP_NUM_THREADS=1 # of each rank, which has a core
  for round in $(seq "$rounds"); do
    say "load $(cut -d' ' -f1-3 /proc/loadavg)"
    for arrivals in replay ignore; do
      one "$round" "$arrivals" SP sp=2 decode=sp
      one "$round" "$arrivals" "SP+shift" sp=2 decode=shift
      one "$round" "$arrivals" TP tp=2
      one "$round" "$arrivals" DP dp=2
    done
  done
}

mode=${1:-} inside=
if [[ $mode == --inside ]]; then mode=net inside=yes; fi
if [[ $mode != local && $mode != net ]]; then usage; fi
shift
json=$root/runs/bench-trace-$mode.jsonl
while (($# > 0)); do
  case $1 in
    --trace) trace=$(readlink -f "${2:?--trace wants a file}") ;;
    --requests) requests=${2:?--requests wants a number} ;;
    --rate) rate=${2:?--rate wants a number} ;;
    --json) json=$(readlink -f "${2:?--json wants a file}") ;;
    --rounds) rounds=${2:?--rounds wants a number} ;;
    *) usage ;;
  esac
  shift 2
done
work=$root/runs/bench-trace-$mode
log=$work/log lines=$work/lines.jsonl
if [[ $inside == yes ]]; then
  bench
  exit
fi
if [[ $mode == net && $EUID != 0 ]]; then
  say "net needs root: it makes network namespaces. Nothing was done"
  exit 2
fi

rm -rf "$work"
mkdir -p "$work" "$(dirname "$json")"
say "building"
cmake --preset release -S "$root" >"$log" 2>&1 </dev/null
cmake --build "$root/build/release" --target pecia >>"$log" 2>&1 </dev/null || {
  tail -n 20 "$log" >&2
  exit 1
}
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
  "$root/scripts/pecia_tools/shaped_network.sh" 1000 1000 "$0" --inside --rounds "$rounds"
else
  export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
  if ((EUID == 0)); then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
  bench
fi
say "done, load $(cut -d' ' -f1-3 /proc/loadavg)"
cat "$lines" >>"$json"
"$root/scripts/pecia_tools/launch.sh" trace_report table "$lines"
