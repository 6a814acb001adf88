#!/usr/bin/env bash
# launch.sh MODULE ARGS…: runs a module of this package with the Python of .venv.
set -euo pipefail
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python="$scripts/../.venv/bin/python"
if [[ ! -x $python ]]; then
  echo "pecia: the helpers' Python environment is missing ($(dirname "$scripts")/.venv). Make it with $scripts/pecia-setup" >&2
  exit 2
fi
module=$1
shift
if [[ $module == report ]]; then "$scripts/setup.sh" report; fi
PYTHONPATH="$scripts${PYTHONPATH:+:$PYTHONPATH}" exec "$python" -m "pecia_tools.$module" "$@"
