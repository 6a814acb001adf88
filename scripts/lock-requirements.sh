#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# lock-requirements.sh [--upgrade]: makes scripts/requirements*.txt from the dependencies and extras of pyproject.toml: every
# package that is needed, also those that others need, with its version and the hashes of its files on PyPI, for Python 3.9
# to 3.13 on any processor. Versions that the .txt files have stay, unless pyproject.toml or --upgrade ask for others. It
# needs a network, and Python 3.11 or newer.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
if (($# > 1)) || [[ $# == 1 && $1 != --upgrade ]]; then
  sed -n '/^# SPDX-/d; /^set -/q; s/^# //p' "$0" >&2
  exit 2
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m venv "$scratch"
"$scratch/bin/pip" --disable-pip-version-check -q install uv==0.13.9

# asked_for [EXTRA]: the lines of pyproject.toml.
asked_for() {
  python3 - "$@" <<'PYTHON'
import sys
import tomllib

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
print(*(project["optional-dependencies"][sys.argv[1]] if sys.argv[1:] else project["dependencies"]), sep="\n")
PYTHON
}

# lock [EXTRA] [OPTIONS OF uv pip compile]
lock() {
  local extra=()
  if (($# > 0)) && [[ $1 != --* ]]; then extra=("$1") && shift; fi
  local name=requirements${extra:+-${extra[0]}}
  asked_for "${extra[@]}" >"$scratch/$name.in"
  "$scratch/bin/uv" pip compile --quiet --universal --python-version 3.9 --generate-hashes --no-annotate \
    --custom-compile-command "scripts/lock-requirements.sh" "$scratch/$name.in" --output-file "$name.txt" "$@"
}
lock "$@"
for extra in books report test dev; do lock "$extra" --constraints requirements.txt "$@"; done  # into one environment
lock demo --no-deps "$@"
