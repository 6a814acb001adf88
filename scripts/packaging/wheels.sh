#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# wheels.sh FOLDER [books] [report]: the Python packages of the helpers as wheels, for a cluster without a network; books
# and report add what pecia-setup would add by these words. Call it where there is a network, with the cluster's version
# of Python if this machine has another: PECIA_PYTHON_VERSION=3.11 wheels.sh wheels. Then copy FOLDER to the cluster.
set -euo pipefail
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if (($# == 0)) || [[ $1 == -* ]]; then
  sed -n '/^# SPDX-/d; /^set -/q; s/^# //p' "$0" >&2
  exit 2
fi
folder=$1
shift
lists=(-r "$scripts/requirements.txt")
for kind in "$@"; do
  if [[ $kind != books && $kind != report ]]; then
    echo "wheels.sh: '$kind' is neither books nor report" >&2
    exit 2
  fi
  lists+=(-r "$scripts/requirements-$kind.txt")
done
python=$scripts/../.venv/bin/python
if [[ ! -x $python ]]; then python=python3; fi
chosen=(--only-binary :all:)
if [[ -n ${PECIA_PYTHON_VERSION:-} ]]; then
  chosen+=(--python-version "$PECIA_PYTHON_VERSION" --implementation cp)
  for glibc in 2_17 2_28; do chosen+=(--platform "manylinux_${glibc}_$(uname -m)"); done
  chosen+=(--platform "manylinux2014_$(uname -m)")
fi
"$python" -m pip download --disable-pip-version-check --no-input -q "${chosen[@]}" -d "$folder" "${lists[@]}"
echo "wheels.sh: $(find "$folder" -name '*.whl' | wc -l) wheels, $(du -sh "$folder" | cut -f1), in $folder" >&2
