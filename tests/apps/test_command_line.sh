#!/usr/bin/env bash
# The command's surface: exit codes, what goes to stdout and what to stderr, alone and under mpiexec.
# usage: test_command_line.sh PECIA MPIEXEC NUMPROC_FLAG
set -u
pecia=$1
mpiexec=("$2" "$3")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

# expect CODE PATTERN_IN_STDOUT PATTERN_IN_STDERR COMMAND…   ("-": that stream is empty, "*": it may be anything)
expect() {
  local code=$1 out=$2 err=$3 got
  shift 3
  "$@" >"$folder/out" 2>"$folder/err"
  got=$?
  [ "$got" -eq "$code" ] || complain "exit code $got, expected $code" "$@"
  matches "$out" "$folder/out" || complain "stdout has no '$out'" "$@"
  matches "$err" "$folder/err" || complain "stderr has no '$err'" "$@"
}
matches() {
  case $1 in
    -) [ ! -s "$2" ] ;;
    '*') true ;;
    *) grep -qe "$1" "$2" ;;
  esac
}
complain() {
  failures=$((failures + 1))
  echo "FAILED: $*"
  sed 's/^/  stdout: /' "$folder/out"
  sed 's/^/  stderr: /' "$folder/err"
}

expect 0 '^pecia [0-9.]* (commit ' - "$pecia" --version
expect 0 'inspect' - "$pecia" --help
expect 0 '--retry-failed' - "$pecia" run --help
expect 2 - 'no command given' "$pecia"
expect 2 - 'frobnicate' "$pecia" frobnicate
expect 2 - 'needs a job file' "$pecia" run
expect 2 - '--unknown' "$pecia" run --unknown

expect 0 '^generation:' - "$pecia" run --print-default
"$pecia" run --print-default >"$folder/job.yaml"
expect 2 - 'input prompts/\*.h5 matches no file' "$pecia" run --validate "$folder/job.yaml"
expect 2 - 'absent.yaml: cannot be read' "$pecia" run "$folder/absent.yaml" --validate
expect 2 - 'set generation.top_p=2: generation.top_p is 2' \
  "$pecia" run --validate --set generation.top_p=2 --set kv.memory=1GiB "$folder/job.yaml"
touch "$folder/p.h5"
expect 2 - 'parallel.tp: 2 is not in this version' \
  "$pecia" run --validate "$folder/job.yaml" --set input=[p.h5] --set parallel.tp=2

expect 2 - 'no run has begun' "$pecia" inspect "$folder"
expect 2 - 'p.h5' "$pecia" inspect "$folder/p.h5"
expect 2 - 'PATH\|path' "$pecia" inspect

expect 0 '^    0 ' - "$pecia" topology
expect 0 '"local_rank": 0' - "$pecia" topology --json
expect 2 - 'is a grid of 2 ranks' "$pecia" topology --dp 2
expect 2 - 'not in it; add a line' env PECIA_TOPOLOGY_FILE="$folder/hosts" bash -c \
  "echo 'another-host a' > $folder/hosts; exec $pecia topology"
expect 0 '^ok    mpi ' - "$pecia" doctor --output "$folder/not/made"
expect 0 '"topic": "binding"' - "$pecia" doctor --json

expect 0 'DP 2 × CP 2 × SP 1 × TP 1' '*' "${mpiexec[@]}" 4 --bind-to none "$pecia" topology --dp 2
[ "$(grep -c '^ *[0-9]' "$folder/out")" -eq 4 ] || complain "not one line per rank"
expect 0 '"ranks": 2' '*' "${mpiexec[@]}" 2 --bind-to none "$pecia" doctor --json
expect 2 - 'absent.yaml: cannot be read' \
  "${mpiexec[@]}" 2 "$pecia" run --validate "$folder/absent.yaml"
[ "$(grep -c 'cannot be read' "$folder/err")" -eq 1 ] || complain "printed by more than one rank"

[ "$failures" -eq 0 ] && echo "all as expected"
[ "$failures" -eq 0 ]
