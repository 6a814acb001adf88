# SPDX-License-Identifier: Apache-2.0
import random
import unittest
from typing import Optional

import numpy as np
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers

from pecia_tools.pack.inputs import Document
from pecia_tools.pack.parts import Splitter
from pecia_tools.pack.split import TokenizedText
from pecia_tools.pack.token_offsets import token_offsets
from support import PROSE, make_tokenizer


def without_space(text: str) -> str:
    return "".join(text.split())


def whole_characters() -> Tokenizer:
    """As sentencepiece makes them: a mark before the text and in place of blanks, no cut between words."""
    tokenizer = make_tokenizer()
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("_"), normalizers.Replace(" ", "_")]
    )
    return tokenizer


def trimmed() -> Tokenizer:
    """Blanks belong to no token."""
    tokenizer = make_tokenizer()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


TOKENIZERS = {"bytes": make_tokenizer(), "marks": whole_characters(), "trimmed": trimmed()}


class SplitTest(unittest.TestCase):
    tokenizer = TOKENIZERS["bytes"]

    def size(self, text: str, tokenizer: Optional[Tokenizer] = None) -> int:
        return len((tokenizer or self.tokenizer).encode(text, add_special_tokens=False))

    def split(
        self,
        text: str,
        room: Optional[int],
        split_at: Optional[str] = None,
        overlap: int = 0,
        tokenizer: Optional[Tokenizer] = None,
    ) -> list[Document]:
        splitter = Splitter(tokenizer or self.tokenizer, room, split_at, overlap)
        return list(splitter.split_all([Document("book", text, "book.txt")]))

    def texts(self, *arguments: object) -> list[str]:
        return [part.text for part in self.split(*arguments)]


class Boundaries(SplitTest):
    def test_short_text_stays_whole(self) -> None:
        (part,) = self.split(PROSE, self.size(PROSE))
        self.assertEqual((part.name, part.text), ("book", PROSE.strip()))
        self.assertEqual((part.place.begin, part.place.end), (0, self.size(PROSE)))

    def test_one_token_more_is_two_parts(self) -> None:
        self.assertGreater(len(self.texts(PROSE.strip(), self.size(PROSE.strip()) - 1)), 1)

    def test_prefers_paragraphs(self) -> None:
        first, second, *_ = PROSE.split("\n\n")
        room = max(self.size(first), self.size(second)) + 2
        self.assertEqual(self.texts(PROSE.strip(), room), [first, second])

    def test_takes_as_many_paragraphs_as_fit(self) -> None:
        paragraph = "Every rank holds a part of the text."
        text = "\n\n".join([paragraph] * 5)
        two = f"{paragraph}\n\n{paragraph}"
        self.assertEqual(self.texts(text, self.size(two) + 2), [two, two, paragraph])

    def test_then_sentences(self) -> None:
        text = "One scribe copies it. Another scribe reads it! Who pays them? Nobody."
        for part in self.texts(text, 16):
            self.assertRegex(part, r"[.!?]$")

    def test_a_title_ends_no_sentence(self) -> None:
        words = "He met Mr. Bennet and J. Lucas. Who else? “Nobody.” 好。人"
        (offsets,) = token_offsets(self.tokenizer, [words])
        text = TokenizedText(words, offsets)
        places = [text.character(int(token)) for token in text.sentences]
        self.assertEqual(
            [words[place:].split()[0] for place in places], ["Who", "“Nobody.”", "好。人", "人"]
        )

    def test_before_headings_rather_than_between_paragraphs(self) -> None:
        paragraph = "Every rank holds a part of the text.\n\n"
        text = f"{paragraph * 3}# Rings\n\n{paragraph * 3}".strip()
        parts = self.texts(text, self.size(text) - 8)
        self.assertEqual(
            [part.partition("\n")[0] for part in parts], [paragraph.strip(), "# Rings"]
        )

    def test_before_chapters_rather_than_other_headings(self) -> None:
        paragraph = "Every rank holds a part of the text.\n\n"
        text = f"Chapter 1\n\n{paragraph * 3}Chapter 2\n\n{paragraph}### More\n\n{paragraph * 2}".strip()
        parts = self.texts(text, self.size(text) - 8)
        self.assertEqual([part.partition("\n")[0] for part in parts], ["Chapter 1", "Chapter 2"])

    def test_odd_texts_take_no_time(self) -> None:
        """Seconds, if a pattern were quadratic; the limit is that of the test."""
        for text in ("a" + " " * 200_000 + "b.", "# a" + "#" * 200_000 + "b", "." * 200_000 + "b"):
            tokens = TokenizedText(text, np.array([(0, 1), (len(text) - 1, len(text))]))
            for kind in ("chapters", "paragraphs", "sentences", "lines", "words"):
                self.assertLessEqual(len(getattr(tokens, kind)), 1)

    def test_text_without_tokens_is_not_lost(self) -> None:
        tokenizer = make_tokenizer()
        tokenizer.normalizer = normalizers.Replace("x", "")
        (part,) = self.split("xx", 16, tokenizer=tokenizer)
        self.assertEqual(part.text, "xx")


