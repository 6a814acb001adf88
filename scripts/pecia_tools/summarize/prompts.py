# SPDX-License-Identifier: Apache-2.0
"""What pecia-summarize asks, unless files say otherwise: of a whole book, of a part, and of summaries."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from ..model_folder import read_text
from ..pack.instruction_template import InstructionTemplate

WHOLE = """\
{text}

Summarize this text in one paragraph. Use only what it says."""

PART = """\
{text}

Summarize this part of a longer work in one paragraph. Use only what it says."""

MERGE = """\
{text}

These are summaries of consecutive pieces of one work, in their order. Write one paragraph that summarizes all of \
them. Use only what they say, and do not mention the pieces."""

DEFAULTS = {"whole": WHOLE, "part": PART, "merge": MERGE}


def make_prompt(kind: str, file: Optional[Path]) -> InstructionTemplate:
    """`kind`: a key of DEFAULTS. Raises UserError where the file is no template."""
    if file is None:
        return InstructionTemplate(DEFAULTS[kind], f"the prompt '{kind}'", False)
    return InstructionTemplate(read_text(file).rstrip("\n"), str(file), False)
