#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All that needs a GPU, in phases with a deadline each, the most valuable first. A phase may be stopped at any time:
# each step has said its line and kept its log by then, and the table is made of what was measured.
#
#   scripts/gpu-check.sh PHASE OUT      runs a phase; OUT is a folder that several phases share
#   scripts/gpu-check.sh --list         prints all steps with their limits in seconds
#
#   A  240 s  doctor, some tests of ops, goldens, times of products and attention, prefill and decode of an 8B shape
#   B  300 s  four layers of 8B's widths against transformers on this GPU; mixed lengths, graphs on and off, fp8
#   C  420 s  every test of the ops; compute-sanitizer on our own kernels
#   D  300 s  two ranks on this GPU by way of the host; a smoke test of NCCL
#   E  200 s  profiles of six kernels by ncu; PyTorch's products and attention beside ours
#
# In a repository, build before: scripts/setup.sh cuda; cmake --preset cuda && cmake --build --preset cuda. In an
# unpacked bundle (scripts/bundle.sh) everything is there. GPU_CHECK_PROGRAMS=FOLDER takes the programs from a folder,
# GPU_CHECK_SECONDS=N sets another deadline. The model of 16 GB lies in /dev/shm or TMPDIR meanwhile.
#
# Writes OUT/steps.jsonl, OUT/results.jsonl, OUT/logs and OUT/table.md, which is printed last. Exit code 1: something
# failed or did not end in time; 2: there is no GPU, or no build.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
declare -A deadline_of=([A]=240 [B]=300 [C]=420 [D]=300 [E]=200)

usage() {
  sed -n '4,8p' "$here/$(basename "${BASH_SOURCE[0]}")" >&2
  exit 2
}

list_only=
if [[ ${1:-} == --list && $# == 1 ]]; then
  list_only=1
elif (($# != 2)) || [[ -z ${deadline_of[$1]:-} ]]; then
  usage
fi

# The command that starts a program, in words: `read -ra words <<<"$(program NAME)"`.
program() {
  if [[ -n ${GPU_CHECK_PROGRAMS:-} ]]; then
    echo "$GPU_CHECK_PROGRAMS/$1"
  elif [[ -x $here/run ]]; then
    case $1 in
      make-bench-model) echo "python3 -m pecia_tools.bench.model" ;;
      bench-sdpa) echo "python3 -m pecia_tools.gpu.sdpa" ;;
      gpu-goldens) echo "python3 -m pecia_tools.gpu.goldens" ;;
      mpirun) echo "$here/run mpirun" ;;
      *) echo "$here/run $1" ;;
    esac
  else
    case $1 in
      make-bench-model) echo "python3 -m pecia_tools.bench.model" ;;
      bench-sdpa) echo "python3 -m pecia_tools.gpu.sdpa" ;;
      gpu-goldens) echo "python3 -m pecia_tools.gpu.goldens" ;;
      mpirun) echo mpirun ;;
      test_*) echo "$here/../build/cuda/tests/$1" ;;
      *) echo "$here/../build/cuda/bin/$1" ;;
    esac
  fi
}

own_hostid=$here/own_hostid.sh
[[ -x $own_hostid ]] || own_hostid=$here/../tests/support/own_hostid.sh
export PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_mpi_yield_when_idle=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} PECIA_NO_CACHE=1

phase=
running=
failures=0
number=0

now() { date +%s; }

# say STATUS SECONDS NAME LOG: one line on the terminal, one in OUT/steps.jsonl.
say() {
  printf '%s %02d  %-52s %s (%d s)\n' "$phase" "$number" "$3" "$1" "$2"
  printf '{"phase": "%s", "step": "%s", "status": "%s", "seconds": %d, "log": "%s"}\n' "$phase" "$3" "$1" "$2" "$4" \
    >>"$out/steps.jsonl"
}

