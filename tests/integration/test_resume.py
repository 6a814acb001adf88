# SPDX-License-Identifier: Apache-2.0
"""What a second run in the same folder says and may do."""

from __future__ import annotations

import json
import signal
import unittest
from pathlib import Path
from typing import Any

from harness import (
    ALL_DONE,
    DONE,
    DRAINED,
    FAILED,
    MODEL,
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
