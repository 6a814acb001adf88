# SPDX-License-Identifier: Apache-2.0
"""Names of documents: that of the file without its suffix, as long as no other file has the same one."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import PurePath
from typing import Union

from .decoding import BadInput
from .formats import ROWS
from .inputs import InputFile


def with_names_of_their_own(
    files: Sequence[Union[InputFile, BadInput]],
) -> list[Union[InputFile, BadInput]]:
    """Files that would have one name, all of them, get the first of these that tells them apart: the name with its
    suffix (a.pdf, a.epub), the path below the folder that they have in common (one/a, two/a), this path with the
    suffix. A file that was named twice keeps its name twice, which is an error for whoever packs it. Files of rows
    are named apart from files that are one document each, as their rows are: a/1, a/2."""
    same: dict[tuple[bool, str], list[int]] = defaultdict(list)
    for index, file in enumerate(files):
        if isinstance(file, InputFile) and str(file.path) != "-":
            same[file.kind in ROWS, file.name].append(index)
    named = list(files)
    for indices in same.values():
        group = [file for index in indices if isinstance(file := files[index], InputFile)]
        for index, name, file in zip(indices, _names(group), group):
            named[index] = file.changed(name=name)
    return named


def _names(group: Sequence[InputFile]) -> list[str]:
    plain = [file.name for file in group]
    if len(group) == 1:
        return plain
    lasts = [PurePath(name).name for name in plain]
    suffixes = [file.path.name.removeprefix(last) for file, last in zip(group, lasts)]
    folders = [os.path.dirname(os.path.abspath(file.path)) for file in group]
    common = os.path.commonpath(folders)
    below = [
        (PurePath(os.path.relpath(folder, common)) / last).as_posix()
        for folder, last in zip(folders, lasts)
    ]
    for names in (_joined(plain, suffixes), below, _joined(below, suffixes)):
        if len(set(names)) == len(names):
            return names
    return plain


def _joined(names: Sequence[str], suffixes: Sequence[str]) -> list[str]:
    return [name + suffix for name, suffix in zip(names, suffixes)]
