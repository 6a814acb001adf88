# SPDX-License-Identifier: Apache-2.0
"""pecia-summarize with a program that stands for pecia: it answers each request at once."""

import csv
import io
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

from pecia_tools.summarize import main as summarize
from support import PROSE, ScriptTest, make_model, quietly, read_turns

BOOK = "".join(
    f"CHAPTER {n}. Title {n}\n\n{PROSE * (3 + 3 * (n % 2))}" for n in range(1, 7)
).strip()
ANSWERING = """\
import json, os, pathlib, sys
sys.path.insert(0, {here!r})
import h5py
from support import make_results, make_tokenizer
assert sys.argv[1] == "run" and sys.argv[3] == "--rounds"
job_path = pathlib.Path(sys.argv[2])
settings = dict(word.split("=", 1) for word in sys.argv[5::2])

def answers(names, slots):
    for name, room in zip(names, slots):
        tokens = make_tokenizer().encode("Sum of " + name, add_special_tokens=False).ids[:room - 1]
        row = dict(id=name, state=2, slots=room, reason=1, tokens=[*tokens, 4])
        if name == os.environ.get("PECIA_TEST_CUT"):
            row = dict(row, slots=len(tokens) + 1, reason=2)
        if name == os.environ.get("PECIA_TEST_EMPTY"):
            row = dict(row, tokens=[4])
        if name == os.environ.get("PECIA_TEST_FAILING"):
            row = dict(id=name, state=3, slots=room, reason=3, error="no")
        yield row

def run(shard, output):
    number = shard.parent.name
    with open({log!r}, "a") as log:
        log.write(json.dumps(dict(round=number, words=sys.argv[4:], process=os.getpid())) + "\\n")
    if number == os.environ.get("PECIA_TEST_DRAINED"):
        sys.exit(75)
    with h5py.File(shard) as file:
        names = [name.decode() for name in file["request_id"][:]]
        rows = list(answers(names, file["max_new_tokens"][:].tolist()))
    output.mkdir()
    path = make_results(output / "results.h5", rows)
    with h5py.File(path, "a") as file:
        file.attrs["inputs"] = json.dumps([str(shard)])
    code = 3 if any(row["state"] == 3 for row in rows) else 0
    print("words of a launcher")
    print(json.dumps(dict(output=str(output), exit_code=code)), flush=True)
    return code

if "input" in settings:
    shard, output = pathlib.Path(json.loads(settings["input"])[0]), json.loads(settings["output"])
else:
    job = json.loads(job_path.read_text())
    shard, output = job_path.parent / job["input"][0], job_path.parent / job["output"]
codes = [run(shard, pathlib.Path(output))]
if "PECIA_TEST_NO_INPUT" in os.environ:
    sys.exit(max(codes))
for line in sys.stdin:
    told = json.loads(line)
    codes.append(run(pathlib.Path(told["input"][0]), pathlib.Path(told["output"])))
sys.exit(max(codes))
"""


