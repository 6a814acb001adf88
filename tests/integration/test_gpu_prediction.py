# SPDX-License-Identifier: Apache-2.0
"""A run on a GPU says what it foresees, also where no description of such GPUs is kept."""

from __future__ import annotations

import unittest

from harness import RunTest, random_requests


class GpuPredictionTest(RunTest):
    def predicted(self, name: str, **more: object) -> dict:
        job = self.write_job(
            random_requests(4, 5, 60, seed=29),
            name,
            generation={"max_new_tokens": 8, "ignore_eos": True},
            backend="cuda",
            **more,
        )
        self.run_job(job, 1)
        return self.report(job)["predicted"]

    def test_is_by_rates_of_the_start(self) -> None:
        predicted = self.predicted("own")
        self.assertNotIn("none", predicted)
        self.assertGreater(predicted["seconds"], 0)
        self.assertEqual(set(predicted["phases"]), {"prefill", "decode"})
        self.assertIn("rates measured at the start", predicted["by"])
        self.assertIn("fake GPU", predicted["ranks"])

    def test_is_absent_where_ranks_may_share_a_gpu(self) -> None:
        self.assertIn("share a GPU", self.predicted("shared", allow_gpu_sharing=True)["none"])


if __name__ == "__main__":
    unittest.main()
