# SPDX-License-Identifier: Apache-2.0
"""Few-shot examples: what was asked and answered before, as messages that come before each document."""

from __future__ import annotations

from pathlib import Path

from ..command import UserError
from ..model_folder import read_text
from .json_line import Line, kind

PAIR = ("user", "assistant")


def read_examples(path: Path) -> list[dict[str, str]]:
    """JSONL: {"user", "assistant"}, or {"messages"} with users and assistants in turn."""
    if not path.is_file():
        raise UserError(f"{path}: no such file of examples")
    messages: list[dict[str, str]] = []
    for number, text in enumerate(read_text(path).split("\n"), start=1):
        if text.strip():
            messages += _messages(Line(f"{path}:{number}", text))
    if not messages:
        raise UserError(f"{path}: the file holds no examples")
    return messages


def _messages(line: Line) -> list[dict[str, str]]:
    value = line.value
    if set(value) == set(PAIR):
        return [{"role": role, "content": line.text(value[role], (role,))} for role in PAIR]
    given = value.get("messages")
    if set(value) != {"messages"} or not isinstance(given, list) or len(given) % 2 or not given:
        raise line.problem(
            (), 'an example is {"user": …, "assistant": …} or {"messages": [pairs of these]}'
        )
    messages = []
    for index, message in enumerate(given):
        path = ("messages", index)
        if not isinstance(message, dict) or set(message) != {"role", "content"}:
            raise line.error(path, f"must be an object with role and content, not {kind(message)}")
        if message["role"] != PAIR[index % 2]:
            raise line.error((*path, "role"), f'must be "{PAIR[index % 2]}": they take turns')
        content = line.text(message["content"], (*path, "content"))
        messages.append({"role": message["role"], "content": content})
    return messages
