#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All that needs a GPU: tests, compute-sanitizer on the small ones, times of the ops and of a model of 8B against
# what the GPU can do. Meant to take eight minutes; each step has a limit. In a repository it builds first; in an
# unpacked bundle (scripts/bundle.sh) it does not.
#
#   scripts/gpu-check.sh [RESULTS_FOLDER]    default apps/results, in a bundle results
#
# Writes RESULTS_FOLDER/<gpu>.jsonl. What could not be run is listed as not measured. Exit code 1: something failed;
# 2: there is no GPU, or no build.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 2

if [[ -x ./run ]]; then
  results=${1:-results}
  tests=(bin/test_*_cuda)
  start() { if [[ $1 == ranks ]]; then "$@"; else ./run "$@" 2>>"$work/libraries"; fi; }
  program() { echo "$1"; }
else
  cd .. || exit 2
  results=${1:-apps/results}
  if ! command -v nvidia-smi >/dev/null; then
    echo "gpu-check: there is no nvidia-smi here, so no GPU; pack a bundle with scripts/bundle.sh and take it to one" >&2
    exit 2
  fi
  scripts/setup.sh cuda || echo "gpu-check: going on without cudnn-frontend, so without attention by cuDNN" >&2
  cmake --preset cuda >/dev/null && cmake --build --preset cuda || exit 2
  tests=(build/cuda/tests/test_*_cuda)
  start() { if [[ $1 == ranks ]]; then "$@"; else "$(program "$1")" "${@:2}"; fi; }
  program() { if [[ $1 == test_* ]]; then echo "build/cuda/tests/$1"; else echo "build/cuda/bin/$1"; fi; }
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1) || [[ -z $gpu ]]; then
  echo "gpu-check: nvidia-smi names no GPU; is the driver loaded, and the GPU visible to this job?" >&2
  exit 2
fi
name=$(tr '[:upper:] ' '[:lower:]-' <<<"$gpu")
echo "gpu-check: $gpu, driver $(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)"

failed=()
not_measured=()

# step NAME LIMIT_S COMMAND…: runs it with its output kept; a failure is shown and counted.
step() {
  local what=$1 limit_s=$2 status=0 begin=$SECONDS
  shift 2
  export -f start program
  export work
  timeout --kill-after=10 "$limit_s" bash -c 'start "$@"' bash "$@" >"$work/log" 2>&1 || status=$?
  printf '%-46s %s (%d s)\n' "$what" "$( ((status == 0)) && echo ok || echo "FAILED, exit code $status")" \
    $((SECONDS - begin))
  if ((status != 0)); then
    failed+=("$what")
    tail -n 40 "$work/log"
  fi
  return "$status"
}

for path in "${tests[@]}"; do
  step "$(basename "$path")" 150 "$(basename "$path")"
done

# One small case of each op and type: the rest does the same with other sizes.
small='Backends/*ByHand*:Backends/*TransposedWeight*:Backends/*Widened*:Backends/*RootMean*:Backends/*BelongTogether*'
small+=':Backends/*ItsSlot*:Backends/*Exponentials*:Backends/*TimesUp*:Backends/*TopKKeeps*:Backends/*KeepsItemsApart*:Backends/*SeesExactly*bf16'
if command -v compute-sanitizer >/dev/null; then
  sanitized() { compute-sanitizer --tool "$1" --error-exitcode 86 "$(program test_kernels_cuda)" --gtest_filter="$small"; }
  if [[ -x ./run ]]; then
    sanitized() { compute-sanitizer --tool "$1" --error-exitcode 86 --target-processes all ./run test_kernels_cuda --gtest_filter="$small"; }
  fi
  for tool in memcheck racecheck initcheck; do
    begin=$SECONDS
    if (export -f sanitized program; export small; timeout 60 bash -c 'sanitized "$@"' bash "$tool") >"$work/log" 2>&1; then
      printf '%-46s ok (%d s)\n' "compute-sanitizer $tool" $((SECONDS - begin))
    else
      printf '%-46s FAILED (%d s)\n' "compute-sanitizer $tool" $((SECONDS - begin))
      failed+=("compute-sanitizer $tool")
      tail -n 20 "$work/log"
    fi
  done
else
  not_measured+=("compute-sanitizer: not installed here")
fi

