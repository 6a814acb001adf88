"""Writes prompt shards, schema "pecia.prompts/1"."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

import h5py
import numpy as np

from .command import UserError
from .prompts import PackedRequest

SCHEMA = "pecia.prompts/1"
TURN_OPTIONS = {
    "max_new_tokens": np.int32,
    "temperature": np.float32,
    "top_p": np.float32,
    "seed": np.int64,
}
CHUNK_TOKENS = 1 << 16


class OptionColumn:
    """A dataset that a shard has for all its rows or not at all."""

    def __init__(self, key: str, dtype: type) -> None:
        self._key = key
        self._dtype = dtype
        self._first_origin = ""
        self.values: list[Any] = []
        self.is_given = False

    def append(self, value: Any, origin: str) -> None:
        if not self._first_origin:
            self._first_origin = origin
            self.is_given = value is not None
        elif self.is_given != (value is not None):
            having, lacking = (
                (self._first_origin, origin) if self.is_given else (origin, self._first_origin)
            )
            raise UserError(
                f"{lacking}: has no '{self._key}', but {having} has. Give it to all requests or to none, "
                f"or a default for the others with --{self._key.replace('_', '-')}"
            )
        self.values.append(value)

    def write(self, file: h5py.File) -> None:
        if self.is_given:
            file.create_dataset(self._key, data=np.array(self.values, dtype=self._dtype))


class ShardWriter:
    """Tokens go to the file as they come; the rest is small and goes there in finish()."""

    def __init__(
        self, path: Path, tokenizer_sha256: str, vocab_size: int, followup: str, created_by: str
    ) -> None:
        self._vocab_size = vocab_size
        self._file = h5py.File(path, "w")
        self._file.attrs.update(
            {
                "schema": SCHEMA,
                "tokenizer_sha256": tokenizer_sha256,
                "created_by": created_by,
                "followup": followup,
            }
        )
        self._file.attrs["vocab_size"] = np.int64(vocab_size)
        self._tokens = self._file.create_dataset(
            "tokens", (0,), np.int32, maxshape=(None,), chunks=(CHUNK_TOKENS,)
        )
        self._pending: list[np.ndarray] = []
        self._pending_tokens = 0
        self._turn_offsets = [0]
        self._request_offsets = [0]
        self._ids: list[bytes] = []
        self._options = {key: OptionColumn(key, dtype) for key, dtype in TURN_OPTIONS.items()}
        self._arrivals = OptionColumn("arrival_s", np.float64)

    @property
    def num_requests(self) -> int:
        return len(self._ids)

    def add(self, request: PackedRequest) -> None:
        for number, turn in enumerate(request.turns):
            tokens = np.asarray(turn.tokens, dtype=np.int64)
            if tokens.size == 0:
                raise UserError(
                    f"{request.origin}: turn {number} of '{request.name}' has no tokens"
                )
            if tokens.max() >= self._vocab_size:
                raise UserError(
                    f"{request.origin}: the tokenizer gives {tokens.max()}, but config.json says that the "
                    f"vocabulary has {self._vocab_size} entries. They do not belong together"
                )
            self._pending.append(tokens.astype(np.int32))
            self._pending_tokens += tokens.size
            self._turn_offsets.append(self._turn_offsets[-1] + tokens.size)
            for key, value in zip(TURN_OPTIONS, turn.sampling.values()):
                self._options[key].append(value, request.origin)
        self._arrivals.append(request.arrival_s, request.origin)
        self._request_offsets.append(len(self._turn_offsets) - 1)
        self._ids.append(request.name.encode("utf-8"))
        if self._pending_tokens >= CHUNK_TOKENS:
            self._write_pending()

    def finish(self) -> None:
        self._write_pending()
        self._file.create_dataset("turn_offsets", data=np.array(self._turn_offsets, dtype=np.int64))
        self._file.create_dataset(
            "request_offsets", data=np.array(self._request_offsets, dtype=np.int64)
        )
        longest = max((len(name) for name in self._ids), default=1)
        identifiers = np.array(self._ids, dtype=h5py.string_dtype("utf-8", longest))
        self._file.create_dataset("request_id", data=identifiers)
        for column in self._options.values():
            column.write(self._file)
        self._arrivals.write(self._file)
        self.close()

    def close(self) -> None:
        self._file.close()

    def _write_pending(self) -> None:
        if self._pending:
            begin = self._tokens.shape[0]
            self._tokens.resize((begin + self._pending_tokens,))
            self._tokens[begin:] = np.concatenate(self._pending)
            self._pending, self._pending_tokens = [], 0


def shard_path(output: Path, number: Optional[int]) -> Path:
    return (
        output if number is None else output.with_name(f"{output.stem}-{number:04d}{output.suffix}")
    )
