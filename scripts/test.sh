#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test.sh [--all] [CTEST OPTION…]: sets up, builds and runs the tests of the release preset; exits as ctest does. CUDA
# kernels that the CPU emulates, and a Slurm in namespaces, take a fifth of the time: without --all their tests run only
# where the sources that they test differ from what was fetched.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
all=
if [[ ${1:-} == --all ]]; then
  all=1
  shift
fi
scripts/setup.sh

log=build/test-build.log
echo "test: building (log in $log)" >&2
if ! { cmake --preset release && cmake --build --preset release; } >"$log" 2>&1 </dev/null; then
  grep -E -m 20 -A 5 'error|Error|FAILED' "$log" >&2 || tail -n 40 "$log" >&2
  echo "test: the build failed. The whole output is in $log" >&2
  exit 1
fi

# differ PATH…: whether these differ from the branch that was fetched; also where that can't be told.
differ() {
  local fetched
  fetched=$(git rev-parse --quiet --verify '@{upstream}' 2>/dev/null) || return 0
  ! git diff --quiet "$fetched" -- "$@" || [[ -n $(git ls-files --others --exclude-standard -- "$@") ]]
}
without=(long mutants aarch64)
if [[ -z $all ]]; then
  fast=${#without[@]}
  differ kernels/api kernels/cuda tests/kernels tests/support || without+=(emulated)
  differ jobs tests/slurm || without+=(slurm)
  if ((${#without[@]} > fast)); then
    echo "test: without the labels ${without[*]:fast}, whose sources are as fetched (--all runs them, too)" >&2
  fi
fi
# Tests say how many processors they take, so this also bounds the ranks that run at once; four, as
# the widest tests start four ranks and must not wait for an empty machine on a small one.
cores=$(nproc)
# Without the preset, whose label filter would be joined to this one.
exec ctest --test-dir build/release --output-on-failure --no-tests=error --label-exclude "$(IFS='|' && echo "${without[*]}")" \
  --parallel "$((cores > 4 ? cores : 4))" "$@"
