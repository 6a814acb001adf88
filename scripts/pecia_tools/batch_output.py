"""Turns as lines of an OpenAI batch output file."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from .results import TurnRow


def answer_text(tokenizer: Tokenizer, row: TurnRow) -> str:
    """The answer without the token that stopped it and without special tokens."""
    tokens = row.tokens[:-1] if row.finish_reason == "stop" else row.tokens
    return tokenizer.decode(tokens.tolist(), skip_special_tokens=True)


def batch_line(
    tokenizer: Tokenizer, row: TurnRow, custom_id: str, model: str, created: int
) -> dict[str, Any]:
    key = hashlib.sha256(f"{model}\0{row.request_id}\0{row.turn}".encode()).hexdigest()[:24]
    line: dict[str, Any] = {
        "id": f"batch_req_{key}",
        "custom_id": custom_id,
        "response": None,
        "error": None,
    }
    if row.state == "failed":
        line["error"] = {"code": "request_failed", "message": row.error}
        return line
    prompt_tokens = row.prompt_tokens + row.cached_tokens
    line["response"] = {
        "status_code": 200,
        "request_id": f"req_{key}",
        "body": {
            "id": f"chatcmpl-{key}",
            "object": "chat.completion",
            "created": created,
            "model": model,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": answer_text(tokenizer, row)},
                    "logprobs": _logprobs(tokenizer, row) if row.top_logprobs is not None else None,
                    "finish_reason": row.finish_reason,
                }
            ],
            "usage": {
                "prompt_tokens": prompt_tokens,
                "completion_tokens": len(row.tokens),
                "total_tokens": prompt_tokens + len(row.tokens),
                "prompt_tokens_details": {"cached_tokens": row.cached_tokens},
            },
        },
    }
    return line


def _logprobs(tokenizer: Tokenizer, row: TurnRow) -> dict[str, Any]:
    """Of the whole vocabulary (K = -1) only the token's own is given; the rest stays in the HDF5 file."""
    content = []
    for index, token in enumerate(row.tokens.tolist()):
        entry = _token(tokenizer, token, row.token_logprobs[index])
        entry["top_logprobs"] = (
            []
            if row.top_tokens is None
            else [
                _token(tokenizer, top, logprob)
                for top, logprob in zip(row.top_tokens[index].tolist(), row.top_logprobs[index])
            ]
        )
        content.append(entry)
    return {"content": content, "refusal": None}


def _token(tokenizer: Tokenizer, token: int, logprob: np.floating) -> dict[str, Any]:
    text = tokenizer.decode([token], skip_special_tokens=False)
    # A token may be part of a character: then no text, and no bytes, are its own.
    is_whole = "\ufffd" not in text
    return {
        "token": text,
        "logprob": float(logprob),
        "bytes": list(text.encode()) if is_whole else None,
    }
