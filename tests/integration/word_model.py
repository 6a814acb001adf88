# SPDX-License-Identifier: Apache-2.0
"""The tiny model with a tokenizer of whole words, for tests that begin with documents."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers

from harness import MODEL, VOCAB

POSITIONS = 8192
TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"


def make_word_model(folder: Path) -> Path:
    """Words are word3, word4, …; all others are one unknown word."""
    shutil.copytree(MODEL, folder, ignore=shutil.ignore_patterns("golden.json"))
    config = json.loads((folder / "config.json").read_text())
    config["max_position_embeddings"] = POSITIONS
    (folder / "config.json").write_text(json.dumps(config))
    words = ["<unk>", "<s>", "</s>", *(f"word{number}" for number in range(3, VOCAB))]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(words[:3])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return folder


def some_words(count: int, first: int = 3) -> str:
    return " ".join(f"word{3 + (first + number) % (VOCAB - 3)}" for number in range(count))
