# SPDX-License-Identifier: Apache-2.0
"""Kills, a full disk, ranks that disagree: nothing that was done is lost or done again."""

from __future__ import annotations

import os
import signal
import unittest
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from harness import (
    ALL_CASES,
    ALL_DONE,
    DONE,
    DRAINED,
    FAILURE,
    LEAVE_TOGETHER,
    MPIEXEC,
    OPEN,
    PARTIAL,
    PROGRAM,
    REFUSED,
    SOME_FAILED,
    Launch,
    Request,
    Results,
    RunTest,
    limit_file_size,
    random_draw,
    random_requests,
    wait_for,
)

ROUNDS = int(os.environ.get("PECIA_TEST_ROUNDS", "6"))
GENERATION = {"max_new_tokens": 16, "ignore_eos": True, "logprobs": 2}
# A few sequences at a time, so that rows are finished all along the run.
BATCH = {"max_sequences": 3}


def open_prompt_tokens(requests: Sequence[Request], results: Results) -> int:
    """What a run that goes on from `results` has to prefill: requests with open turns, the finished turns
    of those as context."""
    total = row = 0
    for request in requests:
        context = 0
        for turn in request.turns:
            state, answered = results["state"][row], int(results["output_tokens"][row])
            row += 1
            if state == DONE:
                context += len(turn) + answered
            else:
                total += context + len(turn) + (answered if state == PARTIAL else 0)
                context = 1  # an answer's last token is cached with the turn after it
    return total


def ranks_of(text: str) -> set[int]:
    """"ranks 0-1,3" as {0, 1, 3}."""
    ranks: set[int] = set()
    for part in text.split()[1].split(","):
        first, _, last = part.partition("-")
        ranks.update(range(int(first), int(last or first) + 1))
    return ranks


