#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench-modes.sh local|net|experts [--json FILE] [--rounds N]: times every parallel mode, in turn, and prints tables.
#   local   two ranks of one thread in each mode beside one rank of two threads
#   net     four ranks on four servers in two racks with slow links between them, made of network namespaces; needs root
#   experts a mixture of experts on the same four servers, with experts cut over ranks and dealt out over them
# JSON lines of all runs are appended to FILE (runs/bench-modes-local.jsonl, …-net.jsonl, …-experts.jsonl); a table counts those of this call.
# Other work on the machine moves the figures: the load is printed before and after.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
name=bench-modes
bin=$root/build/release/bin
rounds=2
node_mbit=1000 rack_mbit=400

usage() {
  sed -n '/^# SPDX-/d; /^set -/q; s/^# //p' "$0" >&2
  exit 2
}

# shellcheck source=scripts/pecia_tools/bench/bench_common.sh
source "$root/scripts/pecia_tools/bench/bench_common.sh"

# run RANKS HOSTS PROGRAM ARGUMENTS…: HOSTS "" is this machine. What a benchmark prints goes to the log.
run() {
  local ranks=$1 where=()
  if [[ -n $2 ]]; then where=(-H "$2"); fi
  say "$ranks × ${*:3}"
  logged mpirun -np "$ranks" "${where[@]}" --bind-to none "$bin/$3" "${@:4}" --json "$lines"
}

make_model() { # NAME OPTIONS…
  "$root/scripts/make-bench-model" "$root/models/$1" "${@:2}"
}

# The shortest prompt warms up for the others.
local_prefill() { # MODEL TOKENS RUNS
  local common=(bench_prefill --model "$root/models/$1" --tokens "512,$2" --warmups 0 --runs "$3")
  run 1 "" "${common[@]}" --threads 2
  run 2 "" "${common[@]}" --threads 1 --ring pass_kv
  run 2 "" "${common[@]}" --threads 1 --sp 2
  if [[ $2 == 32768 ]]; then return; fi
  run 2 "" "${common[@]}" --threads 1 --ring pass_q
  run 2 "" "${common[@]}" --threads 1 --tp 2
  run 2 "" "${common[@]}" --threads 1 --tp 2 --sharding sp_tp
  run 2 "" "${common[@]}" --threads 1 --tp 2 --sharding gathered
}

local_decode() { # MODEL
  # shellcheck disable=SC2054  # the commas are bench_decode's
  local common=(bench_decode --model "$root/models/$1" --contexts 2048 --batches 1,8,32 --steps 4 --runs 3)
  run 1 "" "${common[@]}" --threads 2
  run 2 "" "${common[@]}" --threads 1 --ring pass_q
  run 2 "" "${common[@]}" --threads 1 --ring broadcast_q
  run 2 "" "${common[@]}" --threads 1 --sp 2
  run 2 "" "${common[@]}" --threads 1 --tp 2
  run 2 "" "${common[@]}" --threads 1 --sp 2 --sharding shift
}

bench_local() {
  local round
  make_model bench-111m --layers 24 --ffn 2048
  make_model bench-2-layers --layers 2 --ffn 2048
  for round in $(seq "$rounds"); do
    say "round $round of $rounds, load $(load)"
    local_prefill bench-111m 2048,8192 1
    local_prefill bench-2-layers 8192 6 # short, so that other work on the machine disturbs few of the runs
    local_prefill bench-2-layers 32768 1
    local_decode bench-111m
  done
}

# Inside the shaped network.
bench_net() {
  local round ring sharding all=n1,n2,n3,n4 model=$root/models/bench-2-layers
  local grid=82,164,410,819,1638,2458,4096,6144,8192  # 1 to 100 % of 8192
  for round in $(seq "$rounds"); do
    say "round $round of $rounds, load $(load)"
    for ring in pass_kv pass_q; do
      run 4 "$all" bench_prefill --model "$model" --threads 1 --tokens "$grid" --total 8192 --batch-tokens 8192 \
        --ring "$ring" --runs 3
    done
    run 4 "$all" bench_prefill --model "$model" --threads 1 --tokens 2048,4096 --runs 2 --tp 4
    run 4 "$all" bench_prefill --model "$model" --threads 1 --tokens 2048,4096 --runs 2
    for ring in pass_q broadcast_q; do
      run 4 "$all" bench_decode --model "$model" --threads 1 --contexts 2048 --batches 1,8,32 --ring "$ring" --runs 3
    done
    run 4 "$all" bench_decode --model "$model" --threads 1 --contexts 2048 --batches 1,8 --ring pass_kv --steps 4 --runs 3
    for sharding in base shift; do
      run 4 "$all" bench_decode --model "$model" --threads 1 --contexts 512 --batches 1,2,4,8,16,32,64 --sp 4 \
        --sharding "$sharding" --runs 3
    done
    run 4 n1:2,n3:2 bench_comm --min-bytes 16KiB --max-bytes 1MiB --overlap-from 1GiB --threads 1 --runs 3
  done
}

# Inside the shaped network. The cluster file has what the plan foresees the same cases with.
bench_experts() {
  local round degrees all=n1,n2,n3,n4 model=$root/models/bench-moe-2-layers
  for round in $(seq "$rounds"); do
    say "round $round of $rounds, load $(load)"
    for degrees in "--tp 4" "--tp 4 --ep 4" "--sp 4" "--sp 4 --ep 4"; do
      # shellcheck disable=SC2086  # these are words
      run 4 "$all" bench_prefill --model "$model" --threads 1 --tokens 512,2048 --runs 3 $degrees
      # shellcheck disable=SC2086
      run 4 "$all" bench_decode --model "$model" --threads 1 --contexts 512 --batches 1,8,32,128 --runs 3 $degrees
    done
  done
  OMP_NUM_THREADS=1 logged mpirun -np 4 -H "$all" --bind-to none -x OMP_NUM_THREADS "$bin/pecia" topology --measure --cluster-file "$log.cluster.yaml"
}

inside=
json=
case ${1:-} in
  local | net | experts) mode=$1 ;;
  --inside) inside=yes mode=$2 && shift ;;
  *) usage ;;
esac
shift
while (($# > 0)); do
  case $1 in
    --json) json=${2:?--json wants a file} ;;
    --rounds) rounds=${2:?--rounds wants a number} ;;
    *) usage ;;
  esac
  shift 2
done
json=${json:-$root/runs/bench-modes-$mode.jsonl}
mkdir -p "$(dirname "$json")" "$root/runs"
json=$(readlink -f "$json")
log=$root/runs/bench-modes-$mode.log
lines=$log.jsonl

if [[ $inside == yes ]]; then
  "bench_$mode"
  exit
fi
if [[ $mode != local ]]; then needs_root; fi
rm -f "$lines" "$log"
build bench_prefill bench_decode bench_comm pecia
if [[ $mode == local ]]; then
  on_this_machine
  bench_local
else
  make_model bench-2-layers --layers 2 --ffn 2048
  make_model bench-moe-2-layers --layers 2 --ffn 512 --experts 16 --experts-per-token 4
  "$root/scripts/pecia_tools/bench/shaped_network.sh" "$node_mbit" "$rack_mbit" "$0" --inside "$mode" --json "$json" \
    --rounds "$rounds"
fi
say "done, load $(load)"
cat "$lines" >>"$json"
"$root/scripts/pecia_tools/launch.sh" bench.modes "$mode" "$lines"
