#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# lock-requirements.sh [--upgrade]: makes scripts/requirements*.txt from the .in files beside them: every package that is
# needed, also those that others need, with its version and the hashes of its files on PyPI, for Python 3.9 to 3.13 on any
# processor. Versions that the .txt files have stay, unless the .in files or --upgrade ask for others. It needs a network.
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

# lock NAME [OPTIONS OF uv pip compile]
lock() {
  local name=$1
  shift
  "$scratch/bin/uv" pip compile --quiet --universal --python-version 3.9 --generate-hashes --no-annotate \
    --custom-compile-command "scripts/lock-requirements.sh" "$name.in" --output-file "$name.txt" "$@"
}
lock requirements "$@"
lock requirements-books --constraints requirements.txt "$@"  # all go into one environment
lock requirements-report --constraints requirements.txt "$@"
lock requirements-test --constraints requirements.txt "$@"
lock requirements-dev --constraints requirements.txt "$@"
lock requirements-demo --no-deps "$@"
