#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Who may include whom. Prints each line that breaks a rule and exits 1 if there is one.
#
#   scripts/check-layering.sh              checks the repository
#   scripts/check-layering.sh FOLDER       checks the tree below FOLDER
#   scripts/check-layering.sh --self-test  checks that each rule catches what it forbids
#
# Rules: a room of lib/ includes only itself and rooms before it in `order`; kernels/ includes only kernels/,
# lib/base/core and lib/base/device; lib/ and kernels/ include neither apps/ nor tests/; MPI stays in
# lib/ranks/comm, NCCL in lib/ranks/comm, HDF5 in lib/files (tests may use MPI and HDF5);
# quoted includes start at the repository root.
set -euo pipefail

order="base ranks files model work engine simulation settle run"

check_tree() {
  local root=$1
  (
    cd "$root" || exit 1
    local folders=()
    for folder in lib kernels apps tests; do
      if [ -d "$folder" ]; then folders+=("$folder"); fi
    done
    if [ ${#folders[@]} -eq 0 ]; then
      echo "check-layering: $PWD has no lib, kernels, apps or tests"
      exit 1
    fi
    find "${folders[@]}" -type f \( -name '*.hpp' -o -name '*.cpp' -o -name '*.cuh' -o -name '*.cu' \) -print0 |
      sort -z | xargs -0 -r awk -v order="$order" '
      function broken(why) { printf "%s:%d: %s: %s\n", FILENAME, FNR, $0, why; failed = 1 }
      function below(path, folder) { return index(path, folder "/") == 1 }
      BEGIN { count = split(order, names, " "); for (i = 1; i <= count; ++i) level[names[i]] = i }

      /^[ \t]*#[ \t]*include[ \t]*<(mpi|mpi-ext)\.h>/ {
        if (!below(FILENAME, "lib/ranks/comm") && !below(FILENAME, "tests"))
          broken("MPI is used only in lib/ranks/comm; take a Communicator")
      }
      /^[ \t]*#[ \t]*include[ \t]*<nccl\.h>/ {
        if (!below(FILENAME, "lib/ranks/comm")) broken("NCCL is used only in lib/ranks/comm")
      }
      /^[ \t]*#[ \t]*include[ \t]*<(hdf5|hdf5_hl|H5.*)\.h>/ {
        if (!below(FILENAME, "lib/files") && !below(FILENAME, "tests"))
          broken("HDF5 is used only in lib/files")
      }
      /^[ \t]*#[ \t]*include[ \t]*"/ {
        split($0, quoted, "\""); target = quoted[2]
        split(FILENAME, from, "/"); split(target, to, "/")
        if (to[1] !~ /^(lib|kernels|apps|tests)$/) { broken("include it from the repository root"); next }
        if (from[1] != "tests" && to[1] == "tests") { broken("only tests include tests/"); next }
        if (from[1] ~ /^(lib|kernels)$/ && to[1] == "apps") { broken(from[1] "/ does not know apps/"); next }
        if (from[1] == "lib" && to[1] == "lib") {
          if (!(from[2] in level)) broken("lib/" from[2] " has no place in the order: " order)
          else if (!(to[2] in level)) broken("lib/" to[2] " has no place in the order: " order)
          else if (level[to[2]] > level[from[2]]) broken("lib/" from[2] " comes before lib/" to[2])
        }
        if (from[1] == "lib" && to[1] == "kernels" && from[2] == "base")
          broken("kernels/ is built on lib/base")
        if (from[1] == "kernels" && to[1] == "lib" && target !~ /^lib\/base\/(core|device)\//)
          broken("kernels/ includes only lib/base/core and lib/base/device")
      }
      END { exit failed }'
  )
}

self_test() {
  local wrong=0
  tree=$(mktemp -d)
  trap 'rm -rf "$tree"' EXIT

  # expect pass|fail FILE LINE: a tree of this one file is accepted or refused.
  expect() {
    rm -rf "${tree:?}"/*
    mkdir -p "$tree/$(dirname "$2")"
    printf '%s\n' "$3" >"$tree/$2"
    local result=pass
    check_tree "$tree" >"$tree/output" || result=fail
    if [ "$result" = fail ] && ! grep -q "^$2:1: " "$tree/output"; then result="fail without naming the line"; fi
    if [ "$result" != "$1" ]; then
      echo "check-layering: $2 with '$3': expected $1, got $result"
      wrong=1
    fi
  }
  expect pass lib/run/a.cpp '#include "lib/base/core/error.hpp"'
  expect pass lib/ranks/comm/a.cpp '#include "lib/ranks/comm/communicator.hpp"'
  expect fail lib/base/core/a.cpp '#include "lib/ranks/comm/communicator.hpp"'
  expect fail lib/files/text/a.hpp '  #  include "lib/model/config/config.hpp"'
  expect fail lib/ranks/parallel/a.hpp '#include "lib/model/attention/kv_cache.hpp"'
  expect fail lib/work/batch/a.hpp '#include "lib/engine/schedule/plan.hpp"'
  expect pass lib/engine/execute/a.cpp '#include "lib/engine/schedule/plan.hpp"'
  expect fail lib/run/a.cpp '#include "lib/unknown/a.hpp"'
  expect fail lib/unknown/a.cpp '#include "lib/base/core/error.hpp"'
  expect pass lib/model/layers/a.cpp '#include "kernels/api/linear.hpp"'
  expect fail lib/base/device/a.cpp '#include "kernels/api/linear.hpp"'
  expect fail lib/run/a.cpp '#include "apps/pecia/main.hpp"'
  expect fail lib/run/a.cpp '#include "tests/support/compare.hpp"'
  expect pass kernels/cpu/a.cpp '#include "lib/base/device/buffer.hpp"'
  expect fail kernels/cpu/a.cpp '#include "lib/base/report/spans.hpp"'
  expect fail kernels/cpu/a.cpp '#include "lib/model/config/config.hpp"'
  expect fail kernels/cuda/a.cu '#include "lib/ranks/comm/communicator.hpp"'
  expect fail kernels/api/a.hpp '#include "backend.hpp"'
  expect pass lib/ranks/comm/a.cpp '#include <mpi.h>'
  expect fail apps/bench/a.cpp '#include <mpi.h>'
  expect pass tests/comm/a.cpp '#include <mpi.h>'
  expect fail lib/base/core/a.cpp '#include <mpi.h>'
  expect fail lib/ranks/cluster/a.cpp '#include <mpi.h>'
  expect fail lib/run/a.cpp '#include <mpi.h>'
  expect fail apps/pecia/main.cpp '#include <mpi.h>'
  expect pass lib/ranks/comm/a.cpp '#include <nccl.h>'
  expect fail lib/model/attention/a.cpp '#include <nccl.h>'
  expect pass lib/files/hdf5/a.cpp '#include <hdf5.h>'
  expect pass tests/io/a.cpp '#include <hdf5.h>'
  expect fail lib/base/core/a.cpp '#include <hdf5.h>'
  expect fail lib/base/report/a.cpp '#include <H5Dpublic.h>'
  expect "fail without naming the line" elsewhere/a.cpp '#include "lib/base/core/error.hpp"'
  expect pass lib/base/core/a.cpp '// #include "lib/ranks/comm/communicator.hpp" is only mentioned'
  if [ "$wrong" -ne 0 ]; then return 1; fi
  echo "check-layering: every rule catches what it forbids"
}

if [ "${1:-}" = --self-test ]; then
  self_test
else
  check_tree "${1:-$(dirname "$0")/..}" || exit 1
fi
