# SPDX-License-Identifier: Apache-2.0
"""What `bench drafts` measures: its requests, what it calls a copy, and its tables. Programs are played."""

import json
from typing import Any

from pecia_tools.bench.drafts import parse, peer_rows, rows
from pecia_tools.bench.drafts_tasks import COPIED, TASKS, copied_tokens, passages, requests
from support import ScriptTest


class Tasks(ScriptTest):
    text = "\n\n".join(f"Paragraph {i} " + "has a few words. " * 10 for i in range(40))

    def test_passages_are_evenly_out_of_the_text(self) -> None:
        found = passages(self.text, 4, 90)
        self.assertEqual([len(passage.split()) for passage in found], [90] * 4)
        self.assertEqual([passage.split()[1] for passage in found], ["0", "10", "20", "30"])
        self.assert_refused("fewer than 90 words", call=lambda: passages("a b c", 1, 90))

    def test_each_task_asks_about_its_passage(self) -> None:
        for task in TASKS:
            with self.subTest(task):
                bodies = requests(task, self.text, 3)
                self.assertEqual(len({json.dumps(body) for body in bodies}), 3)
                for body in bodies:
                    self.assertIn("has a few words.", body["messages"][0]["content"])
        self.assertIn("response_format", requests("extraction", self.text, 1)[0])

    def test_copies_are_runs_of_tokens(self) -> None:
        prompt = list(range(100))
        self.assertEqual(copied_tokens(prompt, prompt[20:50]), 30)
        self.assertEqual(copied_tokens(prompt, prompt[20 : 20 + COPIED - 1]), 0)
        self.assertEqual(copied_tokens(prompt, [500, *prompt[20:30], 501, *prompt[70:79], 502]), 19)
        self.assertEqual(copied_tokens(prompt, list(range(500, 520))), 0)
        self.assertEqual(copied_tokens([], [*range(10), *range(10)]), 10)  # of itself


class Tables(ScriptTest):
    def line(self, drafts: str, decode_s: float, answers: list[list[int]], a_pass: float = 1.0) -> dict[str, Any]:
        line = {"task": "copy", "batch": 1, "drafts": drafts, "answers": answers, "requests": len(answers)}
        line |= {"tokens": sum(map(len, answers)), "copied": 0.5, "tokens_a_pass": a_pass}
        return {**line, "decode_s": decode_s, "seconds": 2 * decode_s}

    def test_each_round_is_beside_its_own_off(self) -> None:
        answers = [[1, 2, 3], [4, 5]]
        lines = [
            *(self.line("off", 4.0, answers), self.line("8", 2.0, [[1, 2, 3], [4, 6]], 1.5)),
            *(self.line("off", 9.0, answers), self.line("8", 3.0, answers, 1.5)),
            *(self.line("off", 5.0, answers), self.line("8", 1.0, answers, 1.5)),
        ]
        off, drafted = rows(lines)
        self.assertEqual(off, ["copy", "1", "off", "50%", "1.00", "1.0", "1.00", "1.00", "2 of 2"])
        self.assertEqual(drafted, ["copy", "1", "8", "50%", "1.50", "2.5", "3.00", "3.00", "1 of 2"])

    def test_others_are_beside_themselves_without_drafts(self) -> None:
        def line(draft: int, seconds: float, passes: int) -> dict[str, Any]:
            line = {"peer": "p", "task": "copy", "draft": draft, "tokens_after_first": 60}
            return {**line, "seconds": seconds, "passes": passes}

        none, ten = peer_rows([line(0, 6.0, 60), line(10, 2.0, 15)])
        self.assertEqual(none, ["p", "copy", "none", "1.00", "10.0", "1.00"])
        self.assertEqual(ten, ["p", "copy", "10", "4.00", "30.0", "3.00"])

    def test_what_cannot_be_is_refused(self) -> None:
        self.assert_refused("--tasks: 'sing'", call=lambda: parse(["local", "--tasks", "sing"]))
        self.assert_refused("off is to be the first", call=lambda: parse(["local", "--drafts", "8,off"]))
        self.assert_refused("no such file", call=lambda: parse(["local", "--text", str(self.folder / "none")]))
