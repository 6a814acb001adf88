# SPDX-License-Identifier: Apache-2.0
"""Output on disks that fill up, are too small or refuse: file systems that the test mounts."""

from __future__ import annotations

import subprocess
import unittest
from pathlib import Path

from harness import DONE, FAILURE, OPEN, REFUSED, RunTest, random_requests


class Disk:
    """A file system of its own, in memory; needs root."""

    def __init__(self, test: unittest.TestCase, folder: Path, size: str):
        folder.mkdir()
        self.folder = folder
        self._mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs")
        test.addCleanup(subprocess.run, ["umount", "-l", folder], check=True)

    def _mount(self, *options: str) -> None:
        subprocess.run(["mount", *options, self.folder], check=True)

    def remount(self, option: str) -> None:
        self._mount("-o", f"remount,{option}")


class DiskTest(RunTest):
    def test_a_disk_that_fills_up_ends_the_run_and_room_continues_it(self) -> None:
        requests = random_requests(24, 5, 40, seed=3)
        # All log-probabilities of the vocabulary: 96 × 4 bytes a token, 75 KiB a request.
        sections = {
            "generation": {"max_new_tokens": 200, "ignore_eos": True, "logprobs": -1},
            "batch": {"max_sequences": 1, "order": "fcfs"},
        }
        reference = self.write_job(requests, "reference", **sections)
        self.run_job(reference, 1)
        for ranks, parallel in ((1, {}), (2, {}), (2, {"dp": 2})):
            with self.subTest(ranks=ranks, parallel=parallel):
                name = f"{ranks}-{len(parallel)}"
                disk = Disk(self, self.folder / f"disk-{name}", "1400k")
                job = self.write_job(
                    requests, name, output=str(disk.folder / "run"), parallel=parallel, **sections
                )
                words = self.run_job(job, ranks, expect=FAILURE)
                self.assertIn("No space left on device", words)
                self.assertIn("make room and run the same command", words)
                before = self.results(job)
                done = before.rows(DONE)
                journals = list((self.output(job) / "journal").glob("*.rows"))
                safe = len(journals) if parallel else len(done)  # a journal has a row or more
                self.assertGreater(safe, 0, "the disk was full from the beginning")
                self.assertGreater(len(before.rows(OPEN)), 0, "the disk was never full")
                self.assert_same_answers(before, self.results(reference), done)
                disk.remount("size=8m")
                self.run_job(job, ranks)
                after = self.results(job)
                self.assertEqual(after.rows(DONE), list(range(len(requests))))
                self.assert_same_answers(after, self.results(reference), after.rows(DONE))
                for row in done:
                    self.assertEqual(after.row_bytes(row), before.row_bytes(row))

    def test_a_disk_too_small_for_the_results_is_said_before_anything_is_computed(self) -> None:
        disk = Disk(self, self.folder / "disk", "200k")
        job = self.write_job(random_requests(4, 5, 9, seed=1), output=str(disk.folder / "run"))
        for ranks in (0, 2):
            words = self.run_job(job, ranks, expect=FAILURE)
            self.assertIn("No space left on device", words)
            self.assertRegex(words, r"The results need up to \d+ bytes, \d+ are free")
            self.assertEqual(words.count("No space left on device"), 1, words)

    def test_a_read_only_folder_is_refused(self) -> None:
        disk = Disk(self, self.folder / "disk", "8m")
        requests = random_requests(4, 5, 9, seed=1)
        fresh = self.write_job(requests, "fresh", output=str(disk.folder / "new"))
        begun = self.write_job(requests, "begun", output=str(disk.folder / "begun"))
        self.run_job(begun, 1)
        disk.remount("ro")
        for ranks in (0, 2):
            for job in (fresh, begun):
                words = self.run_job(job, ranks, expect=REFUSED)
                self.assertIn(str(self.output(job)), words)
                self.assertIn("Read-only file system", words)
                self.assertEqual(words.count("Read-only file system"), 1, words)


if __name__ == "__main__":
    unittest.main()
