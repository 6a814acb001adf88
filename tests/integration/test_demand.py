# SPDX-License-Identifier: Apache-2.0
"""Runs whose sequences yield: killed while keys are parked or on their way, they lose nothing."""

from __future__ import annotations

import os
import unittest
from functools import partial
from pathlib import Path
from typing import Any

from harness import DONE, LIMIT_S, Request, RunTest, random_requests, wait_for

SECTIONS: dict[str, Any] = {
    "generation": {"max_new_tokens": 60, "ignore_eos": True, "logprobs": 1},
    "batch": {"max_sequences": 8, "max_batch_tokens": 64},
    "reproducible": "layout",  # the bits are those of any run
}


def requests() -> list[Request]:
    return random_requests(12, 20, 60, seed=9)


class DemandTest(RunTest):
    def setUp(self) -> None:
        super().setUp()
        os.environ["PECIA_FORCE_YIELDS"] = "3"
        self.addCleanup(os.environ.pop, "PECIA_FORCE_YIELDS", None)

    def job(self, name: str, **kv: Any) -> Path:
        return self.write_job(requests(), name, kv=kv, **SECTIONS)

    def has_done(self, job: Path, enough: int) -> bool:
        return self.done(job) >= enough

    def reference(self) -> Any:
        def reserve() -> Any:
            job = self.job("reserve", admission="reserve")
            self.run_job(job, 1)
            return self.results(job)

        return self.once("reserve", reserve)

    def test_answers_are_those_of_reserved_memory(self) -> None:
        reference = self.reference()
        for ranks, park in ((1, "host"), (2, "disk"), (4, "auto")):
            with self.subTest(ranks=ranks, park=park):
                job = self.job(f"{park}", park=park)
                self.run_job(job, ranks)
                found = self.results(job)
                self.assert_same_answers(found, reference, range(12))
                kv = self.report(job)["kv"]
                # A disk may be slower than reading so small a model's tokens again.
                self.assertGreater(kv["demand"]["parked"], 0)
                self.assertEqual(sum(found["yields"]), kv["demand"]["parked"] + kv["demand"]["forgotten"])
                self.assertEqual(kv["answer_tokens"]["p50"], 60)
                self.assertEqual(list((self.output(job) / "kv").glob("*")), [])

    def test_what_is_forgotten_is_computed_again(self) -> None:
        reference = self.reference()
        for ranks in (1, 2, 4):
            with self.subTest(ranks=ranks):
                job = self.job("off", park="off")
                self.run_job(job, ranks)
                found = self.results(job)
                self.assert_same_answers(found, reference, range(12))
                demand = self.report(job)["kv"]["demand"]
                self.assertEqual(demand["parked"], 0)
                self.assertGreater(demand["forgotten"], 0)
                self.assertGreater(demand["reread_tokens"], 20 * demand["forgotten"])
                self.assertEqual(sum(found["yields"]), demand["forgotten"])

    def test_kills_lose_nothing(self) -> None:
        reference = self.reference()
        for ranks, park in ((1, "disk"), (2, "host"), (2, "off")):
            with self.subTest(ranks=ranks, park=park):
                job = self.job(f"killed-{park}", park=park)
                for enough in (2, 5, 8):
                    launch = self.start(job, ranks)
                    results = self.output(job) / "results.h5"
                    wait_for("the results", results.exists, LIMIT_S)
                    wait_for(f"{enough} answers", partial(self.has_done, job, enough))
                    launch.kill()
                self.run_job(job, ranks)
                found = self.results(job)
                self.assertEqual(found.rows(DONE), list(range(12)))
                self.assert_same_answers(found, reference, range(12))


if __name__ == "__main__":
    unittest.main()
