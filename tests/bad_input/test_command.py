# SPDX-License-Identifier: Apache-2.0
"""The command line itself."""

from __future__ import annotations

import os
import shutil
import unittest

import h5py

from support import DONE, GOOD_JOB, BadInputTest, command


class CommandLine(BadInputTest):
    def test_words_and_options_that_are_none(self) -> None:
        for arguments, part in (
            ((), "no command given"),
            (("frobnicate",), "frobnicate"),
            (("run",), "run needs a job file"),
            (("run", self.job, "--frobnicate"), "--frobnicate"),
            (("run", self.job, "another.yaml"), "another.yaml"),
            (("run", self.job, "--set"), "--set"),
            (("inspect",), "path"),
            (("inspect", self.shard, "--frobnicate"), "--frobnicate"),
            (("topology", "--dp", "two"), "--dp"),
        ):
            with self.subTest(arguments=arguments):
                ended = command(*arguments)
                self.assert_refusal(ended, "pecia: ", part)
                self.assertIn("--help", ended.err + ("--help" if part.startswith("run needs") else ""))

    def test_words_that_are_none_under_mpirun_are_said_once(self) -> None:
        self.assert_refusal(command("run", self.job, "--frobnicate", ranks=2), "--frobnicate")

    def test_assignments(self) -> None:
        for assignment, parts in {
            "generation.seed": ("--set generation.seed: write it as key.path=value",),
            "=5": ("--set =5: write it as key.path=value",),
            "": ("--set : write it as key.path=value",),
            "generation.sed=5": ("--set generation.sed=5: unknown key", "did you mean generation.seed?"),
            "seed=5": ("unknown key seed", "did you mean generation.seed?"),
            "generation..seed=5": ("an empty name in the key",),
            "generation.seed.more=5": ("generation.seed is a map", "it may be a whole number"),
            "generation=5": ("generation is 5", "a section with the keys"),
            "generation.seed=[": ("not valid YAML",),
            "generation.seed=*a": ("not valid YAML", "anchor is not defined"),
            "generation.seed=&a 5": ("an anchor (&name)", "write the value out"),
            "a" * 10_000 + "=5": ("unknown key aaa",),
            ".".join("abcdefghijklmnopqrstuvwxyz" * 100) + "=1": ("more than 16 levels",),
        }.items():
            with self.subTest(assignment=assignment[:40]):
                self.assert_refused("pecia: ", *parts, arguments=["--set", assignment])

    def test_version_and_help(self) -> None:
        for arguments, part in (
            (("--version",), "pecia "),
            (("--help",), "run"),
            (("run", "--help"), "--validate"),
            (("inspect", "--help"), "PATH"),
        ):
            with self.subTest(arguments=arguments):
                ended = command(*arguments)
                self.assertEqual((ended.code, ended.err), (0, ""), ended)
                self.assertIn(part, ended.out)

    def test_the_default_job_parses_back(self) -> None:
        default = command("run", "--print-default")
        self.assertEqual((default.code, default.err), (0, ""), default)
        self.job.write_text(default.out, encoding="utf-8")
        # Nothing but the three examples, which name files that are not here, is wrong with it.
        ended = self.run_job("--validate", *self.set("model.path=model", "output=run"))
        self.assertEqual(ended.code, 0, ended)

    def test_short_options_are_relative_to_the_current_folder(self) -> None:
        work = self.folder / "else*[where]"  # of its name nothing is a pattern
        work.mkdir()
        self.write_job({**GOOD_JOB, "model": {"path": "absent"}, "input": ["absent.h5"]})
        options = ("--model", "../model", "--input", "../prompts/*.h5", "--output", 'a "b"')
        ended = self.run_job("--dry-run", *options, prepare=lambda: os.chdir(work))
        self.assertEqual(ended.code, 0, ended)
        self.assertIn(f'output {work}/a "b"', ended.err)
        ended = self.run_job("--print-output", *options, prepare=lambda: os.chdir(work))
        self.assertEqual(ended.out, f'{work}/a "b"\n', ended)
        shutil.copy(self.folder / "prompts" / "a.h5", work / "b[1].h5")
        for pattern in ("b[1].h5", "b*.h5"):
            options = ("--model", "../model", "--input", pattern)
            ended = self.run_job("--dry-run", *options, prepare=lambda: os.chdir(work))
            self.assertEqual(ended.code, 0, ended)

    def test_first_requests_and_then_the_others(self) -> None:
        ended = self.run_job("--limit", "1")
        self.assertEqual(ended.code, 0, ended)
        self.assertIn("1 request,", ended.err)
        with h5py.File(self.folder / "run/results.h5") as results:
            self.assertEqual(results["request_id"].asstr()[:].tolist(), ["first", "first"])
            first = results["tokens"][:].tolist()
        ended = self.run_job()
        self.assertEqual(ended.code, 0, ended)
        self.assertIn("the job has 1 turn more than at the earlier start", ended.err)
        with h5py.File(self.folder / "run/results.h5") as results:
            self.assertEqual(results["state"][:].tolist(), [DONE] * 3)
            self.assertEqual(results["tokens"][: len(first)].tolist(), first)
        ended = self.run_job("--limit", "1")
        self.assert_refusal(ended, "run/results.h5 has 3 turns", "raise batch.limit (--limit)")
        self.assert_refusal(self.run_job("--limit", "0"), "--limit")

    def test_hub_ids_and_gguf_files_are_answered_with_the_command(self) -> None:
        for model, parts in (
            ("Qwen/Qwen3-8B", ("`hf download Qwen/Qwen3-8B --local-dir ",)),
            ("job.gguf", ("a GGUF file", "scripts/pecia-import-gguf ")),
        ):
            with self.subTest(model=model):
                self.assert_refused("pecia: ", *parts, arguments=["--validate", *self.set(f"model.path={model}")])

    def test_validate_writes_nothing(self) -> None:
        before = sorted(self.folder.rglob("*"))
        ended = self.run_job("--validate")
        self.assertEqual(ended.code, 0, ended)
        self.assertIn("job.yaml: valid", ended.err)
        self.assertEqual(before, sorted(self.folder.rglob("*")))


if __name__ == "__main__":
    unittest.main()
