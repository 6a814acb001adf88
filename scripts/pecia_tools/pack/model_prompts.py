# SPDX-License-Identifier: Apache-2.0
"""What models for embedding and for reranking want to be asked, as their model cards write it.

Qwen3-Embedding: a document as it is, a query behind the task; the tokenizer adds the token whose hidden state is the
vector. Qwen3-Reranker: query and document in one prompt, whose next token is "yes" or "no". (Qwen3 Embedding:
Advancing Text Embedding and Reranking Through Foundation Models, §2; model cards of Qwen3-Embedding-0.6B and
Qwen3-Reranker-0.6B.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ..command import UserError
from .inputs import RERANK, VECTOR

DEFAULT_TASK = "Given a web search query, retrieve relevant passages that answer the query"
_EMBEDDED_QUERY = "Instruct: {task}\nQuery:{{text}}"
_RERANKED_PAIR = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n<Instruct>: {task}\n'
    "<Query>: {query}\n<Document>: {{text}}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
NAMES = ("qwen3-embedding", "qwen3-reranker")


@dataclass(frozen=True)
class ModelPrompt:
    template: str  # as an instruction template
    produce: int
    continuations: Optional[tuple[str, ...]] = None
    adds_special_tokens: bool = True


def model_prompt(name: str, task: Optional[str], query: Optional[str]) -> ModelPrompt:
    """`query`: the one of all documents; None: each row or line has a column of that name."""
    if name == "qwen3-embedding":
        if query is not None:
            raise UserError(
                "--query is for rerankers: pack queries as documents, with --instruction"
            )
        is_query = task is not None
        template = _EMBEDDED_QUERY.format(task=_literal(task or "")) if is_query else "{text}"
        return ModelPrompt(template, VECTOR)
    of_pair = _RERANKED_PAIR.format(
        task=_literal(task or DEFAULT_TASK), query="{query}" if query is None else _literal(query)
    )
    return ModelPrompt(of_pair, RERANK, ("yes", "no"), adds_special_tokens=False)


def _literal(text: str) -> str:
    """For an instruction template."""
    return text.replace("{", "{{").replace("}", "}}")
