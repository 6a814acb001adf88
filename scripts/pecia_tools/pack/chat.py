# SPDX-License-Identifier: Apache-2.0
"""Chat templates, rendered as transformers' apply_chat_template renders them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, ClassVar, NoReturn, Optional

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ..command import UserError, suggestion
from ..model_folder import ModelFolder
from .limits import TimeIsUp, memory_limit, time_limit

Message = dict[str, str]
RENDER_LIMIT_S = 10.0  # templates take milliseconds, also for books
RENDER_LIMIT_BYTES = 1 << 30  # beside what some copies of the messages take
COPIES_BYTES = 64  # for each character of the messages
LONGEST_ADDED = 1 << 24  # characters beside some copies of the messages
COPIES = 8
TAIL = 40  # characters of a message that must stand at the prompt's end


class TemplateRefusal(UserError):
    """The chat template takes other messages, but not these."""


class _GenerationBlock(Extension):
    """{% generation %} … {% endgeneration %} marks text for training; here it is only its body."""

    tags: ClassVar[set[str]] = {"generation"}  # type: ignore[misc]  # Jinja declares it without ClassVar

    def parse(self, parser: Any) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.exceptions.TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    # Unlike jinja2's own filter this does not escape for HTML.
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


class ChatTemplate:
    def __init__(self, model: ModelFolder) -> None:
        self._where = model.path
        source = model.chat_template_source
        if source is None:
            raise UserError(
                f"{model.path}: no chat template (neither chat_template.jinja nor chat_template in "
                "tokenizer_config.json). For a base model pack plain prompts with --no-chat"
            )
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        try:
            with memory_limit(RENDER_LIMIT_BYTES), time_limit(RENDER_LIMIT_S):
                self._template = environment.from_string(source)
        except jinja2.exceptions.TemplateSyntaxError as error:
            raise UserError(
                f"{model.path}: chat template, line {error.lineno}: {error.message}"
            ) from error
        except (TimeIsUp, MemoryError, RecursionError) as error:
            raise UserError(
                f"{model.path}: the chat template cannot be compiled: it needs too much time, memory or depth"
            ) from error
        self._special_tokens = model.special_tokens
        self._names = {name.name for name in environment.parse(source).find_all(nodes.Name)}

    def render(
        self,
        messages: list[Message],
        variables: Optional[dict[str, Any]] = None,
        for_answer: bool = True,
    ) -> str:
        """The text that stands before the next assistant message; without `for_answer`, the messages alone. `variables`
        are the template's own, as enable_thinking; one that it does not use is refused."""
        of = f"the chat template of {self._where}"
        given = variables or {}
        for name in given:
            if name not in self._names:
                raise TemplateRefusal(
                    f"{of} does not use '{name}'{suggestion(name, self._names)}"
                )
        values = {"tools": None, "documents": None, **self._special_tokens, **given}
        characters = sum(len(str(message.get("content") or "")) for message in messages)
        memory_bytes = RENDER_LIMIT_BYTES + COPIES_BYTES * characters
        try:
            with memory_limit(memory_bytes), time_limit(RENDER_LIMIT_S):
                text = self._template.render(
                    {**values, "messages": messages, "add_generation_prompt": for_answer}
                )
            if len(text) <= LONGEST_ADDED + COPIES * characters:
                return text
            reason = f"{of} makes {len(text)} characters of {characters}"
        except TimeIsUp:
            reason = f"{of} does not end: it took {RENDER_LIMIT_S:g} s"
        except MemoryError:
            reason = f"{of} needs more than {memory_bytes >> 20} MiB of memory"
        except jinja2.exceptions.TemplateError as error:
            reason = f"{of} refuses these messages: {error}"
        except Exception as error:  # whatever the template's own expressions raise
            reason = f"{of} fails with these messages: {type(error).__name__}: {error}"
        raise TemplateRefusal(reason)

    def render_continued(
        self, messages: list[Message], variables: Optional[dict[str, Any]] = None
    ) -> str:
        """The text up to the end of the last message's content, which the answer goes on with."""
        content = messages[-1]["content"]
        mark = "PeciaContinuesx"
        while any(mark in message["content"] for message in messages):
            mark += "x"
        marked = [*messages[:-1], {**messages[-1], "content": content + mark}]
        before, found, after = self.render(marked, variables, for_answer=False).partition(mark)
        if not found or mark in after or not before.rstrip().endswith(content.strip()[-TAIL:]):
            raise TemplateRefusal(
                f"the chat template of {self._where} changes the last message, so it cannot be continued"
            )
        return before

    def chain(
        self,
        opening: list[Message],
        user_texts: list[str],
        variables: Optional[dict[str, Any]] = None,
    ) -> list[str]:
        """The texts of a conversation's turns, without the answers between them.

        Text 0 is what stands before the first answer; a later text begins with the token that ends an
        assistant message. Answers are not known yet, so marks stand for them, and the template is
        refused unless every turn is what the shorter conversation gave: a template that rewrites
        earlier turns cannot be continued over a KV cache.
        """
        marks = [f"PeciaAnswer{i}x" for i in range(len(user_texts) - 1)]
        while any(mark in text for mark in marks for text in user_texts):
            marks = [mark + "x" for mark in marks]
        messages = list(opening)
        texts: list[str] = []
        expected = ""
        for turn, text in enumerate(user_texts):
            messages.append({"role": "user", "content": text})
            rendered = self.render(messages, variables)
            if turn == 0:
                texts.append(rendered)
            else:
                before, found, after = rendered.partition(marks[turn - 1])
                # Some templates put a space before an answer; there the model generates it itself.
                if not found or before.rstrip() != expected.rstrip():
                    raise UserError(
                        f"{self._where}: the chat template changes earlier turns when turn {turn + 1} is added, "
                        "so a conversation cannot go on over its KV cache. Pack the turns as separate requests"
                    )
                texts.append(after.lstrip())
            expected = rendered
            if turn < len(marks):
                messages.append({"role": "assistant", "content": marks[turn]})
        return texts
