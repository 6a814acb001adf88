"""Requests from JSON lines: the OpenAI batch form, as vLLM's run-batch takes it, and a plain one.

A key that a prompt shard cannot carry is refused unless its value changes nothing.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Callable, Optional, Union

from .command import UserError
from .inputs import Conversation, Document, Sampling

CHAT_URL = "/v1/chat/completions"
PLAIN_KEYS = (
    "id",
    "prompt",
    "turns",
    "system",
    "max_new_tokens",
    "temperature",
    "top_p",
    "seed",
    "arrival_s",
)
TURN_KEYS = ("prompt", "max_new_tokens", "temperature", "top_p", "seed")

# Keys of a chat completion that shards do not carry, and the values that ask for nothing.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "stream": (False,),
    "stop": ([], ""),
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
    "response_format": ({"type": "text"},),
    "skip_special_tokens": (True,),
    "add_generation_prompt": (True,),
    "echo": (False,),
    "best_of": (1,),
    "modalities": (["text"],),
    "store": (False,),
    "service_tier": ("auto",),
}
LABELS = ("user", "metadata", "safety_identifier", "prompt_cache_key")  # say who asks, not what


@dataclass(frozen=True)
class JobSettings:
    """What lines may ask for although only the whole job can grant it."""

    model_names: tuple[str, ...]
    logprobs: int  # of the job file's generation.logprobs


class Line:
    """One line with its place, for errors that name file, line and key."""

    def __init__(self, where: str, text: str) -> None:
        self.where = where
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            raise UserError(f"{where}: not JSON ({error.msg} at column {error.colno})") from error
        if not isinstance(value, dict):
            raise UserError(f"{where}: a JSON object is expected, not {_kind(value)}")
        self.value: dict[str, Any] = value

    def error(self, key: str, problem: str) -> UserError:
        return UserError(f"{self.where}: key '{key}' {problem}")

    def text(self, container: dict[str, Any], key: str, path: str) -> str:
        value = container.get(key)
        if not isinstance(value, str):
            raise self.error(path, f"must be a string, not {_kind(value)}")
        if not value.strip():
            raise self.error(path, "is empty")
        if "\0" in value:
            raise self.error(path, "contains NUL (\\u0000), which no text has")
        if any(0xD800 <= ord(character) <= 0xDFFF for character in value):
            raise self.error(path, "contains half of a surrogate pair, which no UTF-8 text has")
        return value

    def number(
        self,
        container: dict[str, Any],
        key: str,
        path: str,
        whole: bool,
        legal: Callable[[float], bool],
        range_text: str,
    ) -> Any:
        value = container.get(key)
        if value is None:
            return None
        kinds = (int,) if whole else (int, float)
        if (
            isinstance(value, bool)
            or not isinstance(value, kinds)
            or not math.isfinite(value)
            or not legal(value)
        ):
            raise self.error(path, f"is {json.dumps(value)}, but must be {range_text}")
        return value

    def sampling(
        self, container: dict[str, Any], prefix: str, max_keys: tuple[str, ...]
    ) -> Sampling:
        limits = {
            key: self.number(
                container,
                key,
                prefix + key,
                True,
                lambda v: 1 <= v < 2**31,
                "a whole number from 1",
            )
            for key in max_keys
        }
        given = {key: value for key, value in limits.items() if value is not None}
        if len(set(given.values())) > 1:
            raise self.error(prefix + max_keys[0], f"contradicts '{prefix}{max_keys[1]}'")
        return Sampling(
            max_new_tokens=next(iter(given.values()), None),
            temperature=self.number(
                container,
                "temperature",
                prefix + "temperature",
                False,
                lambda v: v >= 0,
                "a number from 0",
            ),
            top_p=self.number(
                container,
                "top_p",
                prefix + "top_p",
                False,
                lambda v: 0 < v <= 1,
                "a number above 0 and up to 1",
            ),
            seed=self.number(
                container,
                "seed",
                prefix + "seed",
                True,
                lambda v: -(2**63) <= v < 2**63,
                "a whole number of 64 bits",
            ),
        )


def parse(where: str, text: str, job: JobSettings) -> Union[Document, Conversation]:
    line = Line(where, text)
    return (
        _parse_batch(line, job)
        if "body" in line.value or "custom_id" in line.value
        else _parse_plain(line)
    )


def _kind(value: Any) -> str:
    names = {
        dict: "an object",
        list: "a list",
        str: "a string",
        bool: "true or false",
        type(None): "nothing",
    }
    return names.get(type(value), "a number")


def _parse_plain(line: Line) -> Union[Document, Conversation]:
    value = line.value
    for key in value:
        if key not in PLAIN_KEYS:
            raise line.error(key, f"is not known here; known are {', '.join(PLAIN_KEYS)}")
    name = line.text(value, "id", "id")
    if ("prompt" in value) == ("turns" in value):
        raise line.error("prompt", "or 'turns' is needed, and not both")
    arrival_s = line.number(
        value, "arrival_s", "arrival_s", False, lambda v: v >= 0, "a number of seconds from 0"
    )
    sampling = line.sampling(value, "", ("max_new_tokens",))
    opening = (
        [{"role": "system", "content": line.text(value, "system", "system")}]
        if "system" in value
        else []
    )
    if "prompt" in value and not opening:
        return Document(name, line.text(value, "prompt", "prompt"), line.where, sampling, arrival_s)
    if "prompt" in value:
        turns = [(line.text(value, "prompt", "prompt"), sampling)]
    else:
        turns = _parse_turns(line, value["turns"], sampling)
    return Conversation(name, turns, line.where, opening, arrival_s)


def _parse_turns(line: Line, turns: Any, sampling: Sampling) -> list[tuple[str, Sampling]]:
    if not isinstance(turns, list) or not turns:
        raise line.error("turns", "must be a list of at least one string or object")
    parsed = []
    for index, turn in enumerate(turns):
        path = f"turns[{index}]"
        if isinstance(turn, dict):
            for key in turn:
                if key not in TURN_KEYS:
                    raise line.error(
                        f"{path}.{key}", f"is not known here; known are {', '.join(TURN_KEYS)}"
                    )
            own = line.sampling(turn, path + ".", ("max_new_tokens",))
            parsed.append((line.text(turn, "prompt", f"{path}.prompt"), own.over(sampling)))
        else:
            parsed.append((line.text({path: turn}, path, path), sampling))
    return parsed


def _parse_batch(line: Line, job: JobSettings) -> Conversation:
    value = line.value
    for key in value:
        if key not in ("custom_id", "method", "url", "body"):
            raise line.error(
                key, "does not belong to a batch request (custom_id, method, url, body)"
            )
    name = line.text(value, "custom_id", "custom_id")
    if value.get("method", "POST") != "POST":
        raise line.error("method", f'is {json.dumps(value["method"])}, but must be "POST"')
    if value.get("url") != CHAT_URL:
        raise line.error("url", f"is {json.dumps(value.get('url'))}; only {CHAT_URL} can be run")
    body = value.get("body")
    if not isinstance(body, dict):
        raise line.error("body", f"must be an object, not {_kind(body)}")
    for key in body:
        _check_body_key(line, key, body, job)
    messages = [
        _parse_message(line, index, message) for index, message in enumerate(_messages(line, body))
    ]
    if messages[-1]["role"] != "user":
        raise line.error(
            f"body.messages[{len(messages) - 1}].role",
            'must be "user": it is what is to be answered',
        )
    sampling = line.sampling(body, "body.", ("max_tokens", "max_completion_tokens"))
    return Conversation(name, [(messages[-1]["content"], sampling)], line.where, messages[:-1])


def _check_body_key(line: Line, key: str, body: dict[str, Any], job: JobSettings) -> None:
    value, path = body[key], f"body.{key}"
    if key in (
        "messages",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "seed",
        *LABELS,
    ):
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
                f"same model, say so with --served-model-name",
            )
    elif key in ("logprobs", "top_logprobs"):
        wanted = line.number(
            {key: int(value) if isinstance(value, bool) else value},
            key,
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
        raise line.error(
            path,
            f"is {json.dumps(value)}, which cannot be set per request. Remove it, or set it for "
            "the whole job under generation in the job file if it is known there",
        )


def _messages(line: Line, body: dict[str, Any]) -> list[Any]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise line.error("body.messages", "must be a list of at least one message")
    return messages


def _parse_message(line: Line, index: int, message: Any) -> dict[str, str]:
    path = f"body.messages[{index}]"
    if not isinstance(message, dict):
        raise line.error(path, f"must be an object, not {_kind(message)}")
    for key in message:
        if key not in ("role", "content") and message[key] is not None:
            raise line.error(f"{path}.{key}", "cannot be honoured; a message has role and content")
    role: Optional[str] = message.get("role")
    if role not in ("system", "developer", "user", "assistant"):
        raise line.error(
            f"{path}.role",
            f"is {json.dumps(role)}, but must be system, developer, user or assistant",
        )
    content = message.get("content")
    if isinstance(content, list):
        for number, part in enumerate(content):
            if (
                not isinstance(part, dict)
                or part.get("type") != "text"
                or set(part) != {"type", "text"}
            ):
                raise line.error(
                    f"{path}.content[{number}]",
                    'is not of the form {"type": "text", "text": …}; only text can be read',
                )
        parts = [
            line.text(part, "text", f"{path}.content[{number}].text")
            for number, part in enumerate(content)
        ]
        message = {"content": "\n".join(parts)}
    return {"role": str(role), "content": line.text(message, "content", f"{path}.content")}
