#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Lines of the repository's Markdown are at most 120 characters long. Exempt are tables, fenced code, and a line that is
# long because of one URL. Prints each line that is longer and exits 1 if there is one.
#
#   scripts/check-markdown.sh              checks the files that git knows or would take
#   scripts/check-markdown.sh FILE…        checks these
#   scripts/check-markdown.sh --self-test  checks that a long line is found and what is exempt is not
set -euo pipefail

# Characters are counted as bytes that do not continue one (UTF-8), so no locale matters.
long_lines() {
  LC_ALL=C awk -v most=120 '
    FNR == 1 { fenced = 0 }
    /^ *(```|~~~)/ { fenced = !fenced; next }
    fenced || /^ *\|/ { next }
    {
      text = $0
      gsub(/[\200-\277]/, "", text)
      characters = length(text)
      sub(/https?:\/\/[^ )>]+/, "", text)
      if (characters > most && length(text) > most) {
        printf "%s:%d: %d characters, and %d are the most\n", FILENAME, FNR, characters, most
        failed = 1
      }
    }
    END { exit failed }' "$@"
}

self_test() {
  local wrong=0 many fence='```' newline=$'\n'
  tree=$(mktemp -d)
  trap 'rm -rf "$tree"' EXIT
  many=$(printf 'x%.0s' {1..121})
  # expect pass|fail NAME TEXT: a file of this text, whose third line matters.
  expect() {
    local result=pass
    printf 'Title\n\n%s\n' "$3" >"$tree/a.md"
    long_lines "$tree/a.md" >"$tree/output" || result=fail
    if [ "$result" = fail ] && ! grep -q "a.md:3: 1[0-9][0-9] characters" "$tree/output"; then
      result="fail without naming the line"
    fi
    if [ "$result" != "$1" ]; then
      echo "check-markdown: $2: expected $1, got $result"
      wrong=1
    fi
  }
  expect fail "121 characters" "$many"
  expect pass "120 characters" "${many:1}"
  expect pass "120 characters of two bytes" "${many:1:100}$(printf 'é%.0s' {1..20})"
  expect fail "121 characters of two bytes" "${many:0:101}$(printf 'é%.0s' {1..20})"
  expect fail "a long item" "- ${many:0:119}"
  expect pass "a row of a table" "| $many |"
  expect pass "a long URL" "See https://example.org/$many for more."
  expect fail "prose around a URL" "See https://example.org/ for $many."
  expect pass "fenced code" "$fence$newline$many$newline$fence"
  expect "fail without naming the line" "prose after fenced code" "$fence${newline}code$newline$fence$newline$many"
  if [ "$wrong" -ne 0 ]; then return 1; fi
  echo "check-markdown: long lines are found, and what is exempt is not"
}

if [ "${1:-}" = --self-test ]; then
  self_test
  exit
fi
if (($# == 0)); then
  cd "$(dirname "$0")/.."
  mapfile -t files < <(git ls-files --cached --others --exclude-standard -- '*.md')
  set -- "${files[@]}"
fi
if (($# == 0)); then
  echo "check-markdown: git lists no Markdown here" >&2
  exit 1
fi
long_lines "$@"
