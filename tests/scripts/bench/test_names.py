# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import re
from pathlib import Path

from pecia_tools.bench.__main__ import NAMES, main
from pecia_tools.bench.common import Work
from pecia_tools.command import Failure
from support import ScriptTest

FOLDER = Path(__file__).resolve().parents[3] / "scripts/pecia_tools/bench"


class Names(ScriptTest):
    def test_each_explains_itself_with_an_example(self) -> None:
        for name in NAMES:
            with self.subTest(name), contextlib.redirect_stdout(io.StringIO()) as out:
                self.assertRaisesRegex(SystemExit, "0", main, [name, "--help"])
                self.assertRegex(out.getvalue(), rf"(?s)usage: bench {name} .*example: scripts/bench {name}")
                self.assertIn("--json", out.getvalue())

    def test_modules_that_measure_have_one(self) -> None:
        called = re.compile(r"(bench|model)_parser\(\"")
        measuring = {path.stem for path in FOLDER.glob("*.py") if called.search(path.read_text("utf-8"))}
        self.assertEqual(measuring - {"peers_options"} | {"peers"}, set(NAMES))

    def test_an_unknown_one_is_refused(self) -> None:
        self.assert_refused("'mods'", "'modes'", call=lambda: main(["mods"]))
        self.assert_refused("'x'", "modes, needle, peers", call=lambda: main(["x"]))


class Works(ScriptTest):
    def setUp(self) -> None:
        super().setUp()
        self.play("pecia_tools.bench.common", ROOT=self.folder)

    def test_lines_are_kept_and_appended(self) -> None:
        for number in (1, 2):
            work = Work("x")
            work.keep([{"a": 1}], round=number)
            self.assertEqual(work.lines, [{"a": 1}])
        lines = (self.folder / "runs/bench-x.jsonl").read_text()
        self.assertEqual(lines, '{"round": 1, "a": 1}\n{"round": 2, "a": 1}\n')

    def test_what_fails_shows_its_last_words(self) -> None:
        work = Work("x")
        self.assertEqual(work.logged("sh", "-c", "echo $WORD; exit 3", codes=(0, 3), env={"WORD": "w"}), 3)
        with self.assertRaisesRegex(Failure, "w\n\nthis failed: sh -c exit 3"):
            work.logged("sh", "-c", "exit 3")
