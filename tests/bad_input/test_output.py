# SPDX-License-Identifier: Apache-2.0
"""What lies in the output folder already: never written over unless it is this run's."""

from __future__ import annotations

import fcntl
import json
import os
import unittest
from pathlib import Path

import h5py
import numpy as np

from support import (
    DONE,
    GOOD_REQUESTS,
    PARTIAL,
    VOCAB,
    BadInputTest,
    command,
    prompt,
    snapshot,
    write_shard,
)


class Results(BadInputTest):
    def setUp(self) -> None:
        super().setUp()
        self.results = self.folder / "run/results.h5"

    def run_once(self) -> None:
        ended = self.run_job()
        self.assertEqual(ended.code, 0, ended)

    def put(self, content: bytes) -> None:
        self.results.parent.mkdir(exist_ok=True)
        self.results.write_bytes(content)

    def test_of_another_program(self) -> None:
        for content in (b"", b"mine", bytes(100_000)):
            with self.subTest(content=content[:4]):
                self.put(content)
                self.assert_refused("run/results.h5 is no HDF5 file")
        self.results.unlink()
        with h5py.File(self.results, "w") as file:
            file["precious"] = np.arange(10)
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                self.assert_refused("run/results.h5: attribute 'schema' is ''", "no results file", ranks=ranks)
        self.results.write_bytes(self.shard.read_bytes())
        self.assert_refused("run/results.h5: attribute 'schema' is 'pecia.prompts/1'", "no results file")

    def test_that_is_a_folder(self) -> None:
        self.results.mkdir(parents=True)
        (self.results / "mine").write_text("mine")
        self.assert_refused("run/results.h5", "folder")

    def test_truncated(self) -> None:
        self.run_once()
        content = self.results.read_bytes()
        for size in (8, 96, 2000, len(content) // 2, len(content) - 1):
            with self.subTest(size=size):
                self.put(content[:size])
                self.assert_refused("run/results.h5", "cut off")

    def test_damaged(self) -> None:
        self.run_once()
        content = self.results.read_bytes()
        for name, row, value, part in (
            ("slot_offsets", 1, -7, "slot offsets"),
            ("slot_offsets", 1, 10**9, "slot offsets"),
        ):
            with self.subTest(name=name, value=value):
                self.put(content)
                with h5py.File(self.results, "a") as file:
                    file[name][row] = value
                self.assert_refused("run/results.h5: ", part, "damaged")
        for change, part in (
            (lambda file: file.attrs.update(identity="{"), "belongs to another run"),
            (lambda file: file.attrs.update(identity=b"\xff"), "belongs to another run"),
            (lambda file: file.attrs.update(identity="[1]"), "belongs to another run"),
            (lambda file: file.attrs.update(identity="[" * 60_000), "belongs to another run"),
            (lambda file: file.attrs.__delitem__("identity"), "belongs to another run"),
            (lambda file: file.attrs.update(inputs="{"), "damaged"),
            (lambda file: file.attrs.update(inputs="[" * 60_000), "damaged"),
            (lambda file: file.attrs.update(settings="{"), "damaged"),
            (lambda file: file.attrs.update(settings="[1]"), "damaged"),
            (lambda file: file.attrs.update(settings="[" * 60_000), "damaged"),
            (lambda file: file["settings"].__setitem__(0, 1), "/settings[0]"),
            (lambda file: file["settings"].__setitem__(0, -1), "/settings[0]"),
            (lambda file: file.attrs.update(vocab_size=-3), "damaged"),
            (lambda file: file.attrs.update(logprobs=2**31 - 1), "/top_"),
            (lambda file: file.__delitem__("tokens"), "/tokens"),
            (lambda file: file.__delitem__("state"), "/state"),
        ):
            with self.subTest(part=part):
                self.put(content)
                with h5py.File(self.results, "a") as file:
                    change(file)
                self.assert_refused("run/results.h5", part)

    def test_damaged_in_a_row(self) -> None:
        self.run_once()
        with h5py.File(self.results, "a") as file:
            file["state"][1] = 9
        before = snapshot(self.folder)
        ended = self.run_job()
        self.assertEqual(ended.code, 2, ended)
        self.assertIn("run/results.h5: /state[1] is 9: the file is damaged", ended.err)
        self.assertEqual(before, snapshot(self.folder))

    def test_damaged_token(self) -> None:
        """Both of a request that is to go on: the answer that it has begun, and the one before."""
        self.run_once()
        content = self.results.read_bytes()
        for row, state in ((0, DONE), (1, PARTIAL)):
            for token in (-1, VOCAB, 2**31 - 1):
                with self.subTest(row=row, token=token):
                    self.put(content)
                    with h5py.File(self.results, "a") as file:
                        file["state"][1] = PARTIAL
                        file["state"][row] = state
                        file["tokens"][3 * row + 1] = token
                    for arguments in ((), ("--validate",)):
                        self.assert_refused(f"run/results.h5: /tokens[{3 * row + 1}] is {token}",
                                            f"row {row}, request 'first', turn {row}",
                                            "the file is damaged", arguments=arguments)  # fmt: skip
                    self.assertEqual(command("inspect", self.results).code, 0)

    def test_no_regular_file(self) -> None:
        self.results.parent.mkdir()
        os.mkfifo(self.results)
        self.assert_refused("run/results.h5: no regular file, but a pipe")

    def test_links_of_others_are_not_followed(self) -> None:
        victim = self.folder / "victim"
        victim.write_text("precious")
        run = self.folder / "run"
        run.mkdir()
        (run / ".lock").symlink_to(victim)
        self.assert_refused("run/.lock: a symbolic link is in place of the lock file", "remove it")
        (run / ".lock").unlink()
        names = ["results.h5.unfinished", *(f"{name}.json{part}" for part in ("", ".part")
                                            for name in ("progress", "report", "starts"))]  # fmt: skip
        (run / "trace").mkdir()
        names += ["trace/rank-00000.json.gz.part", "trace/trace.json.gz", "trace/trace.json.gz.part"]
        for name in names:
            if name != "starts.json":  # read before it is written
                (run / name).symlink_to(victim)
        ended = self.run_job(*self.set("report.trace=summary"))
        self.assertEqual(ended.code, 0, ended)
        self.assertEqual(victim.read_text(), "precious")
        self.assertEqual([path.name for path in run.rglob("*") if path.is_symlink()], [])

    def test_output_behind_a_link(self) -> None:
        (self.folder / "scratch").mkdir()
        (self.folder / "run").symlink_to("scratch")
        self.run_once()
        self.assertTrue((self.folder / "scratch/results.h5").exists())

    def test_of_another_identity(self) -> None:
        self.run_once()
        for assignment, parts in {
            "generation.seed=8": ("generation/seed: 0 there, 8 now",),
            "generation.temperature=0.5": ("generation/temperature: 0.0 there, 0.5 now",),
            "kv.dtype=fp32": ('kv/dtype: "bf16" there, "fp32" now',),
            "limits.over_length=truncate_left generation.seed=8": ("generation/seed",),
            "model.dtype=fp32": ("model/dtype",),
        }.items():
            with self.subTest(assignment=assignment):
                self.assert_refused("run/results.h5 belongs to another run", *parts, "--fresh",
                                    "Choose another output folder",
                                    arguments=self.set(*assignment.split()))  # fmt: skip
        self.assert_refused("run/results.h5 belongs to another run", ranks=2,
                            arguments=self.set("generation.seed=8"))  # fmt: skip

    def test_of_other_prompts(self) -> None:
        self.run_once()
        write_shard(self.shard, [*GOOD_REQUESTS, ("third", [prompt(3)])])
        self.assert_refused("run/results.h5 belongs to another run", "input_sha256/0")

    def test_of_the_same_prompts_with_other_tokens(self) -> None:
        self.run_once()
        changed = [(name, [[5] * len(turn) for turn in turns]) for name, turns in GOOD_REQUESTS]
        write_shard(self.shard, changed)
        self.assert_refused("run/results.h5 belongs to another run", "input_sha256/0: ")

    def test_of_another_model(self) -> None:
        self.run_once()
        config = json.loads((self.model / "config.json").read_text())
        config["rope_theta"] = 20000.0
        (self.model / "config.json").write_text(json.dumps(config))
        self.assert_refused("run/results.h5 belongs to another run", "model/config_sha256")

    def test_fresh_keeps_the_older_file(self) -> None:
        self.run_once()
        before = self.results.read_bytes()
        ended = self.run_job("--fresh", *self.set("generation.seed=8"))
        self.assertEqual(ended.code, 0, ended)
        self.assertEqual((self.folder / "run/results.1.h5").read_bytes(), before)

    def test_held_by_another_run(self) -> None:
        self.run_once()
        with open(self.folder / "run/.lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self.assert_refused("run/.lock: another run is using this folder", "remove the file")


class Inspect(BadInputTest):
    def refused_path(self, path: Path, *parts: str) -> None:
        before = snapshot(self.folder)
        self.assert_refusal(command("inspect", path), *parts)
        self.assertEqual(before, snapshot(self.folder))

    def test_files_that_are_none_of_ours(self) -> None:
        self.refused_path(self.job, "job.yaml is no HDF5 file")
        self.refused_path(self.folder / "absent", "absent: cannot be opened", "No such file")
        self.refused_path(self.folder, "a folder without results.h5")
        (self.folder / "loop").symlink_to("loop")
        self.refused_path(self.folder / "loop", "loop: cannot be opened")
        with h5py.File(self.folder / "other.h5", "w") as file:
            file["data"] = np.arange(3)
        self.refused_path(self.folder / "other.h5", "other.h5: /tokens is missing")
        with h5py.File(self.folder / "other.h5", "a") as file:
            file.attrs["schema"] = "pecia.results/7"
        self.refused_path(self.folder / "other.h5", "other.h5: /state is missing")
        content = self.shard.read_bytes()
        self.shard.write_bytes(content[: len(content) // 2])
        self.refused_path(self.shard, "prompts/a.h5", "cut off")


if __name__ == "__main__":
    unittest.main()
