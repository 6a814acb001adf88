# SPDX-License-Identifier: Apache-2.0
import errno
import os
import subprocess
import sys
from pathlib import Path

from pecia_tools import VERSION
from pecia_tools.command import Failure, note, printable, temporary_file, temporary_folder
from pecia_tools.dev.quickstart_report import speed_line
from pecia_tools.text.own_files import OwnFiles
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


class NoSpaceIsLeft(ScriptTest):
    """One line that names the file and what to do, from every command."""

    def write_with(self, body: str, stdout: str = "/dev/null") -> "subprocess.CompletedProcess[str]":
        program = f"from pecia_tools.command import run\ndef main(_):\n    {body}\n    return 0\nrun('tool', main)\n"
        with open(stdout, "w", encoding="utf-8") as out:
            return subprocess.run(
                [sys.executable, "-c", program], stdout=out, stderr=subprocess.PIPE, text=True, check=False
            )

    def test_of_files(self) -> None:
        path = self.folder / "a.h5"
        for number, said in ((errno.ENOSPC, "the disk is full"), (errno.EDQUOT, "the quota is used up")):
            for make in (temporary_file, temporary_folder):
                with self.assertRaises(Failure) as caught, make(path):
                    raise OSError(number, "Can't write data (HDF5's words\n in two lines)")
                self.assertRegex(str(caught.exception), f"^{path}: {said}. Free some space, .*again$")
        texts = OwnFiles(self.folder / "texts", ".r", {}, False)
        with self.assertRaises(Failure) as caught, texts, texts.open("b.txt"):
            raise OSError(errno.ENOSPC, "No space left on device")
        self.assertIn("texts/b.txt: the disk is full", str(caught.exception))

    def test_of_stdout_also_where_only_the_end_flushes(self) -> None:
        for body in ("print('x')", "print('x' * 1000000)"):
            ended = self.write_with(body, "/dev/full")
            self.assertEqual(ended.returncode, 1)
            self.assertRegex(ended.stderr, r"\Atool: the output: the disk is full\. Free some space.*\n\Z")

    def test_of_other_files(self) -> None:
        ended = self.write_with("raise OSError(28, 'No space left on device', 'x.png')")
        self.assertEqual(ended.returncode, 1)
        self.assertRegex(ended.stderr, r"\Atool: x\.png: the disk is full.*\n\Z")

    def test_other_errors_of_the_system_are_one_line_too(self) -> None:
        ended = self.write_with("raise OSError(5, 'Input/output error\\n of a disk')")
        self.assertEqual((ended.returncode, ended.stderr), (1, "tool: the output: Input/output error of a disk\n"))

    def test_a_reader_that_has_had_enough_hears_nothing(self) -> None:
        reading, writing = os.pipe()
        os.close(reading)
        program = "from pecia_tools.command import run\nrun('tool', lambda _: print('x') or 0)\n"
        ended = subprocess.run(
            [sys.executable, "-c", program], stdout=writing, stderr=subprocess.PIPE, text=True, check=False
        )
        os.close(writing)
        self.assertEqual(ended.stderr, "")


class EveryTool(ScriptTest):
    scripts = Path(__file__).resolve().parents[3] / "scripts"

    def test_goes_through_run(self) -> None:
        """What knows full disks and closed pipes."""
        for launcher in self.scripts.iterdir():
            words = launcher.read_text("utf-8").split() if launcher.is_file() else []
            for before, module in zip(words, words[1:]):
                if before.endswith('/launch.sh"') and module != "gguf.demo_model":
                    path = self.scripts / "pecia_tools" / module.replace(".", "/")
                    file = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
                    text = file.read_text("utf-8")
                    self.assertRegex(text, r"\n    run\(PROGRAM, main\)\n(\n\nif .*\n    script\(\)\n)?\Z", module)

    def test_says_the_project_s_version(self) -> None:
        for tool in sorted(self.scripts.glob("pecia-*")):
            ended = subprocess.run(
                [tool, "--version"],
                env={**os.environ, "PECIA_PYTHON": sys.executable},
                capture_output=True,
                text=True,
                check=False,
            )
            self.assertEqual((ended.returncode, ended.stdout), (0, f"{tool.name} {VERSION}\n"), ended.stderr)
        project = (self.scripts.parent / "CMakeLists.txt").read_text("utf-8")
        self.assertIn(f"project(pecia VERSION {VERSION} ", project)
