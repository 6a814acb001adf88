# SPDX-License-Identifier: Apache-2.0
"""Keys of the OpenAI API, vLLM and Mistral that a request of a batch cannot have, and which values of them change
nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..command import suggestion
from .json_line import Line, Path, shown

TOOLS = "answers cannot call tools"
WHOLE_JOB = "it holds for a whole job: set it under generation in the job file"

# The values that ask for nothing besides null, and why no other one is taken.
UNSUPPORTED: dict[str, tuple[tuple[Any, ...], str]] = {
    "stream": ((False,), "an answer is written when it is whole"),
    "stream_options": ((), "an answer is written when it is whole"),
    "echo": ((False,), "the prompt is not repeated in the answer"),
    "tools": (([],), TOOLS),
    "tool_choice": (("none", "auto"), TOOLS),
    "functions": (([],), TOOLS),
    "function_call": (("none", "auto"), TOOLS),
    "modalities": ((["text"],), "only text is read and written"),
    "audio": ((), "only text is read and written"),
    "images": (([],), "only text is read and written"),
    "mm_processor_kwargs": (({},), "only text is read and written"),
    "suffix": (("",), "a text is continued at its end"),
    "best_of": ((1,), "n choices are made and all are given"),
    "use_beam_search": ((False,), "answers are sampled, or greedy with temperature 0"),
    "prediction": ((), "drafts are made by the run itself (generation.drafts)"),
    "web_search_options": ((), "nothing is searched"),
    "safe_prompt": ((False,), "no prompt is added; write it as a system message"),
    "stop_token_ids": (([],), WHOLE_JOB),
    "min_tokens": ((0,), "an answer may end at once"),
    "skip_special_tokens": ((True,), "special tokens are not part of an answer's text"),
    "add_special_tokens": ((True,), "the chat template or the tokenizer decides on them"),
    "include_stop_str_in_output": ((False,), "an answer ends before its stop string"),
    "chat_template": ((), "the model's own template is used"),
    "documents": (([],), "write them into a message"),
    "verbosity": (("medium",), "the models that are run do not know it"),
    "prompt_logprobs": ((0,), WHOLE_JOB),
}
LABELS = (  # say who asks, or how a service is to go about it
    *("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"),
    *("parallel_tool_calls", "priority", "request_id"),
)


@dataclass(frozen=True)
class JobSettings:
    """What lines may ask for although only the whole job can grant it, and what the model allows."""

    model_names: tuple[str, ...]
    logprobs: int  # of the job file's generation.logprobs
    vocab_size: int
    hidden_size: int = 0  # numbers of a vector


def is_known(key: str) -> bool:
    """Whether check_key() has more to say of the key than that nobody knows it."""
    return key in UNSUPPORTED or key in LABELS or key in ("model", "logprobs", "top_logprobs")


def check_key(
    line: Line, path: Path, value: Any, job: JobSettings, known: Sequence[str], where: str
) -> None:
    """Raises unless the last key of `path` asks for nothing, or for what the job grants. `known` are the keys that are
    read elsewhere."""
    key = str(path[-1])
    if key in UNSUPPORTED:
        neutral, why = UNSUPPORTED[key]
        if value is not None and not any(_is_same(value, other) for other in neutral):
            raise line.error(path, f"is {shown(value)}, which is not supported: {why}")
    elif key == "model":
        if value is not None and str(value).rstrip("/").split("/")[-1] not in job.model_names:
            raise line.error(
                path,
                f"is {shown(value)}, but --model is '{job.model_names[0]}'. If they are the "
                "same model, say so with --served-model-name",
            )
    elif key in ("logprobs", "top_logprobs"):
        _check_logprobs(line, path, value, job)
    elif key not in LABELS and value is not None:
        hint = suggestion(key, known) or f"; known are {', '.join(known)}"
        raise line.error(path, f"is not known {where}{hint}")


def _check_logprobs(line: Line, path: Path, value: Any, job: JobSettings) -> None:
    wanted = line.number(
        int(value) if isinstance(value, bool) else value,
        path,
        True,
        lambda v: v >= 0,
        "true, false or a whole number from 0",
    )
    if wanted is not None and wanted > job.logprobs:
        raise line.error(
            path,
            f"asks for {shown(wanted)} log-probabilities; they are set for a whole job. Set "
            f"generation.logprobs: {shown(wanted)} in the job file and pack with --logprobs {shown(wanted)}",
        )


def _is_same(value: Any, other: Any) -> bool:
    """1 is not true, and 1.0 is 1."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)