# step NAME LIMIT_S COMMAND…: runs it, at most until the phase's deadline. Exit code 77 means that something it needs is
# not installed here; the last line of its log says what.
step() {
  local name=$1 limit_s=$2 status=0 begin left log
  shift 2
  number=$((number + 1))
  if [[ -n $list_only ]]; then
    printf '%s %d %s\n' "$phase" "$limit_s" "$name"
    return 0
  fi
  begin=$(now)
  left=$((deadline - begin - 3)) # what is killed has two seconds to end
  log=$(printf 'logs/%s%02d-%s.log' "$phase" "$number" "${name//[^A-Za-z0-9]/-}")
  if ((left < 2)); then
    say "not run: no time was left" 0 "$name" ""
    failures=$((failures + 1))
    return 1
  fi
  if ((limit_s > left)); then limit_s=$left; fi
  timeout --kill-after=2 "$limit_s" "$@" >"$out/$log" 2>&1 &
  running=$!
  wait "$running" || status=$? # a signal interrupts this, not the step itself
  case $status in
    0) say ok $(($(now) - begin)) "$name" "$log" ;;
    77) say "not measured: $(tail -n 1 "$out/$log" | tr -d '\\"' | cut -c1-120)" $(($(now) - begin)) "$name" "$log" ;;
    124 | 137) say "FAILED: stopped after $limit_s s" $(($(now) - begin)) "$name" "$log" ;;
    *) say "FAILED: exit code $status" $(($(now) - begin)) "$name" "$log" ;;
  esac
  sed -n '/^{.*}$/p' "$out/$log" >>"$results" # what was measured, also before a step was stopped
  if ((status != 0 && status != 77)); then failures=$((failures + 1)); fi
  return "$status"
}

# run PROGRAM ARGUMENT…: in place of this shell, so that the step's time limit reaches it.
run() {
  local words
  read -ra words <<<"$(program "$1")"
  exec "${words[@]}" "${@:2}"
}
# ranks NUMBER PLACE PROGRAM ARGUMENT…: on ranks that share the GPU.
ranks() {
  local mpirun words
  read -ra mpirun <<<"$(program mpirun)"
  read -ra words <<<"$(program "$3")"
  export PECIA_TEST_PLACE=$2
  exec "${mpirun[@]}" -n "$1" --bind-to none "$own_hostid" "${words[@]}" "${@:4}"
}
# over_nccl PROGRAM ARGUMENT…: two ranks with a GPU each. NCCL does not support two ranks on one GPU, and there this hung
# on an H200.
over_nccl() {
  local gpus
  gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)
  if ((gpus < 2)); then
    echo "NCCL wants a GPU for each rank, and there is one"
    exit 77
  fi
  own_hostid="env" ranks 2 cuda_nccl "$@"
}
# alone PROGRAM ARGUMENT…: one rank, without mpirun or its daemon.
alone() {
  export PECIA_TEST_PLACE=cuda_staged OMPI_MCA_ess_singleton_isolated=1
  run "$@"
}
has_python() { # MODULE…
  python3 -c "import $(printf '%s,' "$@" | sed 's/,$//')" 2>/dev/null || {
    echo "python3 has no $*"
    exit 77
  }
}
torch_beside() {
  has_python torch
  run bench-sdpa
}
sanitized() { # TOOL
  local words
  command -v compute-sanitizer >/dev/null || {
    echo "compute-sanitizer is not installed"
    exit 77
  }
  read -ra words <<<"$(program test_kernels_cuda)"
  exec compute-sanitizer --tool "$1" --error-exitcode 86 --target-processes all "${words[@]}" --gtest_filter="$small"
}
profiles() {
  local words op
  command -v ncu >/dev/null || {
    echo "ncu is not installed"
    exit 77
  }
  read -ra words <<<"$(program pecia-bench)"
  for op in attention rms_norm rope kv_store gated_activation sample; do
    ncu --set basic --target-processes all --kernel-name 'regex:_kernel' --launch-count 1 \
      "${words[@]}" ops --backend cuda --runs 1 --op "$op"
  done
}
# model_begin FOLDER ARGUMENT…: makes a model with random weights beside the next steps.
model_begin() {
  local words
  if [[ -n $list_only ]]; then return; fi
  read -ra words <<<"$(program make-bench-model)"
  "${words[@]}" "$@" >"$1.log" 2>&1 &
  model_pid=$!
}
model_ready() { # FOLDER PID
  while kill -0 "$2" 2>/dev/null; do sleep 0.2; done
  cat "$1.log"
  [[ -f $1/config.json ]]
}
export -f program run ranks over_nccl alone has_python torch_beside sanitized profiles model_ready
# shellcheck disable=SC2016 # the inner shell expands it
in_shell=(bash -c '"$@"' bash)

