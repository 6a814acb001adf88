# SPDX-License-Identifier: Apache-2.0
"""From documents and conversations to turns of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Callable, Optional

from ..command import UserError
from ..model_folder import ModelFolder
from .chat import ChatTemplate, Message
from .decoding import BadInput
from .inputs import Completion, Conversation, Document, Sampling
from .instruction_template import InstructionTemplate
from .located import located
from .packed import PackedRequest
from .prompt_kinds import ChainPrompt, CompletionPrompt, ForkPrompt, Prompt
from .token_offsets import AnyEncoding, encode_texts

BATCH_CHARACTERS = 1_000_000  # encoded together: enough for all threads, little enough to hold
QUESTION_MARK = "PeciaQuestionx"


class PromptMaker:
    """Puts texts into the templates."""

    def __init__(
        self,
        model: ModelFolder,
        is_chat: bool,
        system: Optional[str],
        template: InstructionTemplate,
        questions: list[str],
        defaults: Sampling,
        examples: Sequence[Message] = (),
        variables: Optional[dict[str, Any]] = None,
        adds_special_tokens: bool = True,
    ) -> None:
        """`adds_special_tokens`: the tokenizer adds its own to plain prompts.

        `examples`: messages of users and assistants that come before each prompt. `variables`: of the chat template,
        for requests that say nothing of them."""
        self._chat = ChatTemplate(model) if is_chat else None
        self._stop_token_ids = model.stop_token_ids if is_chat else None
        self._opening = [{"role": "system", "content": system}] if system else []
        self._before = ""  # each plain prompt
        if self._chat is not None:
            self._opening += examples
        else:
            self._before = "".join(f"{example['content']}\n\n" for example in examples)
        self._variables = variables or {}
        self._adds_special_tokens = adds_special_tokens
        self._template = template
        self._questions = questions
        self._defaults = defaults

    def of_document(self, document: Document) -> Prompt:
        sampling = document.sampling.over(self._defaults)
        if not self._questions:
            message = self._template.fill(document)
            text = self._render(self._opening, message, document.variables)
            prompt = ChainPrompt(document, [text], [sampling], self._stop_token_ids)
            prompt.special_tokens = [s and self._adds_special_tokens for s in prompt.special_tokens]
            prompt.document_begin = self._begin_of(document, self._opening, message, text)
            return prompt
        return self._fork(document, self._opening, [(q, sampling) for q in self._questions])

    def of_completion(self, completion: Completion) -> Prompt:
        if self._opening or self._before:
            raise UserError(
                f"{completion.origin}: a completion has no messages; leave out --system and --examples"
            )
        return CompletionPrompt(completion, completion.sampling.over(self._defaults))

    def of_fork(self, conversation: Conversation) -> Prompt:
        """The first turn is a document, every later one a question about it alone."""
        if len(conversation.turns) < 2:
            raise BadInput(
                conversation.origin, "--fork needs a document and questions, two turns or more"
            )
        (text, sampling), *questions = conversation.turns
        document = Document(
            conversation.name,
            text,
            conversation.origin,
            sampling,
            conversation.arrival_s,
            conversation.num_choices,
            variables=conversation.variables,
        )
        asked = [(question, own.over(self._defaults)) for question, own in questions]
        return self._fork(document, self._opening_of(conversation), asked)

    def of_conversation(self, conversation: Conversation) -> Prompt:
        opening = self._opening_of(conversation)
        texts = [text for text, _ in conversation.turns]
        samplings = [sampling.over(self._defaults) for _, sampling in conversation.turns]
        variables = self._variables_of(conversation)
        if self._chat is None:
            texts[0] = self._before + texts[0]
        elif conversation.is_continued:
            last = {"role": "assistant", "content": texts[0]}
            texts = [self._chat.render_continued([*opening, last], variables)]
        else:
            texts = self._chat.chain(opening, texts, variables)
        return ChainPrompt(conversation, texts, samplings, self._stop_token_ids)

    def _fork(
        self, document: Document, opening: list[Message], questions: list[tuple[str, Sampling]]
    ) -> Prompt:
        mark = QUESTION_MARK
        while mark in document.text:
            mark += "x"
        marked = self._template.fill(document, mark)
        shared = self._render(opening, marked, document.variables).partition(mark)[0]
        rests: list[str] = []
        begin = None
        for question, _ in questions:
            message = self._template.fill(document, question)
            text = self._render(opening, message, document.variables)
            if not text.startswith(shared):
                raise UserError(
                    f"{document.origin}: the chat template writes other text before one question than before "
                    "another, so the document cannot be shared. Pack one question at a time"
                )
            if not rests:
                begin = self._begin_of(document, opening, message, text)
            rests.append(text[len(shared) :])
        samplings = [sampling for _, sampling in questions]
        prompt = ForkPrompt(document, shared, rests, samplings, self._chat is None)
        prompt.document_begin = begin
        return prompt

    def _begin_of(
        self, document: Document, opening: list[Message], message: str, rendered: str
    ) -> Optional[int]:
        """The character of the rendered prompt that the document's text begins at; None where the chat template has
        changed the message, or where nobody will cite the document."""
        if document.structure is None or not self._template.columns.needs_text:
            return None
        marked = self._render(opening, QUESTION_MARK, document.variables)
        before = marked.partition(QUESTION_MARK)[0]
        begin = len(before) + self._template.text_begin(document)
        if rendered.startswith(before + message):
            return begin
        if rendered.startswith(before + message.strip()):  # many templates take off blank space
            return begin - (len(message) - len(message.lstrip()))
        return None

    def _opening_of(self, conversation: Conversation) -> list[Message]:
        if self._opening and conversation.opening:
            raise UserError(
                f"{conversation.origin}: has messages of its own before the prompt; leave out --system "
                "and --examples"
            )
        if self._chat is None and (conversation.opening or conversation.is_continued):
            raise UserError(
                f"{conversation.origin}: messages need a chat template; --no-chat packs plain prompts only"
            )
        return self._opening + conversation.opening

    def _render(self, opening: list[Message], text: str, variables: dict[str, Any]) -> str:
        if self._chat is None:
            if variables:
                raise UserError("chat_template_kwargs need a chat template; leave out --no-chat")
            return self._before + text
        messages = [*opening, {"role": "user", "content": text}]
        return self._chat.render(messages, {**self._variables, **variables})

    def _variables_of(self, conversation: Conversation) -> dict[str, Any]:
        if self._chat is None and conversation.variables:
            raise UserError("chat_template_kwargs need a chat template; leave out --no-chat")
        return {**self._variables, **conversation.variables}


def _raise(problem: BadInput) -> None:
    raise problem


def encode(
    model: ModelFolder,
    prompts: Iterable[Prompt],
    refuse: Callable[[BadInput], None] = _raise,
) -> Iterator[PackedRequest]:
    """Encodes in batches, in order. `refuse` takes what cannot be, and the others go on if it returns."""
    batch: list[Prompt] = []
    characters = 0
    for prompt in prompts:
        batch.append(prompt)
        characters += sum(map(len, prompt.texts))
        if characters >= BATCH_CHARACTERS:
            yield from _encode_batch(model, batch, refuse)
            batch, characters = [], 0
    yield from _encode_batch(model, batch, refuse)


def _encode_texts(model: ModelFolder, batch: list[Prompt]) -> list[list[AnyEncoding]]:
    """The encodings of each prompt's texts."""
    found: dict[tuple[int, int], AnyEncoding] = {}
    for special_tokens in (False, True):
        places = [
            (p, t)
            for p, prompt in enumerate(batch)
            for t in range(len(prompt.texts))
            if prompt.special_tokens[t] == special_tokens
        ]
        texts = [batch[p].texts[t] for p, t in places]
        encodings = encode_texts(model.tokenizer, texts, special_tokens)
        found.update(zip(places, encodings))
    return [[found[p, t] for t in range(len(prompt.texts))] for p, prompt in enumerate(batch)]


