# SPDX-License-Identifier: Apache-2.0
"""Requests of the OpenAI batch form, as vLLM's run-batch takes it: /v1/chat/completions and /v1/completions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Union

from .command import suggestion
from .inputs import Completion, Conversation
from .json_line import Line, Path, kind
from .request_options import SAMPLING_KEYS, read_choices, read_sampling

CHAT_URL = "/v1/chat/completions"
COMPLETIONS_URL = "/v1/completions"
LINE_KEYS = ("custom_id", "method", "url", "body")

# Keys that shards do not carry, and the values that ask for nothing.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "stream": (False,),
    "stop_token_ids": ([],),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "top_k": (0, -1),
    "min_p": (0,),
    "min_tokens": (0,),
    "ignore_eos": (False,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "skip_special_tokens": (True,),
    "add_special_tokens": (True,),
    "add_generation_prompt": (True,),
    "include_stop_str_in_output": (False,),
    "echo": (False,),
    "suffix": ("",),
    "best_of": (1,),
    "modalities": (["text"],),
    "store": (False,),
    "service_tier": ("auto",),
}
LABELS = ("user", "metadata", "safety_identifier", "prompt_cache_key")  # say who asks, not what


@dataclass(frozen=True)
class JobSettings:
    """What lines may ask for although only the whole job can grant it, and what the model allows."""

    model_names: tuple[str, ...]
    logprobs: int  # of the job file's generation.logprobs
    vocab_size: int


def parse_batch(line: Line, job: JobSettings) -> Union[Conversation, Completion]:
    value = line.value
    for key in value:
        if key not in LINE_KEYS:
            hint = suggestion(key, LINE_KEYS)
            raise line.error(
                (key,), f"does not belong to a batch request ({', '.join(LINE_KEYS)}){hint}"
            )
    name = line.text(value.get("custom_id"), ("custom_id",))
    if value.get("method", "POST") != "POST":
        raise line.error(("method",), f'is {json.dumps(value["method"])}, but must be "POST"')
    url = value.get("url")
    if url not in (CHAT_URL, COMPLETIONS_URL):
        raise line.error(
            ("url",), f"is {json.dumps(url)}; only {CHAT_URL} and {COMPLETIONS_URL} can be run"
        )
    body = value.get("body")
    if not isinstance(body, dict):
        raise line.error(("body",), f"must be an object, not {kind(body)}")
    asked = "messages" if url == CHAT_URL else "prompt"
    for key in body:
        _check_body_key(line, key, body[key], job, asked)
    sampling = read_sampling(line, body, ("body",))
    choices = read_choices(line, body, ("body",))
    if url == COMPLETIONS_URL:
        prompt = _prompt(line, body.get("prompt"), ("body", "prompt"), job.vocab_size)
        return Completion(name, prompt, line.where, sampling, choices, url)
    messages = _messages(line, body.get("messages"))
    turns = [(messages[-1]["content"], sampling)]
    return Conversation(name, turns, line.where, messages[:-1], None, choices, url)


def _check_body_key(line: Line, key: str, value: Any, job: JobSettings, asked: str) -> None:
    known = (asked, "n", *SAMPLING_KEYS)
    path = ("body", key)
    if key in known or key in LABELS:
        return
    if value is None or any(
        value == neutral and isinstance(value, bool) == isinstance(neutral, bool)
        for neutral in NEUTRAL.get(key, ())
    ):
        return
    if key == "model":
        if str(value).rstrip("/").split("/")[-1] not in job.model_names:
            raise line.error(
                path,
                f"is {json.dumps(value)}, but --model is '{job.model_names[0]}'. If they are the "
                "same model, say so with --served-model-name",
            )
    elif key in ("logprobs", "top_logprobs"):
        wanted = line.number(
            int(value) if isinstance(value, bool) else value,
            path,
            True,
            lambda v: v >= 0,
            "true, false or a whole number from 0",
        )
        if wanted > job.logprobs:
            raise line.error(
                path,
                f"asks for {wanted} log-probabilities; they are set for a whole job. Set "
                f"generation.logprobs: {wanted} in the job file and pack with --logprobs {wanted}",
            )
    else:
        hint = suggestion(key, known) if key not in NEUTRAL else ""
        raise line.error(
            path,
            f"is {json.dumps(value)}, which cannot be set per request{hint}. Remove it, or set it "
            "for the whole job under generation in the job file if it is known there",
        )


def _prompt(line: Line, value: Any, path: Path, vocab_size: int) -> Union[str, tuple[int, ...]]:
    """A text or tokens; a list that holds one of these is as good."""
    is_outer = path[-1] == "prompt"
    if (
        is_outer
        and isinstance(value, list)
        and len(value) == 1
        and isinstance(value[0], (str, list))
    ):
        return _prompt(line, value[0], (*path, 0), vocab_size)
    if isinstance(value, str):
        return line.text(value, path)
    if not isinstance(value, list) or not value:
        raise line.error(path, f"must be a string or a list of token ids, not {_empty_or(value)}")
    if all(isinstance(entry, (str, list)) for entry in value):
        raise line.error(path, f"holds {len(value)} prompts; give each a line of its own")
    for index, token in enumerate(value):
        range_text = f"a token id of this model, a whole number from 0 to {vocab_size - 1}"
        if token is None:
            raise line.error((*path, index), f"is null, but must be {range_text}")
        line.number(token, (*path, index), True, lambda v: 0 <= v < vocab_size, range_text)
    return tuple(value)


def _empty_or(value: Any) -> str:
    return "an empty list" if value == [] else kind(value)


def _messages(line: Line, messages: Any) -> list[dict[str, str]]:
    path = ("body", "messages")
    if not isinstance(messages, list) or not messages:
        raise line.error(path, "must be a list of at least one message")
    parsed = [_message(line, (*path, index), message) for index, message in enumerate(messages)]
    if parsed[-1]["role"] != "user":
        raise line.error(
            (*path, len(parsed) - 1, "role"), 'must be "user": it is what is to be answered'
        )
    return parsed


def _message(line: Line, path: Path, message: Any) -> dict[str, str]:
    if not isinstance(message, dict):
        raise line.error(path, f"must be an object, not {kind(message)}")
    for key in message:
        if key not in ("role", "content") and message[key] is not None:
            raise line.error((*path, key), "cannot be honoured; a message has role and content")
    role = message.get("role")
    if role not in ("system", "developer", "user", "assistant"):
        raise line.error(
            (*path, "role"),
            f"is {json.dumps(role)}, but must be system, developer, user or assistant",
        )
    content = message.get("content")
    if not isinstance(content, list):
        return {"role": role, "content": line.text(content, (*path, "content"))}
    texts = []
    for index, part in enumerate(content):
        place = (*path, "content", index)
        is_text = isinstance(part, dict) and part.get("type") == "text"
        if not is_text or set(part) != {"type", "text"}:
            raise line.error(
                place, 'is not of the form {"type": "text", "text": …}; only text can be read'
            )
        texts.append(line.text(part["text"], (*place, "text")))
    if not texts:
        raise line.error((*path, "content"), "is empty")
    return {"role": role, "content": "\n".join(texts)}
