#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The command's surface: exit codes, what goes to stdout and what to stderr, alone and under mpiexec.
# usage: test_command_line.sh PECIA MPIEXEC NUMPROC_FLAG MODEL
set -u
pecia=$1
mpiexec=("$2" "$3")
model=$4
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
expect 2 - 'unknown argument: --unknown$' "$pecia" run --unknown
expect 2 - 'unknown arguments: --ste (did you mean --set?), a=1, --two$' "$pecia" run job.yaml --ste a=1 --two
expect 2 - 'unknown command: inpsect (did you mean inspect?)$' "$pecia" inpsect
for command in run tune plan inspect topology doctor; do
  expect 0 "^Examples:$" - "$pecia" "$command" --help
  grep -q "^  .*pecia $command" "$folder/out" || complain "no example of $command"
done

expect 0 '^generation:' - "$pecia" run --print-default
"$pecia" run --print-default >"$folder/job.yaml"
expect 2 - 'input prompts/\*.h5 matches no file' "$pecia" run --validate "$folder/job.yaml"
expect 2 - 'absent.yaml: cannot be read' "$pecia" run "$folder/absent.yaml" --validate
expect 2 - 'set generation.top_p=2: generation.top_p is 2' \
  "$pecia" run --validate --set generation.top_p=2 --set kv.memory=1GiB "$folder/job.yaml"
expect 0 "^$folder/runs/NAME$" - "$pecia" run --print-output "$folder/job.yaml"
expect 0 "^$folder/else where$" - \
  "$pecia" run --print-output "$folder/job.yaml" --set 'output="else where"' --set generation.seed=7
expect 0 '^/scratch/here$' - "$pecia" run --print-output "$folder/job.yaml" --set output=/scratch/here
expect 2 - 'needs a job file' "$pecia" run --print-output
expect 2 - 'absent.yaml: cannot be read' "$pecia" run --print-output "$folder/absent.yaml"
expect 2 - 'output' "$pecia" run --print-output "$folder/job.yaml" --set output=[]
touch "$folder/p.h5"
expect 2 - 'model.dtype: fp8 is for GPUs in this version' \
  "$pecia" run --validate "$folder/job.yaml" --set input=[p.h5] --set model.dtype=fp8

expect 2 - 'needs a job file or a --model, or --modes' "$pecia" plan
expect 0 '^| >1 | 1 | >1 | ring, sp_tp | pass_q, broadcast_q |$' - "$pecia" plan --modes
expect 0 '"prefill"' - "$pecia" plan --modes --json
expect 2 - 'needs a job file' "$pecia" plan --modes --ranks 4
expect 2 - '--ranks 0: a run has at least one rank$' "$pecia" plan --modes --ranks 0
expect 2 - '--ranks -3: a run has at least one rank$' "$pecia" plan --modes --ranks -3
expect 2 - '--ranks 1000000: a plan is for up to 65536 ranks, as ' "$pecia" plan --modes --ranks 8,1000000
expect 2 - '--ranks 8193: a plan with times is for up to 8192 ranks' \
  "$pecia" plan --model llama-3-8b --cluster h100-gtt --ranks 8193 --request 5
expect 2 - '--ranks' "$pecia" plan --modes --ranks 99999999999999999999
expect 2 - '--ranks' "$pecia" plan --modes --ranks 8,x
expect 2 - 'config.json' "$pecia" plan --modes --ranks 4 "$folder/job.yaml"
plan=("$pecia" plan --modes "$folder/job.yaml" --set "model.path=$model")
expect 2 - 'say how many with --ranks' "${plan[@]}"
expect 0 '^     2      1      2  ring, sp_tp          pass_q, broadcast_q$' - "${plan[@]}" --ranks 4
expect 0 '^this job runs as usp/auto+pass_q; auto: prefill usp: ' - \
  "${plan[@]}" --set parallel.cp=2 --set parallel.sp=2
expect 0 '^this job is refused: parallel.sp 3 does not divide the 8 query heads: use sp 1$' - \
  "${plan[@]}" --ranks 3 --set parallel.sp=3
