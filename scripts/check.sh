#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check.sh [CHECK…]: the checks of the tree that need no build and take seconds: format ruff mypy shellcheck codespell
# markdown license layering, or the ones named. Prints what they find, and the seconds of each.
# Exit code 0: nothing; 1: something; 2: nothing by the tools that are here, and another is missing. `scripts/setup.sh dev`
# installs what PyPI has of them.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
PATH=$PWD/.venv/bin:$PATH
all=(format ruff mypy shellcheck codespell markdown license layering)

# has TOOL: says so if not.
has() {
  command -v "$1" >/dev/null && return
  echo "check: $1 is not installed; call $2" >&2
  return 1
}

shell_scripts() {
  git ls-files --cached --others --exclude-standard -z | while IFS= read -r -d '' file; do
    if [ -f "$file" ] && IFS= read -r start <"$file" && [[ $start =~ ^'#!'.*[/\ ](bash|sh)$ ]]; then printf '%s\0' "$file"; fi
  done 2>/dev/null  # of files with zero bytes
}

run() {
  case $1 in
    format) scripts/check-format.sh ;;
    ruff) has ruff "scripts/setup.sh dev" || return 2 && ruff check --quiet --output-format concise --config scripts/pyproject.toml scripts tests ;;
    mypy) has mypy "scripts/setup.sh dev" || return 2 && mypy --config-file scripts/pyproject.toml scripts/pecia_tools ;;
    shellcheck)
      has shellcheck "apt install shellcheck" || return 2
      shell_scripts | xargs -0 shellcheck --severity=warning
      ;;
    codespell)
      has codespell "scripts/setup.sh dev" || return 2
      git ls-files -z -- ':!tests' | xargs -0 codespell || return 1
      # Tests of "did you mean" and of text that is not UTF-8 have such words on purpose.
      git ls-files -z -- tests | xargs -0 codespell -I tests/misspelt_on_purpose.txt
      ;;
    markdown) scripts/check-markdown.sh ;;
    license) scripts/check-license.sh ;;
    layering) scripts/check-layering.sh ;;
    *)
      echo "check: '$1' is no check. There are: ${all[*]}" >&2
      return 1
      ;;
  esac
}

(($# > 0)) || set -- "${all[@]}"
code=0
for check in "$@"; do
  start=$EPOCHREALTIME
  status=0
  run "$check" || status=$?
  case $status in
    0) result=passed ;;
    2) result="not checked" ;;
    *) result=failed ;;
  esac
  LC_ALL=C awk -v name="$check" -v result="$result" -v start="$start" -v end="$EPOCHREALTIME" \
    'BEGIN { printf "%-11s %-11s %5.1f s\n", name, result, end - start }'
  if [ "$result" = failed ]; then code=1; elif [ "$status" -eq 2 ] && [ "$code" -eq 0 ]; then code=2; fi
done
exit "$code"
