# SPDX-License-Identifier: Apache-2.0
"""Tokens of a text that is encoded in pieces are those of the whole text."""

import unittest

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

from pecia_tools.pack import token_offsets as module
from pecia_tools.pack.token_offsets import LongEncoding, encode_texts, token_offsets
from support import PROSE, make_tokenizer


def metaspace_tokenizer() -> Tokenizer:
    """As Llama 2's: a mark before each word, the first one included, and bytes for what it does not know."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=words, show_progress=False)
    tokenizer.train_from_iterator([PROSE], trainer)
    return tokenizer


class TokenOffsets(unittest.TestCase):
    def whole(self, tokenizer: Tokenizer, text: str) -> list[tuple[int, int]]:
        return tokenizer.encode(text, add_special_tokens=False).offsets

    def test_pieces_give_the_tokens_of_the_whole(self) -> None:
        draw = np.random.default_rng(5)
        letters = [*"abe   \n\n.!é好😀", "scribe ", "rank", "<s>"]
        for tokenizer in (make_tokenizer(), metaspace_tokenizer()):
            for round_ in range(20):
                prose = PROSE * 6 if round_ == 0 else ""
                text = prose + "".join(draw.choice(letters, size=3000))
                piece, overlap = int(draw.integers(300, 900)), int(draw.integers(100, 250))
                found = token_offsets(tokenizer, ["short", text, ""], piece, overlap)
                self.assertEqual(found[1].tolist(), list(map(list, self.whole(tokenizer, text))))
                self.assertEqual([len(f) > 0 for f in found], [True, True, False])

    def test_encodings_in_pieces_are_those_of_whole_texts(self) -> None:
        plain, around, inside = make_tokenizer(), make_tokenizer(), make_tokenizer()
        ids = [("<s>", plain.token_to_id("<s>"))]
        around.post_processor = processors.TemplateProcessing("<s> $A <s> <s>", None, ids)
        inside.post_processor = processors.TemplateProcessing("$A <s> $A", None, ids)
        text = PROSE * 6 + "é好😀 scribe"
        texts = ["short", text, "", text[::-1]]
        for tokenizer, adds, long in (
            *((plain, False, True), (plain, True, True)),
            *((around, True, True), (around, False, True), (inside, True, False)),
        ):
            found = encode_texts(tokenizer, texts, adds, 700, 200)
            wanted = tokenizer.encode_batch(texts, add_special_tokens=adds)
            self.assertEqual([isinstance(f, LongEncoding) for f in found], [False, long] * 2)
            for one, whole in zip(found, wanted):
                self.assertEqual(one.ids, whole.ids)
                self.assertEqual([tuple(o) for o in one.offsets], whole.offsets)

    def test_pieces_are_what_is_encoded(self) -> None:
        """Else the test before would compare the whole with the whole."""
        lengths: list[int] = []

        class Spy:
            tokenizer = make_tokenizer()

            def encode_batch(self, texts: list[str], add_special_tokens: bool) -> object:
                lengths.extend(map(len, texts))
                return self.tokenizer.encode_batch(texts, add_special_tokens=add_special_tokens)

        text = PROSE * 30
        token_offsets(Spy(), [text], 900, 200)  # type: ignore[arg-type]
        self.assertLessEqual(max(lengths), 900)
        self.assertGreater(len(lengths), module.AT_ONCE)

    def test_word_longer_than_the_overlap(self) -> None:
        tokenizer = Tokenizer(models.WordLevel({"<unk>": 0}, "<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        text = "a b " + "c" * 1000 + " d e"
        (found,) = token_offsets(tokenizer, [text], 300, 100)
        self.assertEqual(found.tolist(), list(map(list, self.whole(tokenizer, text))))
