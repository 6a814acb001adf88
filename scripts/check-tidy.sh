#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check-tidy.sh [REF | FILE…]: what clang-tidy says, by .clang-tidy, of C++ sources: those that differ from commit REF
# (main), or the files. A file takes half a minute. Exit code 0: nothing; 1: something; 2: it cannot be checked.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

if ! command -v clang-tidy >/dev/null; then
  echo "check-tidy: there is no clang-tidy (Debian: apt install clang-tidy)" >&2
  exit 2
fi
files=()
if (($# > 0)) && [[ -f $1 ]]; then
  files=("$@")
else
  commit=$(git rev-parse --quiet --verify "${1:-main}^{commit}") || {
    echo "check-tidy: '${1:-main}' is neither a file nor a commit" >&2
    exit 2
  }
  base=$(git merge-base "$commit" HEAD)
  mapfile -t files < <(git diff --name-only --diff-filter=d "$base" -- '*.cpp')
fi
if ((${#files[@]} == 0)); then
  echo "check-tidy: no source has changed"
  exit 0
fi

# The commands of the asan preset, as clang cannot read the precompiled headers of GCC.
mkdir -p build
if ! cmake --preset asan >build/tidy-configure.log 2>&1; then
  tail -n 20 build/tidy-configure.log >&2
  exit 2
fi
code=0
for file in "${files[@]}"; do
  echo "== $file"
  clang-tidy --quiet -p build/asan --warnings-as-errors='*' "$file" 2>/dev/null || code=1
done
exit "$code"
