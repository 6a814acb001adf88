# SPDX-License-Identifier: Apache-2.0
"""What a line says of its chat template: variables, and whether the last message goes on."""

from __future__ import annotations

from typing import Any

from .json_line import Line, Path, kind, shown

VARIABLE_KEYS = ("chat_template_kwargs", "reasoning_effort")
CONTINUE_KEYS = ("add_generation_prompt", "continue_final_message")
OWN_VARIABLES = (  # set by the template's caller
    *("messages", "tools", "documents", "add_generation_prompt", "continue_final_message"),
    *("chat_template", "tokenize"),
)


def read_variables(line: Line, container: dict[str, Any], path: Path) -> dict[str, Any]:
    """Of chat_template_kwargs and reasoning_effort."""
    key, effort_key = VARIABLE_KEYS
    given = container.get(key)
    if given is not None and not isinstance(given, dict):
        raise line.error((*path, key), f"must be an object, not {kind(given)}")
    variables = dict(given or {})
    for name in OWN_VARIABLES:
        if name in variables:
            raise line.error((*path, key, name), "is not supported: it is no variable of the model")
    effort = container.get(effort_key)
    if effort is not None:
        line.text(effort, (*path, effort_key))
        if variables.setdefault(effort_key, effort) != effort:
            raise line.error((*path, effort_key), f"contradicts '{key}.{effort_key}'")
    return variables


def read_continued(line: Line, container: dict[str, Any], path: Path) -> bool:
    """Of continue_final_message and add_generation_prompt, which exclude each other as in vLLM."""
    prompt_key, key = CONTINUE_KEYS
    for name in CONTINUE_KEYS:
        value = container.get(name)
        if value is not None and not isinstance(value, bool):
            raise line.error((*path, name), f"is {shown(value)}, but must be true or false")
    is_continued = container.get(key) is True
    if is_continued and container.get(prompt_key) is True:
        raise line.error((*path, prompt_key), f"is true, and so is {key}; leave one out")
    if not is_continued and container.get(prompt_key) is False:
        raise line.error((*path, prompt_key), f"is false, which needs {key}: true")
    return is_continued
