# SPDX-License-Identifier: Apache-2.0
"""Small models and results files, made on the spot."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import unittest
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Optional
from unittest import mock

import h5py
import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from pecia_tools.command import UserError

SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
BOS, IM_START, IM_END = 1, 3, 4
PROSE = (
    "The ring passes keys and values. Every rank holds a part of the text, and no rank holds it all.\n\n"
    "What does a scribe copy? A pecia: one piece of a book, lent out so that many may copy at once. "
    "He brings it back on Friday. Then the next scribe takes it!\n\n"
)
CHATML = (
    "{%- for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}"
)


class ScriptTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def write_lines(self, name: str, *lines: dict[str, Any]) -> Path:
        return self.write(name, "".join(json.dumps(line) + "\n" for line in lines))

    def play(self, target: str, **doubles: Any) -> None:
        """Has these in place of what a module or class has of these names, until the test's end."""
        patch = mock.patch.multiple(target, **doubles)
        patch.start()
        self.addCleanup(patch.stop)

    def assert_refused(self, *parts: str, call: Callable[[], Any]) -> None:
        """A UserError whose message has all the parts."""
        with self.assertRaises(UserError) as caught:
            call()
        for part in parts:
            self.assertIn(part, str(caught.exception))


def make_tokenizer() -> Tokenizer:
    """Byte-level BPE with a BOS token, as Llama 3's, but small."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=SPECIAL,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator([PROSE * 3], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        "<s> $A", special_tokens=[("<s>", BOS)]
    )
    return tokenizer


def make_model(folder: Path, chat_template: Optional[str] = CHATML, eos: int = IM_END) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"model_type": "llama", "vocab_size": tokenizer.get_vocab_size(), "eos_token_id": 2}
    tokenizer_config = {"bos_token": "<s>", "eos_token": {"content": "<|im_end|>"}}
    if chat_template is not None:
        tokenizer_config["chat_template"] = chat_template
    for name, content in (
        ("config.json", config),
        ("generation_config.json", {"eos_token_id": [eos]}),
        ("tokenizer_config.json", tokenizer_config),
    ):
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder


def quietly(main: Callable[[list[str]], int], *arguments: object) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of a command's main."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return code, out.getvalue(), err.getvalue()


def printed(function: Callable[..., Any], *arguments: Any) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        function(*arguments)
    return out.getvalue()


def read_turns(path: Path) -> dict[str, list[list[int]]]:
    """Token lists of each request's turns, by id."""
    with h5py.File(path) as file:
        tokens, turns, requests = (
            file[n][:] for n in ("tokens", "turn_offsets", "request_offsets")
        )
        return {
            name.decode(): [tokens[turns[t] : turns[t + 1]].tolist() for t in range(first, last)]
            for name, first, last in zip(file["request_id"][:], requests, requests[1:])
        }


def make_results(
    path: Path,
    rows: Sequence[dict[str, Any]],
    identity: str = "{}",
    top_k: int = 0,
    settings: Optional[list[dict[str, Any]]] = None,
) -> Path:
    """Rows: id, turn, state, slots, tokens, reason, error, prompt, cached, queue, ttft, decode; a turn's unused slots
    hold garbage, and rows of one id are turns of one request."""
    offsets = np.cumsum([0] + [row["slots"] for row in rows])
    tokens = np.full(offsets[-1], 2**31 - 1, dtype=np.int32)
    for row, begin in zip(rows, offsets):
        tokens[begin : begin + len(row.get("tokens", []))] = row.get("tokens", [])
    text = h5py.string_dtype("utf-8", 64)
    with h5py.File(path, "w") as file:
        file.attrs["schema"] = "pecia.results/1"
        file.attrs["identity"] = identity
        if settings is not None:  # files of version 0.1 have none
            file.attrs["settings"] = json.dumps(settings)
            file["settings"] = np.array([row.get("settings", 0) for row in rows], dtype=np.int32)
        file["state"] = np.array([row["state"] for row in rows], dtype=np.uint8)
        file["request_id"] = np.array([row["id"].encode() for row in rows], dtype=text)
        file["error"] = np.array([row.get("error", "").encode() for row in rows], dtype=text)
        file["turn"] = np.array([row.get("turn", 0) for row in rows], dtype=np.int32)
        new = [a != b["id"] for a, b in zip([None] + [row["id"] for row in rows], rows)]
        file["request"] = np.cumsum(new, dtype=np.int64) - 1
        file["shard"] = np.zeros(len(rows), dtype=np.int32)
        file["slot_offsets"] = offsets.astype(np.int64)
        file["tokens"] = tokens
        file["token_logprob"] = np.linspace(-1, -2, offsets[-1], dtype=np.float32)
        file["output_tokens"] = np.array([len(r.get("tokens", [])) for r in rows], dtype=np.int32)
        file["prompt_tokens"] = np.array([r.get("prompt", 10) for r in rows], dtype=np.int32)
        if any("truncated" in row for row in rows):  # files of earlier versions have it not
            truncated = [row.get("truncated", 0) for row in rows]
            file["truncated_tokens"] = np.array(truncated, dtype=np.int32)
        file["cached_tokens"] = np.array([r.get("cached", 0) for r in rows], dtype=np.int32)
        for name in ("queue", "ttft", "decode"):
            file[f"{name}_s"] = np.array([row.get(name, 0) for row in rows], dtype=np.float32)
        reasons = h5py.enum_dtype({"none": 0, "stop": 1, "length": 2, "failed": 3}, basetype="u1")
        file.create_dataset(
            "finish_reason",
            dtype=reasons,
            data=np.array([row.get("reason", 0) for row in rows], dtype=np.uint8),
        )
        if top_k:
            file["top_tokens"] = np.repeat(tokens[:, None], top_k, axis=1)
            file["top_logprobs"] = np.full((offsets[-1], top_k), -1.5, dtype=np.float32)
    return path
