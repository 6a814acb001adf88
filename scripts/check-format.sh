#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares the C++ and CUDA files that git knows with .clang-format.
#
#   scripts/check-format.sh [--fix]    exits 1 if a file differs, 2 without clang-format; --fix formats instead
#
# Versions of clang-format disagree, so only the one named in .clang-format is taken.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^# clang-format //p' .clang-format)
tool=
for candidate in "clang-format-$version" clang-format; do
  if "$candidate" --version 2>/dev/null | grep -q "version $version\."; then
    tool=$candidate
    break
  fi
done
if [ -z "$tool" ]; then
  echo "check-format: clang-format $version is not installed (Debian: apt install clang-format-$version)" >&2
  exit 2
fi

files=$(git ls-files --cached --others --exclude-standard -- '*.hpp' '*.cpp' '*.cuh' '*.cu')
if [ -z "$files" ]; then
  echo "check-format: git lists no source file here" >&2
  exit 1
fi
if [ "${1:-}" = --fix ]; then
  xargs -d '\n' "$tool" -i <<<"$files"
  exit
fi
found=0
output=$(xargs -d '\n' -n 16 -P "$(nproc)" "$tool" --dry-run --Werror <<<"$files" 2>&1) || found=$?
if [ "$found" -ne 0 ]; then
  wrong=$(sed -n 's/:[0-9]*:[0-9]*: error: .*//p' <<<"$output" | sort -u)
  if [ -z "$wrong" ]; then
    echo "$output" >&2
    exit 1
  fi
  while IFS= read -r file; do echo "check-format: $file differs"; done <<<"$wrong"
  echo "check-format: $(wc -l <<<"$wrong") files differ; run scripts/check-format.sh --fix" >&2
  exit 1
fi
