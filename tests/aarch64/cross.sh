#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cross.sh PROGRAM: builds the preset aarch64-cross and runs its tests with label aarch64, under qemu. PROGRAM is the
# same program for this machine: some runs begin with one and end with the other. Exits 77 where tools are missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
native=$1

skip() {
  echo "skipped: $1 (scripts/setup.sh aarch64 gets it)"
  exit 77
}
command -v aarch64-linux-gnu-g++ >/dev/null || skip "there is no cross compiler for aarch64"
command -v qemu-aarch64 >/dev/null || skip "there is no qemu-aarch64"
[[ -e build/aarch64-sysroot/unpacked ]] || skip "there are no packages for aarch64 in build/aarch64-sysroot"

export CCACHE_BASEDIR=$PWD
unset "${!OMPI_@}" "${!PECIA_@}" OMP_NUM_THREADS
cmake --preset aarch64-cross -DPECIA_NATIVE_PROGRAM="$native" >/dev/null
TIMEFORMAT='the build took %0R s: processors were busy for %0U s, and %0S s for the system'
time cmake --build --preset aarch64-cross --parallel
TIMEFORMAT=${TIMEFORMAT/build/tests}
time ctest --preset aarch64-cross --parallel "$(nproc)"