# One small case of each op and type: the rest does the same with other sizes.
small='Backends/*ByHand*:Backends/*TransposedWeight*:Backends/*Widened*:Backends/*RootMean*:Backends/*BelongTogether*'
small+=':Backends/*ItsSlot*:Backends/*Exponentials*:Backends/*TimesUp*:Backends/*TopKKeeps*:Backends/*KeepsItemsApart*'
small+=':Backends/*SeesExactly*bf16'
export here own_hostid small

widths=(--heads 32 --kv-heads 8 --head-dim 128 --hidden 4096 --ffn 14336 --vocab 128256)

phase_A() {
  local whole=$work/llama-3-8b-random
  model_begin "$whole" "${widths[@]}" --layers 32
  step "doctor" 8 "${in_shell[@]}" run pecia doctor
  step "some tests of the ops" 30 "${in_shell[@]}" run test_kernels_cuda --gtest_filter="$small"
  step "goldens, 1 rank" 25 "${in_shell[@]}" alone test_goldens
  step "whole models in bf16" 15 "${in_shell[@]}" alone test_production_types
  local ops=(pecia-bench ops --backend cuda --runs 3 --json "$results")
  step "times of products" 30 "${in_shell[@]}" run "${ops[@]}" --op linear
  step "times of attention" 30 "${in_shell[@]}" run "${ops[@]}" --op attention
  step "a model of the 8B shape" 15 "${in_shell[@]}" model_ready "$whole" "${model_pid:-0}" || return
  local model=(--backend cuda --model "$whole" --json "$results")
  step "prefill of 8B, 8K and 32K" 42 "${in_shell[@]}" run pecia-bench prefill "${model[@]}" --runs 2 --tokens 8192,32768
  step "decode of 8B after 8K, batch 1, 16, 32" 42 "${in_shell[@]}" \
    run pecia-bench decode "${model[@]}" --runs 2 --contexts 8192 --batches 1,16,32
}

phase_B() {
  local four=$work/llama-3-8b-4-layers
  local model=(--backend cuda --model "$four" --json "$results" --runs 2)
  model_begin "$four" "${widths[@]}" --layers 4
  step "four layers of 8B's widths" 25 "${in_shell[@]}" model_ready "$four" "${model_pid:-0}" || return
  step "decode of mixed lengths, batch 16 and 64" 40 "${in_shell[@]}" \
    run pecia-bench decode "${model[@]}" --contexts 8192 --batches 16,64 --mixed
  step "the same without graphs" 40 env PECIA_CUDA_GRAPHS=0 "${in_shell[@]}" \
    run pecia-bench decode "${model[@]}" --contexts 8192 --batches 16,64 --mixed
  step "decode in fp8, batch 1 and 16" 30 "${in_shell[@]}" \
    run pecia-bench decode "${model[@]}" --contexts 8192 --batches 1,16 --dtype fp8
  step "prefill of 4K" 20 "${in_shell[@]}" run pecia-bench prefill "${model[@]}" --tokens 4096
  step "decode after 4K" 20 "${in_shell[@]}" run pecia-bench decode "${model[@]}" --contexts 4096 --batches 1
  if step "transformers on this GPU" 80 "${in_shell[@]}" run gpu-goldens "$four" "$out/goldens"; then
    step "the same predictions as transformers" 35 env PECIA_GOLDENS_FOLDER="$out/goldens" \
      "${in_shell[@]}" alone test_narrow_goldens
  fi
}

