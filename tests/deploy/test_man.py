# SPDX-License-Identifier: Apache-2.0
"""Man page and completions say what the command's help says, and the shell completes by them."""

from __future__ import annotations

import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from harness import PROGRAM, SOURCE
from pecia_tools.dev.command_help import Entry, parse_help

SHARE = SOURCE / "apps/pecia/share"
COMPLETE = r"""
source "$1"; shift
compopt() { options+=" $2"; }
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) options=
_pecia
printf '%s\n' "$options" "${COMPREPLY[@]}"
"""


def help_of(*command: str) -> str:
    """Without the examples, which have options of other programs too."""
    return subprocess.run(
        [PROGRAM, *command, "--help"], capture_output=True, text=True, timeout=60, check=True
    ).stdout.split("Examples:")[0]


class MadeFiles(unittest.TestCase):
    def test_are_those_that_the_command_s_help_gives_today(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(
                [SOURCE / "scripts/make-man", "--program", PROGRAM, "--output", folder],
                check=True,
                capture_output=True,
                timeout=120,
            )
            for name in ("pecia.1", "pecia.bash", "_pecia", "pecia-tools.bash", "_pecia_tools"):
                made, kept = Path(folder, name).read_text(), (SHARE / name).read_text()
                self.assertEqual(made, kept, f"{SHARE / name} is stale: run scripts/make-man")

    def test_have_every_option_of_every_command(self) -> None:
        """By a search for words, without the parser that made them."""
        commands = re.findall(r"^  (\w+) ", help_of().split("ubcommands:")[1], re.MULTILINE)
        self.assertIn("run", commands)
        page = (SHARE / "pecia.1").read_text().replace("\\-", "-")
        for command in commands:
            section = re.search(rf"\.SS \\fBpecia {command}\\fR.*?(?=\n\.S)", page, re.DOTALL)
            self.assertIsNotNone(section, command)
            for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", help_of(command)):
                for name in ("pecia.bash", "_pecia"):
                    self.assertIn(option, (SHARE / name).read_text(), command)
                if option != "--help":
                    self.assertIn(f"\\fB{option}\\fR", section[0], command)

    def test_page_has_known_requests_only(self) -> None:
        known = {"TH", "SH", "SS", "TP", "PP", "br", "nf", "fi", "BR"}
        for line in (SHARE / "pecia.1").read_text().splitlines():
            if line.startswith((".", "'")):
                self.assertIn(re.match(r"\.(\w*)", line)[1], known, line)
            self.assertTrue(line.isascii(), line)


class Version(unittest.TestCase):
    def test_is_the_same_wherever_it_is_written(self) -> None:
        said = subprocess.run(
            [PROGRAM, "--version"], capture_output=True, text=True, timeout=60, check=True
        ).stdout
        version = re.search(r"\d+\.\d+\.\d+", said)[0]
        newest = re.search(r"^## \[(.*?)\] - (.*)$", (SOURCE / "CHANGELOG.md").read_text(), re.M)
        citation = (SOURCE / "CITATION.cff").read_text()
        self.assertEqual(newest[1], version)
        self.assertEqual(re.search(r"^version: (.*)$", citation, re.M)[1], version)
        self.assertEqual(re.search(r"^date-released: (.*)$", citation, re.M)[1], newest[2])


class Parser(unittest.TestCase):
    def test_reads_old_and_new_layouts_of_cli11(self) -> None:
        old = (
            "Does a thing.\nUsage: pecia do [OPTIONS] path\n\nPositionals:\n"
            "  path PATH REQUIRED          The file\n\nOptions:\n"
            "  -h,--help                   Print this help message and exit\n"
            "  --ranks INT:INT in [1 - 9]\n                              How many\n"
            "  --set KEY=VALUE ...         Replaces a value\n"
            "\nExamples:\n  pecia do it --ranks 3   # thrice\n  pecia do Options:\n"
        )
        new = (
            "Does a thing. \n\n\npecia do [OPTIONS] path\n\n\nPOSITIONALS:\n"
            "  path PATH REQUIRED          The file \n\nOPTIONS:\n"
            "  -h,     --help              Print this help message and exit \n"
            "          --ranks INT:INT in [1 - 9] \n                              How many \n"
            "          --set KEY=VALUE ...  Replaces a value \n"
            "\nExamples:\n  pecia do it --ranks 3   # thrice\n  pecia do Options:\n"
        )
        for layout in (old, new):
            found = parse_help(layout)
            self.assertEqual(found.positionals, [Entry(["path"], "PATH", "The file")])
            self.assertEqual(
                found.examples, ["pecia do it --ranks 3   # thrice", "pecia do Options:"]
            )
            self.assertEqual(
                found.options,
                [
                    Entry(["-h", "--help"], "", "Print this help message and exit"),
                    Entry(["--ranks"], "INT", "How many"),
                    Entry(["--set"], "KEY=VALUE", "Replaces a value"),
                ],
            )

    def test_what_excludes_an_option_is_no_value_and_brackets_belong_to_one(self) -> None:
        found = parse_help(
            "Plans.\nUsage: pecia plan [OPTIONS]\n\nOptions:\n"
            "  --modes Excludes: --model   The table\n"
            "  --gpu NAME Excludes: --cluster\n                              One of\n"
            "  --request PROMPT[+CACHED][:NEW][xCOUNT] ... Excludes: --requests\n"
            "                              Foresees\n"
        )
        self.assertEqual(
            found.options,
            [
                Entry(["--modes"], "", "The table"),
                Entry(["--gpu"], "NAME", "One of"),
                Entry(["--request"], "PROMPT[+CACHED][:NEW][xCOUNT]", "Foresees"),
            ],
        )


class BashCompletion(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def complete(self, *words: str) -> tuple[set[str], set[str]]:
        """(completions, options of the completion) of `pecia WORDS…`, of which the last is being typed."""
        ended = subprocess.run(
            ["bash", "-uc", COMPLETE, "bash", SHARE / "pecia.bash", "pecia", *words],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        options, *found = ended.stdout.splitlines()
        return {word for word in found if word}, set(options.split())

    def test_commands(self) -> None:
        self.assertLessEqual(
            {"run", "tune", "plan", "inspect", "topology", "doctor", "--version"},
            self.complete("")[0],
        )
        self.assertEqual(self.complete("to")[0], {"topology"})
        self.assertEqual(self.complete("--ver")[0], {"--version"})

    def test_options(self) -> None:
        self.assertEqual(self.complete("run", "--fr")[0], {"--fresh"})
        self.assertEqual(self.complete("run", "job.yaml", "--va")[0], {"--validate"})
        self.assertEqual(self.complete("doctor", "--fr")[0], set())

    def test_job_keys(self) -> None:
        found, options = self.complete("run", "--set", "generation.max")
        self.assertEqual((found, options), ({"generation.max_new_tokens="}, {"nospace"}))
        self.assertEqual(self.complete("plan", "--set", "repro")[0], {"reproducible="})

    def test_files(self) -> None:
        (self.folder / "runs").mkdir()
        for name in ("a.yaml", "b c.json", "d.h5", "e.txt"):
            (self.folder / name).touch()
        self.assertEqual(self.complete("run", ""), ({"a.yaml", "b c.json", "runs"}, {"filenames"}))
        self.assertEqual(self.complete("inspect", "")[0], {"d.h5", "runs"})
        self.assertEqual(self.complete("doctor", "--output", "")[0], {"runs"})
        self.assertEqual(self.complete("topology", "--dp", "")[0], set())


class ToolCompletion(unittest.TestCase):
    TOOLS = ("import-gguf", "pack", "report", "setup", "summarize", "text")

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def complete(self, tool: str, *words: str) -> set[str]:
        """Of `pecia-TOOL WORDS…`, of which the last is being typed."""
        script = COMPLETE.replace("\n_pecia\n", f"\n_pecia_{tool.replace('-', '_')}\n")
        ended = subprocess.run(
            ["bash", "-uc", script, "bash", SHARE / "pecia-tools.bash", f"pecia-{tool}", *words],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        return {word for word in ended.stdout.splitlines()[1:] if word}

    def test_every_tool_is_completed_with_every_option(self) -> None:
        bash, zsh = ((SHARE / name).read_text() for name in ("pecia-tools.bash", "_pecia_tools"))
        for tool in self.TOOLS:
            self.assertRegex(bash, rf"(?m)^complete .* pecia-{tool}$")
            self.assertRegex(zsh.splitlines()[0], rf"^#compdef .*\bpecia-{tool}\b")
            if tool == "setup":
                continue
            said = subprocess.run(
                [SOURCE / f"scripts/pecia-{tool}", "--help"], capture_output=True, text=True, check=True
            ).stdout.split("\nexample")[0]
            options = set(re.findall(r"(?m)^  (?:-\w(?: \w+)?, )?(--[a-z-]+)", said))
            self.assertLessEqual({"--help", "--version"}, options)
            self.assertLessEqual(options, self.complete(tool, "--"))
            for option in options:
                self.assertIn(f"{option}[", zsh)

    def test_choices_and_files(self) -> None:
        (self.folder / "runs").mkdir()
        (self.folder / "book.epub").touch()
        self.assertEqual(self.complete("pack", "--split-at", "h"), {"heading"})
        self.assertEqual(self.complete("pack", "--model", ""), {"runs"})
        self.assertEqual(self.complete("pack", ""), {"runs", "book.epub"})
        self.assertEqual(self.complete("pack", "--limit", ""), set())
        self.assertEqual(self.complete("text", "--cs"), {"--csv"})


if __name__ == "__main__":
    unittest.main()
