#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench-job.sh [--json FILE] [--rounds N]: what the job layer costs and how fast it is, by whole runs of two ranks under
# mpirun on a model of SmolLM2-135M's shape, in turn; prints tables. Needs Linux's /proc and no download.
#   overhead    a batch with report.trace: summary and progress lines, and with both off; and its time outside passes
#   request     many tiny requests on one rank, less few of them
#   start       mpirun until the first token, by phase
#   signals     SIGTERM to all ranks until exit code 75; kill -9 and SIGSTOP (limits.silence 3 s) of a rank until it
#               is named, and until mpirun's end
#   resume      tokens that the run that goes on computes again after each of these
# A round takes a minute or two on two cores. Other work on the machine moves the figures: the load is printed.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
name=bench-job
model=$root/models/bench-135m tiny=$root/models/bench-tiny
work=$root/runs/bench-job
log=$work/log lines=$work/lines.jsonl
json=$root/runs/bench-job.jsonl rounds=4
# shellcheck source=scripts/pecia_tools/bench/bench_common.sh
source "$root/scripts/pecia_tools/bench/bench_common.sh"

usage() {
  sed -n '/^# SPDX-/d; /^set -/q; s/^# //p' "$0" >&2
  exit 2
}

take_options "$@"

# prompts NAME VOCAB REQUESTS PROMPT ANSWER
prompts() {
  logged "$root/scripts/make-trace-prompts" --lengths "$4" "$5" --poisson 1 --requests "$3" --vocab "$2" \
    --output "$work/$1.h5"
}

rm -rf "$work"
mkdir -p "$work" "$(dirname "$json")"
build pecia
logged "$root/scripts/make-bench-model" "$model" --layers 30 --hidden 576 --heads 9 --kv-heads 3 --ffn 1536 \
  --vocab 49152
logged "$root/scripts/make-bench-model" "$tiny" --layers 1 --hidden 32 --heads 2 --kv-heads 1 --head-dim 16 --ffn 64 \
  --vocab 256
prompts batch 49152 24 192 48
prompts few 256 1000 2 1
prompts many 256 20000 2 1
on_this_machine
export XDG_CACHE_HOME=$work/cache # empty: what earlier runs of others measured is not there
unset PECIA_NO_CACHE
"$root/scripts/pecia_tools/launch.sh" bench.job "$work" --program "$root/build/release/bin/pecia" --model "$model" \
  --tiny-model "$tiny" --rounds "$rounds" >"$lines"
say "done, load $(load)"
cat "$lines" >>"$json"
"$root/scripts/pecia_tools/launch.sh" bench.job_report "$lines"
