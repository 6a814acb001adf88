# SPDX-License-Identifier: Apache-2.0
"""The messages of a chat, as OpenAI, vLLM and Mistral write them; only text can be read."""

from __future__ import annotations

from typing import Any

from .json_line import Line, Path, kind, shown

ROLES = ("system", "developer", "user", "assistant")
NEUTRAL = {"tool_calls": [], "annotations": [], "prefix": False}


def read_messages(
    line: Line, messages: Any, path: Path, is_continued: bool
) -> tuple[list[dict[str, str]], bool]:
    """The messages, and whether the last one is the beginning of the answer: with `is_continued`, and with Mistral's
    prefix."""
    if not isinstance(messages, list) or not messages:
        raise line.error(path, "must be a list of at least one message")
    parsed = [_message(line, (*path, i), message) for i, message in enumerate(messages)]
    last = len(parsed) - 1
    for index, message in enumerate(messages):
        if message.get("prefix") is True:
            if index != last or parsed[index]["role"] != "assistant":
                raise line.error(
                    (*path, index, "prefix"), "belongs to the last message, one of the assistant"
                )
            is_continued = True
    place = (*path, last, "role")
    if is_continued and parsed[-1]["role"] != "assistant":
        raise line.error(place, 'must be "assistant": continue_final_message continues its message')
    if not is_continued and parsed[-1]["role"] != "user":
        raise line.error(
            place,
            'must be "user": it is what is to be answered. Where an assistant message is to be '
            "continued, say continue_final_message: true and add_generation_prompt: false",
        )
    return parsed, is_continued


def _message(line: Line, path: Path, message: Any) -> dict[str, str]:
    if not isinstance(message, dict):
        raise line.error(path, f"must be an object, not {kind(message)}")
    role = message.get("role")
    if role not in ROLES:
        what = "is not supported; known are" if isinstance(role, str) else "must be one of"
        raise line.error((*path, "role"), f"is {shown(role)}, which {what} {', '.join(ROLES)}")
    for key, value in message.items():
        is_prefix = key == "prefix" and isinstance(value, bool)
        if key in ("role", "content") or is_prefix or value is None or value == NEUTRAL.get(key):
            continue
        raise line.error((*path, key), "is not supported; a message has role and content")
    content = message.get("content")
    if not isinstance(content, list):
        return {"role": role, "content": line.text(content, (*path, "content"))}
    texts = []
    for index, part in enumerate(content):
        place = (*path, "content", index)
        if (
            not isinstance(part, dict)
            or part.get("type") != "text"
            or set(part) != {"type", "text"}
        ):
            raise line.error(
                place,
                'is not supported: only text can be read, of the form {"type": "text", "text": …}',
            )
        texts.append(line.text(part["text"], (*place, "text")))
    if not texts:
        raise line.error((*path, "content"), "is empty")
    return {"role": role, "content": "\n".join(texts)}