def _encode_batch(
    model: ModelFolder, batch: list[Prompt], refuse: Callable[[BadInput], None]
) -> Iterator[PackedRequest]:
    for prompt, encodings in zip(batch, _encode_texts(model, batch)):
        source = prompt.source
        turns = prompt.turns(encodings)
        if turns is None:
            full = prompt.in_full()
            turns = full.turns(_encode_texts(model, [full])[0])
        assert turns is not None
        turns = [replace(t, continuations=_continuations(model, t.sampling)) for t in turns]
        empty = next((number for number, turn in enumerate(turns, 1) if not turn.tokens), None)
        if empty is not None:
            refuse(BadInput(source.origin, f"turn {empty} has no tokens", source.name))
            continue
        yield PackedRequest(
            source.name,
            source.origin,
            turns,
            source.arrival_s,
            prompt.is_fork,
            prompt.is_apart,
            source.num_choices,
            endpoint=source.endpoint,
            dimensions=getattr(source, "dimensions", None),
            encoding_format=getattr(source, "encoding_format", ""),
            **_origin_of(prompt, encodings, len(turns[0].tokens)),
        )


def _continuations(model: ModelFolder, sampling: Sampling) -> list[list[int]]:
    """Each encoded by itself: a word that follows a space brings that space along."""
    return [
        model.tokenizer.encode(text, add_special_tokens=False).ids
        for text in sampling.continuations or ()
    ]


def _origin_of(prompt: Prompt, encodings: list[AnyEncoding], num_tokens: int) -> dict[str, Any]:
    """What a request keeps of its document."""
    document = prompt.source
    if not isinstance(document, Document):
        return {}
    return {
        "place": document.place,
        "document_title": document.structure.title if document.structure else "",
        "positions": located(document, prompt.document_begin, encodings[0], num_tokens),
    }
