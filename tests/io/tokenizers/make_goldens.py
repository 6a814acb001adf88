# SPDX-License-Identifier: Apache-2.0
"""Tiny tokenizers of three kinds, and what the library `tokenizers` decodes random tokens to.

python tests/io/tokenizers/make_goldens.py writes byte_level.json, byte_fallback.json, metaspace.json and
cases.json beside this script; test_detokenizer.cpp reads them.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

FOLDER = Path(__file__).parent
TEXTS = ["the naïve café — 𝄞 日本", "  two  blanks\n\n", "\t\x00 �", "aab<|tool a|>aaab"]
MERGES = [("t", "h"), ("th", "e"), ("a", "a"), ("aa", "b"), ("c", "a")]


def with_added(tokenizer: Tokenizer, decoder: decoders.Decoder) -> Tokenizer:
    tokenizer.decoder = decoder
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.add_tokens([AddedToken("<|tool a|>", special=False)])
    return tokenizer


def vocab_of(tokens: list[str]) -> dict[str, int]:
    return {token: index for index, token in enumerate(tokens)}


def byte_level() -> Tokenizer:
    merges = [*MERGES, ("Ġ", "the"), ("ĠĠ", "Ġ"), ("Ã", "©")]
    merges.insert(0, ("Ġ", "Ġ"))
    tokens = sorted(pre_tokenizers.ByteLevel.alphabet()) + ["".join(pair) for pair in merges]
    tokenizer = Tokenizer(models.BPE(vocab_of(tokens), merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return with_added(tokenizer, decoders.ByteLevel())


def sentencepiece_like(decoder: decoders.Decoder) -> Tokenizer:
    merges = [*MERGES, ("▁", "the"), ("▁", "▁")]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"theabcnf"]
    tokens += ["".join(pair) for pair in merges]
    tokenizer = Tokenizer(
        models.BPE(vocab_of(tokens), merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    return with_added(tokenizer, decoder)


def byte_fallback() -> Tokenizer:
    """As of Llama-2."""
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    return sentencepiece_like(decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)]))


def metaspace() -> Tokenizer:
    steps = [decoders.Metaspace(prepend_scheme="always"), decoders.ByteFallback()]
    return sentencepiece_like(decoders.Sequence(steps))


def draws(tokenizer: Tokenizer, draw: random.Random) -> list[int]:
    """Parts of texts, cut anywhere, with special, unknown and wholly random tokens between them."""
    size = tokenizer.get_vocab_size()
    ids: list[int] = []
    for _ in range(draw.randint(1, 4)):
        part = tokenizer.encode(draw.choice(TEXTS)).ids
        begin = draw.randrange(len(part))
        ids += part[begin : begin + draw.randint(1, 6)]
        kind = draw.randrange(4)
        if kind == 0:
            ids.append(tokenizer.token_to_id(draw.choice(["<s>", "</s>", "<|tool a|>"])))
        elif kind == 1:
            ids += [draw.randrange(size + 3) for _ in range(3)]
    return ids


def main() -> None:
    draw = random.Random(11)
    cases = []
    for make in (byte_level, byte_fallback, metaspace):
        tokenizer = make()
        (FOLDER / f"{make.__name__}.json").write_text(tokenizer.to_str() + "\n", encoding="utf-8")
        end = tokenizer.token_to_id("the")  # after it no character is unfinished
        for _ in range(80):
            ids = [*draws(tokenizer, draw), end]
            cases.append(
                {
                    "tokenizer": make.__name__,
                    "ids": ids,
                    "text": tokenizer.decode(ids, skip_special_tokens=True),
                }
            )
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    (FOLDER / "cases.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
