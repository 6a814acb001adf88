# SPDX-License-Identifier: Apache-2.0
"""Results of several replicas: each has a journal, and what a killed run has left there is found by the next start."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import tempfile
import unittest
import zlib
from pathlib import Path
from typing import ClassVar

from harness import (
    DONE,
    PROGRAM,
    REFUSED,
    Launch,
    Results,
    RunTest,
    random_draw,
    random_requests,
    wait_for,
)

ROUNDS = int(os.environ.get("PECIA_TEST_ROUNDS", "4"))
REPLICAS = 3
HEAD = "pecia.journal/4\n"
HEAD_BYTES = len(HEAD) + 65
GENERATION = {"max_new_tokens": 24, "ignore_eos": True}


def journaled(output: Path) -> dict[int, int]:
    """State by row, of the whole rows of all journals: this test's own reading of their schema."""
    found = {}
    for path in sorted((output / "journal").glob("*.rows")):
        content = path.read_bytes()
        assert content.startswith(HEAD.encode()), path
        at = HEAD_BYTES
        while at + 12 <= len(content):
            length, checksum = struct.unpack_from("<qI", content, at)
            body = content[at + 12 : at + 12 + length]
            if length <= 0 or len(body) < length:
                break
            if zlib.crc32(content[at : at + 8] + body) != checksum:
                break
            row, state = struct.unpack_from("<qB", body)
            found[row] = state
            at += 12 + length
    return found


