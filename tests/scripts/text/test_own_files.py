# SPDX-License-Identifier: Apache-2.0
import json
import os
from pathlib import Path
from unittest import mock

from pecia_tools.text import own_files
from pecia_tools.text.own_files import Outcome, OwnFiles
from support import ScriptTest
from text_run import TextRun

RECORD = ".record.json"
RUN = {"results": "/runs/a/results.h5", "identity_sha256": "1234"}


class OwnFilesTest(ScriptTest):
    def setUp(self) -> None:
        super().setUp()
        self.out = self.folder / "out"

    def make(self, force: bool = False, source: dict[str, str] = RUN, **contents: str) -> Outcome:
        """Files by their names without '.txt', where '__' stands for '/'."""
        with OwnFiles(self.out, RECORD, source, force) as files:
            for name, content in contents.items():
                files.write(name.replace("__", "/") + ".txt", content)
            return files.commit()

    def found(self) -> dict[str, str]:
        return {
            path.relative_to(self.out).as_posix(): path.read_text()
            for path in self.out.rglob("*")
            if path.is_file() and path.name != RECORD
        }

    def test_what_only_this_command_wrote_is_refreshed(self) -> None:
        self.assertEqual(self.make(a="1", d__b="1").written, ["a.txt", "d/b.txt"])
        outcome = self.make(a="2", d__b="1")
        self.assertEqual((outcome.written, outcome.unchanged), (["a.txt"], ["d/b.txt"]))
        self.assertEqual(self.found(), {"a.txt": "2", "d/b.txt": "1"})

    def test_unchanged_files_are_not_touched(self) -> None:
        self.make(a="1")
        os.utime(self.out / "a.txt", (1000, 1000))
        self.make(a="1")
        self.assertEqual((self.out / "a.txt").stat().st_mtime, 1000)

    def test_what_someone_else_wrote_or_changed_is_kept(self) -> None:
        self.write("out/a.txt", "theirs")
        self.assertEqual(self.make(a="1", b="1").kept, ["a.txt"])
        self.write("out/b.txt", "edited")
        outcome = self.make(a="2", b="2", c="2")
        self.assertEqual((outcome.kept, outcome.written), (["a.txt", "b.txt"], ["c.txt"]))
        self.assertEqual(self.found(), {"a.txt": "theirs", "b.txt": "edited", "c.txt": "2"})
        self.assertEqual(self.make(force=True, a="3", b="3", c="2").written, ["a.txt", "b.txt"])
        self.assertEqual(self.found(), {"a.txt": "3", "b.txt": "3", "c.txt": "2"})

    def test_files_where_folders_should_be_are_kept(self) -> None:
        self.write("out/d.txt/x", "theirs")
        self.write("out/e", "theirs")
        for force in (False, True):
            self.assertEqual(self.make(force, d="1", e__f="1").kept, ["d.txt", "e/f.txt"])
        self.assertEqual(self.found(), {"d.txt/x": "theirs", "e": "theirs"})

    def test_what_is_no_file_is_kept(self) -> None:
        self.out.mkdir()
        os.mkfifo(self.out / "a.txt")
        for force in (False, True):
            self.assertEqual(self.make(force, a="1").kept, ["a.txt"])

    def test_its_own_files_that_are_no_longer_made_are_removed(self) -> None:
        self.make(a="1", d__e__b="1", d__c="1", edited="1")
        self.write("out/edited.txt", "edited")
        self.write("out/d/theirs.txt", "theirs")
        outcome = self.make(a="1")
        self.assertEqual(sorted(outcome.removed), ["d/c.txt", "d/e/b.txt"])
        self.assertEqual(
            self.found(), {"a.txt": "1", "edited.txt": "edited", "d/theirs.txt": "theirs"}
        )
        self.assertFalse((self.out / "d/e").exists())

    def test_nothing_is_there_when_it_fails(self) -> None:
        with self.assertRaises(ZeroDivisionError), OwnFiles(self.out, RECORD, RUN, False) as files:
            files.write("a.txt", "1")
            raise ZeroDivisionError
        self.assertFalse(self.out.exists())

    def test_after_an_interruption_its_files_are_still_its_own(self) -> None:
        self.make(a="1", b="1")
        moves = []
        real = os.replace

        def interrupted(source: Path, to: Path) -> None:
            moves.append(Path(to).name)
            if Path(to).name == "b.txt":
                raise KeyboardInterrupt
            real(source, to)

        with (
            mock.patch.object(own_files.os, "replace", interrupted),
            self.assertRaises(KeyboardInterrupt),
        ):
            self.make(a="2", b="2")
        self.assertIn("a.txt", moves)
        self.assertEqual(self.found(), {"a.txt": "2", "b.txt": "1"})
        self.assertEqual(self.make(a="3", b="3").written, ["a.txt", "b.txt"])

    def test_file_written_piece_by_piece(self) -> None:
        for state in ("written", "unchanged"):
            with OwnFiles(self.out, RECORD, RUN, False) as files:
                with files.open("a.csv") as file:
                    file.write("1\n")
                    file.write("é\n")
                self.assertEqual(getattr(files.commit(), state), ["a.csv"])
        self.assertEqual(self.found(), {"a.csv": "1\né\n"})

    def test_another_runs_files_are_not_removed(self) -> None:
        self.make(a="1")
        other = {"results": "/runs/b/results.h5", "identity_sha256": "5678"}
        self.assert_refused(
            "/runs/a/results.h5", "--force", call=lambda: self.make(source=other, b="1")
        )
        self.make(force=True, source=other, b="1")
        self.assertEqual(self.found(), {"a.txt": "1", "b.txt": "1"})

    def test_a_run_is_known_by_its_place_or_its_identity(self) -> None:
        self.make(a="1")
        self.make(source={**RUN, "results": "/moved/results.h5"}, a="2")
        self.make(source={"results": "/moved/results.h5", "identity_sha256": ""}, a="3")
        self.assertEqual(self.found(), {"a.txt": "3"})
        nameless = {"results": "/elsewhere/results.h5", "identity_sha256": ""}
        self.assert_refused("another run", call=lambda: self.make(source=nameless, a="4"))

    def test_record_of_another_version(self) -> None:
        self.write(f"out/{RECORD}", json.dumps({"schema": "other/9"}))
        self.assert_refused("other/9", call=lambda: self.make(a="1"))