class KillTest(RunTest):
    requests: ClassVar[list[Request]] = random_requests(12, 5, 90, seed=11, every_second_turn=4)

    def setUp(self) -> None:
        super().setUp()
        self.reference = self.uninterrupted(GENERATION)

    def uninterrupted(self, generation: dict[str, Any]) -> Results:
        return self.once(generation["max_new_tokens"], lambda: self.whole(generation))

    def whole(self, generation: dict[str, Any]) -> Results:
        job = self.new_job(f"whole-{generation['max_new_tokens']}", generation)
        self.run_job(job, 1)
        found = self.results(job)
        self.assertEqual(found.rows(DONE), list(range(len(found["state"]))))
        return found

    def new_job(self, name: str, generation: dict[str, Any]) -> Path:
        return self.write_job(self.requests, name, generation=generation, batch=BATCH)

    def check_what_is_done(self, found: Results) -> None:
        done = found.rows(DONE)
        self.assertEqual(sorted(done + found.rows(OPEN)), list(range(len(found["state"]))))
        self.assert_same_answers(found, self.reference, done)

    def finish(self, job: Path, ranks: int, before: Results) -> None:
        """Runs what is left: all of it, nothing else, rows done before untouched."""
        self.run_job(job, ranks)
        after = self.results(job)
        self.assertEqual(after.rows(DONE), list(range(len(after["state"]))))
        self.assert_same_answers(after, self.reference, after.rows(DONE))
        for row in before.rows(DONE):
            self.assertEqual(after.row_bytes(row), before.row_bytes(row), f"row {row}")
        if len(before.rows(DONE)) == len(before["state"]):
            return
        counts = self.report(job)["counts"]
        self.assertEqual(counts["done"], len(before["state"]) - len(before.rows(DONE)))
        self.assertEqual(counts["prompt_tokens"], open_prompt_tokens(self.requests, before))

    def test_whole_job_killed_at_any_moment(self) -> None:
        draw = random_draw()
        last_s = 1.0  # how long a run takes on this machine, as far as known
        reached = 0
        for number in range(ROUNDS):
            job = self.new_job(f"killed-{number}", GENERATION)
            ranks, ranks_after = draw.randint(1, 4), draw.choice([0, 1, 2, 3, 4])
            launch = self.start(job, ranks)
            with self.subTest(round=number, ranks=ranks, then=ranks_after):
                # Every other kill falls among the rows, the others anywhere, before the first too.
                if number % 2 == 0:
                    rows = draw.randint(1, len(self.reference["state"]) // 2)
                    wait_for(
                        "all ranks",
                        lambda launch=launch, ranks=ranks: len(launch.ranks()) == ranks,
                    )
                    wait_for("rows", lambda job=job, rows=rows: self.done(job) >= rows)
                    launch.signal_ranks(signal.SIGKILL)  # at once; looking for the others takes time
                else:
                    launch.runs_for(draw.uniform(0, last_s))
                launch.kill()
                path = self.output(job) / "results.h5"
                before = Results.read(path) if path.exists() else None
                if before is None:
                    self.run_job(job, ranks_after)
                    before = self.results(job)
                self.check_what_is_done(before)
                reached += 0 < len(before.rows(DONE)) < len(before["state"])
                self.finish(job, ranks_after, before)
                last_s = max(last_s, self.report(job)["seconds"] + 0.5)
        self.assertGreater(reached, 0, "no kill fell among the rows")

    def test_one_rank_killed_ends_the_job(self) -> None:
        longer = {**GENERATION, "max_new_tokens": 64}
        self.reference = self.uninterrupted(longer)
        for victim in (0, 1, 2) if ALL_CASES else (0, 2):
            with self.subTest(victim=victim):
                job = self.new_job(f"victim-{victim}", longer)
                launch = self.start(job, 3)
                wait_for("all ranks", lambda launch=launch: len(launch.ranks()) == 3)
                wait_for("a row", lambda job=job: self.done(job) >= 1)
                launch.signal_ranks(signal.SIGKILL, slice(victim, victim + 1))
                self.assertNotEqual(launch.wait(10), 0)
                wait_for("all processes to end", lambda launch=launch: not launch.processes(), 5)
                before = self.results(job)
                self.check_what_is_done(before)
                self.assertGreater(len(before.rows(OPEN)), 0, "the rank was killed too late")
                self.finish(job, 2, before)


class WatchTest(RunTest):
    """Ranks that die or stop: one line says which, where and at what it was; nothing is left behind."""

    RANKS = 4

    def start_one(self, name: str, ranks: int = RANKS, **sections: Any) -> tuple[Path, Launch]:
        requests = random_requests(40, 5, 300, seed=17)
        generation = {"max_new_tokens": 256, "ignore_eos": True}
        job = self.write_job(requests, name, generation=generation, batch=BATCH, **sections)
        launch = self.start(job, ranks)
        wait_for("all ranks", lambda: len(launch.ranks()) == ranks)
        wait_for("a row", lambda: self.done(job) >= 1)
        return job, launch

    def end_named(self, job: Path, launch: Launch, line: str) -> str:
        """The run ends, with one such line and no other of a rank; what follows it there."""
        self.assertNotIn(launch.wait(), (ALL_DONE, REFUSED, SOME_FAILED, DRAINED))
        wait_for("all processes to end", lambda: not launch.processes(), 10)
        self.assertLess(self.done(job), 40, "the run was over before")
        lines = [text for text in launch.words().splitlines() if text.startswith("pecia: rank")]
        self.assertEqual(len(lines), 1, launch.words())
        self.assertRegex(lines[0], line)
        return lines[0]

    def test_a_killed_rank_is_named(self) -> None:
        draw = random_draw()
        for victim in range(self.RANKS) if ALL_CASES else (0, self.RANKS - 1):
            with self.subTest(victim=victim):
                job, launch = self.start_one(f"killed-{victim}")
                self.assertTrue(launch.runs_for(draw.uniform(0, 0.3)))
                launch.signal_ranks(signal.SIGKILL, slice(victim, victim + 1))
                self.end_named(
                    job,
                    launch,
                    rf"^pecia: rank {victim} \(host {os.uname().nodename}\) has died in phase \w+",
                )

    def test_a_stopped_rank_is_named_with_who_waits_for_it(self) -> None:
        for victim in (0, 2):
            with self.subTest(victim=victim):
                job, launch = self.start_one(f"stopped-{victim}", limits={"silence": "2s"})
                launch.signal_ranks(signal.SIGSTOP, slice(victim, victim + 1))
                line = self.end_named(
                    job,
                    launch,
                    rf"^pecia: rank {victim} \(host {os.uname().nodename}\) shows no sign of life for "
                    r"2 s, in phase \w+.*; \w+ #\d+: arrived: ranks? [-,\d]+; not arrived: rank",
                )
                arrived, missing = (
                    ranks_of(part.split(";")[0]) for part in line.split("arrived: ")[1:]
                )
                self.assertIn(victim, missing)
                self.assertEqual(arrived | missing, set(range(self.RANKS)))

    def test_a_wait_that_fails_is_told_once_with_who_is_missing(self) -> None:
        victim = 1
        for attempt in range(3):
            job, launch = self.start_one(f"waiting-{attempt}", limits={"silence": "1h", "wait": "3s"})
            launch.signal_ranks(signal.SIGSTOP, slice(victim, victim + 1))
            line = self.end_named(job, launch, r"^pecia: rank [023] \(host .*\w+ #\d+ .*not finished for 3 s")
            missing = line.split("; not arrived: ")[1].split(";")[0]
            if missing != "nobody":
                break  # else it was stopped in the middle of an exchange at which it had arrived
        self.assertIn(victim, ranks_of(missing))
        self.assertRegex(line, rf"; rank {victim} \(host .*\) is in phase \w+")

    def test_a_run_that_is_stopped_as_a_whole_goes_on(self) -> None:
        job, launch = self.start_one("suspended", 2, limits={"silence": "1s"})
        launch.signal_ranks(signal.SIGSTOP)
        self.assertTrue(launch.runs_for(3))
        launch.signal_ranks(signal.SIGCONT)
        self.assertNotIn("rank", self.end(launch, ALL_DONE).split("decode")[-1])
        self.assertEqual(list(self.output(job).glob(".watch-*")), [])

    def test_what_a_killed_run_left_goes_with_the_next(self) -> None:
        job, launch = self.start_one("left", 2)
        launch.kill()
        self.assertEqual(len(list(self.output(job).glob(".watch-*"))), 1)
        self.run_job(job, 2)
        self.assertEqual(list(self.output(job).glob(".watch-*")), [])


class FullDiskTest(RunTest):
    def test_full_disk_ends_the_run_and_keeps_what_is_done(self) -> None:
        requests = random_requests(24, 5, 40, seed=3)
        # The whole vocabulary's log-probabilities are the file's last and largest part, in row order.
        sections = {
            "generation": {"max_new_tokens": 300, "ignore_eos": True, "logprobs": -1},
            "batch": {"max_sequences": 1, "order": "fcfs"},
        }
        reference = self.write_job(requests, "reference", **sections)
        self.run_job(reference, 1)
        # A replica writes its rows to its journal, from which rank 0 brings them to the results from time to time. So
        # that it is known which file has no room, only one rank's disk is full, and rank 0's has room for a journal of
        # two thirds of the rows.
        for name, ranks, parallel, full_for, room, file in (
            ("alone", 0, {}, slice(None), 0.5, "results.h5"),
            ("ring", 2, {}, slice(None), 0.5, "results.h5"),
            ("replicas", 2, {"dp": 2}, slice(0, 1), 0.67, "results.h5"),
            ("journal", 2, {"dp": 2}, slice(1, 2), 0.25, "journal/1-0.rows"),
        ):
            with self.subTest(name):
                job = self.write_job(requests, name, parallel=parallel, **sections)
                path = self.output(job) / "results.h5"
                launch = self.start(job, ranks)
                wait_for(
                    "ranks", lambda launch=launch, ranks=ranks: len(launch.ranks()) == max(ranks, 1)
                )
                # Not for a row that is done: replicas' rows come to the file late, and all may be there by then.
                wait_for(f"{path}", path.exists)
                # As a disk that is full from now on: of a sparse file its later part is missing.
                for process in launch.known_ranks[full_for]:
                    limit_file_size(process, int(path.stat().st_size * room))
                words = self.end(launch, FAILURE)
                self.assertIn(str(self.output(job) / file), words)
                self.assertEqual(words.count("make room and run the same command"), 1, words)
                wait_for("all processes to end", lambda launch=launch: not launch.processes(), 5)

                before = self.results(job)
                done = before.rows(DONE)
                kept = self.output(job) / file
                self.assertGreater(len(done) if kept == path else kept.stat().st_size, 0)
                self.assertGreater(len(before.rows(OPEN)), 0)
                self.assert_same_answers(before, self.results(reference), done)
                self.run_job(job, ranks)
                after = self.results(job)
                self.assertEqual(after.rows(DONE), list(range(len(requests))))
                self.assert_same_answers(after, self.results(reference), after.rows(DONE))
                for row in done:
                    self.assertEqual(after.row_bytes(row), before.row_bytes(row))


class DisagreementTest(RunTest):
    def test_ranks_with_different_job_files_do_not_begin(self) -> None:
        a = self.write_job(random_requests(3, 5, 9, seed=1), "a")
        b = self.write_job(random_requests(3, 5, 9, seed=2), "b")
        part = ["-np", 1, PROGRAM, "run"]
        command = [MPIEXEC, "--bind-to", "none", *part, a, ":", *part, b]
        launch = self.launch(command, LEAVE_TOGETHER)
        self.assertIn("different job files", self.end(launch, REFUSED))
        self.assertFalse(self.output(a).exists() or self.output(b).exists())

    def test_ranks_with_different_values_do_not_begin(self) -> None:
        job = self.write_job(random_requests(3, 5, 9, seed=1))
        part = ["-np", 1, PROGRAM, "run", job]
        launch = self.launch(
            [MPIEXEC, "--bind-to", "none", *part, ":", *part, "--set", "generation.seed=7"],
            LEAVE_TOGETHER,
        )
        self.assertIn("different job files", self.end(launch, REFUSED))
        self.assertFalse(self.output(job).exists())

    def test_a_rank_without_its_job_file_ends_all(self) -> None:
        job = self.write_job(random_requests(3, 5, 9, seed=1))
        part = ["-np", 1, PROGRAM, "run"]
        missing = self.folder / "missing.yaml"
        command = [MPIEXEC, "--bind-to", "none", *part, job, ":", *part, missing]
        launch = self.launch(command, LEAVE_TOGETHER)
        self.assertIn(str(missing), self.end(launch, REFUSED))
        self.assertFalse(self.output(job).exists())


    def test_a_rank_that_is_refused_alone_ends_all(self) -> None:
        job = self.write_job(random_requests(3, 5, 9, seed=1))
        part = ["-np", 1, PROGRAM, "run"]
        launch = self.launch([MPIEXEC, "--bind-to", "none", *part, job, ":", *part])
        words = self.end(launch, FAILURE)
        self.assertRegex(words, r"pecia: rank 1 \(host .*\), in phase start: run needs a job file")
        self.assertFalse(self.output(job).exists())


class MemoryTest(RunTest):
    def test_requests_wait_for_memory_and_one_that_never_fits_fails(self) -> None:
        requests = random_requests(10, 30, 60, seed=5)
        requests.insert(4, random_requests(1, 300, 300, seed=6)[0])
        requests[4].id = "too-large"
        job = self.write_job(
            requests, "small", kv={"memory": "64KiB"}, generation={"max_new_tokens": 24}
        )
        roomy = self.write_job(name="roomy", input=["small.h5"], generation={"max_new_tokens": 24})
        self.run_job(roomy, 1)
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                # 2 layers × 2 (K, V) × 4 heads × 8 × 4 bytes = 512: 64 KiB hold 128 tokens of a rank.
                self.run_job(job, ranks, "--fresh", expect=3)
                found = self.results(job)
                self.assertEqual(found.rows(3), [4])
                slots = {1: 324, 2: 162}[ranks]
                self.assertIn(f"needs {slots} KV slots".encode(), found["error"][4])
                self.assertIn(b"there are 128", found["error"][4])
                self.assertEqual(found.rows(DONE), [row for row in range(11) if row != 4])
                self.assert_same_answers(found, self.results(roomy), found.rows(DONE))
                self.assertEqual(self.report(job)["modes"]["kv_tokens_per_rank"], 128)


if __name__ == "__main__":
    unittest.main()