class SplitAt(SplitTest):
    BOOK = "".join(
        [f"By a scribe.\n\n\nPART {p}\n\nChapter {p}{c}\n\n{PROSE}\n### More\n\n{PROSE}" for p in "12" for c in "ab"]
    ).replace("a\n\n", "1\n\n").replace("b\n\n", "2\n\n")  # fmt: skip

    def test_every_chapter_begins_a_part(self) -> None:
        parts = self.split(self.BOOK.strip(), None, "chapter")
        self.assertEqual(
            [part.text.partition("\n")[0] for part in parts],
            ["By a scribe.", *["PART 1"] * 2, *["PART 2"] * 2],
        )
        self.assertEqual(
            [part.place.title for part in parts],
            ["", "Chapter 11", "Chapter 12", "Chapter 21", "Chapter 22"],
        )
        self.assertEqual([part.place.part for part in parts], [1, 2, 3, 4, 5])
        self.assertEqual({part.place.parts for part in parts}, {5})

    def test_long_chapters_are_cut_further(self) -> None:
        parts = self.split(self.BOOK.strip(), 60, "chapter")
        self.assertGreater(len(parts), 10)
        for chapter in ("Chapter 11", "Chapter 22"):
            self.assertEqual(sum(chapter in part.text for part in parts), 1)
        self.assertEqual(parts[-1].place.title, "More")

    def test_headings_and_paragraphs(self) -> None:
        text = "# A\n\none\n\ntwo\n\n## B\n\nthree"
        self.assertEqual(self.texts(text, None, "heading"), ["# A\n\none\n\ntwo", "## B\n\nthree"])
        self.assertEqual(
            self.texts(text, None, "paragraph"), ["# A", "one", "two", "## B", "three"]
        )

    def test_document_without_any_is_counted(self) -> None:
        splitter = Splitter(self.tokenizer, None, "chapter", 0)
        self.assertEqual(len(list(splitter.split_all([Document("a", PROSE, "a.txt")]))), 1)
        self.assertEqual(splitter.num_uncut, 1)


class Tiling(SplitTest):
    """Whatever the text and the tokenizer."""

    def texts_of_all_kinds(self) -> list[str]:
        chance = random.Random(7)
        letters = "aé\U0001f98b .\n\u00a0中。#I"
        texts = [
            PROSE * 4,
            "x" * 500,
            "\U0001f98b" * 40,
            "word " * 300,
            SplitAt.BOOK,
            "a" + " " * 300 + "b",
        ]
        texts += ["".join(chance.choices(letters, k=400)) for _ in range(20)]
        return [text.strip() for text in texts]

    def test_every_token_is_in_one_part_and_no_character_is_lost(self) -> None:
        for name, tokenizer in TOKENIZERS.items():
            for text in self.texts_of_all_kinds():
                size = self.size(text, tokenizer)
                for room in (16, 17, 64):
                    with self.subTest(tokenizer=name, text=text[:20], room=room):
                        parts = self.split(text, room, tokenizer=tokenizer)
                        spans = [(part.place.begin, part.place.end) for part in parts]
                        self.assertEqual(spans[0][0], 0)
                        self.assertEqual(spans[-1][1], size)
                        for before, after in zip(spans, spans[1:]):
                            self.assertEqual(before[1], after[0])
                        joined = "".join(part.text for part in parts)
                        self.assertEqual(without_space(joined), without_space(text))
                        self.assertLessEqual(max(self.size(p.text, tokenizer) for p in parts), room)
                        self.assertTrue(all(part.text for part in parts))

    def test_overlap_repeats_the_end_of_the_part_before(self) -> None:
        for name, tokenizer in TOKENIZERS.items():
            for text in self.texts_of_all_kinds():
                for split_at in (None, "paragraph"):
                    with self.subTest(tokenizer=name, text=text[:20], split_at=split_at):
                        parts = self.split(text, 64, split_at, 20, tokenizer)
                        for before, after in zip(parts, parts[1:]):
                            self.assertLessEqual(after.place.begin, before.place.end)
                            self.assertGreaterEqual(after.place.begin, before.place.end - 20)
                            self.assertGreater(after.place.end, before.place.end)
                        self.assertLessEqual(max(self.size(p.text, tokenizer) for p in parts), 64)
                        self.assertEqual(parts[-1].place.end, self.size(text, tokenizer))

    def test_overlap_is_whole_sentences(self) -> None:
        text = "One scribe copies it. Another scribe reads it! Who pays them? Nobody. " * 4
        parts = self.split(text.strip(), 60, None, 20)
        self.assertTrue(any(b.place.begin < a.place.end for a, b in zip(parts, parts[1:])))
        for part in parts:
            self.assertRegex(part.text, r"^(One|Another|Who|Nobody)")
