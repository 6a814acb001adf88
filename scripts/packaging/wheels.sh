#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# wheels.sh FOLDER [books] [report]: the Python packages of the helpers as wheels, for a cluster without a network; books
# and report add what pecia-setup would add by these words. Call it where there is a network, with the cluster's version
# of Python and processor if this machine has others: PECIA_PYTHON_VERSION=3.11 PECIA_PROCESSOR=aarch64 wheels.sh wheels.
# Then copy FOLDER to the cluster.
set -euo pipefail
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if (($# == 0)) || [[ $1 == -* ]]; then
  sed -n '/^# SPDX-/d; /^set -/q; s/^# //p' "$0" >&2
  exit 2
fi
folder=$1
shift
lists=("$scripts/requirements.txt")
for kind in "$@"; do
  if [[ $kind != books && $kind != report ]]; then
    echo "wheels.sh: '$kind' is neither books nor report" >&2
    exit 2
  fi
  lists+=("$scripts/requirements-$kind.txt")
done
python=$scripts/../.venv/bin/python
if [[ ! -x $python ]]; then python=python3; fi
chosen=(--only-binary :all: --require-hashes --no-deps) # the lists have all packages
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
version=${PECIA_PYTHON_VERSION:-} processor=${PECIA_PROCESSOR:-$(uname -m)}
if [[ -n $version || $processor != "$(uname -m)" ]]; then
  version=${version:-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')}
  chosen+=(--python-version "$version" --implementation cp)
  for glibc in 2_17 2_28; do chosen+=(--platform "manylinux_${glibc}_$processor"); done
  chosen+=(--platform "manylinux2014_$processor")
fi
# pip would choose lines by this machine's Python. All lists become one, as some packages are in several.
"$python" - "$version" "$processor" "${lists[@]}" >"$scratch/list.txt" <<'PYTHON'
import re
import sys

from pip._vendor.packaging.markers import Marker, default_environment

environment = {**default_environment(), "platform_machine": sys.argv[2]}
if sys.argv[1]:
    environment["python_version"] = ".".join(sys.argv[1].split(".")[:2])
    environment["python_full_version"] = ".".join((sys.argv[1] + ".0").split(".")[:3])
wanted = {}
for path in sys.argv[3:]:
    with open(path, encoding="utf-8") as file:
        text = re.sub(r"^ *#.*\n", "", file.read(), flags=re.MULTILINE)
    for line in text.replace("\\\n", " ").splitlines():
        pin, _, rest = line.partition(" --hash=")
        package, _, marker = pin.partition(";")
        if not marker.strip() or Marker(marker.strip()).evaluate(environment):
            wanted[package.strip()] = rest
for package, rest in wanted.items():
    print(f"{package} --hash={rest}")
PYTHON
"$python" -m pip download --disable-pip-version-check --no-input -q "${chosen[@]}" -d "$folder" -r "$scratch/list.txt"
echo "wheels.sh: $(find "$folder" -name '*.whl' | wc -l) wheels, $(du -sh "$folder" | cut -f1), in $folder" >&2
