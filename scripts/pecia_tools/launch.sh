#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# launch.sh MODULE ARGS…: runs a module of this package with the Python of .venv, or with the one that PECIA_PYTHON names,
# which must have the packages. --help and --version install nothing.
set -euo pipefail
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PECIA_PYTHON:-$scripts/../.venv/bin/python}
module=$1
shift
export PYTHONPATH="$scripts${PYTHONPATH:+:$PYTHONPATH}"
help=no
for argument in "$@"; do
  if [[ $argument == -h || $argument == --help || $argument == --version ]]; then help=yes; fi
  if [[ $argument == -- ]]; then break; fi
done
if ! command -v "$python" >/dev/null; then
  # The options of pecia-pack need no package.
  if [[ $help == yes && $module == pack.main ]] && python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
    PYTHONDONTWRITEBYTECODE=1 exec python3 -m pecia_tools.pack.options "$@"
  fi
  if [[ -n ${PECIA_PYTHON:-} ]]; then
    echo "pecia: PECIA_PYTHON is '$PECIA_PYTHON', which is no program" >&2
    exit 2
  fi
  echo "pecia: the helpers' Python environment is missing ($(dirname "$scripts")/.venv). Make it with $scripts/pecia-setup" >&2
  exit 2
fi
if [[ $help == no && -z ${PECIA_PYTHON:-} && ($module == report.main || $module == dev.report_picture) ]]; then "$scripts/setup.sh" report; fi
exec "$python" -m "pecia_tools.$module" "$@"
