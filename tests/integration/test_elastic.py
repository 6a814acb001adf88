# SPDX-License-Identifier: Apache-2.0
"""Runs whose teams change: the answers of one rank, on every grid, whatever fails on the way."""

from __future__ import annotations

import re
import signal
import unittest
from pathlib import Path
from typing import Any

from harness import DONE, DRAINED, FAILED, RunTest, random_requests, wait_for_state

GENERATION: dict[str, Any] = {"max_new_tokens": 12, "ignore_eos": True, "logprobs": 2}
LONG = 1200  # tokens of one prompt


class ElasticTest(RunTest):
    def write(self, name: str, count: int = 14, **settings: Any) -> Path:
        requests = random_requests(count, 1, 60, seed=81, every_second_turn=3)
        requests[5].turns[0] = (requests[5].turns[0] * LONG)[:LONG]
        batch = {"max_batch_tokens": 64, **settings.pop("batch", {})}
        generation = {**GENERATION, **settings.pop("generation", {})}
        return self.write_job(requests, name, generation=generation, batch=batch, **settings)

    def test_answers_as_one_rank_on_every_grid(self) -> None:
        alone = self.write("alone")
        self.run_job(alone, 1)
        wanted = self.results(alone)
        for ranks, parallel, policy in (
            (2, {}, "prefill_first"),
            (3, {}, "chunked"),
            (4, {"sp": 2}, "prefill_first"),
            (4, {"tp": 2, "prefill": "sp_tp"}, "chunked"),
            (4, {"dp": 2}, "prefill_first"),
            (3, {"scheduler": "loongserve"}, "prefill_first"),
            (4, {"scheduler": "loongserve", "tp": 2}, "prefill_first"),
            (4, {"elastic": {"min": 2, "max": 3}}, "prefill_first"),
        ):
            with self.subTest(ranks=ranks, parallel=parallel, policy=policy):
                job = self.write("elastic", parallel={"cp": "elastic", **parallel},
                                 batch={"policy": policy})
                self.run_job(job, ranks, "--fresh")
                found = self.results(job)
                self.assert_same_answers(found, wanted, wanted.rows(DONE))
                self.assertTrue(all(b"elastic:" in mode for mode in found["mode"]), set(found["mode"]))
                elastic = self.report(job)["elastic"]
                if "scheduler" in parallel:
                    self.assertEqual(elastic["scheduler"], parallel["scheduler"])
                degrees = elastic["degrees"]
                read = sum(degree["prefill_tokens"] for degree in degrees)
                again = int((found["cached_tokens"] > 0).sum())  # the last token of the answer before
                self.assertEqual(read, int(found["prompt_tokens"].sum()) + again)

    def test_reads_and_answers_apart_as_one_rank(self) -> None:
        alone = self.write("alone")
        self.run_job(alone, 1)
        wanted = self.results(alone)
        for ranks, parallel, policy in (
            (2, {"cp": 2}, "prefill_first"),
            (3, {"cp": 3, "answering": 1}, "chunked"),
            (4, {"cp": "elastic", "answering": 1}, "prefill_first"),
            (4, {"cp": 2, "tp": 2}, "prefill_first"),
            (4, {"cp": 2, "sp": 2}, "chunked"),
            (4, {"cp": 2, "dp": 2}, "prefill_first"),
        ):
            with self.subTest(ranks=ranks, parallel=parallel, policy=policy):
                job = self.write("apart", parallel={"phases": "apart", **parallel}, batch={"policy": policy})
                self.run_job(job, ranks, "--fresh")
                found = self.results(job)
                self.assert_same_answers(found, wanted, wanted.rows(DONE))
                self.assertTrue(any(b"apart:" in mode for mode in found["mode"]), set(found["mode"]))

    def test_the_scheduler_is_chosen_by_expected_times(self) -> None:
        job = self.write("dealt", parallel={"cp": "elastic"})
        words = self.run_job(job, 3)
        names = "(greedy|loongserve)"
        chosen = re.search(
            rf"auto: .*; scheduler {names}: {names} should take \d+ % (less|more) time for this batch", words
        )
        assert chosen is not None, words
        self.assertNotEqual(chosen[1], chosen[2])
        self.assertEqual(self.report(job)["elastic"]["scheduler"], chosen[1])

    def test_phases_are_settled_by_expected_times(self) -> None:
        job = self.write("open", parallel={"cp": 3, "phases": "auto"})
        words = self.run_job(job, 3)
        self.assertRegex(words, r"auto: phases (together|apart, \d instances? answers?): setting them apart should "
                                r"take \d+ % (less|more) time for this batch")
        job = self.write("apart", parallel={"cp": 4, "phases": "apart"})
        words = self.run_job(job, 4)
        self.assertRegex(words, r"decode broadcast_q on \d of 4 instances\n.*auto: phases apart, \d instances? "
                                r"answers?: as this should take the least time for this batch")
        self.assertIn(self.report(job)["elastic"]["answering"], (1, 2, 3))
        words = self.run_job(self.write("one", parallel={"phases": "apart"}), 1, expect=2)
        self.assertIn("use cp 2 or more, or phases: together", words)
        words = self.run_job(self.write("layout", parallel={"phases": "apart"}, reproducible="layout"), 2, expect=2)
        self.assertIn("parallel.phases: apart with reproducible: layout is not in this version", words)

    def test_auto_becomes_elastic_where_that_is_faster(self) -> None:
        # Steps of this model take microseconds, and their messages more.
        requests = random_requests(20, 1, 60, seed=82)
        generation = {**GENERATION, "max_new_tokens": 100}
        job = self.write_job(requests, "auto", generation=generation, parallel={"cp": "auto"})
        words = self.run_job(job, 2)
        self.assertRegex(words, r"ring elastic.*\n.*auto: cp elastic: teams that change should take \d+ % less time")
        self.assertIn("elastic", self.report(job))

        for name, settings in (
            ("named", {"parallel": {"cp": "auto", "prefill": "ring"}}),
            ("layout", {"parallel": {"cp": "auto"}, "reproducible": "layout"}),
        ):
            with self.subTest(name=name):
                job = self.write_job(requests, name, generation=generation, **settings)
                self.assertNotIn("elastic", self.run_job(job, 2))

    def test_auto_goes_on_as_it_began(self) -> None:
        job = self.write("auto", 40, parallel={"cp": "auto"}, generation={"max_new_tokens": 100})
        launch = self.start(job, 2, together=True)
        wait_for_state(self.output(job) / "results.h5", 3, DONE)
        launch.signal_ranks(signal.SIGTERM)
        self.assertIn("ring elastic", self.end(launch, DRAINED))
        # With this batch a ring takes as long: it is one request at a time.
        words = self.run_job(job, 2, "--set", "batch.max_sequences=1")
        self.assertRegex(words, r"ring elastic.*\n.*auto: cp elastic: as this run began")

    def test_what_fits_in_all_instances_together_runs(self) -> None:
        alone = self.write("alone")
        self.run_job(alone, 1)
        wanted = self.results(alone)
        # Two layers, K and V of two heads of sixteen fp32 numbers.
        token_bytes = 2 * 2 * 2 * 16 * 4
        memory = (LONG + 12) // 3 * token_bytes
        job = self.write("elastic", parallel={"cp": "elastic"}, kv={"memory": memory + token_bytes})
        self.run_job(job, 3)
        found = self.results(job)
        self.assert_same_answers(found, wanted, wanted.rows(DONE))
        long_row = int(found["prompt_tokens"].argmax())
        self.assertIn(b"elastic:3", found["mode"][long_row])
        self.assertGreater(sum(b"elastic:1" in mode for mode in found["mode"]), 8)

        job = self.write("too-small", parallel={"cp": "elastic"}, kv={"memory": memory - token_bytes})
        self.run_job(job, 3, expect=3)
        found = self.results(job)
        self.assertEqual(found.rows(FAILED), [long_row])
        self.assertIn(b"on all ranks together", found["error"][long_row])

    def test_what_is_done_survives_and_the_rest_goes_on_with_other_ranks(self) -> None:
        alone = self.write("alone", 60, generation={"max_new_tokens": 150})
        self.run_job(alone, 1)
        wanted = self.results(alone)
        for how, parallel in (
            (signal.SIGTERM, {"cp": "elastic"}),
            (signal.SIGKILL, {"cp": "elastic"}),
            (signal.SIGTERM, {"phases": "apart"}),
            (signal.SIGKILL, {"phases": "apart", "answering": 1}),
        ):
            with self.subTest(how=how.name, parallel=parallel):
                name = f"{how.name}-{'apart' if 'phases' in parallel else 'together'}"
                job = self.write(name, 60, generation={"max_new_tokens": 150}, parallel=parallel,
                                 batch={"max_sequences": 6})
                launch = self.start(job, 3)
                wait_for_state(self.output(job) / "results.h5", 6, DONE)
                launch.ranks()
                which = slice(1, 2) if how == signal.SIGKILL else slice(None)
                launch.signal_ranks(how, which)
                launch.wait()
                self.assertLess(self.done(job), len(wanted["state"]))
                if how == signal.SIGKILL:
                    self.assertIn("rank 1", launch.words())
                before = self.results(job)
                for ranks in (2, 4):
                    self.run_job(job, ranks)
                    found = self.results(job)
                    for row in before.rows(DONE):
                        self.assertEqual(found.row_bytes(row), before.row_bytes(row))
                    self.assert_same_answers(found, wanted, wanted.rows(DONE))


if __name__ == "__main__":
    unittest.main()
