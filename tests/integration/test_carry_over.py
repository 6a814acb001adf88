# SPDX-License-Identifier: Apache-2.0
"""Starts that continue a run under other lengths or with more input, and what --validate says of them."""

from __future__ import annotations

import json
import signal
import subprocess
import unittest
from collections.abc import Sequence
from pathlib import Path

import h5py

from harness import (
    DONE,
    DRAINED,
    FAILED,
    PARTIAL,
    POSITIONS,
    PROGRAM,
    REFUSED,
    SOME_FAILED,
    VOCAB,
    Request,
    Results,
    RunTest,
    random_requests,
    wait_for,
    wait_for_state,
    write_shard,
)

TRUNCATE = ("--set", "limits.over_length=truncate_middle")


def with_a_long_one(count: int = 4) -> list[Request]:
    """Short prompts, and as the last one a prompt that is longer than the model's length."""
    requests = random_requests(count, 5, 20, seed=8)
    requests[-1].turns[0] = (requests[-1].turns[0] * POSITIONS)[: POSITIONS + 20]
    return requests


class CarryOverTest(RunTest):
    def settings(self, job: Path) -> list[dict[str, object]]:
        with h5py.File(self.output(job) / "results.h5", "r", locking=False) as file:
            return json.loads(file.attrs["settings"])

    def validate(self, job: Path, *options: str, expect: int = 0) -> str:
        done = subprocess.run(
            [str(PROGRAM), "run", "--validate", str(job), *options],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        self.assertEqual(done.returncode, expect, done.stderr)
        self.assertEqual(done.stdout, "")
        return done.stderr

    def assert_same_rows(self, after: Results, before: Results, rows: Sequence[int]) -> None:
        for row in rows:
            self.assertEqual(after.row_bytes(row), before.row_bytes(row), f"row {row}")


class RetryTest(CarryOverTest):
    def test_over_length_failure_is_finished_as_its_message_says(self) -> None:
        job = self.write_job(with_a_long_one(), generation={"max_new_tokens": 4, "logprobs": 2})
        words = self.run_job(job, 2, expect=SOME_FAILED)
        self.assertIn("1 of them cannot run", words)
        before = self.results(job)
        error = before["error"][3].decode()
        self.assertRegex(error, "limits.over_length .* --retry-failed")
        self.assertIn("--retry-failed", self.run_job(job, 1, *TRUNCATE, expect=SOME_FAILED))
        self.assert_same_rows(self.results(job), before, range(4))

        words = self.run_job(job, 1, "--retry-failed", *TRUNCATE)
        self.assertIn(
            "the job differs from the earlier start in limits.over_length (fail → truncate_middle):"
            " it holds for the 1 turn that is not done",
            words,
        )
        after = self.results(job)
        self.assertEqual(after.rows(DONE), [0, 1, 2, 3])
        self.assertEqual(after["prompt_tokens"][3], POSITIONS - 4)
        self.assertEqual(after["settings"].tolist(), [0, 0, 0, 1])
        names = [each["limits.over_length"] for each in self.settings(job)]
        self.assertEqual(names, ["fail", "truncate_middle"])
        self.assert_same_rows(after, before, range(3))
        # As it would have been under those settings from the start.
        reference = self.write_job(with_a_long_one(), "reference", generation={"max_new_tokens": 4})
        self.run_job(reference, 1, *TRUNCATE)
        self.assert_same_answers(after, self.results(reference), range(4))
        self.assertIn("nothing is left to do", self.run_job(job, 1, *TRUNCATE))

    def test_a_longer_context_for_what_failed(self) -> None:
        job = self.write_job(with_a_long_one(), generation={"max_new_tokens": 4})
        self.run_job(job, 1, expect=SOME_FAILED)
        before = self.results(job)
        rope = ("--set", "model.rope_scaling={type: yarn, factor: 2}")
        words = self.run_job(job, 2, "--retry-failed", *rope)
        self.assertIn("differs from the earlier start in model.rope_scaling (auto → {", words)
        after = self.results(job)
        self.assertEqual(after.rows(DONE), [0, 1, 2, 3])
        self.assertEqual(after["prompt_tokens"][3], POSITIONS + 20)
        self.assertEqual(after["settings"].tolist(), [0, 0, 0, 1])
        self.assertNotEqual(self.settings(job)[1]["model.rope_scaling"], "auto")
        self.assert_same_rows(after, before, range(3))

    def test_what_answers_depend_on_is_refused_as_before(self) -> None:
        job = self.write_job(with_a_long_one(), generation={"max_new_tokens": 4})
        self.run_job(job, 1, expect=SOME_FAILED)
        before = (self.output(job) / "results.h5").read_bytes()
        options = ("--retry-failed", *TRUNCATE, "--set", "generation.seed=9")
        words = self.run_job(job, 1, *options, expect=REFUSED)
        self.assertIn("generation/seed: 0 there, 9 now", words)
        self.assertNotIn("over_length", words)
        said = self.validate(job, *options, expect=REFUSED)
        self.assertIn(said, words)
        self.assertEqual((self.output(job) / "results.h5").read_bytes(), before)


class LongerAnswersTest(CarryOverTest):
    def drained(self, wanted: int) -> tuple[Path, Results]:
        """A run of three long answers and a prompt too long, which was stopped; what it left."""
        requests = random_requests(4, 10, 40, seed=21)
        requests[3].turns[0] = (requests[3].turns[0] * POSITIONS)[: POSITIONS + 20]
        job = self.write_job(
            requests,
            generation={"max_new_tokens": wanted, "ignore_eos": True, "logprobs": 1},
            batch={"max_sequences": 3, "order": "fcfs"},
        )
        launch = self.start(job, 1, together=True)
        path = self.output(job) / "results.h5"
        wait_for_state(path, 3, FAILED)
        wait_for("all ranks", lambda: len(launch.ranks()) == 1)
        launch.signal_ranks(signal.SIGTERM)
        self.end(launch, DRAINED)
        left = self.results(job)
        self.assertGreater(len(left.rows(PARTIAL)), 0, "the signal came too late")
        return job, left

    def test_partial_answers_go_on_to_more_or_fewer_tokens(self) -> None:
        job, left = self.drained(3000)
        wanted = 3100
        words = self.run_job(
            job, 1, "--set", f"generation.max_new_tokens={wanted}", expect=SOME_FAILED
        )
        self.assertIn("generation.max_new_tokens (3000 → 3100)", words)
        after = self.results(job)
        for row in left.rows(PARTIAL):
            tokens = left.tokens(row)
            self.assertEqual(after.tokens(row)[: len(tokens)], tokens)
        self.assertEqual(after["output_tokens"].tolist(), [wanted] * 3 + [0])
        self.assertEqual(after["settings"].tolist(), [1, 1, 1, 0])
        counts = self.report(job)["counts"]
        kept = sum(len(left.tokens(row)) for row in left.rows(PARTIAL))
        self.assertEqual(counts["output_tokens"], 3 * wanted - kept, "what was safe is not made again")


class MoreInputTest(CarryOverTest):
    def job_of_two(self) -> Path:
        requests = random_requests(6, 5, 20, seed=8, every_second_turn=2)
        write_shard(self.folder / "b.prompts.h5", requests[:3])
        write_shard(self.folder / "c.prompts.h5", requests[3:])
        return self.write_job(generation={"max_new_tokens": 4}, input=["*.prompts.h5"])

    def test_more_files_are_more_requests(self) -> None:
        job = self.job_of_two()
        self.run_job(job, 1)
        before = self.results(job)
        rows = len(before["state"])
        more = random_requests(5, 5, 20, seed=9)[3:]
        write_shard(self.folder / "a.prompts.h5", more)  # first in the pattern's order
        words = self.run_job(job, 2, expect=REFUSED)  # ids that another file has
        self.assertIn("unique", words)
        for index, request in enumerate(more):
            request.id = f"further-{index}"
        write_shard(self.folder / "a.prompts.h5", more)
        self.assertIn(f"continues: {rows} turns done, 0 failed, 2 to go", self.validate(job))
        words = self.run_job(job, 2)
        self.assertIn("2 turns more than at the earlier start, from 1 new input file", words)
        after = self.results(job)
        self.assertEqual(after.rows(DONE), list(range(rows + 2)))
        self.assertEqual(after["request_id"][rows].decode(), "further-0")
        self.assertEqual(after["shard"][rows], 2)
        for row in range(rows):
            old = before.row_bytes(row)
            wider = {"request_id": after["request_id"][row].tobytes()}
            self.assertEqual(after.row_bytes(row), {**old, **wider})
        with h5py.File(self.output(job) / "results.h5", "r") as file:
            names = [Path(name).name for name in json.loads(file.attrs["inputs"])]
        self.assertEqual(names, ["b.prompts.h5", "c.prompts.h5", "a.prompts.h5"])
        write_shard(self.folder / "alone.h5", more)
        alone = self.write_job(name="alone", generation={"max_new_tokens": 4})
        self.run_job(alone, 1)
        expected = self.results(alone)
        for row in (0, 1):
            self.assertEqual(after.tokens(rows + row), expected.tokens(row))
        self.assertIn("nothing is left to do", self.run_job(job, 1))

    def test_a_file_that_is_gone_or_changed_is_refused(self) -> None:
        job = self.job_of_two()
        self.run_job(job, 1)
        before = (self.output(job) / "results.h5").read_bytes()
        kept = (self.folder / "b.prompts.h5").read_bytes()
        (self.folder / "b.prompts.h5").unlink()
        words = self.run_job(job, 2, expect=REFUSED)
        self.assertRegex(words, "input .*/b.prompts.h5 .* is not among the inputs now")
        self.assertIn(self.validate(job, expect=REFUSED), words)
        write_shard(self.folder / "b.prompts.h5", random_requests(3, 5, 20, seed=10))
        words = self.run_job(job, 2, expect=REFUSED)
        self.assertRegex(words, "input .*/b.prompts.h5 .* has other contents now")
        self.assertEqual((self.output(job) / "results.h5").read_bytes(), before)
        (self.folder / "b.prompts.h5").write_bytes(kept)
        self.run_job(job, 2)

    def test_killed_while_rows_are_carried_over(self) -> None:
        requests = random_requests(200, 5, 10, seed=8)
        job = self.write_job(requests, generation={"max_new_tokens": 3, "logprobs": -1})
        self.run_job(job, 1)
        before = self.results(job)
        path = self.output(job) / "results.h5"
        write_shard(self.folder / "more.h5", [Request("a further one", [[5, 6, 7]])])
        self.write_job(
            generation={"max_new_tokens": 3, "logprobs": -1}, input=["job.h5", "more.h5"]
        )
        torn = [path.with_name(name) for name in ("results.h5.new.unfinished", "results.h5.new")]
        in_time = 0
        for moment in torn * 5:
            launch = self.start(job, 0)
            process = launch.process
            wait_for(
                f"{moment} or the end",
                lambda at=moment, process=process: at.exists() or process.poll() is not None,
            )
            process.kill()
            process.wait()
            found = self.results(job)
            self.assert_same_rows(found, before, range(0, 200, 13))
            self.assertEqual(found.rows(DONE)[:200], list(range(200)))
            if len(found["state"]) == 201:
                break  # the kill was too late; there is nothing left to carry over
            in_time += any(each.exists() for each in torn)
        self.assertGreater(in_time, 0)
        self.run_job(job, 2)
        after = self.results(job)
        self.assertEqual(after.rows(DONE), list(range(201)))
        for row in range(200):
            self.assertEqual(after.tokens(row), before.tokens(row))
        self.assertFalse(any(each.exists() for each in torn))


class ValidateTest(CarryOverTest):
    def test_requests_that_cannot_run_are_listed(self) -> None:
        requests = [
            *with_a_long_one(),
            Request("empty", [[]]),
            Request("bad", [[5], [5, VOCAB]]),
        ]
        job = self.write_job(requests, generation={"max_new_tokens": 4})
        words = self.validate(job)
        tokens = sum(len(request.turns[0]) for request in requests[:3]) + 1
        self.assertIn(f"valid; 6 requests in 1 prompt shard, {tokens} prompt tokens", words)
        self.assertIn("3 of 6 requests will fail:", words)
        self.assertRegex(words, f"request-3: {POSITIONS + 20} prompt tokens, .*limits.over_length")
        self.assertIn("empty: the turn has no tokens", words)
        self.assertIn(f"bad, turn 2: token 1 of the turn is {VOCAB}", words)
        self.assertFalse(self.output(job).exists())
        words = self.validate(job, *TRUNCATE)
        self.assertIn("2 of 6 requests will fail", words)
        self.assertIn("1 prompt is longer than the model's length allows", words)
        words = self.run_job(job, 1, expect=SOME_FAILED)
        self.assertIn(f"6 requests, {tokens} tokens", words)
        self.assertIn("3 of them cannot run", words)
        self.assertEqual(self.results(job).rows(FAILED), [3, 4, 6])
        self.assertIn("nothing is left to do: 4 turns done, 3 failed", self.validate(job))
        words = self.validate(job, "--retry-failed", *TRUNCATE)
        self.assertIn("continues: 4 turns done, 0 failed, 3 to go", words)
        self.assertIn("2 of 6 requests will fail", words)
        self.assertIn("will fail", self.validate(job, "--fresh"))

    def test_a_job_of_which_nothing_can_run_is_refused(self) -> None:
        job = self.write_job(with_a_long_one()[3:])
        words = self.validate(job, expect=REFUSED)
        self.assertIn("no request can run", words)
        self.assertIn("1 of 1 request will fail", words)
        self.run_job(job, 1, expect=SOME_FAILED)

    def test_many_failures_are_not_all_listed(self) -> None:
        requests = [*random_requests(1, 5, 9, seed=1), *[Request(f"e{i}", [[]]) for i in range(14)]]
        words = self.validate(self.write_job(requests))
        self.assertEqual(words.count("the turn has no tokens"), 10)
        self.assertIn("and 4 more", words)

    def test_memory_that_the_job_names(self) -> None:
        requests = random_requests(4, 5, 20, seed=8)
        requests[2].turns[0] *= 12
        job = self.write_job(requests, generation={"max_new_tokens": 4}, kv={"memory": "16KiB"})
        words = self.validate(job)
        self.assertRegex(words, "request-2: needs .* KV slots on each rank")
        self.assertEqual(words.count("KV slots"), 1)
        self.run_job(job, 1, expect=SOME_FAILED)
        self.assertEqual(self.results(job).rows(FAILED), [2])

    def test_converted_weights_are_the_same_run(self) -> None:
        for dtype in ("bf16", "int8"):
            with self.subTest(dtype):
                job = self.write_job(
                    random_requests(2, 5, 9, seed=1), dtype, model={"dtype": dtype}, generation={"max_new_tokens": 2}
                )
                self.run_job(job, 1)
                self.assertIn("nothing is left to do: 2 turns done", self.validate(job))

    def test_memory_is_not_laid_out_for_what_cannot_run(self) -> None:
        short, long = with_a_long_one(2)
        alone = self.write_job([short], "alone", generation={"max_new_tokens": 4})
        both = self.write_job([short, long], "both", generation={"max_new_tokens": 4})
        self.run_job(alone, 1)
        self.run_job(both, 1, expect=SOME_FAILED)
        slots = [self.report(job)["modes"]["kv_tokens_per_rank"] for job in (alone, both)]
        self.assertEqual(slots[0], slots[1])


if __name__ == "__main__":
    unittest.main()
