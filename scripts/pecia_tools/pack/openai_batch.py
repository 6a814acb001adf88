# SPDX-License-Identifier: Apache-2.0
"""Requests of the OpenAI batch form, as vLLM's run-batch takes it, and Mistral's, which names neither method nor URL:
/v1/chat/completions, /v1/completions and /v1/embeddings."""

from __future__ import annotations

from typing import Any, Optional, Union

from ..command import suggestion
from .chat_options import CONTINUE_KEYS, VARIABLE_KEYS, read_continued, read_variables
from .inputs import VECTOR, Completion, Conversation, Plain, Sampling
from .json_line import Line, Path, kind, shown
from .messages import read_messages
from .request_keys import JobSettings, check_key
from .request_options import SAMPLING_KEYS, read_choices, read_sampling

CHAT_URL = "/v1/chat/completions"
COMPLETIONS_URL = "/v1/completions"
EMBEDDINGS_URL = "/v1/embeddings"
URLS = (CHAT_URL, COMPLETIONS_URL, EMBEDDINGS_URL)
EMBEDDING_KEYS = ("input", "dimensions", "encoding_format")
ENCODING_FORMATS = ("float", "base64")
LINE_KEYS = ("custom_id", "method", "url", "body")
CHAT_KEYS = ("messages", "n", *SAMPLING_KEYS, *VARIABLE_KEYS, *CONTINUE_KEYS)


def parse_batch(line: Line, job: JobSettings) -> Union[Conversation, Completion]:
    value = line.value
    for key in value:
        if key not in LINE_KEYS:
            hint = suggestion(key, LINE_KEYS)
            raise line.error(
                (key,), f"does not belong to a batch request ({', '.join(LINE_KEYS)}){hint}"
            )
    is_numbered = value.get("custom_id") is None
    name = line.name if is_numbered else line.text(value["custom_id"], ("custom_id",))
    if value.get("method") not in (None, "POST"):
        raise line.error(("method",), f'is {shown(value["method"])}, but must be "POST"')
    body = value.get("body")
    if not isinstance(body, dict):
        raise line.error(("body",), f"must be an object, not {kind(body)}")
    url = value.get("url")
    if url is None:
        url = _url_of(line, body)
    if url not in URLS:
        known_urls = f"{', '.join(URLS[:-1])} and {URLS[-1]}"
        raise line.error(("url",), f"is {shown(url)}; only {known_urls} can be run")
    if url == EMBEDDINGS_URL:
        return _embedding(line, body, job, name, is_numbered)
    is_chat = url == CHAT_URL
    known = CHAT_KEYS if is_chat else ("prompt", "n", *SAMPLING_KEYS)
    for key in body:
        if key not in known:
            _check(line, ("body", key), body[key], job, known, is_chat)
    sampling = read_sampling(line, body, ("body",), job.vocab_size)
    choices = read_choices(line, body, ("body",))
    if not is_chat:
        prompt = _prompt(line, body.get("prompt"), ("body", "prompt"), job.vocab_size)
        return Completion(name, (prompt,), line.where, sampling, choices, url, is_numbered)
    is_continued = read_continued(line, body, ("body",))
    messages, is_continued = read_messages(
        line, body.get("messages"), ("body", "messages"), is_continued
    )
    return Conversation(
        name,
        [(messages[-1]["content"], sampling)],
        line.where,
        messages[:-1],
        None,
        choices,
        url,
        read_variables(line, body, ("body",)),
        is_continued,
        is_numbered,
    )


def _url_of(line: Line, body: dict[str, Any]) -> str:
    """Without a URL the body says which kind of request it is."""
    keys = (("messages", CHAT_URL), ("prompt", COMPLETIONS_URL), ("input", EMBEDDINGS_URL))
    found: list[Optional[str]] = [url for key, url in keys if key in body]
    if len(found) != 1 or found[0] is None:
        raise line.error(
            ("body",),
            "must have one of 'messages', 'prompt' and 'input', and only one, where the line has no url",
        )
    return found[0]


def _embedding(
    line: Line, body: dict[str, Any], job: JobSettings, name: str, is_numbered: bool
) -> Completion:
    """Texts, or their tokens, without any template; the tokenizer adds its own special tokens to a text."""
    for key in body:
        if key not in EMBEDDING_KEYS:
            check_key(
                line, ("body", key), body[key], job, EMBEDDING_KEYS, "in the body of an embedding"
            )
    dimensions = line.number(
        body.get("dimensions"),
        ("body", "dimensions"),
        True,
        lambda v: 1 <= v <= job.hidden_size,
        f"a whole number from 1 to {job.hidden_size}, the numbers of this model's vectors",
    )
    encoding = body.get("encoding_format") or ENCODING_FORMATS[0]
    if encoding not in ENCODING_FORMATS:
        raise line.error(
            ("body", "encoding_format"),
            f"is {shown(encoding)}, but must be {' or '.join(map(repr, ENCODING_FORMATS))}",
        )
    return Completion(
        name,
        _inputs(line, body.get("input"), ("body", "input"), job.vocab_size),
        line.where,
        Sampling(produce=VECTOR),
        endpoint=EMBEDDINGS_URL,
        is_numbered=is_numbered,
        dimensions=dimensions,
        encoding_format=encoding,
    )


def _check(
    line: Line, path: Path, value: Any, job: JobSettings, known: tuple[str, ...], is_chat: bool
) -> None:
    key = path[-1]
    if value is not None and not is_chat and key in VARIABLE_KEYS:
        raise line.error(path, "is not supported here: a completion has no chat template")
    if not is_chat and key in CONTINUE_KEYS and isinstance(value, bool):
        return
    check_key(line, path, value, job, known, "in the body of a request")


def _inputs(line: Line, value: Any, path: Path, vocab_size: int) -> tuple[Plain, ...]:
    """A text or tokens, or a list of these."""
    if not _is_list_of_prompts(value):
        return (_one_prompt(line, value, path, vocab_size),)
    return tuple(
        _one_prompt(line, one, (*path, index), vocab_size) for index, one in enumerate(value)
    )


def _prompt(line: Line, value: Any, path: Path, vocab_size: int) -> Plain:
    """A text or tokens; a list that holds one of these is as good."""
    if _is_list_of_prompts(value) and len(value) > 1:
        raise line.error(path, f"holds {len(value)} prompts; give each a line of its own")
    (prompt,) = _inputs(line, value, path, vocab_size)
    return prompt


def _is_list_of_prompts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], (str, list))


def _one_prompt(line: Line, value: Any, path: Path, vocab_size: int) -> Plain:
    if isinstance(value, str):
        return line.text(value, path)
    if not isinstance(value, list) or not value:
        raise line.error(path, f"must be a string or a list of token ids, not {_empty_or(value)}")
    for index, token in enumerate(value):
        range_text = f"a token id of this model, a whole number from 0 to {vocab_size - 1}"
        if token is None:
            raise line.error((*path, index), f"is null, but must be {range_text}")
        line.number(token, (*path, index), True, lambda v: 0 <= v < vocab_size, range_text)
    return tuple(value)


def _empty_or(value: Any) -> str:
    return "an empty list" if value == [] else kind(value)
