# SPDX-License-Identifier: Apache-2.0
# What the scripts that time things share; they source it. `root`, `log` and `name` are theirs.
# shellcheck shell=bash disable=SC2154

say() { echo "$name: $*" >&2; }

load() { cut -d' ' -f1-3 /proc/loadavg; }

# logged COMMAND…: its output goes to the log; a failure shows the end of that and ends the script.
logged() {
  "$@" >>"$log" 2>&1 </dev/null || {
    tail -n 20 "$log" >&2
    say "this failed: $*; the whole output is in $log"
    exit 1
  }
}

# take_options [--json FILE] [--rounds N] [--NAME VALUE]…: into `json`, `rounds`, and variables of those names that
# the script lists in `more_options`; `usage` is the script's.
take_options() {
  local option
  while (($# > 0)); do
    if (($# < 2)); then usage; fi
    option=${1#--}
    if [[ $1 == --json ]]; then
      json=$(readlink -f "$2")
    elif [[ $1 == --* && " rounds ${more_options:-} " == *" $option "* ]]; then
      printf -v "$option" %s "$2"
    else
      usage
    fi
    shift 2
  done
  if [[ ! $rounds =~ ^[1-9][0-9]*$ ]]; then
    say "--rounds is $rounds; it must be a whole number of at least 1"
    exit 2
  fi
}

# build TARGET…: those programs of the release preset.
build() {
  say "building"
  logged cmake --preset release -S "$root"
  logged cmake --build "$root/build/release" --target "$@"
}

# on_this_machine: for mpirun, which else counts cores and refuses root.
on_this_machine() {
  export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
  if ((EUID == 0)); then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
}

# needs_root: for network namespaces.
needs_root() {
  if ((EUID == 0)); then return; fi
  say "net needs root: it makes network namespaces. Nothing was done"
  exit 2
}
