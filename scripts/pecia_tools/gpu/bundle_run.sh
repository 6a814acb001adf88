#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Starts a program of this bundle with its libraries; says on stderr which large ones of this machine it took.
#
#   ./run PROGRAM [OPTIONS…]                    PROGRAM as listed in bin/
#   ./run mpirun -n 2 ./run PROGRAM [OPTIONS…]  with the bundle's Open MPI
#
# Exit code 2: something of CUDA was not found.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

program="$here/bin/${1:-}"
if [[ ${1:-} == mpirun ]]; then program="$here/openmpi/bin/mpirun"; fi
if (($# == 0)) || [[ ! -x $program ]]; then
  echo "usage: ./run PROGRAM [OPTIONS…], PROGRAM one of: $(cd "$here/bin" && echo *)" >&2
  exit 2
fi

# Where large libraries may be, the first that has one wins: what the user set, the toolkits, Python's packages.
places() {
  tr ':' '\n' <<<"${LD_LIBRARY_PATH:-}"
  local folder
  for folder in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda /usr/local/cuda-*; do
    [[ -n $folder ]] && printf '%s\n' "$folder/lib64" "$folder/lib"
  done
  /sbin/ldconfig -p 2>/dev/null | sed -nE 's/.*=> (.*)\/[^/]*$/\1/p' | sort -u
  if command -v python3 >/dev/null; then
    python3 - <<'PYTHON'
import glob, site, sys
folders = dict.fromkeys(sys.path + site.getsitepackages() + [site.getusersitepackages()])
print("\n".join(found for folder in folders if folder for found in sorted(glob.glob(folder + "/nvidia/*/lib"))))
PYTHON
  fi
}

mapfile -t folders < <(places)
path="$here/lib"

# take LIBRARY: adds the folder that has it to the path; fails where none has.
take() {
  local folder
  for folder in "${folders[@]}"; do
    [[ -n $folder && -e $folder/$1 ]] || continue
    echo "run: $folder/$1" >&2
    case ":$path:" in *":$folder:"*) ;; *) path="$path:$folder" ;; esac
    return 0
  done
  return 1
}
while read -r library; do
  if ! take "$library"; then
    echo "run: $library was not found on this machine; put its folder into LD_LIBRARY_PATH" >&2
    exit 2
  fi
done <"$here/large-libraries"
while read -r library; do
  take "$library" || echo "run: $library was not found on this machine; attention will do without cuDNN" >&2
done <"$here/optional-libraries"

export PECIA_GOLDENS_FOLDER="${PECIA_GOLDENS_FOLDER:-$here/goldens}"
if [[ -d $here/openmpi ]]; then export OPAL_PREFIX="$here/openmpi"; fi
if [[ -d $here/pmix ]]; then
  export PMIX_INSTALL_PREFIX="$here/pmix" PMIX_PKGLIBDIR="$here/pmix/lib/pmix" PMIX_PKGDATADIR="$here/pmix/share/pmix"
fi
LD_LIBRARY_PATH="$path${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "$program" "${@:2}"
