# SPDX-License-Identifier: Apache-2.0
"""The same answers for every layout of the ranks, every turn once, work shared by all replicas."""

from __future__ import annotations

import unittest
from collections import Counter
from typing import Any

import numpy as np

from harness import ALL_CASES, ALL_DONE, DONE, Results, RunTest, random_requests

LAYOUTS = ((1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (4, 1))  # dp × cp
SOME_LAYOUTS = LAYOUTS if ALL_CASES else ((1, 1), (1, 3), (2, 2))
GENERATION: dict[str, Any] = {"max_new_tokens": 24, "ignore_eos": True, "logprobs": 2}


class LayoutTest(RunTest):
    def results_of(self, name: str, generation: dict[str, Any], dp: int, cp: int) -> Results:
        requests = random_requests(10, 1, 120, seed=31, every_second_turn=3)
        job = self.write_job(
            requests,
            f"{name}-{dp}-{cp}",
            generation=generation,
            parallel={"dp": dp},
            batch={"max_sequences": 4, "max_batch_tokens": 64},
        )
        self.run_job(job, dp * cp)
        found = self.results(job)
        turns = [(r.id.encode(), t) for r in requests for t in range(len(r.turns))]
        self.assertEqual(list(zip(found["request_id"], found["turn"])), turns)
        self.assertEqual(found.rows(DONE), list(range(len(turns))))
        report = self.report(job)
        self.assertEqual(report["counts"]["done"], len(turns))
        self.assertEqual(report["counts"]["output_tokens"], found["output_tokens"].sum())
        self.assertEqual((report["grid"]["dp"], report["grid"]["cp"]), (dp, cp))
        return found

    def check_layouts(
        self, name: str, generation: dict[str, Any], layouts: tuple[tuple[int, int], ...] = LAYOUTS
    ) -> Results:
        reference = self.results_of(name, generation, *layouts[0])
        for dp, cp in layouts[1:]:
            with self.subTest(dp=dp, cp=cp):
                found = self.results_of(name, generation, dp, cp)
                self.assert_same_answers(found, reference, found.rows(DONE))
                self.assertTrue(set(found["replica"]) <= set(range(dp)))
        return reference

    def test_greedy(self) -> None:
        reference = self.check_layouts("greedy", GENERATION)
        # What makes the comparison fair: no two candidates are closer than rounding can move them.
        for row in reference.rows(DONE):
            top = reference.slots(row, "top_logprobs")
            self.assertGreater(np.min(top[:, 0] - top[:, 1]), 1e-5)
        # And what makes it worth something: answers are not one token over and over.
        self.assertGreater(
            len({t for row in reference.rows(DONE) for t in reference.tokens(row)}), 20
        )

    def test_sampled(self) -> None:
        sampling = {"temperature": 0.9, "top_k": 40, "top_p": 0.95, "min_p": 0.01, "seed": 5}
        penalties = {"repetition_penalty": 1.1, "frequency_penalty": 0.2}
        sampled = self.check_layouts(
            "sampled", {**GENERATION, **sampling, **penalties}, SOME_LAYOUTS
        )
        other = self.results_of(
            "other-seed", {**GENERATION, **sampling, **penalties, "seed": 6}, 1, 1
        )
        different = [row for row in sampled.rows(DONE) if sampled.tokens(row) != other.tokens(row)]
        self.assertGreater(len(different), 5)

    def test_fork(self) -> None:
        requests = random_requests(3, 40, 80, seed=33)
        for index, request in enumerate(requests):
            request.turns += [turn.turns[0] for turn in random_requests(4, 1, 9, seed=40 + index)]
        found = []
        for dp, cp in ((1, 1), (1, 3), (2, 2)):
            job = self.write_job(
                requests, f"fork-{dp}-{cp}", "fork", generation=GENERATION, parallel={"dp": dp}
            )
            self.run_job(job, dp * cp)
            found.append(self.results(job))
            self.assertEqual(found[-1].rows(DONE), list(range(15)))
            self.assertEqual(found[-1]["output_tokens"].tolist(), [0, 24, 24, 24, 24] * 3)
            # The document is computed once: its tokens and those of the questions, no more.
            tokens = sum(len(turn) for request in requests for turn in request.turns)
            self.assertEqual(self.report(job)["counts"]["prompt_tokens"], tokens)
        for other in found[1:]:
            self.assert_same_answers(other, found[0], range(15))


class UnevenWorkTest(RunTest):
    def test_all_replicas_work_and_every_turn_is_done_once(self) -> None:
        requests = random_requests(40, 5, 30, seed=51)
        requests[7].turns[0] *= 40  # one long request keeps its replica busy
        for dp in (2, 4):
            with self.subTest(dp=dp):
                job = self.write_job(
                    requests,
                    f"uneven-{dp}",
                    generation={"max_new_tokens": 40, "ignore_eos": True},
                    parallel={"dp": dp},
                    batch={"max_sequences": 2},
                )
                self.run_job(job, dp)
                found = self.results(job)
                self.assertEqual(found.rows(DONE), list(range(40)))
                shares = Counter(found["replica"].tolist())
                self.assertEqual(sorted(shares), list(range(dp)))
                counts = self.report(job)["counts"]
                self.assertEqual(counts["done"], 40)
                self.assertEqual(counts["output_tokens"], 40 * 40)
                tokens = sum(len(request.turns[0]) for request in requests)
                self.assertEqual(counts["prompt_tokens"], tokens)

    def test_replicas_over_tcp_do_not_wait_for_a_rank_that_computes(self) -> None:
        """Their calls to the shared counters, which rank 0 holds, need calls of that rank. Before
        it made any while it computed, each took as long as a pass."""
        requests = random_requests(60, 5, 30, seed=52)
        for request in requests[::20]:
            request.turns[0] *= 100
        job = self.write_job(
            requests,
            "tcp",
            generation={"max_new_tokens": 40, "ignore_eos": True},
            parallel={"dp": 2},
            batch={"max_sequences": 2},
        )
        tcp = {"OMPI_MCA_osc": "ucx", "UCX_TLS": "tcp,self"}
        launch = self.start(job, 2, environment=tcp)
        self.assertEqual(launch.wait(60), ALL_DONE, launch.words())
        self.assertEqual(self.results(job).rows(DONE), list(range(60)))


if __name__ == "__main__":
    unittest.main()