expect 2 - 'parallel.dp 3 does not divide 4 ranks' "${plan[@]}" --ranks 4 --set parallel.dp=3
expect 0 '"legal": false' - "${plan[@]}" --ranks 4 --json

needs=("$pecia" plan "$folder/job.yaml" --set "model.path=$model")
expect 0 '^  prompts: .*input prompts/\*.h5 matches no file' - "${needs[@]}"
grep -q '^  1 rank: this job runs as single$' "$folder/out" || complain "not how it runs on a rank"
grep -q 'parallel.cp auto takes any number of ranks' "$folder/out" || complain "no word about cp: auto"
grep -q 'cluster h100-gtt, .* foresees how long requests take' "$folder/out" || complain "no word about times"
expect 0 '^  weights: int8 .* on each rank$' - "${needs[@]}" --set model.dtype=int8
expect 0 '^  4 ranks: this job runs as ring/auto+broadcast_q; auto: .*; a run takes cp elastic if ' - "${needs[@]}" --ranks 4
expect 0 '^  4 ranks: this job runs as ' - "${needs[@]}" --ranks 4 --set parallel.prefill=ring
if grep -q elastic "$folder/out"; then complain "a ring that is named is one ring"; fi
expect 0 '^  3 ranks: this job is refused: parallel.sp 3 does not divide' - \
  "${needs[@]}" --ranks 3 --set parallel.sp=3
expect 0 'kv.memory allows 2.0 GiB$' - "${needs[@]}" --set kv.memory=2G
expect 0 '^  planned for CPUs (backend: cpu), as the job or --backend says$' - "${needs[@]}" --backend cpu
expect 0 '^  planned for GPUs (backend: cuda), as the job or --backend says$' - "${needs[@]}" --backend cuda
expect 0 '^  planned for GPUs (backend: cuda), as the job or --backend says$' - "${needs[@]}" --set backend=cuda
expect 0 '"said_by": "this machine"' - "${needs[@]}" --json
expect 2 - 'tpu' "${needs[@]}" --backend tpu
expect 0 '"schema": "pecia.plan/1"' - "${needs[@]}" --json
python3 -m json.tool "$folder/out" >/dev/null || complain "no JSON"
expect 2 - 'h5' "${needs[@]}" --set input=[p.h5]

foresee=("$pecia" plan --model llama-3-8b --cluster h100-gtt)
expect 0 '^    2000 tokens after 500 cached: first token after .* ms (products .* per token$' - \
  "${foresee[@]}" --ranks 2 --request 2000+500:9
grep -q '^    overhead: {op_us: 4, step_us: 500, exchange_us: 0, recurrent_row_us: 0.2, recurrent_chunk_us: 2, context_token_us: 0, layer_us: 0}$' "$folder/out" || complain "the cluster's figures are hidden"
expect 0 '^       8  CP 8 .* ms ' - \
  "$pecia" plan --model qwen3.5-9b --cluster h100-gtt --ranks 8 --set parallel.cp=8 --request 4096:1
expect 0 '^  does not fit on 1 rank: the model needs 131.4 GiB .*; would fit: --ranks 2$' - \
  "$pecia" plan --model llama-3-70b --cluster h100-gtt --ranks 1 --request 1000
expect 0 '"fits": true' - "${foresee[@]}" --ranks 4 --set parallel.tp=2 --request 2000 --request 300:5x3 --json
python3 - "$folder/out" <<'END' || complain "a plan with times is not as interfaces say"
import json, sys
plan = json.load(open(sys.argv[1]))
chosen, cluster = plan["plans"][0], plan["cluster"]
assert plan["batch"] == {"requests": 4, "prompt_tokens": 2900, "new_tokens": 16, "longest_prompt": 2000,
                         "prompt_tokens_of_a_request": [300, 2000], "new_tokens_of_a_request": [1, 5]}