class Refreshing(TextRun):
    """The same by the command."""

    def test_a_run_that_goes_on(self) -> None:
        self.write_results(self.mixed_rows())
        self.write_files(code=3)
        rows = self.mixed_rows()
        rows[4] = self.answered("later", "Late")
        self.write_results(rows)
        self.assertEqual(self.write_files(code=3)["later.txt"], "Late\n")
        self.assertIn("1 text written, 3 unchanged →", self.last_line)
        self.write_files("--only", "done", code=3)
        self.assertIn("0 texts written, 3 unchanged, 1 removed →", self.last_line)

    def test_texts_of_others_are_kept_and_named(self) -> None:
        self.write_results([self.answered("a"), self.answered("b")])
        self.write("text/a.txt", "mine")
        self.assertEqual(self.write_files(code=3), {"a.txt": "mine", "b.txt": "Answer\n"})
        self.assertIn("text/a.txt: kept", self.message)
        self.assertIn("1 text written, 1 kept →", self.last_line)
        self.assertEqual(self.write_files("--force")["a.txt"], "Answer\n")

    def test_jsonl(self) -> None:
        path = self.folder / "out.jsonl"
        self.write_results([self.answered("a")])
        self.assertEqual(self.write_text("--jsonl", "--output", path), "")
        self.write_results([self.answered("a"), self.answered("b")])
        self.write_text("--jsonl", "--output", path)
        self.assertEqual(len(path.read_text().splitlines()), 2)
        self.assertIn(f"2 lines written → {path}", self.last_line)
        path.write_text("mine")
        self.assert_refused(
            "out.jsonl", "--force", call=lambda: self.write_text("--jsonl", "--output", path)
        )
        self.assertEqual(path.read_text(), "mine")
        self.write_text("--jsonl", "--output", path, "--force")
        self.assertEqual(len(path.read_text().splitlines()), 2)

    def test_output_that_is_a_file(self) -> None:
        self.write_results([self.answered("a")])
        self.write("text", "")
        self.assert_refused("not a folder", call=self.write_files)