# The whole of a replica on this one GPU: goldens, requests of every kind, a sample of all modes.
ranks() { # NUMBER PLACE TEST
  export PECIA_TEST_PLACE=$2 OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  export OMPI_MCA_rmaps_base_oversubscribe=1
  if [[ -x ./run ]]; then
    ./run mpirun -n "$1" --bind-to none ./own_hostid.sh ./run "$3"
  else
    mpirun -n "$1" --bind-to none tests/support/own_hostid.sh "$(program "$3")"
  fi
}
export -f ranks
step "goldens, 1 rank" 60 ranks 1 cuda_staged test_goldens
step "fp8 weights, 2 ranks" 60 ranks 2 cuda_staged test_fp8_weights
for place in cuda_staged cuda_nccl; do
  step "goldens, 2 ranks, $place" 60 ranks 2 "$place" test_goldens
  step "requests, 2 ranks, $place" 60 ranks 2 "$place" test_requests
  step "modes, 4 ranks, $place" 90 ranks 4 "$place" test_modes
  step "layouts, 2 ranks, $place" 90 ranks 2 "$place" test_layout_modes
done

mkdir -p "$results"
tools=$([[ -x ./run ]] && echo . || echo scripts)
if step "bench_ops" 150 bench_ops --backend cuda --json; then
  sed -n '/^{/p' "$work/log" >"$results/$name.jsonl"
  if python3 -c 'import torch' 2>/dev/null; then
    sdpa() { PYTHONPATH=$tools timeout 60 python3 -m pecia_tools.bench_sdpa; }
    if sdpa >"$work/sdpa" 2>"$work/log"; then
      cat "$work/sdpa" >>"$results/$name.jsonl"
    else
      not_measured+=("attention by PyTorch: $(tail -n 1 "$work/log")")
    fi
  else
    not_measured+=("attention by PyTorch: it is not installed here")
  fi
  python3 - "$results/$name.jsonl" <<'PYTHON'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
floors = lines[0]
print(f"bf16 product {floors['product_flops'] / 1e12:.0f} TFLOP/s, copy {floors['bandwidth'] / 1e12:.2f} TB/s")
print(f"attention library: {floors['attention_library']}")
for line in lines[1:]:
    print(f"{line['op']:17} {line['shape']:52} {line['median_s'] * 1e3:9.3f} ms  floor/measured {line['share_of_floor']:.2f}")
times = {(line["op"], line["shape"]): line["median_s"] for line in lines[1:]}
for (op, shape), seconds in times.items():
    if op == "attention (torch)" and ("attention", shape) in times:
        print(f"{shape}: {seconds / times['attention', shape]:.2f} of the speed of PyTorch's cuDNN attention")
PYTHON
  echo "gpu-check: $results/$name.jsonl"
else
  not_measured+=("times of the ops")
fi

# The shape of Llama 3 8B, random weights.
model=$work/llama-3-8b-random
if (($(df --output=avail -B1G "$work" | tail -n 1) < 20)); then
  not_measured+=("a model of 8B: there are no 20 GB of disk for it")
elif PYTHONPATH=$tools python3 -m pecia_tools.bench_model "$model" --heads 32 --kv-heads 8 --head-dim 128 --hidden 4096 \
  --ffn 14336 --layers 32 --vocab 128256; then
  whole=(--backend cuda --model "$model" --runs 3 --json "$results/$name.jsonl")
  if step "bench_prefill of 8B" 150 bench_prefill "${whole[@]}" --tokens 8192,32768; then
    cat "$work/log"
  else
    not_measured+=("prefill of 8B")
  fi
  if step "bench_prefill of 8B, fp8" 150 bench_prefill "${whole[@]}" --dtype fp8 --tokens 32768; then
    cat "$work/log"
  else
    not_measured+=("prefill of 8B in fp8")
  fi
  if step "bench_decode of 8B" 120 bench_decode "${whole[@]}" --contexts 8192 --batches 1,16,64; then
    cat "$work/log"
  else
    not_measured+=("decode of 8B")
  fi
else
  not_measured+=("a model of 8B: it could not be made")
fi

if [[ -s $work/libraries ]]; then sort -u "$work/libraries"; fi
for what in "${not_measured[@]}"; do echo "not measured: $what"; done
if ((${#failed[@]} > 0)); then
  echo "gpu-check: failed: ${failed[*]}"
  exit 1
fi
echo "gpu-check: everything passed"
