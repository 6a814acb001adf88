# SPDX-License-Identifier: Apache-2.0
"""pecia-summarize with a program that stands for pecia: it answers each request at once."""

import csv
import io
import json
import os
import stat
import sys
import unittest
from pathlib import Path
from typing import Any

from pecia_tools import summarize
from support import PROSE, ScriptTest, make_model, quietly, read_turns

BOOK = "".join(
    f"CHAPTER {n}. Title {n}\n\n{PROSE * (3 + 3 * (n % 2))}" for n in range(1, 7)
).strip()
ANSWERING = """\
import json, os, pathlib, sys
sys.path.insert(0, {here!r})
import h5py
from support import make_results, make_tokenizer
assert sys.argv[1] == "run"
job_path = pathlib.Path(sys.argv[2])
job = json.loads(job_path.read_text())
with open({log!r}, "a") as log:
    log.write(json.dumps([job_path.parent.name, sys.argv[3:]]) + "\\n")
if job_path.parent.name == os.environ.get("PECIA_TEST_DRAINED"):
    sys.exit(75)
shard = job_path.parent / job["input"][0]
with h5py.File(shard) as file:
    names = [name.decode() for name in file["request_id"][:]]
    slots = file["max_new_tokens"][:].tolist()
rows = []
for name, room in zip(names, slots):
    tokens = make_tokenizer().encode("Sum of " + name, add_special_tokens=False).ids[:room - 1]
    row = dict(id=name, state=2, slots=room, reason=1, tokens=[*tokens, 4])
    if name == os.environ.get("PECIA_TEST_CUT"):
        row = dict(row, slots=len(tokens) + 1, reason=2)
    if name == os.environ.get("PECIA_TEST_FAILING"):
        row = dict(id=name, state=3, slots=room, reason=3, error="no")
    rows.append(row)
output = job_path.parent / job["output"]
output.mkdir()
path = make_results(output / "results.h5", rows)
with h5py.File(path, "a") as file:
    file.attrs["inputs"] = json.dumps([str(shard)])
sys.exit(3 if any(row["state"] == 3 for row in rows) else 0)
"""


class SummarizeTest(ScriptTest):
    def setUp(self) -> None:
        super().setUp()
        self.model = make_model(self.folder / "tiny")
        self.log = self.folder / "log"
        here = str(Path(__file__).parent)
        code = ANSWERING.format(here=here, log=str(self.log))
        self.pecia = self.write("pecia", f"#!{sys.executable}\n{code}")
        self.pecia.chmod(self.pecia.stat().st_mode | stat.S_IXUSR)
        self.output = self.folder / "out"
        self.books = self.folder / "books"
        self.write("books/long.txt", BOOK)
        self.write("books/short.md", "# Short\n\nEvery rank holds a part.")
        for name in ("PECIA_TEST_DRAINED", "PECIA_TEST_FAILING", "PECIA_TEST_CUT"):
            self.addCleanup(os.environ.pop, name, None)

    def summarize(self, *arguments: object, code: int = 0) -> str:
        found, out, said = quietly(
            summarize.main,
            *(self.books, "--model", self.model, "--output", self.output, "--pecia", self.pecia),
            *("--context", 700, "--max-new-tokens", 60, *arguments),
        )
        self.assertEqual((found, out), (code, ""), said)
        return said

    def runs(self) -> list[str]:
        """The rounds that were run, in order."""
        if not self.log.exists():
            return []
        return [json.loads(line)[0] for line in self.log.read_text().splitlines()]

    def index(self) -> dict[str, dict[str, str]]:
        rows = csv.DictReader(io.StringIO((self.output / "index.csv").read_text()))
        return {row["book"]: row for row in rows}

    def asked(self, number: int) -> dict[str, str]:
        tokenizer = self.tokenizer()
        turns = read_turns(self.output / f"rounds/{number}/prompts.h5")
        return {name: tokenizer.decode(tokens) for name, (tokens,) in turns.items()}

    def tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(self.model / "tokenizer.json"))


