#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench-csa.sh local|net [--ranks N] [--tokens N] [--mbit N] [--rounds N] [--json FILE]: how long prefills of the demo
# model take with sparse attention by levels, beside a dense ring, Ulysses where the heads allow it, and levels that
# drop nothing, which are Ulysses on any number of ranks. It prints seconds, what rank 0 spent in attention and waited
# for messages, and bytes. `bench-accuracy` says what is lost (apps/results/epyc-zen4-2cores.md has the command).
#   local   the ranks on this machine
#   net     on up to four servers in two racks, made of network namespaces: N Mbit/s for a server (default 1000), and a
#           quarter of that between racks; needs root
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
name="bench-csa"
bench=$root/build/release/bin/bench_prefill
model=$root/models/SmolLM2-135M-Instruct
ranks=4 tokens=8192 rounds=1 mbit=1000 more_options="ranks tokens mbit"

usage() {
  sed -n '/^# SPDX-/d; /^set -/q; s/^# //p' "$0" >&2
  exit 2
}

# shellcheck source=scripts/pecia_tools/bench/bench_common.sh
source "$root/scripts/pecia_tools/bench/bench_common.sh"

# one OPTION…: a prefill, and its line.
one() {
  local where=()
  if [[ $mode == net ]]; then where=(-H "$(seq -s, -f 'n%g:1' "$ranks" | sed 's/n2/n3/')"); fi
  if [[ $mode == net && $ranks -gt 2 ]]; then where=(-H "$(seq -s, -f 'n%g:1' "$ranks")"); fi
  say "${*:-ring}"
  logged mpirun -np "$ranks" "${where[@]}" --bind-to none "$bench" --model "$model" --compute fp32 --kv-dtype fp32 \
    --tokens "$tokens" --batch-tokens "$tokens" --warmups 0 --runs 1 --threads 1 --json "$lines" "$@"
}

bench() {
  local round drop levels=2
  if ((ranks > 2)); then levels=3; fi # a server, two racks
  export OMP_NUM_THREADS=1            # of each rank
  for round in $(seq "$rounds"); do
    say "round $round, load $(load)"
    one --ring pass_kv
    if ((9 % ranks == 0 && 3 % ranks == 0)); then one --sp "$ranks"; fi
    one --ring levels --levels 2
    one --ring levels --levels 2 --pipeline 4
    one --ring levels --levels 2 --pipeline 4 --drop 13 # which loses nothing (apps/results/epyc-zen4-2cores.md)
    for drop in 0 20 50 80 95; do one --ring levels --levels "$levels" --pipeline 4 --drop "$drop"; done
    one --ring levels --levels 1
  done
}

mode=${1:-} inside=
if [[ $mode == --inside ]]; then mode=net inside=yes; fi
if [[ $mode != local && $mode != net ]]; then usage; fi
shift
json=$root/runs/bench-csa-$mode.jsonl
take_options "$@"
if ((ranks < 2 || (ranks > 4))) && [[ $mode == net ]]; then
  say "--ranks is $ranks; net has 2 to 4 servers"
  exit 2
fi
work=$root/runs/bench-csa-$mode
log=$work/log lines=$work/lines.jsonl
if [[ $inside == yes ]]; then
  bench
  exit
fi
if [[ $mode == net ]]; then needs_root; fi
rm -rf "$work"
mkdir -p "$work" "$(dirname "$json")"
build bench_prefill
"$root/scripts/pecia_tools/launch.sh" gguf.demo_model "$model"
if [[ $mode == net ]]; then
  "$root/scripts/pecia_tools/bench/shaped_network.sh" "$mbit" "$((mbit / 4))" "$0" --inside --rounds "$rounds" \
    --ranks "$ranks" --tokens "$tokens"
else
  on_this_machine
  bench
fi
say "done, load $(load)"
cat "$lines" >>"$json"
"$root/scripts/pecia_tools/launch.sh" bench.csa "$lines"
