# SPDX-License-Identifier: Apache-2.0
"""What a template takes from a row of a table or from a line of JSONL, besides its text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Callable

from ..command import suggestion
from .decoding import BadInput


@dataclass(frozen=True)
class Columns:
    """`names`: the template's places, without {text} and {question}. `needed`: those of them that only a row can fill.
    Without `needs_text` a row may have no text."""

    names: frozenset[str] = frozenset()
    needed: frozenset[str] = frozenset()
    needs_text: bool = True

    def of(self, row: Mapping[str, Any], bad: Callable[[str], BadInput]) -> dict[str, str]:
        """The row's values as text. `bad` makes the error."""
        for name in sorted(self.needed):
            if row.get(name) is None:
                what = "has no value here" if name in row else f"is missing{suggestion(name, row)}"
                raise bad(f"the template's column '{name}' {what}")
        return {name: _text(row[name]) for name in self.names if row.get(name) is not None}


NO_COLUMNS = Columns()


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, dict, list)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)