assert plan["model"]["length"] == 8192 and plan["model"]["rope_scaling"] is None
assert set(cluster) == {"name", "file"}
assert all(p["ranks"] == 4 and p["parallel"]["tp"] == 2 for p in plan["plans"])
ends = [p["end_s"] for p in plan["plans"]]
assert ends == sorted(ends) and chosen["end_range_s"][0] <= ends[0] <= chosen["end_range_s"][1]
assert abs(chosen["gpu_hours"] - 4 * ends[0] / 3600) < 1e-9
memory = chosen["memory_bytes_per_rank"]
assert sum(memory[part] for part in ("program", "weights", "kv", "work", "free")) == int(89.4 * 2**30)
assert set(chosen["bytes_by_level"]) == {"server", "rack", "system"} and chosen["bytes_by_level"]["server"] > 0
assert chosen["limit"] in ("compute", "memory bandwidth", "memory", "link server")
assert plan["layouts"] == len(plan["plans"]) + sum(plan["left_out"].values())
assert [r["prompt_tokens"] for r in chosen["requests"]] == [2000, 300]
for request in chosen["requests"]:
    parts = request["prefill"]
    assert set(parts) == {"gemm_s", "attention_s", "exposed_comm_s", "other_s"}
    assert 0.5 < sum(parts.values()) / request["ttft_s"] <= 1.0001 and request["tbt_s"] > 0
END
expect 0 'first token after' - "${foresee[@]}" --ranks 2 --request 500 --trace "$folder/foreseen"
[ -s "$folder/foreseen/prefill/trace.json.gz" ] && [ -s "$folder/foreseen/decode/trace.json.gz" ] || complain "no traces"
expect 2 - 'plan --trace needs a --cluster or a --gpu' \
  "$pecia" plan --model llama-3-8b --ranks 2 --trace "$folder/foreseen"
# A model reads no more than it can.
expect 2 - 'request 100000:500: it has 100500 tokens with its answer, and llama-3-8b reads 8192; .*llama-3.1-8b' \
  "${foresee[@]}" --ranks 8 --request 100000:500
stretched=("${foresee[@]}" --ranks 2 --request 9000 --set 'model.rope_scaling={type: yarn, factor: 2}')
expect 0 '^  planned with model.rope_scaling: {type: yarn, factor: 2}, so the model reads 16384 tokens in place of 8192$' \
  - "${stretched[@]}"
expect 0 '"said_by": "job"' - "${stretched[@]}" --json
# Servers by their GPUs, the same ranks once.
expect 0 '^  assumed: 4 GPUs in a server, 300 GB/s between two of them, and 25 GB/s .*; --cluster FILE ' - \
  "$pecia" plan --model llama-3-8b --gpu A100-80GB --per-node 4 --ranks 4,4 --request 500
[ "$(grep -c '^ *4  ' "$folder/out")" -ge 1 ] || complain "no layouts"
grep -q '^    ranks_per_server: 4$' "$folder/out" || complain "not four GPUs in a server"
if grep '^ *4  ' "$folder/out" | sort | uniq -d | grep -q .; then complain "the same ranks twice"; fi
expect 0 '"assumed": "4 GPUs in a server, as its board has, ' - \
  "$pecia" plan --model llama-3-8b --gpu gh200 --ranks 4 --request 500 --json
expect 2 - 'did you mean h100-80gb or h100-96gb?' "$pecia" plan --model llama-3-8b --gpu h100 --request 5
expect 2 - 'connects 1 to 8 GPUs' "$pecia" plan --model llama-3-8b --gpu h100-80gb --per-node 9 --request 5
expect 2 - '--per-node requires --gpu' "$pecia" plan --model llama-3-8b --cluster h100-gtt --per-node 4 --request 5
expect 2 - '--gpu' "$pecia" plan --model llama-3-8b --cluster h100-gtt --gpu h200 --request 5
# Passes are those of GPUs where the cluster has them.
"${foresee[@]}" --ranks 8 --request 8000 --json >"$folder/gpus.json" || complain "no plan for GPUs"
"${foresee[@]}" --ranks 8 --request 8000 --set backend=cuda --json | cmp -s - "$folder/gpus.json" ||
  complain "backend: cuda changes a plan for GPUs"
