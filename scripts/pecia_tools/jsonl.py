# SPDX-License-Identifier: Apache-2.0
"""Requests from JSON lines: a plain form, and the OpenAI batch form (openai_batch).

A key that a prompt shard cannot carry is refused unless its value changes nothing.
"""

from __future__ import annotations

from typing import Any, Union

from .command import suggestion
from .inputs import Conversation, Document, Sampling, Source
from .json_line import Line
from .openai_batch import JobSettings, parse_batch
from .request_options import SAMPLING_KEYS, read_choices, read_sampling

PLAIN_KEYS = ("id", "prompt", "turns", "system", "n", *SAMPLING_KEYS, "arrival_s")
TURN_KEYS = ("prompt", *SAMPLING_KEYS)


def parse(where: str, text: str, job: JobSettings) -> Source:
    line = Line(where, text)
    is_batch = "body" in line.value or "custom_id" in line.value
    return parse_batch(line, job) if is_batch else _parse_plain(line)


def _parse_plain(line: Line) -> Union[Document, Conversation]:
    value = line.value
    for key in value:
        if key not in PLAIN_KEYS:
            known = f"known are {', '.join(PLAIN_KEYS)}"
            raise line.error(
                (key,), f"is not known here{suggestion(key, PLAIN_KEYS) or '; ' + known}"
            )
    name = line.text(value.get("id"), ("id",))
    if ("prompt" in value) == ("turns" in value):
        raise line.error(("prompt",), "or 'turns' is needed, and not both")
    arrival_s = line.number(
        value.get("arrival_s"),
        ("arrival_s",),
        False,
        lambda v: 0 <= v < 1e12,
        "a number of seconds from 0",
    )
    sampling = read_sampling(line, value, ())
    choices = read_choices(line, value, ())
    opening = []
    if "system" in value:
        opening = [{"role": "system", "content": line.text(value["system"], ("system",))}]
    if "prompt" in value:
        prompt = line.text(value["prompt"], ("prompt",))
        if not opening:
            return Document(name, prompt, line.where, sampling, arrival_s, choices)
        turns = [(prompt, sampling)]
    else:
        turns = _parse_turns(line, value["turns"], sampling)
    return Conversation(name, turns, line.where, opening, arrival_s, choices)


def _parse_turns(line: Line, turns: Any, sampling: Sampling) -> list[tuple[str, Sampling]]:
    if not isinstance(turns, list) or not turns:
        raise line.error(("turns",), "must be a list of at least one string or object")
    parsed = []
    for index, turn in enumerate(turns):
        path = ("turns", index)
        if not isinstance(turn, dict):
            parsed.append((line.text(turn, path), sampling))
            continue
        for key in turn:
            if key not in TURN_KEYS:
                known = f"known are {', '.join(TURN_KEYS)}"
                hint = suggestion(key, TURN_KEYS) or "; " + known
                raise line.error((*path, key), f"is not known here{hint}")
        text = line.text(turn.get("prompt"), (*path, "prompt"))
        parsed.append((text, read_sampling(line, turn, path).over(sampling)))
    return parsed
