# SPDX-License-Identifier: Apache-2.0
"""Requests from JSON lines: a plain form, and the batch form of OpenAI and Mistral (openai_batch).

A key that a prompt shard cannot carry is refused unless its value changes nothing.
"""

from __future__ import annotations

from typing import Any, Optional, Union

from ..command import suggestion
from .chat_options import CONTINUE_KEYS, VARIABLE_KEYS, read_continued, read_variables
from .columns import NO_COLUMNS, Columns
from .inputs import Conversation, Document, Sampling, Source
from .json_line import Line
from .messages import read_messages
from .openai_batch import parse_batch
from .products import PRODUCT_KEYS, read_product
from .request_keys import JobSettings, check_key, is_known
from .request_options import SAMPLING_KEYS, read_choices, read_sampling

PROMPT_KEYS = ("prompt", "text", "turns", "messages")  # one of them
PLAIN_KEYS = (
    *("id", *PROMPT_KEYS, "system", "n", "arrival_s", *PRODUCT_KEYS),
    *(*SAMPLING_KEYS, *VARIABLE_KEYS, *CONTINUE_KEYS),
)
TURN_KEYS = ("prompt", *SAMPLING_KEYS, *PRODUCT_KEYS)


def parse(
    where: str, text: str, job: JobSettings, name: str = "", columns: Columns = NO_COLUMNS
) -> Source:
    """`name` is the id of a line that gives none; `columns` are the keys that the template names."""
    line = Line(where, text, name)
    is_batch = "body" in line.value or "custom_id" in line.value
    return parse_batch(line, job) if is_batch else _parse_plain(line, job, columns)


def _parse_plain(line: Line, job: JobSettings, columns: Columns) -> Union[Document, Conversation]:
    value = line.value
    for key in value:
        if key not in PLAIN_KEYS and not _is_column(key, columns):
            check_key(line, (key,), value[key], job, PLAIN_KEYS, "here")
    is_numbered = value.get("id") is None
    name = line.name if is_numbered else line.text(value["id"], ("id",))
    kind = _kind_of(line, columns)
    arrival_s = line.number(
        value.get("arrival_s"),
        ("arrival_s",),
        False,
        lambda v: 0 <= v < 1e12,
        "a number of seconds from 0",
    )
    sampling = read_product(line, value, (), read_sampling(line, value, (), job.vocab_size))
    choices = read_choices(line, value, ())
    variables = read_variables(line, value, ())
    is_continued = read_continued(line, value, ())
    if is_continued and kind != "messages":
        raise line.error(("continue_final_message",), "needs 'messages'")
    opening = []
    if value.get("system") is not None:
        if kind == "messages":
            raise line.error(
                ("system",), "cannot stand beside 'messages'; make it the first of them"
            )
        opening = [{"role": "system", "content": line.text(value["system"], ("system",))}]
    if kind == "messages":
        opening, is_continued = read_messages(line, value[kind], (kind,), is_continued)
        turns = [(opening.pop()["content"], sampling)]
    elif kind == "turns":
        turns = _parse_turns(line, value[kind], sampling, job)
    else:
        prompt = line.text(value[kind], (kind,)) if kind else ""
        row = columns.of(value, lambda reason: line.problem((), reason))
        for key, column in row.items():
            line.characters(column, (key,))
        if not opening:
            return Document(
                name,
                prompt,
                line.where,
                sampling,
                arrival_s,
                choices,
                columns=row,
                variables=variables,
                is_numbered=is_numbered,
            )
        turns = [(prompt, sampling)]
    return Conversation(
        name,
        turns,
        line.where,
        opening,
        arrival_s,
        choices,
        variables=variables,
        is_continued=is_continued,
        is_numbered=is_numbered,
    )


def _is_column(key: str, columns: Columns) -> bool:
    """With a template that names columns, a line may have others, as a table may; but no option that is misspelled."""
    if key in columns.names:
        return True
    return bool(columns.needed) and not is_known(key) and not suggestion(key, PLAIN_KEYS)


def _kind_of(line: Line, columns: Columns) -> Optional[str]:
    """Which key holds what is asked; None where a template's columns suffice."""
    found = [key for key in PROMPT_KEYS if line.value.get(key) is not None]
    if columns.needed:
        found = [key for key in found if key not in columns.names] or found[:1]
    if not found and not columns.needs_text:
        return None
    if len(found) != 1:
        names = ", ".join(f"'{key}'" for key in PROMPT_KEYS)
        raise line.problem(tuple(found[-1:]), f"one of the keys {names} is needed, and only one")
    return found[0]


def _parse_turns(
    line: Line, turns: Any, sampling: Sampling, job: JobSettings
) -> list[tuple[str, Sampling]]:
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
        own = read_product(line, turn, path, read_sampling(line, turn, path, job.vocab_size))
        parsed.append((text, own.over(sampling)))
    return parsed
