# SPDX-License-Identifier: Apache-2.0
"""gpu-check.sh without a GPU: a double of nvidia-smi, programs on the emulated device or the CPU with small work."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import unittest
from pathlib import Path

from pecia_tools.gpu import table as gpu_table
from support import ScriptTest

SOURCE = Path(__file__).resolve().parents[3]
SCRIPT = SOURCE / "scripts" / "gpu-check.sh"
DEADLINES = {"A": 270, "B": 300, "C": 420, "D": 345, "E": 200, "F": 120}
SLACK_S = 10  # what is killed ends, and the table is made

MPS_CONTROL = """#!/bin/sh
echo "$@" >>"$0.calls"
[ "$1" = -d ] || cat >>"$0.calls"
"""

NVIDIA_SMI = """#!/bin/sh
case $1 in *driver_version*) echo 580.65.06 ;; *) echo 'NVIDIA H100 80GB HBM3' ;; esac
"""


class GpuCheckTest(ScriptTest):
    def setUp(self) -> None:
        super().setUp()
        self.out = self.folder / "out"
        self.programs = self.folder / "programs"
        self.write_program("nvidia-smi", NVIDIA_SMI, self.folder / "path")
        self.write_program("nvidia-cuda-mps-control", MPS_CONTROL, self.folder / "path")

    def write_program(self, name: str, text: str, folder: Path | None = None) -> None:
        path = (folder or self.programs) / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [SCRIPT, *arguments],
            env={
                **os.environ,
                "PATH": f"{self.folder / 'path'}:{os.environ['PATH']}",
                "GPU_CHECK_PROGRAMS": str(self.programs),
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run_phase(self, phase: str, **environment: str) -> tuple[int, str, float]:
        begin = time.monotonic()
        process = self.start(phase, str(self.out), **environment)
        text, _ = process.communicate(timeout=DEADLINES[phase] + SLACK_S)
        return process.returncode, text, time.monotonic() - begin

    def steps(self) -> list[dict[str, object]]:
        return [line for line in gpu_table.read_lines(self.out / "steps.jsonl") if "step" in line]


class WholePhases(GpuCheckTest):
    """The programs of the build: goldens and whole models on the emulated device, benchmarks on the CPU."""

    def setUp(self) -> None:
        super().setUp()
        if "PECIA_BUILD" not in os.environ:
            self.skipTest("PECIA_BUILD names no build folder")
        build = Path(os.environ["PECIA_BUILD"])

        def double(name: str, command: str) -> None:
            self.write_program(name, f"#!/bin/bash\nset -e\n{command}\n")

        def test(name: str, place: str, chosen: str, program: str = "") -> None:
            double(
                name,
                f"export PECIA_TEST_PLACE={place}\n"
                f"exec {build}/tests/{program or name} --gtest_filter='{chosen}'",
            )

        double("pecia", f'exec {build}/bin/pecia "$@"')
        double("mpirun", f'exec {shutil.which("mpirun")} "$@"')
        test("test_kernels_cuda", "host", "Backends/Add*:Backends/RmsNorm*", "test_kernels_emulated")
        test("test_goldens", "emulated_staged", "*llama_gqa_fp32_chunk_40")
        test("test_production_types", "emulated_staged", "*EveryMode*64")
        test("test_narrow_goldens", "emulated_staged", "*llama_gqa*")
        test("test_requests", "host", "*RaggedBatch*llama_gqa*")
        test("test_modes", "host", "*EveryModel*llama_gqa*")
        test("test_layout_modes", "host", "*llama_gqa_fp32*")
        test("test_fp8_weights", "host", "*Fp8.*llama_gqa*")
        test("test_rank_steps", "host", "*TensorParallel*")
        test("test_teams", "host", "*llama_mqa*")
        test("test_sparse_attention", "host", "*EveryModel*llama_gqa*")
        small = {"ops": "--op add", "prefill": "--tokens 16", "decode": "--contexts 16 --batches 2 --steps 2"}
        cases = " ".join(f"{name}) small=({words});;" for name, words in small.items())
        double(
            "pecia-bench",
            f'case $1 in {cases} esac\nkept=("$1")\n'
            'while (($#)); do case $1 in --model | --json) kept+=("$1" "$2");; '
            "20000) small=(--contexts 16 --batches 2 --steps 20000);; esac; shift; done\n"
            f'exec {build}/bin/pecia-bench "${{kept[@]}}" "${{small[@]}}" --runs 1 --threads 1',
        )
        double(
            "make-bench-model",
            'exec python3 -m pecia_tools.bench.model "$1" --hidden 64 --heads 2 --kv-heads 1 --head-dim 32 --ffn 64 '
            "--layers 1 --vocab 128",
        )
        double("gpu-goldens", "echo 'python3 has no torch'; exit 77")
        double("bench-sdpa", "echo 'python3 has no torch'; exit 77")

    def test_all_end_in_time_with_a_line_for_each_step(self) -> None:
        listed = subprocess.run([SCRIPT, "--list"], check=True, capture_output=True, text=True).stdout.splitlines()
        for phase, deadline_s in DEADLINES.items():
            with self.subTest(phase=phase):
                code, text, seconds = self.run_phase(phase)
                self.assertEqual(code, 0, text)
                self.assertLess(seconds, deadline_s)
        found = [(step["phase"], step["step"]) for step in self.steps()]
        wanted = [(line.split()[0], line.split(maxsplit=2)[2]) for line in listed]
        wanted.remove(("B", "the same predictions as transformers"))  # there is no transformers here
        self.assertEqual(found, wanted)
        for step in self.steps():
            self.assertRegex(str(step["status"]), "^(ok|not measured: )", step)
            self.assertTrue((self.out / str(step["log"])).is_file(), step)
        of_mps = (self.folder / "path" / "nvidia-cuda-mps-control.calls").read_text(encoding="utf-8").split("\n")
        over_nccl = [step for phase, step in found if phase == "D" and step != "two layers of 8B's widths"]
        self.assertEqual(of_mps, ["-d", "", "quit -t 1"] * len(over_nccl) + [""])
        table = (self.out / "table.md").read_text(encoding="utf-8")
        said = ("### NVIDIA H100 80GB HBM3", "phases A, B, C, D, E, F", "bf16 product", "prefill of 16", "batch 2")
        for words in said:
            self.assertIn(words, table)


class Trouble(GpuCheckTest):
    def setUp(self) -> None:
        super().setUp()
        for name in ("pecia", "test_kernels_cuda", "mpirun", "pecia-bench"):
            self.write_program(name, "#!/bin/sh\nexit 0\n")

    def test_limits_of_a_phase_sum_to_less_than_its_deadline(self) -> None:
        listed = subprocess.run([SCRIPT, "--list"], check=True, capture_output=True, text=True).stdout
        sums = dict.fromkeys(DEADLINES, 0)
        for line in listed.splitlines():
            phase, limit_s, _ = line.split(maxsplit=2)
            sums[phase] += int(limit_s)
        for phase, seconds in sums.items():
            self.assertLess(0, seconds)
            self.assertLessEqual(seconds, DEADLINES[phase] - 3, phase)  # what a killed step takes to end

    def test_a_step_that_hangs_is_stopped_and_the_phase_ends_in_time(self) -> None:
        self.write_program("test_kernels_cuda", "#!/bin/sh\necho '{\"op\": \"kept\"}'\nsleep 1000 & wait\n")
        code, text, seconds = self.run_phase("C", GPU_CHECK_SECONDS="8")
        self.assertEqual(code, 1, text)
        self.assertLess(seconds, 8 + SLACK_S)
        statuses = [str(step["status"]) for step in self.steps()]
        self.assertRegex(statuses[0], "^FAILED: stopped after [45] s$")
        self.assertEqual(statuses[1:], ["not run: no time was left"] * 2)
        self.assertEqual(gpu_table.read_lines(self.out / "results.jsonl"), [{"op": "kept"}])
        self.assertIn("every test of the ops | FAILED: stopped", text)

    def test_a_step_that_fails_does_not_stop_the_next(self) -> None:
        self.write_program("test_kernels_cuda", "#!/bin/sh\nexit 3\n")
        self.write_program("mpirun", "#!/bin/sh\nexit 0\n")
        code, text, _ = self.run_phase("C")
        self.assertEqual(code, 1, text)
        self.assertEqual(self.steps()[0]["status"], "FAILED: exit code 3")
        self.assertEqual(len(self.steps()), 3)

    def test_a_phase_that_is_told_to_end_still_makes_its_table(self) -> None:
        self.write_program("test_kernels_cuda", "#!/bin/sh\nsleep 1000 & wait\n")
        process = self.start("C", str(self.out))
        while not (self.out / "steps.jsonl").exists():
            time.sleep(0.05)
        time.sleep(0.5)  # into the first step, or before it: both must end
        process.send_signal(signal.SIGTERM)
        text, _ = process.communicate(timeout=SLACK_S)
        self.assertEqual(process.returncode, 1, text)
        self.assertIn("### NVIDIA H100", (self.out / "table.md").read_text(encoding="utf-8"))

    def test_without_mps_nothing_over_nccl_is_tried(self) -> None:
        (self.folder / "path" / "nvidia-cuda-mps-control").unlink()
        self.write_program("make-bench-model", '#!/bin/sh\nmkdir -p "$1" && echo {} >"$1/config.json"\n')
        code, text, _ = self.run_phase("D")
        self.assertEqual(code, 0, text)
        statuses = {str(step["step"]): str(step["status"]) for step in self.steps()}
        self.assertEqual(statuses.pop("two layers of 8B's widths"), "ok")
        self.assertGreater(len(statuses), 10)
        for status in statuses.values():
            self.assertRegex(status, "^not measured: there is no nvidia-cuda-mps-control")

    def test_without_a_gpu_nothing_is_begun(self) -> None:
        self.write_program("nvidia-smi", "#!/bin/sh\nexit 9\n", self.folder / "path")
        code, text, _ = self.run_phase("A")
        self.assertEqual(code, 2)
        self.assertIn("names no GPU", text)
        self.assertFalse((self.out / "steps.jsonl").exists())

    def test_a_phase_that_does_not_exist_is_refused(self) -> None:
        process = self.start("G", str(self.out))
        text, _ = process.communicate(timeout=SLACK_S)
        self.assertEqual(process.returncode, 2)
        self.assertIn("PHASE OUT", text)


class Page(unittest.TestCase):
    def test_has_a_row_for_each_figure_with_its_goal(self) -> None:
        shape = "8192 queries, 8192 keys, 32/8 heads of 128 bf16"
        of_decode = {
            "bench": "bench_decode", "model": "four", "dtype": "auto", "context": 4096, "lengths": "equal", "batch": 1,
            "step_seconds": {"median": 2e-3}, "share_of_floor": 0.5, "graphs_made": 3, "graphs_launched": 99,
            "graphs_piecemeal": 1, "why_no_graphs": "",
        }  # fmt: skip
        of_transformers = {"model": "four", "tokens": 4096, "prefill_s": 1.0, "step_s": 3e-3, "transformers": "5"}
        results = [
            {
                "attention_library": "cuDNN 9.19.0", "expert_library": "CUTLASS 4.2.0", "product_flops": 7e14,
                "bandwidth": 3e12, "commit": "abc",
            },
            {"op": "experts", "shape": "8192 rows", "median_s": 2e-3, "share_of_floor": 0.6},
            {"op": "experts (own)", "shape": "8192 rows", "median_s": 4e-3, "share_of_floor": 0.3},
            {"op": "attention", "shape": shape, "median_s": 1e-3, "share_of_floor": 0.7},
            {"op": "attention (own)", "shape": shape, "median_s": 2e-3, "share_of_floor": 0.35},
            {"op": "attention (torch)", "shape": shape, "median_s": 0.97e-3},
            of_decode,
            {"op": "transformers", **of_transformers},
        ]
        steps = [
            {"gpu": "G", "driver": "580", "phase": "A", "began": "today"},
            {"phase": "A", "step": "doctor", "status": "ok", "seconds": 1, "log": "l"},
        ]
        text = gpu_table.page(steps, results)
        for row in (
            "| bf16 product 8192³ | 700 TFLOP/s | – |",
            "| expert library | CUTLASS 4.2.0 | – |",
            "| experts: 8192 rows | 2 ms, 60 % of the floor; own kernels 4 ms | – |",
            f"| attention: {shape} | 1 ms, 70 % of the floor; own kernels 2 ms; 97 % of PyTorch's speed | "
            "≥ 97 % of PyTorch |",
            "| 2 ms, 50 % of the floor; graphs made or missing 4 of 100 | ≥ 80 % of the floor; ≤ 5 % of the graphs |",
            "| decode after 4096 against transformers | 1.50 × (2 ms, 3 ms) | ≥ 1.3 × |",
            "| A | doctor | ok, 1 s |",
            "commit abc",
        ):
            self.assertIn(row, text)
        self.assertNotIn("prefill of 4096", text)

    def test_of_nothing_says_so(self) -> None:
        self.assertIn("Nothing was measured.", gpu_table.page([], []))

    def test_a_line_that_was_cut_short_is_left_out(self) -> None:
        folder = Path(self.enterContext(__import__("tempfile").TemporaryDirectory()))
        (folder / "f").write_text(json.dumps({"a": 1}) + '\n{"b": ', encoding="utf-8")
        self.assertEqual(gpu_table.read_lines(folder / "f"), [{"a": 1}])