class Books(SummarizeTest):
    def test_short_book_is_read_as_a_whole_and_a_long_one_by_parts(self) -> None:
        self.summarize()
        short = (self.output / "short.txt").read_text()
        self.assertEqual(
            short, "[1 of 1 part, 100 % of 14 tokens]\n[source: Short]\n\nSum of short\n"
        )
        asked = self.asked(1)
        self.assertIn("Summarize this text", asked["short"])
        parts = sorted(name for name in asked if name.startswith("long#"))
        self.assertGreater(len(parts), 3)
        self.assertTrue(all("Summarize this part" in asked[name] for name in parts))
        row = self.index()["long"]
        self.assertEqual(row["parts"], str(len(parts)))
        self.assertEqual(
            (row["parts_covered"], row["tokens_covered"]), (row["parts"], row["tokens"])
        )
        self.assertEqual(self.index()["short"]["rounds"], "1")

    def test_last_round_has_the_summaries_before_it(self) -> None:
        self.summarize()
        last = max(map(int, self.runs()))
        (asked,) = self.asked(last).values()
        self.assertIn("of consecutive pieces of one work", asked)
        before = [line for line in asked.splitlines() if line.startswith("[Part")]
        self.assertGreater(len(before), 1)
        self.assertIn("Sum of long", asked)
        text = (self.output / "long.txt").read_text()
        self.assertIn("[source: CHAPTER 1. Title 1 – CHAPTER 6. Title 6]", text)
        self.assertTrue(text.endswith(f"\n\nSum of long@{last}.001\n"))
        levels = (self.output / "levels/long.txt").read_text()
        for name in (name for name in self.asked(1) if name.startswith("long#")):
            self.assertIn(f"Sum of {name}\n", levels)

    def test_prompts_and_settings_are_the_users(self) -> None:
        merge = self.write("m", "{text}\nMerge {book} from {part}.")
        self.summarize("--prompt-merge", merge, "--set", "kv.dtype=bf16", "--launch", "env A=b")
        self.assertIn(
            "Merge long from 1.",
            self.asked(max(map(int, self.runs())))[f"long@{max(map(int, self.runs()))}.001"],
        )
        self.assertEqual(
            json.loads(self.log.read_text().splitlines()[0])[1], ["--set", "kv.dtype=bf16"]
        )


class Interruptions(SummarizeTest):
    def test_drained_run_goes_on_with_the_same_command(self) -> None:
        os.environ["PECIA_TEST_DRAINED"] = "2"
        self.assertIn("the same command continues it", self.summarize(code=75))
        self.assertFalse((self.output / "long.txt").exists())
        self.assertEqual(self.runs(), ["1", "2"])
        del os.environ["PECIA_TEST_DRAINED"]
        self.summarize()
        self.assertEqual(self.runs()[:3], ["1", "2", "2"])
        self.assertEqual(self.runs().count("1"), 1)
        before = self.runs()
        self.summarize()  # nothing is left to do
        self.assertEqual(self.runs(), before)

    def test_other_books_need_fresh(self) -> None:
        self.summarize()
        self.write("books/more.txt", "Another book.")
        self.assert_refused("other books", "--fresh", call=self.summarize)
        self.summarize("--fresh")
        self.assertIn("more", self.index())

    def test_part_that_failed_is_missing_in_the_coverage(self) -> None:
        os.environ["PECIA_TEST_FAILING"] = "long#002"
        said = self.summarize(code=3)
        row = self.index()["long"]
        self.assertEqual(int(row["parts_covered"]), int(row["parts"]) - 1)
        self.assertLess(int(row["tokens_covered"]), int(row["tokens"]))
        self.assertIn(f"long: {row['parts_covered']} of {row['parts']} parts", said)
        self.assertTrue(
            (self.output / "long.txt").read_text().startswith(f"[{row['parts_covered']} of")
        )

    def test_book_without_any_summary_has_no_file(self) -> None:
        os.environ["PECIA_TEST_FAILING"] = "short"
        self.summarize(code=3)
        self.assertFalse((self.output / "short.txt").exists())
        self.assertEqual(self.index()["short"]["parts_covered"], "0")

    def test_summary_that_was_cut_says_so(self) -> None:
        os.environ["PECIA_TEST_CUT"] = "short"
        self.summarize()
        cut = (self.output / "short.txt").read_text()
        self.assertTrue(cut.endswith("\n\nSum of short\n\n[cut at the longest length]\n"), cut)
        self.assertNotIn("[cut at", (self.output / "long.txt").read_text())

    def test_program_that_ends_otherwise_is_a_failure(self) -> None:
        self.pecia.write_text("#!/bin/sh\nexit 2\n")
        with self.assertRaisesRegex(Exception, "ended with code 2"):
            self.summarize()


class Refusals(SummarizeTest):
    def test_bad_book_stops_no_other(self) -> None:
        self.write("books/bad.txt", b"\xff\xfe\xff")
        said = self.summarize(code=3)
        self.assertIn("1 could not be read:", said)
        self.assertIn("bad.txt: byte 0", said)
        self.assertEqual(sorted(self.index()), ["long", "short"])

    def test_too_few_tokens_and_requests_instead_of_books(self) -> None:
        self.assert_refused("too few", call=lambda: self.summarize("--context", 150))
        self.write_lines("books/a.jsonl", {"id": "a", "prompt": "x"})
        self.assert_refused("a.jsonl: holds requests", call=self.summarize)

    def test_file_that_somebody_changed_is_kept(self) -> None:
        self.summarize()
        self.write("out/short.txt", "mine")
        self.assertIn("short.txt: kept", self.summarize(code=3))
        self.assertEqual((self.output / "short.txt").read_text(), "mine")


if __name__ == "__main__":
    unittest.main()
