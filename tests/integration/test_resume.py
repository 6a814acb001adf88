# SPDX-License-Identifier: Apache-2.0
"""What a second run in the same folder says and may do."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import struct
import unittest
from pathlib import Path
from typing import Any

import h5py

from harness import (
    ALL_DONE,
    DONE,
    DRAINED,
    FAILED,
    LEAVE_TOGETHER,
    MODEL,
    MPIEXEC,
    PROGRAM,
    REFUSED,
    SOME_FAILED,
    VOCAB,
    Request,
    RunTest,
    random_requests,
    wait_for,
    wait_for_state,
)
from test_stopping import GREEDY, Drains, long_answers


class OtherLayoutTest(Drains):
    """What a run says that goes on where its earlier answers were not computed."""

    def words_of_continuing(self, then: int, **sections: Any) -> str:
        job = self.write_job(long_answers(), generation=GREEDY, **sections)
        self.drain(job, 2, lambda launch: launch.signal_ranks(signal.SIGTERM))
        soon = ("--set", "limits.wall_time=1s", "--set", "limits.grace=0.99s")
        return self.run_job(job, then, *soon, expect=DRAINED)

    def test_narrow_numbers_on_another_layout_are_warned_of(self) -> None:
        words = self.words_of_continuing(1, kv={"dtype": "bf16"})
        self.assertIn(
            "warning: an earlier start of this run had another layout (dp 1, cp 2,", words
        )

    def test_the_same_layout_is_not_warned_of(self) -> None:
        self.assertNotIn("warning", self.words_of_continuing(2, kv={"dtype": "bf16"}))

    def test_fp32_is_not_warned_of(self) -> None:
        self.assertNotIn("warning", self.words_of_continuing(1, model={"compute": "fp32"}))


class SecondRunTest(RunTest):
    def small_job(self, name: str = "job", **sections: Any) -> Path:
        return self.write_job(random_requests(4, 5, 20, seed=8), name, **sections)

    def test_finished_run_does_nothing(self) -> None:
        bad = Request("bad", [[5, VOCAB, 5]])
        for name, requests, code in (
            ("good", random_requests(3, 5, 20, seed=8), ALL_DONE),
            ("mixed", [*random_requests(3, 5, 20, seed=8), bad], SOME_FAILED),
        ):
            with self.subTest(name):
                job = self.write_job(requests, name, generation={"max_new_tokens": 4})
                self.run_job(job, 2, expect=code)
                before = {p.name: p.read_bytes() for p in self.output(job).iterdir()}
                words = self.run_job(job, 3, expect=code)
                self.assertIn("nothing is left to do", words)
                after = {p.name: p.read_bytes() for p in self.output(job).iterdir()}
                self.assertEqual(after, before)

    def test_retry_failed_takes_failed_turns_again(self) -> None:
        requests = random_requests(4, 5, 20, seed=8)
        requests[2].turns[0] *= 12
        job = self.write_job(requests, generation={"max_new_tokens": 4}, kv={"memory": "16KiB"})
        self.assertGreater(len(requests[2].turns[0]), 32)
        self.run_job(job, 1, expect=SOME_FAILED)
        before = self.results(job)
        self.assertEqual(before.rows(FAILED), [2])
        # More memory, and yet a failed turn stays as it is until it is asked for.
        self.run_job(job, 1, "--set", "kv.memory=1MiB", expect=SOME_FAILED)
        self.assertEqual(self.results(job).rows(FAILED), [2])
        self.run_job(job, 1, "--set", "kv.memory=1MiB", "--retry-failed")
        after = self.results(job)
        self.assertEqual(after.rows(DONE), [0, 1, 2, 3])
        self.assertEqual(after["error"][2], b"")
        for row in (0, 1, 3):
            self.assertEqual(after.row_bytes(row), before.row_bytes(row))

    def test_failed_turns_are_taken_again_as_often_as_the_job_says(self) -> None:
        requests = [*random_requests(3, 5, 20, seed=8), Request("bad", [[5, VOCAB, 5]])]
        for ranks, parallel in ((1, {}), (2, {"dp": 2})):
            with self.subTest(ranks=ranks):
                name = f"job-{ranks}"
                generation = {"max_new_tokens": 4}
                job = self.write_job(requests, name, generation=generation, parallel=parallel)
                words = self.run_job(job, ranks, "--set", "limits.retries=2", expect=SOME_FAILED)
                for retry in (1, 2):
                    self.assertIn(f"as limits.retries says: {retry} of 2", words)
                self.assertNotIn("3 of 2", words)
                found = self.results(job)
                self.assertEqual((found.rows(DONE), found.rows(FAILED)), ([0, 1, 2], [3]))
                report = json.loads((self.output(job) / "report.json").read_text())
                counts = [(start["done"], start["failed"]) for start in report["starts"]]
                self.assertEqual(counts, [(3, 1), (0, 1), (0, 1)])
                words = self.run_job(job, ranks, expect=SOME_FAILED)
                self.assertNotIn("limits.retries", words, "it is 0 unless the job says otherwise")

    def test_fresh_keeps_the_old_results(self) -> None:
        job = self.small_job(generation={"max_new_tokens": 4})
        self.run_job(job, 1)
        old = (self.output(job) / "results.h5").read_bytes()
        words = self.run_job(job, 2, "--fresh", "--set", "generation.max_new_tokens=6")
        self.assertIn("results.1.h5", words)
        self.assertEqual((self.output(job) / "results.1.h5").read_bytes(), old)
        self.assertTrue((self.results(job)["output_tokens"] <= 6).all())
        self.assertEqual(self.results(job)["slot_offsets"][-1], 24)
        self.run_job(job, 1, "--fresh")
        self.assertEqual((self.output(job) / "results.1.h5").read_bytes(), old)
        self.assertTrue((self.output(job) / "results.2.h5").exists())

    def test_another_run_is_refused_with_what_differs(self) -> None:
        job = self.small_job(generation={"max_new_tokens": 4, "temperature": 0.5})
        self.run_job(job, 1)
        before = (self.output(job) / "results.h5").read_bytes()
        for option, key, old, new in (
            ("generation.temperature=0.25", "generation/temperature", "0.5", "0.25"),
            ("generation.seed=9", "generation/seed", "0", "9"),
            ("kv.dtype=bf16", "kv/dtype", "fp32", "bf16"),
            ("kv.dtype=fp8", "kv/dtype", "fp32", "fp8"),
            (f"model.path={MODEL.parent / 'llama-mqa'}", "model/config_sha256", "", ""),
        ):
            with self.subTest(option):
                words = self.run_job(job, 2, "--set", option, expect=REFUSED)
                self.assertRegex(words, f"{key}: .*{old}.* there, .*{new}.* now")
                self.assertIn("--fresh", words)
        with self.subTest("other prompts"):
            self.write_job(random_requests(4, 5, 20, seed=9))
            self.assertIn("input_sha256/0:", self.run_job(job, 2, expect=REFUSED))
        self.assertEqual((self.output(job) / "results.h5").read_bytes(), before)

    def own_model(self) -> Path:
        """A copy of the model, which the test may change."""
        return Path(shutil.copytree(MODEL, self.folder / "model"))

    def change_weights(self, model: Path) -> None:
        """Another last value: names, shapes and sizes stay."""
        weights = model / "model.safetensors"
        content = bytearray(weights.read_bytes())
        content[-4:] = struct.pack("<f", 0.25)
        weights.write_bytes(content)

    def test_replaced_weights_are_refused(self) -> None:
        model = self.own_model()
        job = self.small_job(generation={"max_new_tokens": 4}, model={"path": str(model)})
        self.run_job(job, 1)
        before = (self.output(job) / "results.h5").read_bytes()
        self.change_weights(model)
        for options in ((), ("--validate",), ("--set", "model.load=spread")):
            words = self.run_job(job, 1, *options, expect=REFUSED)
            self.assertIn("belongs to another run", words)
            self.assertRegex(words, "contents of the model's weights .* there, .* now; .* replaced")
            self.assertIn("--fresh", words)
        self.assertEqual((self.output(job) / "results.h5").read_bytes(), before)

    def test_results_that_do_not_know_the_weights_go_on_with_a_warning(self) -> None:
        job = self.small_job(generation={"max_new_tokens": 4})
        self.run_job(job, 1)
        self.assertNotIn("warning", self.run_job(job, 1))
        with h5py.File(self.output(job) / "results.h5", "r+") as file:
            identity = json.loads(file.attrs["identity"])
            del identity["model"]["contents_sha256"]
            file.attrs["identity"] = json.dumps(identity)
        words = self.run_job(job, 1)
        self.assertRegex(words, "warning: .*results.h5 does not say which contents the weights had")
        self.assertIn("nothing is left to do", words)

    def test_ranks_with_different_models_are_refused(self) -> None:
        """/proc/self/cwd is another folder for each rank, as a disk of a host is."""
        job = self.small_job(model={"path": "/proc/self/cwd/model"}, parallel={"cp": 2})
        of_rank = [self.folder / f"rank{rank}" for rank in range(2)]
        for folder in of_rank:
            shutil.copytree(MODEL, folder / "model")
        config = json.loads((of_rank[1] / "model" / "config.json").read_text())

        def run(expect: int, *options: str) -> str:
            part = ["--wdir", of_rank[0], PROGRAM, "run", job, *options]
            other = ["--wdir", of_rank[1], PROGRAM, "run", job, *options]
            command = [MPIEXEC, "--bind-to", "none", "-np", "1", *part, ":", "-np", "1", *other]
            return self.end(self.launch(command, LEAVE_TOGETHER if expect == REFUSED else {}), expect)

        def change_config() -> None:
            config["rms_norm_eps"] *= 2
            (of_rank[1] / "model" / "config.json").write_text(json.dumps(config))

        run(ALL_DONE, "--set", "output=same.run")
        begin = f"rank 1 on host {socket.gethostname()} differs in: "
        change_config()
        self.assertIn(begin + "config.json\n", run(REFUSED))
        shutil.copy(MODEL / "config.json", of_rank[1] / "model")
        self.change_weights(of_rank[1] / "model")
        for options in ((), ("--set", "model.load=spread")):
            self.assertIn(begin + "contents of the weights\n", run(REFUSED, *options))
        (of_rank[1] / "model" / "config.json").unlink()
        self.assertIn(f"rank 1 on host {socket.gethostname()}: ", run(REFUSED))
        self.assertFalse((self.output(job) / "results.h5").exists())

    def test_folder_in_use_is_refused_and_its_holder_named(self) -> None:
        job = self.write_job(long_answers(), generation=GREEDY)
        first = self.start(job, 2)
        wait_for("all ranks", lambda: len(first.ranks()) == 2)
        wait_for_state(self.output(job) / "results.h5", 0, DONE)
        first.signal_ranks(signal.SIGSTOP)
        holder = json.loads((self.output(job) / ".lock").read_text())
        words = self.run_job(job, 2, expect=REFUSED)
        self.assertIn(f"process {holder['pid']} on host {holder['host']}", words)
        self.assertIn(holder["pid"], first.ranks())
        first.kill()


if __name__ == "__main__":
    unittest.main()
