# SPDX-License-Identifier: Apache-2.0
"""The byte-level BPE vocabulary of a GGUF file as tokenizer.json and tokenizer_config.json."""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from ..command import UserError
from .model import GgufModel

CONTROL, USER_DEFINED, BYTE = 3, 4, 6  # tokenizer.ggml.token_type
NAMED = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}


def make_tokenizer(model: GgufModel) -> Tokenizer:
    kind, form = model.need("tokenizer.ggml.model"), model.get("tokenizer.ggml.pre", "default")
    if kind != "gpt2":
        raise model.unsupported(
            f"tokenizer.ggml.model is '{kind}'; only 'gpt2' (byte-level BPE) can be imported"
        )
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    before = {
        "smollm": [pre_tokenizers.Digits(individual_digits=True), byte_level],
        "gpt-2": [byte_level],
    }
    if form not in before:
        raise model.unsupported(
            f"tokenizer.ggml.pre is '{form}'; only {' and '.join(before)} can be imported"
        )
    tokens, types = model.need("tokenizer.ggml.tokens"), model.need("tokenizer.ggml.token_type")
    if BYTE in types:
        raise model.unsupported("the vocabulary has byte tokens")
    merges = [tuple(merge.split(" ", 1)) for merge in model.need("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(
        models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(before[form])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(_added(tokens, types, CONTROL, is_special=True))
    tokenizer.add_tokens(_added(tokens, types, USER_DEFINED, is_special=False))
    if tokenizer.get_vocab_size() != len(tokens):
        raise UserError(
            f"{model.where}: the vocabulary has {len(tokens)} tokens, of which only "
            f"{tokenizer.get_vocab_size()} differ; the file is damaged"
        )
    if model.get("tokenizer.ggml.add_bos_token", False):
        bos = model.need("tokenizer.ggml.bos_token_id")
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{tokens[bos]} $A", special_tokens=[(tokens[bos], bos)]
        )
    return tokenizer


def make_tokenizer_config(model: GgufModel) -> dict[str, Any]:
    tokens, types = model.need("tokenizer.ggml.tokens"), model.need("tokenizer.ggml.token_type")
    ids = {name: model.get(f"tokenizer.ggml.{key}_token_id") for name, key in NAMED.items()}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": model.need("llama.context_length"),
        "clean_up_tokenization_spaces": False,
        "add_prefix_space": False,
        "add_bos_token": bool(model.get("tokenizer.ggml.add_bos_token", False)),
        **{name: tokens[i] for name, i in ids.items() if i is not None},
        "additional_special_tokens": [
            token.content for token in _added(tokens, types, CONTROL, is_special=True)
        ],
        "chat_template": model.get("tokenizer.chat_template"),
    }


def _added(tokens: list[str], types: list[int], wanted: int, is_special: bool) -> list[AddedToken]:
    return [
        AddedToken(token, special=is_special, normalized=False)
        for token, kind in zip(tokens, types)
        if kind == wanted
    ]
