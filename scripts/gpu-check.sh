#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All that needs a GPU, in phases with a deadline each, the most valuable first. A phase may be stopped at any time:
# each step has said its line and kept its log by then, and the table is made of what was measured.
#
#   scripts/gpu-check.sh PHASE OUT      runs a phase; OUT is a folder that several phases share
#   scripts/gpu-check.sh --list         prints all steps with their limits in seconds
#
#   A  270 s  doctor, tests of ops, goldens, times of products, attention, experts, prefill and decode of an 8B shape
#   B  300 s  four layers of 8B's widths against transformers on this GPU; mixed lengths, graphs on and off, fp8
#   C  420 s  every test of the ops; compute-sanitizer on our own kernels
#   D  345 s  two and four ranks over NCCL on this GPU, under MPS: every mode, graphs, teams, csa, a killed rank; sums of
#             steps through peer memory and by NCCL
#   E  200 s  profiles of six kernels by ncu; PyTorch's products and attention beside ours
#   F  120 s  attention by wgmma: its tests, its times and those without it
#
# In a repository, build before: scripts/setup.sh cuda; cmake --preset cuda && cmake --build --preset cuda. In an
# unpacked bundle (scripts/bundle.sh) everything is there. GPU_CHECK_PROGRAMS=FOLDER takes the programs from a folder,
# GPU_CHECK_SECONDS=N sets another deadline. GPU_CHECK_NCCL=FOLDER has a libnccl.so.2 of 2.30 or newer (default: the
# bundle's, if it has one), whose ranks exchange within the GPU; else NCCL's ranks go through sockets. The model of 16 GB
# lies in /dev/shm or TMPDIR meanwhile.
#
# Writes OUT/steps.jsonl, OUT/results.jsonl, OUT/logs and OUT/table.md, which is printed last. Exit code 1: something
# failed or did not end in time; 2: there is no GPU, or no build.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
declare -A deadline_of=([A]=270 [B]=300 [C]=420 [D]=345 [E]=200 [F]=120)

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
# The control of MPS, by which processes compute on one GPU at once. It lies beside the driver's nvidia-smi.
mps_control() {
  local beside
  beside=$(dirname "$(realpath "$(command -v nvidia-smi)")")/nvidia-cuda-mps-control
  if [[ -x $beside ]]; then echo "$beside"; else command -v nvidia-cuda-mps-control; fi
}
# under_mps COMMAND…: with a server of MPS of its own, because a client that is killed while it spins may harm the server.
under_mps() {
  local control folder child status=0
  control=$(mps_control) || {
    echo "there is no nvidia-cuda-mps-control, and NCCL's ranks cannot share a GPU without MPS"
    exit 77
  }
  folder=$(mktemp -d)
  export CUDA_MPS_PIPE_DIRECTORY=$folder CUDA_MPS_LOG_DIRECTORY=$folder
  "$control" -d || exit 1
  ("$@") &
  child=$!
  trap 'kill "$child"' TERM
  wait "$child" || status=$?
  wait "$child" 2>/dev/null # the first one ends with a signal, too
  echo quit -t 1 | "$control" >/dev/null
  rm -rf "$folder"
  exit "$status"
}
# shared_by NUMBER PROGRAM ARGUMENT…: ranks over NCCL on one GPU. NCCL before 2.30 takes them if it believes them to be on
# several hosts.
shared_by() {
  export NCCL_RAS_ENABLE=0
  if [[ -z ${GPU_CHECK_NCCL:-} && -e $here/nccl/libnccl.so.2 ]]; then GPU_CHECK_NCCL=$here/nccl; fi
  if [[ -n ${GPU_CHECK_NCCL:-} ]]; then
    export LD_PRELOAD=$GPU_CHECK_NCCL/libnccl.so.2 NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_NVLS_ENABLE=0 NCCL_MAX_CTAS=8
    own_hostid="env" # they may know that they are on one host
  else
    export NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo
  fi
  ranks "$1" cuda_nccl "${@:2}"
}
over_nccl() { # NUMBER PROGRAM ARGUMENT…
  under_mps shared_by "$@"
}
# one_killed PROGRAM ARGUMENT…: kills rank 1 of two in the middle of its work. The job has to end and to name it.
one_killed() {
  export GPU_CHECK_OF=$$ # by which the rank is found
  killed_log=$(mktemp)
  under_mps killed "$@"
}
killed() {
  local job rank status=0
  shared_by 2 "$@" >"$killed_log" 2>&1 &
  job=$!
  trap 'kill "$job"' TERM
  until grep -q 'floor of all ranks' "$killed_log"; do # it has begun
    sleep 0.2
    kill -0 "$job" 2>/dev/null || break
  done
  sleep 1
  for rank in /proc/[0-9]*; do
    if tr '\0' '\n' 2>/dev/null <"$rank/environ" | grep -qx "GPU_CHECK_OF=$$" &&
      tr '\0' '\n' 2>/dev/null <"$rank/environ" | grep -qx 'OMPI_COMM_WORLD_RANK=1'; then
      kill -9 "${rank#/proc/}"
    fi
  done
  wait "$job" || status=$?
  cat "$killed_log"
  ((status != 0)) && grep -q 'rank 1' "$killed_log"
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
export -f program run ranks mps_control under_mps shared_by over_nccl killed one_killed alone has_python torch_beside sanitized profiles model_ready
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
  step "some tests of the ops" 30 "${in_shell[@]}" run test_kernels_cuda \
    --gtest_filter="$small:Backends/*Experts.Agree*"
  step "goldens, 1 rank" 25 "${in_shell[@]}" alone test_goldens
  step "whole models in bf16" 15 "${in_shell[@]}" alone test_production_types
  local ops=(pecia-bench ops --backend cuda --runs 3 --json "$results")
  step "times of products" 30 "${in_shell[@]}" run "${ops[@]}" --op linear
  step "times of attention" 30 "${in_shell[@]}" run "${ops[@]}" --op attention
  step "times of experts" 30 "${in_shell[@]}" run "${ops[@]}" --op experts
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
  local family='*llama_gqa*' two=$work/two-layers
  local check=(pecia-bench prefill --backend cuda --allow-gpu-sharing nccl --model "$two" --json "$results" --runs 1 --check)
  model_begin "$two" "${widths[@]}" --layers 2
  step "NCCL, 2 ranks" 20 "${in_shell[@]}" over_nccl 2 test_requests --gtest_filter="*RaggedBatch*llama_gqa*"
  step "exchanges and sums in graphs, 2 ranks" 25 "${in_shell[@]}" over_nccl 2 test_rank_steps \
    --gtest_filter="*TensorParallel*:*ComeAgain*"
  step "the same with sums through peer memory" 20 env PECIA_CUDA_ONE_SHOT=1 "${in_shell[@]}" over_nccl 2 test_rank_steps \
    --gtest_filter="*TensorParallel*"
  step "modes over NCCL, 2 ranks" 40 "${in_shell[@]}" over_nccl 2 test_modes --gtest_filter="*EveryModel*llama_gqa*"
  step "modes over NCCL, 4 ranks" 50 "${in_shell[@]}" over_nccl 4 test_modes --gtest_filter="*EveryModel*llama_gqa*"
  step "layouts over NCCL, 2 ranks" 25 "${in_shell[@]}" over_nccl 2 test_layout_modes --gtest_filter="$family"
  step "elastic teams over NCCL, 2 ranks" 20 "${in_shell[@]}" over_nccl 2 test_teams --gtest_filter="*llama_mqa*"
  step "csa over NCCL, 2 ranks" 20 "${in_shell[@]}" over_nccl 2 test_sparse_attention --gtest_filter="*EveryModel*llama_gqa*"
  step "modes without graphs and without registered memory" 30 env PECIA_CUDA_GRAPHS=0 NCCL_LOCAL_REGISTER=0 \
    "${in_shell[@]}" over_nccl 2 test_modes --gtest_filter="*EveryModel*llama_gqa*"
  if step "two layers of 8B's widths" 12 "${in_shell[@]}" model_ready "$two" "${model_pid:-0}"; then
    step "prefill of 4K over NCCL: CP pass-KV" 9 "${in_shell[@]}" over_nccl 2 "${check[@]}" --tokens 4096
    step "CP pass-Q" 9 "${in_shell[@]}" over_nccl 2 "${check[@]}" --tokens 4096 --ring pass_q
    step "SP 2" 9 "${in_shell[@]}" over_nccl 2 "${check[@]}" --tokens 4096 --sp 2
    step "TP 2" 9 "${in_shell[@]}" over_nccl 2 "${check[@]}" --tokens 4096 --tp 2
    local decode=(pecia-bench decode --backend cuda --allow-gpu-sharing nccl --model "$two" --json "$results" --runs 2
      --tp 2 --contexts 4096 --batches "1,16")
    step "decode, TP 2" 12 "${in_shell[@]}" over_nccl 2 "${decode[@]}"
    step "decode, TP 2, sums through peer memory" 12 env PECIA_CUDA_ONE_SHOT=1 "${in_shell[@]}" over_nccl 2 "${decode[@]}"
    step "a killed rank is named" 18 "${in_shell[@]}" one_killed pecia-bench decode --backend cuda \
      --allow-gpu-sharing nccl --model "$two" --contexts 4096 --batches 4 --runs 1 --steps 20000
  fi
}

phase_E() {
  step "products and attention of PyTorch" 80 "${in_shell[@]}" torch_beside
  step "profiles of six kernels" 110 "${in_shell[@]}" profiles
}

phase_F() {
  local times=(pecia-bench ops --backend cuda --runs 3 --json "$results" --op attention)
  step "tests of attention by wgmma" 45 "${in_shell[@]}" run test_kernels_cuda --gtest_filter='BackendsOfManyRows/*'
  step "times of attention" 35 "${in_shell[@]}" run "${times[@]}"
  step "times of attention without wgmma" 35 env PECIA_CUDA_WGMMA=0 "${in_shell[@]}" run "${times[@]}"
}

if [[ -n $list_only ]]; then
  out='' work='' results=''
  for phase in A B C D E F; do
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
