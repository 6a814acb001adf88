# SPDX-License-Identifier: Apache-2.0
"""Runs whose sequences yield: killed while keys are parked or on their way, they lose nothing."""

from __future__ import annotations

import os
import signal
import unittest
from functools import partial
from pathlib import Path
from typing import Any

from harness import DONE, DRAINED, LIMIT_S, Request, RunTest, random_requests, wait_for
from pecia_tools.runs.yields import read_yields

SECTIONS: dict[str, Any] = {
    "generation": {"max_new_tokens": 60, "ignore_eos": True, "logprobs": 1},
    "batch": {"max_sequences": 8, "max_batch_tokens": 64},
    "reproducible": "layout",  # the bits are those of any run
    "report": {"trace": "summary", "progress": "off"},  # with the journal of yields
}


def requests() -> list[Request]:
    return random_requests(12, 20, 60, seed=9)


def assert_journal_is(test: RunTest, job: Path, demand: dict[str, Any]) -> None:
    """The journal in the trace, played from its beginning, has what the report counts."""
    journal = read_yields(test.output(job) / "trace", None)
    assert journal is not None
    for kind in ("parked", "forgotten", "moved"):
        test.assertEqual(journal.kinds[kind], demand[kind], kind)
    if not demand["forgotten"]:
        test.assertEqual(journal.kinds["returned"], demand["parked"])


def has_done(test: RunTest, job: Path, enough: int) -> bool:
    return test.done(job) >= enough


class DemandTest(RunTest):
    def setUp(self) -> None:
        super().setUp()
        os.environ["PECIA_FORCE_YIELDS"] = "3"
        self.addCleanup(os.environ.pop, "PECIA_FORCE_YIELDS", None)

    def job(self, name: str, **kv: Any) -> Path:
        return self.write_job(requests(), name, kv=kv, **SECTIONS)

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
                assert_journal_is(self, job, kv["demand"])
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
                kill_often(self, job, ranks)
                self.assert_same_answers(self.results(job), reference, range(12))

    def test_what_is_parked_when_a_run_stops_is_kept(self) -> None:
        def job(name: str, **kv: Any) -> Path:
            sections = {
                **SECTIONS,
                "generation": {**SECTIONS["generation"], "max_new_tokens": 300},
                "batch": {"max_sequences": 8, "max_batch_tokens": 16},  # saves are read in such units
            }
            return self.write_job(requests(), name, kv=kv, **sections)

        reserve = job("reserve-long", admission="reserve")
        self.run_job(reserve, 1)
        reference = self.results(reserve)
        for before, after, park in ((2, 4, "host"), (4, 1, "disk")):
            with self.subTest(before=before, after=after, park=park):
                stopped = job(f"stopped-{before}", park=park)
                self.assertGreater(stop_and_go_on(self, stopped, before, after), 0)
                self.assert_same_answers(self.results(stopped), reference, range(12))


def kill_often(test: RunTest, job: Path, ranks: int) -> None:
    """Kills the job's ranks now and then, while keys are parked or on their way, and lets the last start end."""
    for enough in (2, 5, 8):
        launch = test.start(job, ranks)
        results = test.output(job) / "results.h5"
        wait_for("the results", results.exists, LIMIT_S)
        wait_for(f"{enough} answers", partial(has_done, test, job, enough))
        launch.kill()
        before = test.results(job)
    test.run_job(job, ranks)
    found = test.results(job)
    test.assertEqual(found.rows(DONE), list(range(12)))
    for row in before.rows(DONE):
        test.assertEqual(found.row_bytes(row), before.row_bytes(row), "answered once")


def stop_and_go_on(test: RunTest, job: Path, before: int, after: int) -> int:
    """Stops a run after its first answer, and goes on with other ranks. Returns how many requests' keys were kept."""
    launch = test.start(job, before, together=True)
    wait_for("an answer", partial(has_done, test, job, 1))
    launch.ranks()
    launch.signal_ranks(signal.SIGTERM)
    test.end(launch, DRAINED)
    kv = test.report(job)["kv"]
    begun = sum(tokens > 0 for tokens in test.results(job)["output_tokens"])
    # Requests in the cache, those that are parked, and prompts that are read; not what was forgotten.
    found = kv["kept_requests"] + kv["not_worth_keeping"] + kv["demand"]["forgotten"]
    test.assertGreaterEqual(found, begun - test.done(job))
    test.run_job(job, after)
    test.assertEqual(test.report(job)["kv"]["restored_requests"], kv["kept_requests"])
    return kv["kept_requests"]


# Two layers, K and V of two heads of sixteen fp32 numbers.
TOKEN_BYTES = 2 * 2 * 2 * 16 * 4
APART = {"cp": "elastic", "phases": "apart"}


