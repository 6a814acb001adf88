# SPDX-License-Identifier: Apache-2.0
"""A run folder with results and a prompt shard, made on the spot for the tests of pecia-text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import h5py
import numpy as np

from pecia_tools.pack.shard_columns import PositionRows
from pecia_tools.text import main as text
from support import IM_END, ScriptTest, make_model, make_results, make_tokenizer, quietly

OPEN, PARTIAL, DONE, FAILED = range(4)
STOP, LENGTH = 1, 2
UTF8 = h5py.string_dtype("utf-8")


class TextRun(ScriptTest):
    tokenizer = make_tokenizer()

    def setUp(self) -> None:
        super().setUp()
        self.model = make_model(self.folder / "tiny")
        self.run_folder = self.folder / "run"
        self.run_folder.mkdir()
        self.identity: dict[str, Any] = {}
        self.settings: Optional[list[dict[str, Any]]] = None  # of the job, by a row's `settings`
        self.inputs: list[str] = []
        self.exit_code = 0
        self.message = ""

    def encode(self, words: str) -> list[int]:
        return self.tokenizer.encode(words, add_special_tokens=False).ids

    def answered(self, name: str, words: str = "Answer", **more: Any) -> dict[str, Any]:
        """The row of a turn that a stop token ended."""
        tokens = self.encode(words)
        row = {"id": name, "state": DONE, "slots": 64, "reason": STOP}
        return {**row, "tokens": [*tokens, IM_END], **more}

    def mixed_rows(self) -> list[dict[str, Any]]:
        """One turn in each state, and two that are done."""
        ring = self.encode("ring")[:3]
        return [
            self.answered("a/b", "Stopped.", prompt=7, slots=40),
            {"id": "cut", "state": DONE, "slots": 3, "reason": LENGTH, "tokens": ring},
            {"id": "bad", "state": FAILED, "slots": 9, "reason": 3, "error": "row 3: too long"},
            {"id": "half", "state": PARTIAL, "slots": 40, "tokens": self.encode("So far")},
            {"id": "later", "state": OPEN, "slots": 9},
        ]

    def write_results(
        self, rows: Sequence[dict[str, Any]], older: bool = False, **options: Any
    ) -> Path:
        """As make_results; rows may have `truncated` and `text_bytes`. `older`: a version that knew neither."""
        path = self.run_folder / "results.h5"
        known = [{key: value for key, value in row.items() if key != "truncated"} for row in rows]
        make_results(path, known, json.dumps(self.identity), settings=self.settings, **options)
        with h5py.File(path, "a") as file:
            if not older:
                file["truncated_tokens"] = np.array([row.get("truncated", 0) for row in rows])
                file["text_bytes"] = np.array([row.get("text_bytes", -1) for row in rows])
            file.attrs["inputs"] = json.dumps(self.inputs)
        return path

    def write_shard(
        self, requests: Sequence[dict[str, Any]], followup: str = "chain", name: str = "p.h5"
    ) -> Path:
        """Requests: id, turns (texts), stop (per turn), positions, and any of the shard's datasets by name. The run's
        inputs become this shard."""
        path = self.folder / name
        turns = [self.encode(words) for request in requests for words in request["turns"]]
        with h5py.File(path, "w") as file:
            file.attrs["schema"] = "pecia.prompts/1"
            file.attrs["followup"] = followup
            file["tokens"] = np.concatenate(turns).astype(np.int32)
            file["turn_offsets"] = np.cumsum([0, *map(len, turns)])
            file["request_offsets"] = np.cumsum([0, *(len(r["turns"]) for r in requests)])
            file.create_dataset("request_id", data=[r["id"] for r in requests], dtype=UTF8)
            for key in ("book", "title", "custom_id", "endpoint", "document_title"):
                if any(key in r for r in requests):
                    file.create_dataset(key, data=[r.get(key, "") for r in requests], dtype=UTF8)
            for key in ("part", "span", "choice"):
                if any(key in r for r in requests):
                    file[key] = np.array([r.get(key, (0, 0)) for r in requests])
            if any("book_tokens" in r for r in requests):
                file["book_tokens"] = np.array([r.get("book_tokens", 0) for r in requests])
            positions = PositionRows()
            for request in requests:
                positions.append([(p, (0, 0)) for p in request.get("positions", [])])
            positions.write(file)
            if any("stop" in r for r in requests):
                stops = [s for r in requests for s in r.get("stop", [""] * len(r["turns"]))]
                file.create_dataset("stop", data=stops, dtype=UTF8)
        self.inputs = [str(path)]
        self.identity["input_sha256"] = [hashlib.sha256(path.read_bytes()).hexdigest()]
        return path

    def write_text(self, *arguments: object, code: int = 0) -> str:
        """Standard output of pecia-text; its notes are in `message`."""
        self.exit_code, out, self.message = quietly(
            text.main, self.run_folder, "--model", self.model, *arguments
        )
        self.assertEqual(self.exit_code, code, self.message)
        return out

    def write_files(self, *arguments: object, code: int = 0) -> dict[str, str]:
        """The texts that are then in the folder text/, without index.csv."""
        self.write_text("--output", self.folder / "text", *arguments, code=code)
        return {name: body for name, body in self.files().items() if name.endswith(".txt")}

    def files(self) -> dict[str, str]:
        folder = self.folder / "text"
        return {
            p.relative_to(folder).as_posix(): p.read_text(encoding="utf-8")
            for p in folder.rglob("*")
            if p.is_file()
        }

    @property
    def last_line(self) -> str:
        return self.message.splitlines()[-1]

    def lines(self, *arguments: object, code: int = 0) -> dict[str, dict[str, Any]]:
        out = self.write_text("--jsonl", *arguments, code=code)
        lines = [json.loads(line) for line in out.splitlines()]
        by_id = {line["custom_id"]: line for line in lines}
        self.assertEqual(len(by_id), len(lines))
        return by_id
