# SPDX-License-Identifier: Apache-2.0
"""One round of pecia-summarize: a prompt shard, its run, and the answers. What is there is not made again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from ..command import Failure, UserError
from ..model_folder import ModelFolder
from ..pack.packed import PackedRequest
from ..pack.shard import ShardWriter
from ..runs.answers import answer_text
from ..runs.hdf5_file import open_hdf5
from ..runs.prompt_shard import open_shards
from ..runs.requests import Request, read_requests
from ..runs.results import Results, Turn
from .run import DRAINED, RUN, SHARD, Drained, Runner

CREATED_BY = "pecia-summarize 1"


@dataclass(frozen=True)
class Answer:
    request: Request
    text: str  # "": there is none
    is_cut: bool  # at its longest length
    why: str = ""  # there is no text


class Round:
    def __init__(self, folder: Path, model: ModelFolder) -> None:
        self.folder = folder
        self._model = model

    def pack(self, requests: Iterable[PackedRequest], replaces: bool) -> None:
        """Writes the shard unless the same one is there. Another one is replaced with its results if `replaces`, else
        it is a UserError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / SHARD
        fresh = self.folder / f"new-{SHARD}"
        writer = ShardWriter(
            fresh, self._model.tokenizer_sha256, self._model.vocab_size, "chain", CREATED_BY
        )
        count = 0
        try:
            for request in requests:
                writer.add(request)
                count += 1
            if count == 0:
                raise UserError("no book is left to summarize")
            writer.finish()
            if path.exists() and _are_same(path, fresh):
                return
            if path.exists() and not replaces:
                raise UserError(
                    f"{path}: was made from other books, prompts or lengths. Choose another --output, or begin anew "
                    "with --fresh"
                )
            shutil.rmtree(self.folder / RUN, ignore_errors=True)
            os.replace(fresh, path)
        finally:
            writer.close()
            fresh.unlink(missing_ok=True)

    def run(self, runner: Runner) -> None:
        """Runs what is not done. Raises Drained, or Failure where the run ended otherwise than by an answer or an error
        for each request."""
        if self._is_done():
            return
        code = runner.run(self.folder)
        if code == DRAINED:
            raise Drained
        if not self._is_done():
            raise Failure(f"the run in {self.folder / RUN} ended with code {code}; see above")

    def answers(self) -> list[Answer]:
        """In the order of the requests."""
        results = Results(self.folder / RUN)
        found = []
        for request in read_requests(results, open_shards(results, self.folder)):
            (turn,) = request.turns
            text, why = "", turn.error or f"its turn is {turn.state}"
            if turn.state == "done":
                text = answer_text(self._model.tokenizer, turn, results.tokens(turn)).strip()
                why = "" if text else _why_empty(turn)
            found.append(Answer(request, text, turn.finish_reason == "length", why))
        results.close()
        return found

    def _is_done(self) -> bool:
        if not (self.folder / RUN / "results.h5").is_file():
            return False
        results = Results(self.folder / RUN)
        done = all(turn.state in ("done", "failed") for turn in results.turns())
        results.close()
        return done


def _why_empty(turn: Turn) -> str:
    if turn.output_tokens < 2:
        return "the model ended its answer at once"
    end = "then ended it" if turn.finish_reason == "stop" else "up to its longest length"
    return f"the model wrote {turn.output_tokens} tokens without a text, {end}"


def _are_same(a: Path, b: Path) -> bool:
    """Whether two shards ask the same of the same books."""
    with open_hdf5(a) as one, open_hdf5(b) as other:
        return _datasets(one).keys() == _datasets(other).keys() and all(
            np.array_equal(values, _datasets(other)[name])
            for name, values in _datasets(one).items()
        )


def _datasets(file: h5py.File) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}

    def take(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = item[:]

    file.visititems(take)
    return found