expect 2 - 'are of backend cuda' "${foresee[@]}" --ranks 8 --request 1000 --set backend=cpu
expect 2 - 'did you mean h100-gtt or h100-gti?' "$pecia" plan --model llama-3-8b --ranks 2 --cluster h100-gt
expect 2 - 'mpirun -np 2 pecia topology --measure' "$pecia" plan --model smollm2-135m --ranks 2 --cluster this --request 9
expect 0 'tokens: first token after ' - "$pecia" plan --model smollm2-135m --ranks 1 --cluster this --request 99
expect 2 - 'requires --measure' "$pecia" topology --cluster-file "$folder/this.yaml"
# Kept for itself: other tests' runs would choose by what was measured here.
expect 0 'bandwidth' '*' env XDG_CACHE_HOME="$folder/cache" \
  "${mpiexec[@]}" 2 "$pecia" topology --measure --cluster-file "$folder/this.yaml"
expect 0 'tokens: first token after ' - \
  "$pecia" plan --model smollm2-135m --ranks 2 --cluster "$folder/this.yaml" --request 99
expect 2 - 'did you mean llama-3-8b?' "$pecia" plan --model llama3-8b --ranks 2
expect 2 - 'say lengths with --request' "${foresee[@]}" --ranks 2
for wrong in 5x x0 -5 1e30; do
  expect 2 - "request $wrong: .*write it as PROMPT" "${foresee[@]}" --ranks 2 --request $wrong
done
expect 2 - 'needs a --cluster or a --gpu' "$pecia" plan --model llama-3-8b --ranks 2 --request 5
expect 2 - 'unknown key model; the keys here are ranks_per_server' \
  "$pecia" plan --model llama-3-8b --cluster "$folder/job.yaml" --ranks 2 --request 5

# A process without a launcher needs no MPI, which cannot start with this setting. The doctor starts it. Open MPI's words
# about the setting do not always arrive.
alone=(env OMPI_MCA_pml=absent "$pecia")
expect 0 '^pecia' - "${alone[@]}" --version
expect 0 '^    0 ' - "${alone[@]}" topology
expect 0 '"fits": true' - "${alone[@]}" plan --model llama-3-8b --cluster h100-gtt --ranks 2 --request 500 --json
expect 1 '*' 'pml\|MPI_Init' "${alone[@]}" doctor
expect 1 '*' 'pml\|MPI_Init' env PMI_RANK=0 "${alone[@]}" --version

expect 2 - 'no run has begun' "$pecia" inspect "$folder"
expect 2 - 'p.h5' "$pecia" inspect "$folder/p.h5"
expect 2 - 'PATH\|path' "$pecia" inspect

expect 0 '^    0 ' - "$pecia" topology
expect 0 '"local_rank": 0' - "$pecia" topology --json
expect 2 - 'is a grid of 2 ranks' "$pecia" topology --dp 2
expect 2 - 'not in it; add a line' env PECIA_TOPOLOGY_FILE="$folder/hosts" bash -c \
  "echo 'another-host a' > $folder/hosts; exec $pecia topology"
expect 2 - 'topology file .*absent: cannot be read' "$pecia" topology --file "$folder/absent"
echo "$(hostname) hall.rack7 box" >"$folder/hosts"
expect 0 ' hall.rack7:box:0 ' - env PECIA_TOPOLOGY_FILE="$folder/absent" "$pecia" topology --file "$folder/hosts"
grep -q 'servers: 1, racks: 1$' "$folder/out" || complain "no count of racks"
printf 'model: {path: m}\ninput: p.h5\noutput: out\ntopology: hosts\nparallel: {tp: 2}\n' >"$folder/map.yaml"
expect 0 ' hall.rack7:box:0 ' - "$pecia" topology --tp 1 "$folder/map.yaml"
expect 2 - 'is a grid of 2 ranks' "$pecia" topology "$folder/map.yaml"
expect 0 'one rank has no links' - "$pecia" topology --measure
expect 0 '"levels": \[\]' - "$pecia" topology --measure --json
expect 0 '^ok    mpi ' - "$pecia" doctor --output "$folder/not/made"
for topic in options launch slurm places transports threads numa processes sizes writing; do
  grep -q "^ok  *$topic \|^warn  *$topic " "$folder/out" || complain "nothing about $topic"