class SummarizeTest(ScriptTest):
    def setUp(self) -> None:
        super().setUp()
        self.model = make_model(self.folder / "tiny")
        self.log = self.folder / "log"
        here = str(Path(__file__).parents[1])
        code = ANSWERING.format(here=here, log=str(self.log))
        self.pecia = self.write("pecia", f"#!{sys.executable}\n{code}")
        self.pecia.chmod(self.pecia.stat().st_mode | stat.S_IXUSR)
        self.output = self.folder / "out"
        self.books = self.folder / "books"
        self.write("books/long.txt", BOOK)
        self.write("books/short.md", "# Short\n\nEvery rank holds a part.")
        for name in ("DRAINED", "FAILING", "CUT", "EMPTY", "NO_INPUT"):
            self.addCleanup(os.environ.pop, f"PECIA_TEST_{name}", None)

    def summarize(self, *arguments: object, code: int = 0) -> str:
        found, out, said = quietly(
            summarize.main,
            *(self.books, "--model", self.model, "--output", self.output, "--pecia", self.pecia),
            *("--context", 700, "--max-new-tokens", 60, *arguments),
        )
        self.assertEqual((found, out), (code, ""), said)
        return said

    def logged(self) -> list[dict[str, Any]]:
        """What the program that stands for pecia was asked, round by round."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [json.loads(line) for line in lines]

    def runs(self) -> list[str]:
        """The rounds that were run, in order."""
        return [round["round"] for round in self.logged()]

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
            short, "[1 of 1 part, 100 % of 14 tokens, in 1 level]\n[source: Short]\n\nSum of short\n"
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
        self.assertRegex(text, rf"\A\[(\d+) of \1 parts, 100 % of [\d,]+ tokens, in {last} levels\]\n")
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
        self.assertEqual(self.logged()[0]["words"], ["--set", "kv.dtype=bf16"])

    def test_one_process_has_all_rounds(self) -> None:
        said = self.summarize()
        self.assertGreater(len(self.logged()), 1)
        self.assertEqual(len({round["process"] for round in self.logged()}), 1)
        self.assertIn("words of a launcher", said)

    def test_launcher_that_passes_no_input_on_starts_each_round(self) -> None:
        self.summarize()
        wanted, rounds = self.index(), self.runs()
        self.output = self.output.rename(self.folder / "before").with_name("out")
        self.log.unlink()
        os.environ["PECIA_TEST_NO_INPUT"] = "1"
        self.summarize()
        self.assertEqual((self.index(), self.runs()), (wanted, rounds))
        self.assertEqual(len({round["process"] for round in self.logged()}), len(rounds))


class JobFiles(SummarizeTest):
    def write_job(self, pipeline: str = "kind: summary, books: [../books]", rest: str = "") -> Path:
        return self.write(
            "jobs/shelf.yaml",
            f"model: {{path: ../tiny}}\noutput: ../out\ngeneration: {{max_new_tokens: 60, top_k: 5}}\n{rest}"
            f"pipeline: {{{pipeline}}}\n",
        )

    def run_job(self, job: Path, *arguments: object, code: int = 0) -> str:
        found, out, said = quietly(
            summarize.main, "--job", job, "--pecia", self.pecia, *arguments
        )
        self.assertEqual((found, out), (code, ""), said)
        return said

    def test_job_file_says_what_options_say(self) -> None:
        self.summarize("--prompt-part", self.write("p", "{text}\nPart {part}."))
        by_options = self.index(), self.asked(1)
        self.output = self.output.rename(self.folder / "before")
        self.write("jobs/p", "{text}\nPart {part}.")
        job = self.write_job(
            "kind: summary, books: ../books, context: 700, prompt_part: p, launch: env A=b"
        )
        self.output = self.folder / "out"
        self.run_job(job, "--set", "kv.dtype=bf16")
        self.assertEqual((self.index(), self.asked(1)), by_options)
        settings = self.logged()[-1]["words"][1::2]
        self.assertEqual(settings[:2], ["kv.dtype=bf16", "pipeline=off"])
        run = json.dumps(str((self.output / "rounds/1/run").resolve()))
        self.assertIn(f"output={run}", settings)
        self.assertIn(f'model.path="{self.model.resolve()}"', settings)

    def test_command_line_comes_before_it(self) -> None:
        job = self.write_job("kind: summary, books: [../nothing], context: 100")
        self.run_job(job, "--context", 700, "--output", self.folder / "mine", self.books)
        self.assertFalse(self.output.exists())
        self.assertTrue((self.folder / "mine/short.txt").exists())

    def test_same_command_continues(self) -> None:
        job = self.write_job("kind: summary, books: [../books], context: 700")
        os.environ["PECIA_TEST_DRAINED"] = "2"
        self.run_job(job, code=75)
        del os.environ["PECIA_TEST_DRAINED"]
        self.run_job(job)
        self.assertEqual(self.runs()[:3], ["1", "2", "2"])

    def test_wrong_keys_and_values_are_named_with_their_line(self) -> None:
        kind = "kind: summary, books: [../books]"
        for pipeline, rest, parts in (
            (f"{kind}, promt_part: p", "", ("shelf.yaml:4", "promt_part'", "'prompt_part'?")),
            (f"{kind}, webhook: p", "", ("shelf.yaml:4", "has the keys kind, books, launch")),
            (f"{kind}, model: p", "", ("pipeline.model stands elsewhere", "model.path")),
            (f"{kind}, max_new_tokens: 9", "", ("stands elsewhere", "generation.max_new_tokens")),
            (f"{kind}, fresh: true", "", ("option of the command alone: --fresh",)),
            (f"{kind}, context: 0", "", ("pipeline.context is 0", "must be from 1")),
            (f"{kind}, context: many", "", ("pipeline.context is 'many'; it may be N",)),
            (f"{kind}, no_chat: 1", "", ("pipeline.no_chat is 1", "true | false")),
            (f"{kind}, prompt_part: [p]", "", ("pipeline.prompt_part is ['p']", "FILE")),
            ("books: [../books]", "", ("shelf.yaml: pipeline.kind is missing",)),
            ("kind: index, books: [../books]", "", ("pipeline.kind is 'index'", "summary")),
            (kind, "input: [a.h5]\n", ("shelf.yaml:4", "pipeline.books")),
        ):
            with self.subTest(pipeline + rest):
                job = self.write_job(pipeline, rest)
                self.assert_refused(*parts, call=lambda: self.run_job(job))  # noqa: B023

    def test_text_that_is_no_job_is_refused(self) -> None:
        for text, parts in (
            ("- a\n", ("no job file",)),
            ("pipeline: off\n", ("yaml:1", "pipeline is no section")),
            ("a: b\npipeline: {kind: summary\n", ("yaml:3",)),
            (b"\xff", ("byte 0 is not UTF-8",)),
        ):
            with self.subTest(text):
                job = self.write("job.yaml", text)
                self.assert_refused(*parts, call=lambda: self.run_job(job))  # noqa: B023
        self.assert_refused("cannot be read", call=lambda: self.run_job(self.folder / "none"))

    def test_settings_that_would_move_a_round_are_refused(self) -> None:
        for setting, remedy in (
            ("output=x", "say --output"),
            ("generation.max_new_tokens=9", "say --max-new-tokens"),
            ("input=[x]", "leave it out"),
            ("pipeline=off", "leave it out"),
        ):
            with self.subTest(setting):
                call = lambda: self.summarize("--set", setting)  # noqa: B023, E731
                self.assert_refused(f"--set {setting}", remedy, call=call)


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
        self.assertIn(f"\n  missing: part 2 of {row['parts']}: no\n", said)
        self.assertEqual(row["missing"], f"part 2 of {row['parts']}: no")
        text = (self.output / "long.txt").read_text()
        self.assertTrue(text.startswith(f"[{row['parts_covered']} of"))
        self.assertIn(f"]\n[missing: part 2 of {row['parts']}: no]\n", text)

    def test_part_without_a_text_is_missing_with_the_reason(self) -> None:
        os.environ["PECIA_TEST_EMPTY"] = "long#002"
        said = self.summarize(code=3)
        row = self.index()["long"]
        why = f"part 2 of {row['parts']}: the model ended its answer at once"
        self.assertEqual(int(row["parts_covered"]), int(row["parts"]) - 1)
        self.assertEqual(row["missing"], why)
        self.assertIn(f"\n  missing: {why}\n", said)
        self.assertEqual(self.index()["short"]["missing"], "")

    def test_merge_without_a_text_names_its_parts(self) -> None:
        self.summarize()
        names = [name for name in self.asked(2) if name.startswith("long@2.")]
        os.environ["PECIA_TEST_EMPTY"] = names[0]
        self.summarize("--fresh", code=3)
        missing = self.index()["long"]["missing"]
        self.assertRegex(missing, r"^parts 1-\d+ of \d+, merged in round 2: the model ended")

    def test_book_without_any_summary_has_no_file(self) -> None:
        os.environ["PECIA_TEST_FAILING"] = "short"
        self.summarize(code=3)
        self.assertFalse((self.output / "short.txt").exists())
        self.assertEqual(self.index()["short"]["parts_covered"], "0")
        page = (self.output / "summaries.html").read_text()
        self.assertIn(">0 of 1 part, 0 % of 14 tokens<", page)
        self.assertRegex(page, r">(\d+) of \1 parts, 100 % of [\d,]+ tokens, in \d levels<")

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
