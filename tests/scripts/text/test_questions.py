# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Optional

from pecia_tools.model_folder import ModelFolder
from pecia_tools.pack import main as pack
from pecia_tools.runs.prompt_shard import PromptShard
from pecia_tools.runs.questions import Questions
from support import CHATML, ScriptTest, make_model, quietly

# As Llama 2's, Llama 3's and Gemma's, with the tokens that the small tokenizer has.
INST = (
    "{%- for m in messages %}{%- if m['role'] == 'user' %}{{ '<s>[INST] ' + m['content'] + ' [/INST]' }}"
    "{%- else %}{{ ' ' + m['content'] + '<|im_end|>' }}{%- endif %}{%- endfor %}"
)
HEADERS = (
    "{{ '<s>' }}{%- for m in messages %}{{ '<|im_start|>' + m['role'] + '<unk>\n\n' + m['content'] | trim"
    " + '<|im_end|>' }}{%- endfor %}{{ '<|im_start|>assistant<unk>\n\n' }}"
)
SYSTEM_BY_DEFAULT = "{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}" + CHATML
ONE_TURN_ONLY = "{{ 'USER: ' + messages[-1]['content'] + '\nASSISTANT:' }}"


class PackedQuestions(ScriptTest):
    """What pecia-pack puts into a template comes out again."""

    def questions(self, template: Optional[str], *arguments: object) -> list[str]:
        model = make_model(self.folder / "tiny", template)
        path = self.folder / "p.h5"
        quietly(pack.main, "--model", model, "--output", path, "--force", *arguments)
        shard, questions = PromptShard(path), Questions(ModelFolder(model))
        turns = range(2 if not shard.is_fork else 3)
        return [questions.text(shard.tokens(0, turn)) for turn in turns]

    def document(self, text: str) -> Path:
        return self.write("book.txt", text)

    def test_of_a_fork(self) -> None:
        document = self.document("The ring passes keys.")
        for template in (CHATML, INST, HEADERS, SYSTEM_BY_DEFAULT, ONE_TURN_ONLY):
            found = self.questions(
                template, document, "--question", "What is it?", "--question", "Who?\nWhen?"
            )
            self.assertEqual(found[1:], ["What is it?", "Who?\nWhen?"], template)

    def test_of_a_chain(self) -> None:
        line = {"id": "c", "turns": ["Hello there.", "And <then>?"]}
        for template in (CHATML, INST, HEADERS, SYSTEM_BY_DEFAULT):
            found = self.questions(template, self.write_lines("c.jsonl", line))
            self.assertEqual(found, ["Hello there.", "And <then>?"], template)
        with_system = self.write_lines("c.jsonl", {**line, "system": "Be brief."})
        self.assertEqual(self.questions(CHATML, with_system), ["Hello there.", "And <then>?"])

    def test_without_a_template(self) -> None:
        document = self.document("The ring passes keys.")
        questions = ("--question", "What is it?", "--question", "Who?")
        for template in (None, CHATML):
            found = self.questions(template, document, "--no-chat", *questions)
            self.assertEqual(found, ["The ring passes keys.", "What is it?", "Who?"])

    def test_question_below_a_long_text_in_one_message(self) -> None:
        line = {"id": "c", "turns": ["Begin. " + "The ring passes. " * 500 + "Why?", "More?"]}
        first, second = self.questions(CHATML, self.write_lines("c.jsonl", line))
        self.assertTrue(first.startswith("Begin. The ring"), first)
        self.assertTrue(first.endswith("passes. Why?"), first)
        self.assertLess(len(first), 3000)
        self.assertEqual(second, "More?")

    def test_question_after_a_long_history(self) -> None:
        line = {"id": "c", "system": "Obey. " * 600, "turns": ["Why?", "More?"]}
        found = self.questions(CHATML, self.write_lines("c.jsonl", line))
        self.assertEqual(found, ["Why?", "More?"])
