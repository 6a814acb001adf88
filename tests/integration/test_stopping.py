# SPDX-License-Identifier: Apache-2.0
"""Runs that are asked to stop."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np

from harness import (
    ALL_DONE,
    DONE,
    DRAINED,
    FAILURE,
    OPEN,
    PARTIAL,
    REFUSED,
    Launch,
    Request,
    Results,
    RunTest,
    random_requests,
    wait_for,
    wait_for_state,
)
from test_journals import HEAD_BYTES

# Long, so that a signal never comes too late; what continues such a run asks for fewer tokens.
LONG = 2800
GREEDY: dict[str, Any] = {"max_new_tokens": LONG, "ignore_eos": True, "logprobs": 1}
SAMPLED = {
    **GREEDY,
    "temperature": 0.8,
    "top_p": 0.95,
    "repetition_penalty": 1.1,
    "presence_penalty": 0.2,
    "seed": 13,  # of whose draws none lies at the border between two tokens
}


def exact(generation: dict[str, Any]) -> dict[str, Any]:
    """Sections that make the answer the same on any number of ranks. The largest of greedy's logits
    is far from the next; but of ten thousand draws one falls so close to the border between two
    tokens that another order of summation moves it over. A continued start has another order, too,
    since it reads what was written; so the seed's draws are away from borders."""
    return {"reproducible": "layout"} if generation is SAMPLED else {}


def long_answers(count: int = 4) -> list[Request]:
    """One short answer, which tells that the run is under way, and as long ones as the job says."""
    requests = random_requests(count, 10, 40, seed=21)
    for index, request in enumerate(requests):
        request.max_new_tokens = [5 if index == 0 else -1]
    return requests


def soon_done(left: Results) -> tuple[str, str]:
    """Options of a start that goes on to a little more than the longest partial answer."""
    longest = max([0, *(int(left["output_tokens"][row]) for row in left.rows(PARTIAL))])
    return ("--set", f"generation.max_new_tokens={longest + 40}")


class Drains(RunTest):
    """Runs that are asked to stop."""

    def drain(self, job: Path, ranks: int, ask: Callable[[Launch], None]) -> Results:
        """Stops the run when the short answer is done; what it left."""
        launch = self.start(job, ranks, together=True)
        wait_for("all ranks", lambda: len(launch.ranks()) == max(ranks, 1))
        self.wait_for_short_answer(job)
        ask(launch)
        words = self.end(launch, DRAINED)
        self.assertIn("the same command continues", words)
        wait_for("all processes to end", lambda: not launch.processes(), 5)
        return self.results(job)


    def wait_for_short_answer(self, job: Path) -> None:
        """The first row that is done, in the results or, of several replicas, in a journal."""
        results = self.output(job) / "results.h5"
        journals = results.parent / "journal"
        wait_for(f"{results}", results.exists)
        with h5py.File(results, "r", locking=False) as file:
            offset = file["state"].id.get_offset()

        def done() -> bool:
            with results.open("rb") as file:
                if os.pread(file.fileno(), 1, offset) == bytes([DONE]):
                    return True
            sizes = [os.stat(path).st_size for path in journals.glob("*.rows")]
            return max([0, *sizes]) > HEAD_BYTES

        wait_for("the short answer", done)