class ElasticDemandTest(RunTest):
    """The same where teams change: keys also move from an instance to another."""

    def setUp(self) -> None:
        super().setUp()
        os.environ["PECIA_FORCE_YIELDS"] = "5"
        self.addCleanup(os.environ.pop, "PECIA_FORCE_YIELDS", None)

    def job(self, name: str, parallel: dict[str, Any], **kv: Any) -> Path:
        sections = {key: value for key, value in SECTIONS.items() if key != "reproducible"}
        memory = 250 * TOKEN_BYTES // parallel.get("tp", 1)  # of a rank; an instance has 250 tokens
        kv = {"admission": "demand", "memory": memory, **kv}
        return self.write_job(requests(), name, parallel=parallel, kv=kv, **sections)

    def reference(self) -> Any:
        def reserve() -> Any:
            job = self.job("elastic-reserve", {}, admission="reserve")
            self.run_job(job, 1)
            return self.results(job)

        return self.once("elastic-reserve", reserve)

    def test_answers_are_those_of_reserved_memory(self) -> None:
        reference = self.reference()
        yields = {"parked": 0, "moved": 0, "forgotten": 0}
        apart = 0
        for ranks, parallel, park in (
            (2, {"cp": "elastic"}, "host"),
            (3, {"cp": "elastic", "scheduler": "loongserve"}, "disk"),
            (4, {"cp": "elastic", "tp": 2}, "off"),
            (4, {"dp": 2, "cp": "elastic", "scheduler": "loongserve"}, "host"),
            (2, {**APART, "cp": 2}, "host"),
            (3, {**APART, "answering": 2}, "disk"),
            (4, {**APART, "cp": 2, "tp": 2}, "off"),
        ):
            with self.subTest(ranks=ranks, parallel=parallel, park=park):
                job = self.job("elastic", parallel, park=park)
                self.run_job(job, ranks, "--fresh")
                found = self.results(job)
                self.assert_same_answers(found, reference, range(12))
                demand = self.report(job)["kv"]["demand"]
                if "phases" in parallel:  # few answer at a time
                    apart += sum(demand[way] for way in yields)
                else:
                    self.assertGreater(sum(demand[way] for way in yields), 0)
                assert_journal_is(self, job, demand)
                for way in yields:
                    yields[way] += demand[way]
                self.assertEqual(list((self.output(job) / "kv").glob("*")), [])
        for way, times in yields.items():
            self.assertGreater(times, 0, way)
        self.assertGreater(apart, 0)

    def test_kills_lose_nothing(self) -> None:
        reference = self.reference()
        for ranks, parallel in (
            (2, {"cp": "elastic"}),
            (3, {"cp": "elastic", "scheduler": "loongserve"}),
            (4, APART),
        ):
            with self.subTest(ranks=ranks, parallel=parallel):
                job = self.job(f"killed-{ranks}", parallel)
                kill_often(self, job, ranks)
                self.assert_same_answers(self.results(job), reference, range(12))

    def test_answers_grow_on_further_ranks(self) -> None:
        del os.environ["PECIA_FORCE_YIELDS"]

        def job(name: str, **sections: Any) -> Path:
            generation = {**SECTIONS["generation"], "max_new_tokens": 200}
            few = random_requests(3, 20, 30, seed=4)
            return self.write_job(few, name, generation=generation, batch=SECTIONS["batch"], **sections)

        alone = job("alone-long")
        self.run_job(alone, 1)
        for ranks, scheduler in ((2, "greedy"), (3, "loongserve")):
            with self.subTest(ranks=ranks, scheduler=scheduler):
                elastic = job(
                    f"grown-{ranks}",
                    parallel={"cp": "elastic", "scheduler": scheduler},
                    kv={"memory": 150 * TOKEN_BYTES},  # an answer has more tokens
                )
                grown = 0
                for _ in range(5):  # by the times of passes, an answer may begin on several ranks
                    self.run_job(elastic, ranks, "--fresh")
                    self.assert_same_answers(self.results(elastic), self.results(alone), range(3))
                    grown += self.report(elastic)["kv"]["demand"]["scale_ups"]
                    if grown or scheduler == "loongserve":  # which deals whole batches
                        break
                if scheduler == "greedy":
                    self.assertGreater(grown, 0)

    def test_what_is_parked_when_a_run_stops_is_kept(self) -> None:
        def job(name: str, parallel: dict[str, Any], **kv: Any) -> Path:
            sections = {key: value for key, value in SECTIONS.items() if key != "reproducible"}
            # So long that the run is stopped before its end.
            sections["generation"] = {**SECTIONS["generation"], "max_new_tokens": 200}
            return self.write_job(requests(), name, parallel=parallel, kv=kv, **sections)

        reserve = job("reserve-long", {}, admission="reserve")
        self.run_job(reserve, 1)
        reference = self.results(reserve)
        for before, after, parallel in (
            (2, 3, {"cp": "elastic"}),
            (3, 1, {"cp": "elastic", "scheduler": "loongserve"}),
            (3, 2, APART),
        ):
            with self.subTest(before=before, after=after, parallel=parallel):
                name = f"stopped-{before}-{after}"
                memory = 400 * TOKEN_BYTES
                stopped = job(name, parallel, admission="demand", memory=memory, park="host")
                stop_and_go_on(self, stopped, before, after)
                self.assert_same_answers(self.results(stopped), reference, range(12))


if __name__ == "__main__":
    unittest.main()