class JournalTest(RunTest):
    kept: ClassVar[Path]  # of the whole class: outputs of a killed run

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory(prefix="pecia-journals-")
        cls.addClassCleanup(folder.cleanup)
        cls.kept = Path(folder.name) / "killed"

    def setUp(self) -> None:
        super().setUp()
        self.requests = random_requests(40, 5, 60, seed=91, every_second_turn=2)
        self.turns = sum(len(request.turns) for request in self.requests)
        self.reference = self.once("reference", self.one_replica)

    def one_replica(self) -> Results:
        job = self.write_job(self.requests, "reference", generation=GENERATION)
        self.run_job(job, 1)
        self.assertFalse((self.output(job) / "journal").exists(), "one replica has none")
        return self.results(job)

    def new_job(self, name: str) -> Path:
        batch = {"max_sequences": 2}
        parallel = {"dp": REPLICAS}
        return self.write_job(
            self.requests, name, generation=GENERATION, batch=batch, parallel=parallel
        )

    def start_until_rows(self, job: Path, rows: int) -> Launch:
        launch = self.start(job, REPLICAS)
        wait_for("all ranks", lambda: len(launch.ranks()) == REPLICAS)
        wait_for("rows", lambda: launch.process.poll() is not None or len(self.safe(job)) >= rows)
        return launch

    def safe(self, job: Path) -> set[int]:
        """Rows that are done in the results or in a journal."""
        path = self.output(job) / "results.h5"
        try:
            states = journaled(self.output(job))
            done = Results.read(path).rows(DONE) if path.exists() else []
        except FileNotFoundError:  # brought in and removed meanwhile
            return set()
        return {row for row, state in states.items() if state == DONE} | set(done)

    def check_whole(self, job: Path) -> None:
        found = self.results(job)
        self.assertEqual(found.rows(DONE), list(range(self.turns)))
        self.assert_same_answers(found, self.reference, range(self.turns))
        self.assertFalse((self.output(job) / "journal").exists())

    def test_killed_at_any_moment_nothing_is_lost_or_done_twice(self) -> None:
        draw = random_draw()
        only_in_journals = number = 0
        # Further rounds where, by chance, every kill came when all rows were in the results.
        while number < ROUNDS or (only_in_journals == 0 and number < 9 * ROUNDS):
            number += 1
            job = self.new_job(f"killed-{number}")
            with self.subTest(round=number):
                for _ in range(draw.choice((1, 1, 2))):
                    more = len(self.safe(job)) + draw.randint(1, self.turns // 3)
                    launch = self.start_until_rows(job, more)
                    launch.runs_for(draw.uniform(0, 0.05))
                    launch.kill()
                safe = self.safe(job)
                waiting = safe - set(self.results(job).rows(DONE))
                only_in_journals += len(waiting)
                replicas = draw.choice((REPLICAS, REPLICAS, 1))
                said = self.run_job(job, replicas, "--set", f"parallel.dp={replicas}")
                if waiting:
                    self.assertIn("of the earlier start came from its journals", said)
                self.check_whole(job)
                if len(safe) < self.turns:
                    self.assertEqual(self.report(job)["counts"]["done"], self.turns - len(safe))
        self.assertGreater(only_in_journals, 0, "no kill left rows in journals alone")

    def killed(self, name: str) -> Path:
        """A job whose killed run has left rows in journals alone."""
        if self.kept.exists():
            job = self.new_job(name)
            shutil.copytree(self.kept, self.output(job))
            return job
        for attempt in range(20):
            job = self.new_job(f"{name}-{attempt}")
            self.start_until_rows(job, 4).kill()
            if journaled(self.output(job)).keys() - set(self.results(job).rows(DONE)):
                shutil.copytree(self.output(job), self.kept)
                return job
        raise AssertionError("no kill left rows in journals alone")

    def begins_anew(self, job: Path, *options: str) -> str:
        said = self.run_job(job, REPLICAS, *options)
        self.check_whole(job)
        self.assertEqual(self.report(job)["counts"]["done"], self.turns)
        return said

    def test_fresh_brings_journals_into_the_results_that_it_renames(self) -> None:
        job = self.killed("fresh")
        safe = self.safe(job)
        said = self.begins_anew(job, "--fresh")
        older = self.output(job) / "results.1.h5"
        self.assertIn(f"--fresh: the earlier results are now {older}", said)
        earlier = Results.read(older)
        self.assertEqual(set(earlier.rows(DONE)), safe)
        self.assert_same_answers(earlier, self.reference, sorted(safe))

    def test_fresh_renames_journals_that_cannot_be_read(self) -> None:
        job = self.killed("unread")
        folder = self.output(job) / "journal"
        path = sorted(folder.glob("*.rows"))[0]
        content = path.read_bytes().replace(HEAD.encode(), b"pecia.journal/9\n", 1)
        path.write_bytes(content)
        said = self.begins_anew(job, "--fresh")
        self.assertIn(f"--fresh: {folder} is now {folder}.1: {path} is of schema", said)
        self.assertEqual((folder.with_name("journal.1") / path.name).read_bytes(), content)

    def inspect(self, job: Path) -> str:
        return subprocess.check_output([PROGRAM, "inspect", self.output(job)], text=True)

    def test_a_torn_row_is_left_out_with_a_line(self) -> None:
        job = self.killed("torn")
        paths = sorted((self.output(job) / "journal").glob("*.rows"))
        path = next(each for each in paths if each.stat().st_size > HEAD_BYTES)
        content = path.read_bytes()
        (length,) = struct.unpack_from("<q", content, HEAD_BYTES)
        path.write_bytes(content[: HEAD_BYTES + 12 + length - 1])
        wait_for("the kill to be seen", lambda: "run, killed" in self.inspect(job))
        self.assertRegex(self.inspect(job), r"left by replicas: \d+ journals? \([\d.]+ KiB\)")
        safe = self.safe(job)
        said = self.run_job(job, REPLICAS)
        self.assertNotIn("journals", self.inspect(job))
        self.assertIn(f"{path}: its last {length + 11} bytes are left out", said)
        self.check_whole(job)
        self.assertEqual(self.report(job)["counts"]["done"], self.turns - len(safe))

    def test_journals_of_another_version_are_refused_by_name(self) -> None:
        job = self.killed("older")
        path = sorted((self.output(job) / "journal").glob("*.rows"))[0]
        content = path.read_bytes()
        path.write_bytes(content.replace(HEAD.encode(), b"pecia.journal/9\n", 1))
        said = self.run_job(job, REPLICAS, expect=REFUSED)
        self.assertIn(f"{path} is of schema 'pecia.journal/9'", said)
        self.assertEqual(said.count("pecia.journal/9"), 1, said)
        path.write_bytes(content)
        self.run_job(job, REPLICAS)
        self.check_whole(job)

    def test_journals_are_renamed_where_their_results_are_gone(self) -> None:
        job = self.killed("gone")
        folder = self.output(job) / "journal"
        content = {path.name: path.read_bytes() for path in folder.iterdir()}
        (self.output(job) / "results.h5").unlink()
        said = self.begins_anew(job)
        self.assertIn(f"the results of {folder} are gone; it is now {folder}.1", said)
        kept = {path.name: path.read_bytes() for path in folder.with_name("journal.1").iterdir()}
        self.assertEqual(kept, content)


if __name__ == "__main__":
    unittest.main()
