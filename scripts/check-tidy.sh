#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check-tidy.sh [--minutes N] [REF | FILE…]: what clang-tidy says, by .clang-tidy, of C++ sources: the files, or those that
# differ from commit REF (main) by more than their name. A file takes half a minute of a core; with --minutes no file is
# begun after N minutes, and the end says how many were left. Exit code 0: nothing; 1: something; 2: it cannot be checked.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

if ! command -v clang-tidy >/dev/null; then
  echo "check-tidy: there is no clang-tidy (Debian: apt install clang-tidy)" >&2
  exit 2
fi
minutes=
if [[ ${1:-} == --minutes ]]; then
  minutes=$2
  shift 2
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
  mapfile -t files < <(git diff --name-only --find-renames --diff-filter=AM "$base" -- '*.cpp')
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
# Each file's findings together, under its name; a file without any prints nothing.
tidy() {
  local found
  if (($(date +%s) >= $1)); then
    echo "$2" >>"$left"
  elif ! found=$(clang-tidy --quiet -p build/asan --warnings-as-errors='*' "$2" 2>/dev/null); then
    printf '== %s\n%s\n' "$2" "$found"
    return 1
  fi
}
export -f tidy
left=$(mktemp)
export left
trap 'rm -f "$left"' EXIT
end=$(($(date +%s) + ${minutes:-1440} * 60))
code=0
printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -I {} bash -c 'tidy "$1" "$2"' tidy "$end" {} || code=1
echo "check-tidy: ${#files[@]} files, of which $(wc -l <"$left") were not reached in time"
exit "$code"
