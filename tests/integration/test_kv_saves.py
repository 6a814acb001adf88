# SPDX-License-Identifier: Apache-2.0
"""Runs that stop in the middle of a long prompt keep what they have read of it, and go on from there."""

from __future__ import annotations

import json
import os
import shutil
import signal
import unittest
from pathlib import Path
from typing import Any, Optional

from harness import (
    DRAINED,
    MODEL,
    Request,
    Results,
    RunTest,
    random_requests,
    wait_for,
)

LENGTH = 8_000  # tokens of the long prompt; seconds of work in small passes
SECTIONS: dict[str, Any] = {
    "model": {"rope_scaling": {"type": "linear", "factor": 8}},
    "generation": {"max_new_tokens": 6, "ignore_eos": True, "logprobs": 1},
    # One after the other, so that the short answer is done before the long prompt is begun.
    "batch": {"max_sequences": 1, "order": "fcfs", "max_batch_tokens": 4},
    "limits": {"grace": "40s"},
}


# Where a run reads to the end, in few passes.
LARGE_PASSES = ("--set", "batch.max_batch_tokens=1024")


def a_short_and_a_long_one(length: int = LENGTH) -> list[Request]:
    short, long = random_requests(2, 20, 40, seed=5)
    long.turns = [(long.turns[0] * (length // len(long.turns[0]) + 1))[:length]]
    return [short, long]


class KvSaveTest(RunTest):
    def job(self, name: str, requests: Optional[list[Request]] = None, **sections: Any) -> Path:
        merged = {key: dict(values) for key, values in SECTIONS.items()}
        for key, values in sections.items():
            merged[key] = {**merged.get(key, {}), **values} if isinstance(values, dict) else values
        return self.write_job(requests or a_short_and_a_long_one(), name, **merged)

    def kv(self, job: Path) -> dict[str, Any]:
        return self.report(job)["kv"]

    def reference(self) -> Results:
        return self.once("reference", self.without_saves)

    def without_saves(self) -> Results:
        job = self.job("reference", kv={"save": "off"})
        self.go_on(job, 1)
        self.assertFalse((self.output(job) / "kv").exists())
        return self.results(job)

    def go_on(self, job: Path, ranks: int, *options: str) -> str:
        """Reads what is left, to the end."""
        return self.run_job(job, ranks, *LARGE_PASSES, *options)

    def assert_restored(self, job: Path, kept: int) -> None:
        """All whole units of what was kept: two tokens for each rank of the ring."""
        self.assertIn(self.kv(job)["restored_tokens"], range(kept - 7, kept + 1))

    def test_a_long_prompt_goes_on_on_other_ranks(self) -> None:
        reference = self.reference()
        for before, after, more in ((2, 3, {}), (1, 2, {"kv": {"dtype": "bf16"}})):
            with self.subTest(before=before, after=after, **more):
                job = self.job(f"job-{before}-{after}", **more)
                words = self.stop_in_the_prompt(job, before)
                self.assertRegex(words, r"kept the keys and values of 1 request \([\d.]+ .iB in ")
                kept = self.kv(job)
                self.assertEqual(kept["kept_requests"], 1)
                self.assertGreaterEqual(kept["kept_tokens"], 64)
                self.assertLess(kept["kept_tokens"], LENGTH)
                save = self.output(job) / "kv" / "00000001-request-1"
                described = json.loads((save / "save.json").read_text())["save"]
                self.assertEqual(described["tokens"], kept["kept_tokens"])
                self.assertEqual(
                    sorted(path.name for path in save.iterdir()),
                    sorted(["save.json", *(part["file"] for part in described["parts"])]),
                )
                words = self.go_on(job, after)
                self.assertRegex(words, r"· restored [\d.]+k? tokens of 1 request ·")
                restored = self.kv(job)["restored_tokens"]
                self.assert_restored(job, kept["kept_tokens"])
                counts = self.report(job)["counts"]
                self.assertEqual(counts["prompt_tokens"], LENGTH - restored)
                self.assertFalse((self.output(job) / "kv").exists(), "the request is done")
                if not more:
                    self.assert_same_answers(self.results(job), reference, [0, 1])

    def test_layers_with_a_window_keep_recent_tokens_alone(self) -> None:
        """Windows of 16 tokens in two of three layers, or chunks of 20 in three of four; the same answers, from less
        memory."""
        for golden in ("gemma3-windows", "llama4-chunks"):
            with self.subTest(golden):
                self.keep_recent_tokens_alone(golden)

    def keep_recent_tokens_alone(self, golden: str) -> None:
        requests = a_short_and_a_long_one(12_000)
        model = {"path": str(MODEL.parent / golden), "compute": "fp32"}
        kv = {"dtype": "fp32"}  # a narrower one rounds differently on another number of ranks
        all_tokens = self.job(f"all-{golden}", requests, model=model, kv={**kv, "keep": "all"})
        self.go_on(all_tokens, 2)
        self.assertIsNone(self.report(all_tokens)["modes"]["kv_recent_tokens_per_rank"])
        job = self.job(f"recent-{golden}", requests, model=model, kv=kv)
        self.stop_in_the_prompt(job, 2)
        slots = self.report(job)["modes"]["kv_recent_tokens_per_rank"]
        self.assertLess(slots, self.report(job)["modes"]["kv_tokens_per_rank"] // 4)
        kept = self.kv(job)["kept_tokens"]
        self.assertGreaterEqual(kept, 64)
        self.go_on(job, 3)
        self.assert_restored(job, kept)
        self.assert_same_answers(self.results(job), self.results(all_tokens), [0, 1])
        straight = self.job(f"straight-{golden}", requests, model=model, kv=kv)
        self.assertIn("keep recent tokens alone", self.go_on(straight, 2))
        for name in ("tokens", "token_logprob"):
            for row in (0, 1):
                found, wanted = (
                    self.results(each).slots(row, name) for each in (straight, all_tokens)
                )
                self.assertEqual(found.tobytes(), wanted.tobytes())

    def test_elastic_teams_keep_and_go_on(self) -> None:
        reference = self.reference()
        elastic = {"parallel": {"cp": "elastic"}}
        # Two layers, K and V of four heads of eight fp32 numbers: a rank holds half of the long prompt.
        half = (LENGTH // 2 + 50) * 2 * 2 * 4 * 8 * 4
        for name, ranks, after, wide in (("one", 2, 3, False), ("both", 2, 2, True)):
            with self.subTest(name):
                job = self.job(name, **elastic, **({"kv": {"memory": half}} if wide else {}))
                self.stop_in_the_prompt(job, ranks)
                kept = self.kv(job)["kept_tokens"]
                self.assertGreaterEqual(kept, 64)
                self.go_on(job, after)
                self.assert_restored(job, kept)
                self.assert_same_answers(self.results(job), reference, [0, 1])
                self.assertIn(b"elastic:2" if wide else b"elastic:", self.results(job)["mode"][1])

    def test_a_second_stop_keeps_only_what_is_new(self) -> None:
        requests = a_short_and_a_long_one(2 * LENGTH)  # for two stops
        whole = self.job("whole", requests, kv={"save": "off"})
        self.go_on(whole, 1)
        reference = self.results(whole)
        job = self.job("job", requests, batch={"max_batch_tokens": 64})
        self.stop_in_the_prompt(job, 1)
        first = self.kv(job)["kept_tokens"]
        launch = self.start(job, 2, together=True)
        wait_for("all ranks", lambda: len(launch.ranks()) == 2)
        save = self.output(job) / "kv" / "00000001-request-1"
        wait_for("the first line", lambda: "kv.save: if it has to stop" in launch.words())
        self.compute_for(launch, 0.5)
        launch.signal_ranks(signal.SIGTERM)
        self.end(launch, DRAINED)
        kv = self.kv(job)
        self.assert_restored(job, first)
        described = json.loads((save / "save.json").read_text())["save"]
        self.assertEqual(described["tokens"], first + kv["kept_tokens"])
        self.assertGreater(kv["kept_tokens"], 0)
        self.go_on(job, 1)
        self.assert_restored(job, described["tokens"])
        self.assert_same_answers(self.results(job), reference, [0, 1])

    def test_what_is_damaged_is_read_again(self) -> None:
        reference = self.reference()
        job = self.job("job")
        self.stop_in_the_prompt(job, 2)
        save = self.output(job) / "kv" / "00000001-request-1"
        kept = self.folder / "kept"
        shutil.copytree(save, kept)
        whole = json.loads((save / "save.json").read_text())["save"]["tokens"]

        def cut(path: Path) -> None:
            os.truncate(path, path.stat().st_size // 2)

        def change(path: Path) -> None:
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 4
            path.write_bytes(content)

        damages = {
            "a changed byte": (lambda: change(save / "0-1.h5"), "checksum"),
            "a cut file": (lambda: cut(save / "0-0.h5"), "0-0.h5"),
            "a file that is gone": (lambda: (save / "0-1.h5").unlink(), "0-1.h5"),
            "its description": (lambda: change(save / "save.json"), "save.json is damaged"),
        }
        results = (self.output(job) / "results.h5").read_bytes()
        for name, (damage, words_of_it) in damages.items():
            with self.subTest(name):
                shutil.rmtree(save, ignore_errors=True)
                shutil.copytree(kept, save)
                (self.output(job) / "results.h5").write_bytes(results)
                damage()
                words = self.go_on(job, 2)
                self.assertIn(words_of_it, words)
                self.assertRegex(words, "the prompt is read again")
                # What was read before the damage was met is whole.
                restored = self.kv(job)["restored_tokens"]
                self.assertLess(restored, whole if name == "a changed byte" else 1)
                self.assertEqual(self.report(job)["counts"]["prompt_tokens"], LENGTH - restored)
                self.assert_same_answers(self.results(job), reference, [0, 1])

    def test_files_without_a_description_are_no_save(self) -> None:
        job = self.job("job")
        self.stop_in_the_prompt(job, 1)
        save = self.output(job) / "kv" / "00000001-request-1"
        (save / "save.json").unlink()
        words = self.go_on(job, 1)
        self.assertNotIn("restored", words)
        self.assertEqual(self.kv(job)["restored_tokens"], 0)
        self.assertFalse(save.exists(), "the next start removes them")

    def test_off_keeps_nothing_and_another_folder_holds_what_is_kept(self) -> None:
        off = self.job("off", kv={"save": "off"})
        words = self.stop_in_the_prompt(off, 1)
        self.assertNotIn("keys and values", words)
        self.assertEqual(self.kv(off)["kept_requests"], 0)
        there = self.job("there", kv={"save": "saves"})
        self.stop_in_the_prompt(there, 1)
        link = self.output(there) / "kv"
        self.assertTrue(link.is_symlink())
        self.assertEqual(link.resolve().parent, (self.folder / "saves").resolve())
        self.assertEqual([path.name for path in link.iterdir()], ["00000001-request-1"])
        self.go_on(there, 1)
        self.assertGreater(self.kv(there)["restored_tokens"], 0)
        self.assertEqual(list(link.iterdir()), [])

    def test_a_fresh_run_uses_nothing_of_an_earlier_one(self) -> None:
        job = self.job("job")
        self.stop_in_the_prompt(job, 1)
        words = self.go_on(job, 1, "--fresh")
        self.assertNotIn("restored", words)
        self.assertGreater(self.report(job)["counts"]["prompt_tokens"], LENGTH)
        self.assertEqual(self.kv(job)["restored_tokens"], 0)


if __name__ == "__main__":
    unittest.main()
