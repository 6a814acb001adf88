#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check-cuda.sh ARCHITECTURES [FOLDER]: compiles the CUDA kernels for these GPUs ("90a", or "80;100;120") in a build folder
# of the cuda preset (build/cuda-kernels), and says whether a kernel spills registers, its blocks have no room on a
# multiprocessor, or it lacks the fast instructions that it is written for. The blocks are what test_kernels_emulated of
# the release preset has launched, where it has run. Exit code 0: no; 1: yes, or it does not compile; 2: there is no nvcc.
set -euo pipefail
cd "$(dirname "$0")/.."
if (($# < 1 || $# > 2)); then
  sed -n '/^# SPDX-/d; /^set -/q; s/^# //p' "$0" >&2
  exit 2
fi
architectures=$1 folder=${2:-build/cuda-kernels}
PATH=build/cuda-tools/bin:$PATH:/usr/local/cuda/bin
if ! command -v nvcc >/dev/null; then
  echo "check-cuda: there is no nvcc" >&2
  exit 2
fi
scripts/setup.sh cuda
cmake --preset cuda -B "$folder" -DPECIA_CUDA_ARCHITECTURES="$architectures"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
cmake --build "$folder" --target pecia_kernels_cuda --parallel | tee "$log"

launches=build/release/kernel_launches
table=("$log")
if [ -f "$launches" ]; then table+=("$launches"); fi
export PYTHONPATH=scripts
echo "== no spills, and room"
python3 -m pecia_tools.gpu.kernel_table "${table[@]}"
echo "== fast instructions"
if ! command -v cuobjdump >/dev/null; then
  echo "check-cuda: not checked, as there is no cuobjdump (it comes with CUDA)"
  exit
fi
cuobjdump -sass "$folder/kernels/cuda/libpecia_kernels_cuda.a" | python3 -m pecia_tools.gpu.kernel_sass /dev/stdin
