# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

from pecia_tools.command import note, printable, temporary_file, temporary_folder
from pecia_tools.quickstart_report import speed_line
from support import ScriptTest, quietly


class FilesAppearWholeOrNotAtAll(ScriptTest):
    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def test_file_is_there_after_the_block_and_nothing_beside_it(self) -> None:
        with temporary_file(self.folder / "a.txt") as temporary:
            temporary.write_text("whole")
            self.assertFalse((self.folder / "a.txt").exists())
        self.assertEqual(self.names(), ["a.txt"])

    def test_failure_leaves_the_old_file(self) -> None:
        self.write("a.txt", "old")
        with (
            self.assertRaises(ZeroDivisionError),
            temporary_file(self.folder / "a.txt") as temporary,
        ):
            temporary.write_text("half")
            raise ZeroDivisionError
        self.assertEqual((self.folder / "a.txt").read_text(), "old")
        self.assertEqual(self.names(), ["a.txt"])

    def test_folder_replaces_the_old_one(self) -> None:
        self.write("model/stale.json", "{}")
        with temporary_folder(self.folder / "model") as temporary:
            Path(temporary, "config.json").write_text("{}")
        self.assertEqual([p.name for p in (self.folder / "model").iterdir()], ["config.json"])


class Terminal(ScriptTest):
    def test_obeys_no_text(self) -> None:
        self.assertEqual(
            printable("é\x1b[2J\r\n\t\x07\x9b\u202e\ud800"),
            "é\\x1b[2J\\r\n\t\\x07\\x9b\\u202e\\ud800",
        )

    def test_notes_are_printable(self) -> None:
        _, _, said = quietly(lambda arguments: note("program", arguments[0]) or 0, "\x1b[2J")
        self.assertEqual(said, "program: \\x1b[2J\n")


class QuickstartReport(ScriptTest):
    def test_phases_without_tokens_have_no_speed(self) -> None:
        report = {
            "counts": {"done": 3, "failed": 1},
            "seconds": 12.4,
            "phases": {"prefill": {"tokens_per_s": 1234.5}, "decode": {"tokens_per_s": None}},
        }
        self.assertEqual(speed_line(report), "3 done, 1 failed in 12 s · prefill 1234 tokens/s")
