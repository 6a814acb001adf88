# SPDX-License-Identifier: Apache-2.0
"""Turns as lines of an OpenAI batch output file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from ..model_folder import ModelFolder
from ..runs.answers import answer_text, stop_reason
from ..runs.citations import citation_of
from ..runs.prompt_shard import Skipped
from ..runs.requests import Request
from ..runs.results import Logprobs, Results, Turn
from .products import embedding_data, score_data

COMPLETIONS = "/v1/completions"


@dataclass(frozen=True)
class Choice:
    request: Request
    turn: Turn


@dataclass(frozen=True)
class Line:
    """What becomes one line: a turn, the n answers to it, or the vectors of several inputs."""

    custom_id: str
    choices: list[Choice]  # in the order of their index
    num_choices: int

    @property
    def state(self) -> str:
        """A line is no further than the choice that is least far; one that failed has failed as a whole."""
        if len(self.choices) < self.num_choices:
            return "open"
        states = {choice.turn.state for choice in self.choices}
        return next(state for state in ("open", "partial", "failed", "done") if state in states)


def lines_of(requests: Sequence[Request]) -> list[Line]:
    """In input order. With several turns, custom_id is the request's id, '@' and the turn."""
    lines: dict[tuple[str, int, int], Line] = {}
    for number, request in enumerate(requests):
        origin, turns = request.origin, request.producing
        is_one_of_several = origin.num_choices > 1 and origin.custom_id != ""
        name = origin.custom_id or request.request_id
        for turn in turns:
            custom_id = name if len(turns) == 1 else f"{name}@{turn.turn}"
            key = (custom_id, -1 if is_one_of_several else number, turn.turn)
            line = lines.setdefault(key, Line(custom_id, [], origin.num_choices))
            line.choices.append(Choice(request, turn))
    for line in lines.values():
        line.choices.sort(key=lambda choice: choice.request.origin.choice)
    return list(lines.values())


class BatchWriter:
    """Lines as objects, for one model."""

    def __init__(self, results: Results, model: ModelFolder) -> None:
        self._results = results
        self._tokenizer = model.tokenizer
        self._model = model.path.resolve().name
        self._created = results.modified

    def write(self, line: Line) -> dict[str, Any]:
        first = line.choices[0]
        name = first.request.request_id if line.num_choices == 1 else line.custom_id
        key = hashlib.sha256(f"{self._model}\0{name}\0{first.turn.turn}".encode()).hexdigest()[:24]
        written: dict[str, Any] = {
            "id": f"batch_req_{key}",
            "custom_id": line.custom_id,
            "response": None,
            "error": None,
        }
        if line.state == "failed":
            written["error"] = {"code": "request_failed", "message": self._error(line)}
        else:
            written["response"] = {
                "status_code": 200,
                "request_id": f"req_{key}",
                "body": self._body(line, key),
            }
        if source := _source(first.request):
            written["source"] = source
        return written

    def write_skipped(self, skipped: Skipped) -> dict[str, Any]:
        """Of a line that was not packed."""
        name = f"{self._model}\0{skipped.custom_id}\0{skipped.where}"
        return {
            "id": f"batch_req_{hashlib.sha256(name.encode()).hexdigest()[:24]}",
            "custom_id": skipped.custom_id,
            "response": None,
            "error": {
                "code": "invalid_request",
                "message": f"{skipped.where}: {skipped.message}",
            },
        }

    def _error(self, line: Line) -> str:
        index, error = next(
            (index, choice.turn.error)
            for index, choice in enumerate(line.choices)
            if choice.turn.state == "failed"
        )
        return error if line.num_choices == 1 else f"choice {index} of {line.num_choices}: {error}"

    def _product(self, line: Line, key: str) -> dict[str, Any]:
        """Vectors or scores. Each choice has an input of its own."""
        request, turn = line.choices[0].request, line.choices[0].turn
        usage = _usage(line)
        usage.pop("completion_tokens")
        body = {"object": "list", "model": self._model, "usage": usage}
        if turn.vectors:
            data = chain.from_iterable(
                embedding_data(self._results, choice.request, choice.turn) for choice in line.choices
            )
            return {**body, "data": [{**one, "index": index} for index, one in enumerate(data)]}
        return {
            "id": f"score-{key}",
            "created": self._created,
            **body,
            "data": score_data(self._results, request, turn),
        }

    def _body(self, line: Line, key: str) -> dict[str, Any]:
        if not line.choices[0].turn.gives_text:
            return self._product(line, key)
        is_text = line.choices[0].request.origin.endpoint == COMPLETIONS
        return {
            "id": f"{'cmpl' if is_text else 'chatcmpl'}-{key}",
            "object": "text_completion" if is_text else "chat.completion",
            "created": self._created,
            "model": self._model,
            "choices": [
                self._choice(index, choice, is_text) for index, choice in enumerate(line.choices)
            ],
            "usage": _usage(line),
        }

    def _choice(self, index: int, choice: Choice, is_text: bool) -> dict[str, Any]:
        turn = choice.turn
        tokens = self._results.tokens(turn)
        text = answer_text(self._tokenizer, turn, tokens)
        stop_strings = choice.request.stop_strings(turn)
        logprobs = self._results.logprobs(turn)
        form = _completion_logprobs if is_text else _chat_logprobs
        return {
            "index": index,
            **({"text": text} if is_text else {"message": {"role": "assistant", "content": text}}),
            "logprobs": form(self._tokenizer, tokens, logprobs) if logprobs is not None else None,
            "finish_reason": turn.finish_reason,
            "stop_reason": stop_reason(self._tokenizer, turn, tokens, stop_strings),
        }


