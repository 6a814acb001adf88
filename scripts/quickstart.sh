#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# quickstart.sh [FILE…]: from a bare machine to summaries of documents on four ranks, in a few minutes.
# Without files it reads licence texts that Debian and Ubuntu bring along. A second call with the same documents
# shows the summaries again; with other documents it begins anew.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
model="$root/models/SmolLM2-135M-Instruct"
run="$root/runs/quickstart"
job="$root/configs/quickstart.yaml"
ranks=4
part_tokens=900
instruction="Summarize the text above in two or three sentences."

say() { echo "quickstart: $*" >&2; }

default_documents() {
  local name file
  for name in Artistic BSD CC0-1.0 LGPL-3 GPL-1; do
    file=/usr/share/common-licenses/$name
    if [[ -f $file ]]; then readlink -f "$file"; fi
  done
}

build() {
  local log=build/quickstart-build.log
  say "building (log in $log)"
  mkdir -p build
  if ! { cmake --preset release && cmake --build --preset release --target pecia; } >"$log" 2>&1 </dev/null; then
    tail -n 30 "$log" >&2
    say "the build failed. The whole output is in $log"
    exit 1
  fi
}

# What the summaries depend on besides the program: when it changes, the run begins anew.
fingerprint() {
  { printf '%s\n' "$part_tokens" "$instruction" "${documents[@]}"; cat "${documents[@]}" "$job"; } | sha256sum
}

is_packed() {
  [[ -f $run/prompts.h5 && -f $run/prompts.sha256 && $(<"$run/prompts.sha256") == "$(fingerprint)" ]]
}

pack_documents() {
  local code=0
  rm -rf "$run"
  mkdir -p "$run"
  scripts/pecia-pack --model "$model" --split-tokens "$part_tokens" --instruction "$instruction" \
    --output "$run/prompts.h5" "${documents[@]}" || code=$?
  # 3: packed, without the bad documents that it has named.
  if ((code != 0 && code != 3)); then exit "$code"; fi
  fingerprint >"$run/prompts.sha256"
}

run_job() {
  export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
  if ((EUID == 0)); then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
  mpirun -np "$ranks" --bind-to none build/release/bin/pecia run "$job" </dev/null
}

show_summaries() {
  local file code=0
  scripts/pecia-text "$run" --model "$model" --output "$run/text" --force || code=$?
  # 3: some requests failed, as the run has said.
  if ((code != 0 && code != 3)); then exit "$code"; fi
  while IFS= read -r -d '' file; do
    printf '\n## %s\n' "$(basename "$file" .txt)"
    cat "$file"
  done < <(find "$run/text" -path "$run/text/parts" -prune -o -name '*.txt' -print0 | sort -z)
}

documents=()
for file in "$@"; do
  if [[ ! -f $file ]]; then
    say "$file: no such file"
    exit 2
  fi
  documents+=("$(readlink -f "$file")")
done
cd "$root"
if ((${#documents[@]} == 0)); then mapfile -t documents < <(default_documents); fi
if ((${#documents[@]} == 0)); then
  say "no licence texts under /usr/share/common-licenses. Name documents: scripts/quickstart.sh FILE…"
  exit 2
fi

scripts/setup.sh
code=0
if [[ -f $run/finished ]] && is_packed; then
  code=$(<"$run/finished")
  say "done already; here is what it gave (scripts/quickstart.sh FILE… takes other documents)"
else
  build
  scripts/pecia_tools/launch.sh gguf.demo_model "$model"
  is_packed || pack_documents
  run_job || code=$?
  # 0: all requests done, 3: some failed. Anything else has not finished, and its own words say why.
  if ((code != 0 && code != 3)); then exit "$code"; fi
  echo "$code" >"$run/finished"
fi
show_summaries
echo
scripts/pecia_tools/launch.sh dev.quickstart_report "$run"
exit "$code"