done
expect 0 '^ok    shapes .*XGrammar' - "$pecia" doctor
expect 0 '^....  product kinds  fp32; no bf16: they need AVX512-BF16, .* has avx2; no amx: .' - \
  env PECIA_MAX_ISA=avx2 "$pecia" doctor
expect 0 'OMP_NUM_THREADS=1000' - env OMP_NUM_THREADS=1000 "$pecia" doctor
expect 0 '→ more threads than cores' - env OMP_NUM_THREADS=1000 "$pecia" doctor
expect 0 'job 7, nodes: .* left' - env SLURM_JOB_ID=7 SLURM_JOB_END_TIME=$(($(date +%s) + 60)) "$pecia" doctor
expect 0 '→ .*absent: cannot be read' - env PECIA_TOPOLOGY_FILE="$folder/absent" "$pecia" doctor
expect 0 'at most files: 1.0 GiB' - bash -c "ulimit -f 1048576; exec $pecia doctor"
expect 0 '"topic": "binding"' - "$pecia" doctor --json
if "$pecia" doctor | grep -q ' options  *.*CUDA off'; then
  expect 0 '^ok    one-shot sums  not used' - "$pecia" doctor
  expect 0 '→ .*unset PECIA_CUDA_ONE_SHOT' - env PECIA_CUDA_ONE_SHOT=1 "$pecia" doctor
fi
mkdir "$folder/with-gpus"
printf '#!/bin/sh\ncase $1 in -L) echo "GPU 0: NVIDIA H100 (UUID: GPU-1)" ;; *) echo 580.65.06 ;; esac\n' \
  >"$folder/with-gpus/nvidia-smi"
chmod +x "$folder/with-gpus/nvidia-smi"
if "$pecia" doctor | grep -q ' options  *.*CUDA off'; then # a build for no GPU, on a machine that has one
  expect 0 'nvidia-smi lists 1: NVIDIA H100' - env PATH="$folder/with-gpus:$PATH" "$pecia" doctor
  grep -q '→ build with --preset cuda' "$folder/out" || complain "no word about the build"
fi

expect 0 'DP 2 × CP 2 × SP 1 × TP 1' '*' "${mpiexec[@]}" 4 --bind-to none "$pecia" topology --dp 2
[ "$(grep -c '^ *[0-9]' "$folder/out")" -eq 4 ] || complain "not one line per rank"
expect 0 '^server *1 .* 0 → 1$' '*' "${mpiexec[@]}" 4 --bind-to none "$pecia" topology --tp 2 --measure
grep -q '^rings: 2, all links at once; a step takes [0-9.]* µs$' "$folder/out" || complain "no rings"
grep -q '^server *4 ' "$folder/out" || complain "not two links in each of two rings"
expect 0 '"latency_us": [0-9]' '*' "${mpiexec[@]}" 2 --bind-to none "$pecia" topology --measure --json
python3 -m json.tool "$folder/out" >/dev/null || complain "no JSON"
expect 0 '"ranks": 2' '*' "${mpiexec[@]}" 2 --bind-to none "$pecia" doctor --json
expect 2 - 'absent.yaml: cannot be read' \
  "${mpiexec[@]}" 2 "$pecia" run --validate "$folder/absent.yaml"
[ "$(grep -c 'cannot be read' "$folder/err")" -eq 1 ] || complain "printed by more than one rank"

[ "$failures" -eq 0 ] && echo "all as expected"
[ "$failures" -eq 0 ]
