# SPDX-License-Identifier: Apache-2.0
"""Runs whose answers are drafted from texts: the text is that of one token at a time."""

from __future__ import annotations

import os
import signal
import unittest
from functools import partial
from pathlib import Path
from typing import Any

from harness import DONE, DRAINED, REFUSED, Request, Results, RunTest, random_requests, wait_for

COUNT = 12
GENERATION: dict[str, Any] = {"max_new_tokens": 60, "ignore_eos": True, "logprobs": 1}
# How answers are sampled; a few likely tokens often come as they were drafted.
SAMPLING: dict[str, dict[str, Any]] = {
    "greedy": {},
    "few": {"temperature": 0.7, "top_k": 3, "seed": 5},
    "penalties": {"temperature": 0.3, "repetition_penalty": 1.1, "frequency_penalty": 0.2, "seed": 6},
}


def requests() -> list[Request]:
    """Every prompt twice, so that the first answer helps with the second; some have another turn."""
    half = random_requests(COUNT // 2, 20, 60, seed=9)
    return half + [Request(f"again-{number}", of.turns) for number, of in enumerate(half)]


class DraftsTest(RunTest):
    def job(self, name: str, drafts: Any, generation: dict[str, Any], **sections: Any) -> Path:
        return self.write_job(
            requests(),
            name,
            **{
                "generation": {**GENERATION, **generation, "drafts": drafts},
                "batch": {"max_sequences": 4, "max_batch_tokens": 64},
                **sections,
            },
        )

    def without(self, sampling: str, **sections: Any) -> Results:
        def alone() -> Results:
            job = self.job("off", "off", SAMPLING[sampling], **sections)
            self.run_job(job, 1, "--fresh")
            self.assertIsNone(self.report(job)["drafts"])
            return self.results(job)

        return self.once((sampling, *sections), alone)

    def has_done(self, job: Path, enough: int) -> bool:
        return self.done(job) >= enough

    def spoil(self) -> None:
        os.environ["PECIA_SPOIL_DRAFTS"] = "4"
        self.addCleanup(os.environ.pop, "PECIA_SPOIL_DRAFTS", None)

    def test_the_text_is_the_same(self) -> None:
        for spoiled in (False, True):
            if spoiled:
                self.spoil()
            for sampling, ranks in (("greedy", 1), ("few", 2), ("penalties", 3)):
                with self.subTest(sampling=sampling, spoiled=spoiled):
                    job = self.job("drafts", 6, SAMPLING[sampling])
                    self.run_job(job, ranks, "--fresh")
                    found = self.results(job)
                    self.assert_same_answers(found, self.without(sampling), range(COUNT))
                    drafts = self.report(job)["drafts"]
                    self.assertEqual(drafts["accepted"], sum(found["draft_accepted"]))
                    self.assertGreater(drafts["accepted"], 30 if sampling == "greedy" else 0)
                    self.assertGreaterEqual(drafts["tried"], drafts["accepted"])

    def test_kills_and_stops_lose_nothing(self) -> None:
        self.spoil()
        wanted = self.without("few", reproducible="layout")
        for ranks in (1, 2, 4):
            with self.subTest(ranks=ranks):
                job = self.job(f"killed-{ranks}", 6, SAMPLING["few"], reproducible="layout")
                for number, enough in ((signal.SIGKILL, 2), (signal.SIGTERM, 5)):
                    launch = self.start(job, ranks, together=True)
                    wait_for(f"{enough} answers", partial(self.has_done, job, enough))
                    launch.ranks()
                    launch.signal_ranks(number)
                    if number == signal.SIGTERM:
                        self.end(launch, DRAINED)
                    else:
                        launch.kill()
                self.run_job(job, ranks, "--set", "generation.drafts=off")
                found = self.results(job)
                self.assertEqual(found.rows(DONE), list(range(COUNT)))
                self.assert_same_answers(found, wanted, range(COUNT))

    def test_what_has_no_drafts_says_so(self) -> None:
        for parallel in ({"cp": "elastic"}, {"phases": "apart"}):
            job = self.job("refused", 4, {}, parallel=parallel)
            self.assertIn("generation.drafts with", self.run_job(job, 2, expect=REFUSED))


if __name__ == "__main__":
    unittest.main()
