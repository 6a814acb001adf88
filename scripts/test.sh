#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets up, builds and runs all tests of the release preset; exits as ctest does.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
scripts/setup.sh

log=build/test-build.log
echo "test: building (log in $log)" >&2
if ! { cmake --preset release && cmake --build --preset release; } >"$log" 2>&1 </dev/null; then
  grep -E -m 20 -A 5 'error|Error|FAILED' "$log" >&2 || tail -n 40 "$log" >&2
  echo "test: the build failed. The whole output is in $log" >&2
  exit 1
fi
# Tests say how many processors they take, so this also bounds the ranks that run at once; four, as
# the widest tests start four ranks and must not wait for an empty machine on a small one.
cores=$(nproc)
exec ctest --preset release --parallel "$((cores > 4 ? cores : 4))" "$@"
