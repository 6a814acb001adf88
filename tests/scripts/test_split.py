import random
import unittest

from pecia_tools.split import split
from support import PROSE, make_tokenizer


def without_space(text: str) -> str:
    return "".join(text.split())


class Split(unittest.TestCase):
    tokenizer = make_tokenizer()

    def size(self, text: str) -> int:
        return len(self.tokenizer.encode(text, add_special_tokens=False))

    def test_short_text_stays_whole(self) -> None:
        self.assertEqual(split(self.tokenizer, PROSE, self.size(PROSE)), [PROSE])

    def test_one_token_more_is_two_parts(self) -> None:
        self.assertGreater(len(split(self.tokenizer, PROSE, self.size(PROSE) - 1)), 1)

    def test_prefers_paragraphs(self) -> None:
        first, second, *_ = PROSE.split("\n\n")
        room = max(self.size(first), self.size(second)) + 2
        self.assertEqual(split(self.tokenizer, PROSE.strip(), room), [first, second])

    def test_takes_as_many_paragraphs_as_fit(self) -> None:
        paragraph = "Every rank holds a part of the text."
        text = "\n\n".join([paragraph] * 5)
        two = f"{paragraph}\n\n{paragraph}"
        self.assertEqual(split(self.tokenizer, text, self.size(two) + 2), [two, two, paragraph])

    def test_then_sentences(self) -> None:
        text = "One scribe copies it. Another scribe reads it! Who pays them? Nobody."
        for part in split(self.tokenizer, text, 16):
            self.assertRegex(part, r"[.!?]$")

    def test_parts_fit_and_nothing_is_lost(self) -> None:
        random_text = random.Random(7)
        letters = "aé\U0001f98b .\n\u00a0中。"
        texts = [PROSE * 4, "x" * 500, "\U0001f98b" * 40, "word " * 300]
        texts += ["".join(random_text.choices(letters, k=400)).strip() for _ in range(20)]
        for text in texts:
            for room in (16, 17, 64):
                parts = split(self.tokenizer, text, room)
                self.assertEqual(without_space("".join(parts)), without_space(text))
                self.assertLessEqual(max(map(self.size, parts)), room)
                self.assertTrue(all(parts))