class DrainTest(Drains):
    references: ClassVar[dict[str, Results]] = {}  # computed for all tests

    def reference(self, generation: dict[str, Any], wanted: np.ndarray) -> Results:
        """Answers as one start gives them, of each row as many tokens as are wanted."""
        name = "greedy" if generation is GREEDY else "sampled"
        tokens = int(max(wanted))
        found = self.references.get(name)
        if found is None or max(found["output_tokens"]) < tokens:
            length = max(tokens, 600)
            job = self.write_job(
                long_answers(),
                f"{name}-{length}",
                generation={**generation, "max_new_tokens": length},
                **exact(generation),
            )
            self.run_job(job, 1)
            found = self.references[name] = self.results(job)
        self.assertTrue((wanted <= found["output_tokens"]).all())
        return Results({**found.columns, "output_tokens": wanted})

    def check_partial(self, before: Results, reference: Results) -> None:
        partial = before.rows(PARTIAL)
        self.assertGreater(len(partial), 0, "the signal came too late")
        for row in partial:
            tokens = before.tokens(row)
            self.assertGreater(len(tokens), 0)
            self.assertEqual(tokens, reference.tokens(row)[: len(tokens)])

    def go_on(
        self,
        job: Path,
        ranks: int,
        *options: str,
        generation: dict[str, Any] = GREEDY,
        same_job: bool = False,
    ) -> Results:
        """Continues and checks all answers, which there are then. `same_job`: to the end of the long
        answers, so that all settings stay. Otherwise to fewer tokens, which takes less time."""
        before = self.results(job)
        fewer = () if same_job else soon_done(before)
        self.run_job(job, ranks, *fewer, *options)
        after = self.results(job)
        self.assertEqual(after.rows(DONE), list(range(len(after["state"]))))
        wanted = LONG if same_job else int(fewer[1].split("=")[1])
        for row, tokens in enumerate(after["output_tokens"]):
            self.assertEqual(tokens, 5 if row == 0 else LONG if row in before.rows(DONE) else wanted)
        reference = self.reference(generation, after["output_tokens"])
        self.assert_same_answers(after, reference, after.rows(DONE))
        return after

    def check_drain(
        self,
        generation: dict[str, Any],
        ranks: int,
        ask: Callable[[Launch], None],
        then: int,
        same_job: bool = False,
        **sections: Any,
    ) -> None:
        name = "greedy" if generation is GREEDY else "sampled"
        requests = long_answers()
        sections = {**sections, **exact(generation)}
        job = self.write_job(requests, f"drained-{name}", generation=generation, **sections)
        before = self.drain(job, ranks, ask)
        self.check_partial(before, self.reference(generation, before["output_tokens"]))
        counts = self.report(job)["counts"]
        self.assertEqual(counts["partial"], len(before.rows(PARTIAL)))
        self.assertEqual(counts["open"], len(before.rows(OPEN)))
        if "batch" not in sections:
            self.assertEqual(before.rows(OPEN), [], "all were under way, as the short answer was")

        unpinned = self.write_job(
            name=f"drained-{name}", generation=generation, **exact(generation)
        )
        after = self.go_on(unpinned, then, generation=generation, same_job=same_job)
        # Tokens of before the signal are context now, not generated again.
        counts = self.report(job)["counts"]
        missing = sum(after["output_tokens"])
        missing -= sum(len(before.tokens(row)) for row in before.rows(DONE) + before.rows(PARTIAL))
        self.assertEqual(counts["output_tokens"], missing)

    def test_a_continued_run_tells_of_this_start_and_all(self) -> None:
        job = self.write_job(long_answers(), generation=GREEDY)
        before = self.drain(job, 2, lambda launch: launch.signal_ranks(signal.SIGTERM))
        first = self.report(job)
        self.assertEqual(len(first["starts"]), 1)

        launch = self.start(job, 1)  # is killed after it has done something
        progress = self.output(job) / "progress.json"
        wait_for(
            "tokens of the second start",
            lambda: (
                len(starts := json.loads(progress.read_text())["starts"]) == 2
                and starts[1]["output_tokens"] > 0
            ),
        )
        launch.kill()
        words = self.run_job(job, 1, *soon_done(before))

        report = self.report(job)
        starts, sums = report["starts"], report["all_starts"]
        self.assertEqual(len(starts), 3)
        self.assertEqual(sums["starts"], 3)
        self.assertEqual(sums["done"], 4)
        self.assertEqual(starts[0]["done"], len(before.rows(DONE)))
        self.assertEqual(starts[0]["output_tokens"], first["counts"]["output_tokens"])
        self.assertGreater(starts[1]["output_tokens"], 0)
        self.assertEqual(starts[2]["done"], report["counts"]["done"])
        self.assertEqual(starts, sorted(starts, key=lambda start: start["began_unix_s"]))
        for key in ("seconds", "prompt_tokens", "output_tokens"):
            self.assertAlmostEqual(sums[key], sum(start[key] for start in starts), places=6)
        self.assertRegex(
            words, rf"this start: {report['counts']['done']} done, 0 failed in .*report.json\n"
        )
        self.assertRegex(words, r"all 3 starts: 4 done, 0 failed in ")

        self.run_job(job, 1, "--fresh", "--set", "generation.max_new_tokens=5")
        self.assertEqual(len(self.report(job)["starts"]), 1)

    def test_sigterm_to_all_ranks(self) -> None:
        self.check_drain(
            GREEDY, 2, lambda launch: launch.signal_ranks(signal.SIGTERM), then=1, same_job=True
        )

    def test_sigusr1_to_all_ranks_while_sampling(self) -> None:
        self.check_drain(SAMPLED, 4, lambda launch: launch.signal_ranks(signal.SIGUSR1), then=2)

    def test_sigpipe_of_a_reader_that_has_gone(self) -> None:
        self.check_drain(GREEDY, 1, lambda launch: launch.signal_ranks(signal.SIGPIPE), then=2)

    def test_sigusr1_to_mpirun(self) -> None:
        self.check_drain(
            SAMPLED, 2, lambda launch: launch.process.send_signal(signal.SIGUSR1), then=1, same_job=True
        )

    def check_abort(self, ask: Callable[[Launch], None]) -> None:
        # mpirun tells the ranks after a second, kills them after another, and ends with its own code, 1. Beside other
        # tests a second may be too short to write what is there, so here each lasts three.
        requests = random_requests(10, 10, 40, seed=21)
        requests[0].max_new_tokens = [5]
        for request in requests[1:]:
            request.max_new_tokens = [3500]
        job = self.write_job(
            requests, generation=GREEDY, batch={"max_sequences": 1, "order": "fcfs"}
        )
        launch = self.start(job, 2, environment={"OMPI_MCA_odls_base_sigkill_timeout": "3"})
        wait_for_state(self.output(job) / "results.h5", 0, DONE)
        ask(launch)
        self.assertIn("the same command continues", self.end(launch, FAILURE))
        found = self.results(job)
        self.assertEqual(len(found.rows(PARTIAL)), 1)
        self.assertGreater(len(found.tokens(found.rows(PARTIAL)[0])), 0)
        self.assertFalse((self.output(job) / ".lock").exists())

    def test_sigterm_to_mpirun(self) -> None:
        self.check_abort(lambda launch: launch.process.send_signal(signal.SIGTERM))

    def test_ctrl_c_in_the_terminal_of_mpirun(self) -> None:
        # A terminal signals a process group, and mpirun gives each rank a group of its own.
        self.check_abort(lambda launch: os.killpg(launch.process.pid, signal.SIGINT))

    def test_sigint_to_the_program_alone(self) -> None:
        self.check_drain(
            GREEDY, 0, lambda launch: launch.process.send_signal(signal.SIGINT), then=2
        )

    def test_signal_that_comes_twice(self) -> None:
        def twice(launch: Launch) -> None:
            launch.signal_ranks(signal.SIGTERM)
            launch.signal_ranks(signal.SIGTERM)

        self.check_drain(GREEDY, 2, twice, then=3)

    def test_a_rank_whose_replica_has_finished_tells_the_others(self) -> None:
        # The other replica, with forty answers to one prompt, looks for such news once in a second.
        short, long = random_requests(2, 10, 40, seed=21)
        short.max_new_tokens = [5]
        long.turns += [[3 + index] for index in range(40)]
        long.max_new_tokens = [3900] * 41
        job = self.write_job(
            [short, long],
            followup="fork",
            generation=GREEDY,
            parallel={"dp": 2},
            batch={"max_sequences": 64},
        )
        launch = self.start(job, 2, together=True)
        wait_for("all ranks", lambda: len(launch.ranks()) == 2)
        wait_for_state(self.output(job) / "results.h5", 0, DONE)
        finished = int(self.results(job)["replica"][0])
        launch.signal_ranks(signal.SIGTERM, slice(finished, finished + 1))
        self.end(launch, DRAINED)
        self.assertGreater(len(self.results(job).rows(PARTIAL)), 0)

    def test_one_rank_that_is_told_tells_the_others(self) -> None:
        def tell(which: int) -> Callable[[Launch], None]:
            return lambda launch: launch.signal_ranks(signal.SIGTERM, slice(which, which + 1))

        # One after another: a slow disk is late to say that the short answer is done.
        sections: dict[str, Any] = {"batch": {"max_sequences": 1, "order": "fcfs"}}
        for ranks, dp, told in ((2, 1, 1), (2, 2, 0), (4, 2, 3)):
            with self.subTest(dp=dp, told=told):
                shutil.rmtree(self.folder / "drained-greedy.run", ignore_errors=True)
                sections["parallel"] = {"dp": dp}
                self.check_drain(GREEDY, ranks, tell(told), then=1, **sections)

    def test_signal_during_the_start(self) -> None:
        job = self.write_job(long_answers(), "early", generation=GREEDY)
        launch = self.start(job, 2, together=True)
        lock = self.output(job) / ".lock"
        wait_for("the lock", lock.exists)
        launch.signal_ranks(signal.SIGTERM)
        self.end(launch, DRAINED)
        self.go_on(job, 2)

    def test_wall_time(self) -> None:
        limits = {"wall_time": "1s", "grace": "0.99s"}
        job = self.write_job(long_answers(), "timed", generation=GREEDY, limits=limits)
        self.assertIn("wall time", self.run_job(job, 2, expect=DRAINED))
        self.assertLess(len(self.results(job).rows(DONE)), 4)
        self.go_on(job, 2, "--set", "limits.wall_time=1h")

    def test_counts_of_a_start_that_finds_partial_turns_and_leaves_them(self) -> None:
        job = self.write_job(long_answers(), "counted", generation=GREEDY)
        before = self.drain(job, 2, lambda launch: launch.signal_ranks(signal.SIGTERM))
        self.assertGreater(len(before.rows(PARTIAL)), 0, "the signal came too late")
        self.run_job(
            job, 2, "--set", "limits.wall_time=1s", "--set", "limits.grace=0.99s", expect=DRAINED
        )
        counts = self.report(job)["counts"]
        self.assertEqual(counts["partial"], len(self.results(job).rows(PARTIAL)))
        self.assertGreaterEqual(counts["partial"], len(before.rows(PARTIAL)))
        self.go_on(job, 2)
        counts = self.report(job)["counts"]
        self.assertEqual((counts["partial"], counts["open"]), (0, 0))
        self.assertEqual(counts["done"], 4 - len(before.rows(DONE)))

    def test_end_of_the_slurm_job(self) -> None:
        job = self.write_job(long_answers(), "slurm", generation=GREEDY)
        for in_s, code, options in ((30, DRAINED, ()), (3600, ALL_DONE, ("--set", "generation.max_new_tokens=40"))):
            with self.subTest(in_s=in_s):
                environment = {"SLURM_JOB_END_TIME": str(int(time.time() + in_s))}
                launch = self.start(job, 1, *options, environment=environment, together=True)
                self.end(launch, code)

    def test_grace_that_leaves_no_time_is_refused(self) -> None:
        limits = {"wall_time": "30s", "grace": "60s"}
        job = self.write_job(long_answers(), generation=GREEDY, limits=limits)
        self.assertIn("limits.grace", self.run_job(job, 0, expect=REFUSED))


if __name__ == "__main__":
    unittest.main()
