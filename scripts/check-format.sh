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
wrong=0
while IFS= read -r file; do
  if ! "$tool" --dry-run --Werror "$file" >/dev/null 2>&1; then
    echo "check-format: $file differs"
    wrong=$((wrong + 1))
  fi
done <<<"$files"
if [ "$wrong" -gt 0 ]; then
  echo "check-format: $wrong files differ; run scripts/check-format.sh --fix" >&2
  exit 1
fi