phase_C() {
  step "every test of the ops" 150 "${in_shell[@]}" run test_kernels_cuda
  for tool in memcheck racecheck; do
    step "compute-sanitizer $tool" 130 "${in_shell[@]}" sanitized "$tool"
  done
}

phase_D() {
  local family='*llama_gqa*'
  step "goldens, 2 ranks" 50 "${in_shell[@]}" ranks 2 cuda_staged test_goldens --gtest_filter="$family"
  step "requests, 2 ranks" 60 "${in_shell[@]}" ranks 2 cuda_staged test_requests --gtest_filter="$family"
  step "modes, 2 ranks" 60 "${in_shell[@]}" ranks 2 cuda_staged test_modes --gtest_filter="*EveryModel*llama_gqa*"
  step "layouts, 2 ranks" 53 "${in_shell[@]}" ranks 2 cuda_staged test_layout_modes --gtest_filter="$family"
  step "fp8 weights, 2 ranks" 35 "${in_shell[@]}" ranks 2 cuda_staged test_fp8_weights
  step "NCCL, 2 ranks" 20 "${in_shell[@]}" over_nccl test_requests --gtest_filter="*RaggedBatch*llama_gqa*"
  step "sums in graphs, 2 ranks" 19 "${in_shell[@]}" over_nccl test_rank_steps --gtest_filter="*TensorParallel*"
}

phase_E() {
  step "products and attention of PyTorch" 80 "${in_shell[@]}" torch_beside
  step "profiles of six kernels" 110 "${in_shell[@]}" profiles
}

if [[ -n $list_only ]]; then
  out='' work='' results=''
  for phase in A B C D E; do
    number=0
    "phase_$phase"
  done
  exit 0
fi

phase=$1
mkdir -p "$2/logs" || exit 2
out=$(cd "$2" && pwd)
results=$out/results.jsonl
deadline=$(($(now) + ${GPU_CHECK_SECONDS:-${deadline_of[$phase]}}))

if ! gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1) || [[ -z $gpu ]]; then
  echo "gpu-check: nvidia-smi is not here or names no GPU; pack a bundle with scripts/bundle.sh and take it to a GPU" >&2
  exit 2
fi
read -ra words <<<"$(program pecia)"
if ! command -v "${words[0]}" >/dev/null; then
  echo "gpu-check: there is no ${words[0]}; build it: scripts/setup.sh cuda; cmake --preset cuda && cmake --build --preset cuda" >&2
  exit 2
fi

work=$(mktemp -d "$([[ -w /dev/shm && $(df --output=avail -B1G /dev/shm | tail -n 1) -ge 20 ]] && echo /dev/shm || echo "${TMPDIR:-/tmp}")/gpu-check.XXXXXX")
finish() {
  [[ -n ${model_pid:-} ]] && kill "$model_pid" 2>/dev/null
  rm -rf "$work"
  timeout 10 python3 -m pecia_tools.gpu.table "$out"
}
trap finish EXIT
trap '[[ -n $running ]] && kill "$running" 2>/dev/null; exit 1' TERM INT

driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)
printf '{"gpu": "%s", "driver": "%s", "phase": "%s", "began": "%s"}\n' "$gpu" "$driver" "$phase" "$(date -u +%FT%TZ)" \
  >>"$out/steps.jsonl"
echo "gpu-check: phase $phase on $gpu, driver $driver, at most ${GPU_CHECK_SECONDS:-${deadline_of[$phase]}} s"
"phase_$phase"
if ((failures > 0)); then
  echo "gpu-check: phase $phase: $failures steps failed"
  exit 1
fi
echo "gpu-check: phase $phase passed"
