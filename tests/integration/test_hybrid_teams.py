# SPDX-License-Identifier: Apache-2.0
"""Runs of models with recurrent layers whose states yield, move, are kept by teams, or are answered elsewhere."""

from __future__ import annotations

import os
import shutil
import unittest
from functools import partial
from pathlib import Path
from typing import Any

from harness import DONE, covering, wait_for
from test_demand import stop_and_go_on
from test_hybrids import ALL_FP32, DENSE, FOLLOWUPS, FP32, HYBRIDS, SECTIONS, HybridRuns

APART = {"cp": 2, "phases": "apart"}
ELASTIC_APART = {"cp": "elastic", "phases": "apart"}


class MovingHybridTest(HybridRuns):
    """States of sequences that yield, move, or are answered elsewhere than they were read."""

    def has_answer(self, job: Path) -> bool:
        return self.done(job) > 0

    def force_yields(self) -> None:
        os.environ["PECIA_FORCE_YIELDS"] = "5"
        self.addCleanup(os.environ.pop, "PECIA_FORCE_YIELDS", None)

    def long_job(self, hybrid: str, name: str, followup: str = "chain", tokens: int = 40, **sections: Any) -> Path:
        generation = {**SECTIONS["generation"], "max_new_tokens": tokens}
        batch = {"max_sequences": 8, "max_batch_tokens": 64}
        return self.job(hybrid, name, followup, **{**ALL_FP32, "generation": generation, "batch": batch, **sections})

    def test_yields_of_teams_change_no_answer(self) -> None:
        self.force_yields()
        yields = {"parked": 0, "moved": 0, "forgotten": 0}
        for hybrid, followup in ((HYBRIDS[0], "chain"), (HYBRIDS[3], "fork")):
            reserve = self.long_job(hybrid, f"reserve-{followup}", followup, kv={**FP32, "admission": "reserve"})
            self.run_job(reserve, 1)
            wanted = self.results(reserve)
            for ranks, parallel, park in (
                (2, {"cp": "elastic"}, "host"),
                (3, {"cp": "elastic", "scheduler": "loongserve"}, "disk"),
                (4, {"cp": "elastic", "tp": 2}, "off"),
                (3, {**ELASTIC_APART, "answering": 2}, "host"),
                (4, {**APART, "tp": 2}, "disk"),
            ):
                with self.subTest(hybrid=hybrid, ranks=ranks, parallel=parallel, park=park):
                    kv = {**FP32, "admission": "demand", "park": park}
                    job = self.long_job(hybrid, f"demand-{followup}", followup, kv=kv, parallel=parallel)
                    self.run_job(job, ranks, "--fresh")
                    self.assert_same_answers(self.results(job), wanted, wanted.rows(DONE))
                    demand = self.report(job)["kv"]["demand"]
                    for way in yields:
                        yields[way] += demand[way]
        for way, times in yields.items():
            self.assertGreater(times, 0, way)

    def test_what_teams_leave_goes_on_on_other_ranks(self) -> None:
        self.force_yields()
        whole = self.long_job(DENSE, "whole", tokens=200, kv={**FP32, "admission": "reserve"})
        self.run_job(whole, 1)
        wanted = self.results(whole)
        kept = 0
        for before, after, parallel, park in (
            (2, 3, {"cp": "elastic"}, "host"),
            (3, 1, {"cp": "elastic", "scheduler": "loongserve"}, "disk"),
            (3, 2, ELASTIC_APART, "host"),
        ):
            with self.subTest(before=before, after=after, parallel=parallel):
                kv = {**FP32, "admission": "demand", "park": park}
                job = self.long_job(DENSE, f"stopped-{before}-{after}", tokens=200, kv=kv, parallel=parallel)
                kept += stop_and_go_on(self, job, before, after)
                self.assert_same_answers(self.results(job), wanted, wanted.rows(DONE))
        self.assertGreater(kept, 0)

    def test_kills_lose_nothing(self) -> None:
        self.force_yields()
        whole = self.long_job(DENSE, "whole", tokens=60, kv={**FP32, "admission": "reserve"})
        self.run_job(whole, 1)
        wanted = self.results(whole)
        for ranks, parallel in ((3, {"cp": "elastic"}), (2, APART)):
            with self.subTest(ranks=ranks, parallel=parallel):
                job = self.long_job(DENSE, f"killed-{ranks}", tokens=60, parallel=parallel)
                launch = self.start(job, ranks, together=True)
                wait_for("an answer", partial(self.has_answer, job))
                launch.ranks()
                launch.kill()
                before = self.results(job)
                self.go_on(job, (4, {**parallel, "tp": 2}))
                found = self.results(job)
                for row in before.rows(DONE):
                    self.assertEqual(found.row_bytes(row), before.row_bytes(row))
                self.assert_same_answers(found, wanted, wanted.rows(DONE))

    def test_a_prompt_of_a_team_goes_on_from_its_state(self) -> None:
        for before, after in (
            ((2, {"cp": "elastic"}), (3, {"cp": "elastic"})),
            ((3, {"cp": "elastic"}), (2, {"tp": 2})),
            ((2, {"cp": 2}), (2, {"cp": "elastic"})),
            ((2, APART), (3, ELASTIC_APART)),
        ):
            with self.subTest(before=before, after=after):
                long = {**ALL_FP32, "reproducible": "run"}
                # One prompt may be over before the signal comes.
                whole = self.long_prompt(HYBRIDS[0], "whole", 12, **{**long, "kv": {**FP32, "save": "off"}})
                self.run_job(whole, 1, "--fresh")
                job = self.long_prompt(HYBRIDS[0], "job", 12, **long, parallel=before[1])
                self.stop_in_the_prompt(job, before[0])
                kept = self.report(job)["kv"]["kept_tokens"]
                self.assertGreater(kept, 0)
                self.go_on(job, after)
                self.assertEqual(self.report(job)["kv"]["restored_tokens"], kept)
                self.assert_same_answers(self.results(job), self.results(whole), self.results(whole).rows(DONE))
                shutil.rmtree(self.output(job))

    def test_states_go_to_those_who_answer(self) -> None:
        layouts = (
            (2, APART),
            (3, {**APART, "cp": 3, "answering": 2}),
            (4, {**ELASTIC_APART, "answering": 2}),
            (4, {**APART, "tp": 2}),
            (4, {**APART, "sp": 2}),
        )
        for hybrid, followup, (ranks, parallel) in covering(HYBRIDS, FOLLOWUPS, layouts):
            with self.subTest(hybrid=hybrid, followup=followup, ranks=ranks, parallel=parallel):
                wanted = self.alone(hybrid, followup, **ALL_FP32)
                job = self.job(hybrid, f"apart-{followup}", followup, **ALL_FP32, parallel=parallel)
                self.run_job(job, ranks, "--fresh")
                found = self.results(job)
                self.assert_same_answers(found, wanted, wanted.rows(DONE))
                self.assertTrue(any(b"apart:" in mode for mode in found["mode"]), set(found["mode"]))


if __name__ == "__main__":
    unittest.main()
