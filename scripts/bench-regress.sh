#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench-regress.sh [REF] [--only WHAT] [--json FILE] [--rounds N]: whether this tree is slower than commit REF (HEAD~1).
# Builds REF beside it and runs bench_prefill, bench_decode and bench_ops of both in turn (old new old new …) on one rank
# with all cores; prints medians and their ratio, and marks what differs by more than the rounds do among themselves.
#   WHAT     prefill, decode or ops, several with commas; all of them
#   FILE     gets a JSON line for each case (runs/bench-regress.jsonl)
#   N        5; fewer find something slower by chance more often than in one call of ten
# Ten minutes on two cores, and what the build of REF takes. REF's tree is in build/regress meanwhile. Exit code 0:
# nothing is slower; 1: something is, or a step failed; 2: wrong use. Other work on the machine moves the figures: the
# load is printed.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
name=bench-regress
model=$root/models/bench-135m
work=$root/runs/bench-regress
log=$work/log
json=$root/runs/bench-regress.jsonl rounds=5
ref=HEAD~1 only=prefill,decode,ops
# shellcheck source=scripts/pecia_tools/bench/bench_common.sh
source "$root/scripts/pecia_tools/bench/bench_common.sh"

usage() {
  sed -n '/^# SPDX-/d; /^set -/q; s/^# //p' "$0" >&2
  exit 2
}

wrong() {
  say "$*"
  exit 2
}

common=()
if (($# > 0)) && [[ $1 != -* ]]; then
  ref=$1
  shift
fi
while (($# > 0)); do
  if (($# < 2)); then usage; fi
  if [[ $1 == --only ]]; then only=$2; else common+=("$1" "$2"); fi
  shift 2
done
take_options "${common[@]}"
IFS=, read -ra parts <<<"$only"
if ((${#parts[@]} == 0)); then usage; fi
for part in "${parts[@]}"; do
  case $part in
    prefill | decode | ops) ;;
    *) wrong "--only has '$part'; it may have prefill, decode and ops" ;;
  esac
done
commit=$(git -C "$root" rev-parse --quiet --verify --short=10 "$ref^{commit}") || wrong "'$ref' is no commit of $root"
this=$(git -C "$root" describe --always --dirty --abbrev=10)
tree=$root/build/regress/$commit

remove_tree() {
  if [[ -e $tree ]]; then git -C "$root" worktree remove --force "$tree" || rm -rf "$tree"; fi
  git -C "$root" worktree prune
}

# append_to FILE COMMAND…: what it prints.
append_to() { "${@:2}" >>"$1"; }

# measure SIDE ROUND PART: lines of one program of one side.
measure() {
  local bin=$root/build/release/bin threads lines=$work/$1.jsonl whole
  if [[ $1 == old ]]; then bin=$tree/build/release/bin; fi
  threads=$(nproc)
  whole=(--model "$model" --threads "$threads" --json "$lines")
  say "round $2 of $rounds, $3, $1, load $(load)"
  case $3 in
    prefill) logged "$bin/bench_prefill" "${whole[@]}" --tokens 512,2048 --runs 2 ;;
    decode) logged "$bin/bench_decode" "${whole[@]}" --contexts 512 --batches 1,8 --runs 3 ;;
    ops) logged append_to "$lines" "$bin/bench_ops" --threads "$threads" --runs 3 --json ;;
  esac
}

rm -rf "$work"
mkdir -p "$work" "$(dirname "$json")" "$root/build/regress"
trap remove_tree EXIT
remove_tree
programs=("${parts[@]/#/bench_}")
build "${programs[@]}"
say "building $commit ($ref)"
logged git -C "$root" worktree add --detach "$tree" "$commit"
logged cmake --preset release -S "$tree" -DPECIA_BUILD_TESTS=OFF
logged cmake --build "$tree/build/release" --target "${programs[@]}"
logged "$root/scripts/make-bench-model" "$model" --layers 30 --hidden 576 --heads 9 --kv-heads 3 --ffn 1536 \
  --vocab 49152
for round in $(seq "$rounds"); do
  for part in "${parts[@]}"; do
    measure old "$round" "$part"
    measure new "$round" "$part"
  done
done
say "done, load $(load)"
"$root/scripts/pecia_tools/launch.sh" bench.regress "$work/old.jsonl" "$work/new.jsonl" "$commit" "$this" "$json"
