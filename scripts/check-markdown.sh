#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Lines of the repository's Markdown are at most 120 characters long. Exempt are tables, fenced code, and a line that is
# long because of one URL. Prints each line that is longer and exits 1 if there is one.
#
#   scripts/check-markdown.sh [FILE…]        checks these files, or all that git knows or would take
#   scripts/check-markdown.sh --fix [FILE…]  breaks the lines of paragraphs and list items that have a long one
#   scripts/check-markdown.sh --self-test    checks that a long line is found and broken, and what is exempt is not
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

# The file with its long paragraphs and list items broken anew, on stdout. Words stay as they are.
broken_lines() {
  LC_ALL=C awk -v most=120 '
    function characters(text) { gsub(/[\200-\277]/, "", text); return length(text) }
    function flush(    i, n, long, text, words, line, rest) {
      for (i = 1; i <= count; ++i) long = long || characters(block[i]) > most
      if (!long) for (i = 1; i <= count; ++i) print block[i]
      else {
        match(block[1], /^ *([-*] +|[0-9]+\. +)?/)
        line = substr(block[1], 1, RLENGTH)
        rest = sprintf("%" RLENGTH "s", "")
        text = substr(block[1], RLENGTH + 1)
        for (i = 2; i <= count; ++i) text = text " " block[i]
        n = split(text, words, " ")
        for (i = 1; i <= n; ++i) {
          if (i > 1 && characters(line) + 1 + characters(words[i]) > most) { print line; line = rest words[i] }
          else line = line (i > 1 ? " " : "") words[i]
        }
        print line
      }
      count = 0
    }
    /^ *(```|~~~)/ { flush(); fenced = !fenced; print; next }
    fenced || /^ *$/ || /^#/ || /^ *\|/ || (count == 0 && /^    /) { flush(); print; next }
    /^ *([-*]|[0-9]+\.) / { flush() }
    { block[++count] = $0 }
    END { flush() }' "$1"
}

fix() {
  local file
  for file in "$@"; do
    if ! long_lines "$file" >/dev/null; then
      broken_lines "$file" >"$file.broken"
      chmod --reference="$file" "$file.broken"
      mv "$file.broken" "$file"
    fi
  done
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

  local item="- " index
  for index in {100..139}; do item+="é$index "; done
  printf '%s\n' '# Title' '' "short" "kept" '' "$item" "- next" '' "| $many $many |" "$fence" "$many" "$fence" >"$tree/a.md"
  cp "$tree/a.md" "$tree/before.md"
  fix "$tree/a.md"
  if ! long_lines "$tree/a.md" || ! grep -q '^  é123 é124' "$tree/a.md" || ! grep -qx kept "$tree/a.md" ||
    [ "$(tr -s ' \n' ' ' <"$tree/a.md")" != "$(tr -s ' \n' ' ' <"$tree/before.md")" ]; then
    echo "check-markdown: --fix gave"
    cat "$tree/a.md"
    wrong=1
  fi
  if [ "$wrong" -ne 0 ]; then return 1; fi
  echo "check-markdown: long lines are found and broken, and what is exempt is not"
}

action=long_lines
case ${1:-} in
  --self-test)
    self_test
    exit
    ;;
  --fix)
    action=fix
    shift
    ;;
esac
if (($# == 0)); then
  cd "$(dirname "$0")/.."
  mapfile -t files < <(git ls-files --cached --others --exclude-standard -- '*.md')
  set -- "${files[@]}"
fi
if (($# == 0)); then
  echo "check-markdown: git lists no Markdown here" >&2
  exit 1
fi
"$action" "$@"