def _source(request: Request) -> dict[str, Any]:
    """The place of the request's text in its document, without what is not known."""
    found: dict[str, Any] = {k: v for k, v in citation_of(request).fields().items() if v}
    origin = request.origin
    if found and request.is_part:
        found = {"book": origin.book, "part": origin.part, "parts": origin.num_parts, **found}
    return found


def _usage(line: Line) -> dict[str, Any]:
    """Inputs of vectors count each. A prompt of answers counts once, however many choices were made of it."""
    request, turn = line.choices[0].request, line.choices[0].turn
    inputs = [choice.turn for choice in (line.choices if turn.vectors else line.choices[:1])]
    cached_tokens = sum(one.cached_tokens for one in inputs)
    prompt_tokens = sum(one.prompt_tokens for one in inputs) + cached_tokens
    completion_tokens = sum(choice.turn.output_tokens for choice in line.choices)
    details = {"cached_tokens": cached_tokens}
    truncated = request.truncated_before_answer(turn)
    if truncated is not None:
        details["truncated_tokens"] = truncated
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": details,
    }


def _tops(logprobs: Logprobs, index: int) -> Iterator[tuple[int, np.floating]]:
    """Of the whole vocabulary (K = -1) none is given; the rest stays in the HDF5 file."""
    if logprobs.top_tokens is not None:
        yield from zip(logprobs.top_tokens[index].tolist(), logprobs.top[index])


def _chat_logprobs(tokenizer: Tokenizer, tokens: np.ndarray, logprobs: Logprobs) -> dict[str, Any]:
    content = []
    for index, token in enumerate(tokens.tolist()):
        entry = _token(tokenizer, token, logprobs.own[index])
        entry["top_logprobs"] = [
            _token(tokenizer, top, logprob) for top, logprob in _tops(logprobs, index)
        ]
        content.append(entry)
    return {"content": content, "refusal": None}


def _completion_logprobs(
    tokenizer: Tokenizer, tokens: np.ndarray, logprobs: Logprobs
) -> dict[str, Any]:
    texts = [tokenizer.decode([token], skip_special_tokens=False) for token in tokens.tolist()]
    offsets = np.cumsum([0, *map(len, texts)])[:-1]
    tops = []
    for index, text in enumerate(texts):
        named = {text: float(logprobs.own[index])}
        for top, logprob in _tops(logprobs, index):
            named.setdefault(tokenizer.decode([top], skip_special_tokens=False), float(logprob))
        tops.append(named)
    return {
        "tokens": texts,
        "token_logprobs": [float(logprob) for logprob in logprobs.own],
        "top_logprobs": tops,
        "text_offset": offsets.tolist(),
    }


def _token(tokenizer: Tokenizer, token: int, logprob: np.floating) -> dict[str, Any]:
    text = tokenizer.decode([token], skip_special_tokens=False)
    # A token may be part of a character: then no text, and no bytes, are its own.
    is_whole = "\ufffd" not in text
    return {
        "token": text,
        "logprob": float(logprob),
        "bytes": list(text.encode()) if is_whole else None,
    }
