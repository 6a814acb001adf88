# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face model folder, as far as text needs it: tokenizer, chat template, vocabulary, stop tokens."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from tokenizers import Tokenizer

from .command import UserError
from .tokenizer_limits import check_tokenizer

if TYPE_CHECKING:
    from typing import TypeGuard  # from Python 3.10 on

SPECIAL_TOKENS = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start} is not UTF-8") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error


def read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise UserError(f"{path}: not a JSON object")
    return value


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0


class ModelFolder:
    """Reads tokenizer.json at once and the rest when asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        file = path / "tokenizer.json"
        if not file.is_file():
            raise UserError(
                f"{file}: not there. --model must name a Hugging Face folder with a fast tokenizer"
            )
        try:
            self.tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises plain Exception
            raise UserError(f"{file}: not a tokenizer ({error})") from error
        check_tokenizer(self.tokenizer, str(file))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.tokenizer_sha256 = hashlib.sha256(file.read_bytes()).hexdigest()

    @cached_property
    def config(self) -> dict[str, Any]:
        file = self.path / "config.json"
        if not file.is_file():
            raise UserError(f"{file}: not there. The vocabulary's size is read from it")
        config = read_json(file)
        return config.get("text_config", config)

    @cached_property
    def vocab_size(self) -> int:
        size = self.config.get("vocab_size")
        if not isinstance(size, int) or size <= 0:
            raise UserError(
                f"{self.path / 'config.json'}: vocab_size is {size!r}, not a positive number"
            )
        return size

    @cached_property
    def max_positions(self) -> Optional[int]:
        """The model's length as a run reads it (lib/model/config/config_rope.cpp); None where config.json
        does not say."""
        config = self.config
        length = config.get("max_position_embeddings")
        if not _is_number(length):
            return None
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        kind = rope.get("rope_type") or rope.get("type") or "default"
        factor = rope.get("factor")
        if kind in ("linear", "dynamic") and _is_number(factor):
            length = round(length * factor)
        elif kind == "yarn":
            key = "original_max_position_embeddings"
            original = rope.get(key) or config.get(key) or length
            length = max(length, round(original * (factor or length / original)))
        dual = config.get(
            "dual_chunk_attention_config"
        )  # beyond its first chunk it is not implemented
        if dual:
            length = min(length, dual["chunk_size"] - dual["local_size"])
        return int(length)

    @cached_property
    def tokenizer_config(self) -> dict[str, Any]:
        file = self.path / "tokenizer_config.json"
        return read_json(file) if file.is_file() else {}

    @cached_property
    def special_tokens(self) -> dict[str, str]:
        """bos_token and so on, as chat templates see them."""
        found = {}
        for name in SPECIAL_TOKENS:
            token = self.tokenizer_config.get(name)
            if isinstance(token, dict):
                token = token.get("content")
            if isinstance(token, str):
                found[name] = token
        return found

    @cached_property
    def stop_token_ids(self) -> list[int]:
        """What a run with `stop_token_ids: auto` stops at."""
        file = self.path / "generation_config.json"
        ids = read_json(file).get("eos_token_id") if file.is_file() else None
        if ids is None:
            ids = self.config.get("eos_token_id")
        if ids is None:
            return []
        return [int(i) for i in (ids if isinstance(ids, list) else [ids])]

    @cached_property
    def chat_template_source(self) -> Optional[str]:
        file = self.path / "chat_template.jinja"
        if file.is_file():
            return read_text(file)
        template = self.tokenizer_config.get("chat_template")
        if isinstance(template, list):  # several named ones
            named = {entry["name"]: entry["template"] for entry in template}
            template = named.get("default")
            if template is None:
                raise UserError(
                    f"{self.path / 'tokenizer_config.json'}: chat_template has no entry 'default', only "
                    f"{', '.join(sorted(named))}. Put the wanted one into chat_template.jinja"
                )
        return template
