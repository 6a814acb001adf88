# SPDX-License-Identifier: Apache-2.0
"""Files of a command that it may replace by itself when it is called again, because nobody else has touched them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, TextIO

from ..command import UserError, names_full_disk, temporary_file
from ..model_folder import read_json

SCHEMA = "pecia.own_files/1"


@dataclass
class Outcome:
    """Names of files, relative to the folder."""

    written: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)  # someone else's, so they were not written
    removed: list[str] = field(
        default_factory=list
    )  # an earlier call's that this one does not make


class OwnFiles:
    """Files are first written beside their places; commit() moves all of them. Then the record, a JSON file in
    the folder, tells the next call what each was like. Nothing waits for the disk: a file that a power failure spoils
    is not as the record has it, and can be made again. `source` says what the files were made from: the record
    of another source is refused unless `force`."""

    def __init__(self, folder: Path, record: str, source: dict[str, str], force: bool) -> None:
        self._folder = folder
        self._record_path = folder / record
        self._source = source
        self._force = force
        self._hashes: dict[str, str] = {}
        self._staged: dict[str, Path] = {}  # what does not stand in its place already
        self._staging: Optional[Path] = None
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{folder}: not a folder. Name another one")
        self._recorded = self._read_record()

    def __enter__(self) -> OwnFiles:
        self._made = [path for path in (self._folder, *self._folder.parents) if not path.exists()]
        self._folder.mkdir(parents=True, exist_ok=True)
        self._staging = Path(tempfile.mkdtemp(prefix=".pecia-text.", dir=self._folder))
        return self

    def __exit__(self, *_: object) -> None:
        assert self._staging is not None
        shutil.rmtree(self._staging, ignore_errors=True)
        for path in self._made:  # stays if anything is in it
            try:
                path.rmdir()
            except OSError:
                break

    def write(self, name: str, text: str) -> None:
        """`text` will be the file `name`, with '/' between folders. Each name once."""
        data = text.encode()
        self._hashes[name] = hashlib.sha256(data).hexdigest()
        if not self._stands_there(name):
            with names_full_disk(self._folder / name):
                self._stage(name).write_bytes(data)

    @contextmanager
    def open(self, name: str) -> Iterator[TextIO]:
        """The same for a file that is written piece by piece."""
        with self.path(name) as path, open(path, "w", encoding="utf-8", newline="") as file:
            yield file

    @contextmanager
    def path(self, name: str) -> Iterator[Path]:
        """The same for a file that someone else writes, at the path that this gives."""
        path = self._stage(name)
        with names_full_disk(self._folder / name):
            yield path
        self._hashes[name] = sha256_of(path)

    def is_foreign(self, name: str) -> bool:
        """Whether something stands there that is not as an earlier call left it."""
        path = self._folder / name
        if any(parent.exists() and not parent.is_dir() for parent in self._parents(name)):
            return True
        if not path.exists():
            return False
        return not path.is_file() or sha256_of(path) not in self._recorded.get(name, ())

    def commit(self) -> Outcome:
        outcome = Outcome()
        for name in self._hashes:
            if name not in self._staged or self._stands_there(name):
                outcome.unchanged.append(name)
            elif self.is_foreign(name) and not (self._force and self._can_replace(name)):
                outcome.kept.append(name)
            else:
                outcome.written.append(name)
        mine = {name: self._hashes[name] for name in (*outcome.written, *outcome.unchanged)}
        before = {name: known for name, known in self._recorded.items() if name not in outcome.kept}
        # Whenever this is interrupted, the record knows what it left behind.
        self._write_record({**before, **{n: [*before.get(n, []), h] for n, h in mine.items()}})
        for name in outcome.written:
            path = self._folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            os.replace(self._staged[name], path)
        for name in sorted(before.keys() - self._hashes.keys()):
            if (self._folder / name).is_file() and not self.is_foreign(name):
                self._remove(name)
                outcome.removed.append(name)
        self._write_record({name: [sha256] for name, sha256 in mine.items()})
        return outcome

    def _stage(self, name: str) -> Path:
        assert self._staging is not None
        self._staged[name] = self._staging / str(len(self._staged))
        return self._staged[name]

    def _stands_there(self, name: str) -> bool:
        path = self._folder / name
        return path.is_file() and sha256_of(path) == self._hashes[name]

    def _parents(self, name: str) -> list[Path]:
        """Folders between this one and the file, the nearest first."""
        return [self._folder / parent for parent in Path(name).parents if str(parent) != "."]

    def _can_replace(self, name: str) -> bool:
        path = self._folder / name
        return (path.is_file() or not path.exists()) and all(
            parent.is_dir() or not parent.exists() for parent in self._parents(name)
        )

    def _remove(self, name: str) -> None:
        (self._folder / name).unlink()
        for parent in self._parents(name):
            try:
                parent.rmdir()
            except OSError:  # something else is in it
                return

    def _read_record(self) -> dict[str, list[str]]:
        """Hashes of the files as calls before this one left them; none of another source's."""
        if not self._record_path.is_file():
            return {}
        record = read_json(self._record_path)
        if record.get("schema") != SCHEMA:
            raise UserError(
                f"{self._record_path}: schema is {record.get('schema')!r}, not '{SCHEMA}'; another version "
                "wrote here. Choose another place"
            )
        source = record.get("source", {})
        if any(source.get(key) == value != "" for key, value in self._source.items()):
            return {str(name): list(known) for name, known in record.get("files", {}).items()}
        if not self._force:
            raise UserError(
                f"{self._folder}: holds the texts of another run, {source.get('results')}. Choose another "
                "place, or write over them with --force"
            )
        return {}

    def _write_record(self, files: dict[str, list[str]]) -> None:
        record: dict[str, Any] = {"schema": SCHEMA, "source": self._source, "files": files}
        with temporary_file(self._record_path) as temporary:
            temporary.write_text(
                json.dumps(record, ensure_ascii=False, indent=1, sort_keys=True) + "\n",
                encoding="utf-8",
            )


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
