# SPDX-License-Identifier: Apache-2.0
"""The files of a pack: one shard, or numbered ones, which appear together or not at all."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Callable, Optional

from ..command import UserError, refuse_existing, temporary_file
from .packed import PackedRequest
from .shard import ShardWriter


class ShardFiles:
    """`per_shard`: requests in each of several files, None for one file. Existing ones are refused without `force`."""

    def __init__(self, output: Path, per_shard: Optional[int], force: bool) -> None:
        self._output = output
        self._per_shard = per_shard
        self._earlier = self._numbered() if per_shard else []
        for path in self._earlier if per_shard else [output]:
            refuse_existing(path, force)

    def write(
        self,
        requests: Iterable[PackedRequest],
        make_writer: Callable[[Path], ShardWriter],
        complete: Callable[[Path], None] = lambda _: None,
    ) -> list[Path]:
        """All files appear after the last request. Returns their paths. `complete` gets the last file when it is
        closed, and before it appears."""
        paths: list[Path] = []
        written = self._output
        with ExitStack() as files:
            writer: Optional[ShardWriter] = None
            for request in requests:
                if writer is None:
                    paths.append(self._path(len(paths) + 1))
                    written = files.enter_context(temporary_file(paths[-1]))
                    writer = make_writer(written)
                    files.callback(writer.close)
                writer.add(request)
                if writer.num_requests == self._per_shard:
                    writer.finish()
                    writer = None
            if not paths:
                raise UserError("no request is left to pack; nothing was written")
            if writer is not None:
                writer.finish()
            complete(written)
        for path in set(self._earlier) - set(paths):
            path.unlink()  # of an earlier, longer pack: a job's *.h5 would take it in
        return paths

    def _path(self, number: int) -> Path:
        if not self._per_shard:
            return self._output
        return self._output.with_name(f"{self._output.stem}-{number:04d}{self._output.suffix}")

    def _numbered(self) -> list[Path]:
        stem, suffix = self._output.stem, self._output.suffix
        return sorted(
            path
            for path in self._output.parent.glob(f"*{suffix}")
            if re.fullmatch(re.escape(stem) + r"-\d{4,}", path.stem)
        )
