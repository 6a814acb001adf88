"""From documents and conversations to turns of tokens."""

from __future__ import annotations

import string
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from tokenizers import Encoding

from .chat import ChatTemplate, Message
from .command import UserError, suggestion
from .inputs import Completion, Conversation, Document, Place, Sampling, Source
from .model_folder import ModelFolder
from .request_options import LEAST_SEED

BATCH_CHARACTERS = 4_000_000  # encoded together: enough for all threads, little enough to hold
PLACES = (
    "text",
    "name",
    "book",
    "title",
    "part",
    "parts",
)  # in a template; with questions {question}
QUESTION_MARK = "PeciaQuestionx"


@dataclass(frozen=True)
class PackedTurn:
    tokens: Sequence[int]
    sampling: Sampling


@dataclass(frozen=True)
class PackedRequest:
    name: str
    origin: str
    turns: list[PackedTurn]
    arrival_s: Optional[float] = None
    is_fork: bool = False  # later turns follow the first one, not each other
    num_choices: int = 1
    choice: int = 0  # which of them this is
    custom_id: str = ""  # what several choices have in common; "": the name
    endpoint: str = ""
    place: Optional[Place] = None

    @property
    def context_tokens(self) -> int:
        """Of the longest prompt, without the answers before it."""
        lengths = [len(turn.tokens) for turn in self.turns]
        return lengths[0] + max(lengths[1:], default=0) if self.is_fork else sum(lengths)

    def choices(self) -> Iterator[PackedRequest]:
        """The request as often as it is asked for, with names and seeds of their own."""
        if self.num_choices == 1:
            yield self
            return
        for choice in range(self.num_choices):
            turns = [
                replace(turn, sampling=_reseeded(turn.sampling, choice)) for turn in self.turns
            ]
            name = f"{self.name}~{choice + 1}"
            yield replace(self, name=name, turns=turns, choice=choice, custom_id=self.name)


def _reseeded(sampling: Sampling, choice: int) -> Sampling:
    """Without a seed, one is made of the request's name. The largest seed is followed by the smallest."""
    if sampling.seed is None:
        return sampling
    span = 2**64 - 1  # seeds from LEAST_SEED to 2^63 - 1
    return replace(sampling, seed=(sampling.seed - LEAST_SEED + choice) % span + LEAST_SEED)


class InstructionTemplate:
    """Fills in {text}, {name}, {book}, {title}, {part}, {parts} and, with questions, {question}; {{ and }} are
    literal braces."""

    def __init__(self, template: str, where: str, has_questions: bool) -> None:
        known = {*PLACES, *(["question"] if has_questions else [])}
        try:
            self._pieces = [
                (literal, name) for literal, name, _, _ in string.Formatter().parse(template)
            ]
        except ValueError as error:
            raise UserError(
                f"{where}: {error}. Write a literal brace twice: {{{{ or }}}}"
            ) from error
        names = [name for _, name in self._pieces if name is not None]
        for name in names:
            if name not in known:
                raise UserError(
                    f"{where}: placeholder {{{name}}} is not known{suggestion(name, known)}; known are "
                    f"{', '.join(f'{{{k}}}' for k in sorted(known))}. A literal brace is written twice"
                )
        for name in ("question", "text"):
            if name in known and names.count(name) != 1:
                raise UserError(
                    f"{where}: {{{name}}} must occur once, not {names.count(name)} times"
                )
        if has_questions and names.index("question") < names.index("text"):
            raise UserError(
                f"{where}: {{question}} must come after {{text}}: what stands before it is shared"
            )

    @property
    def names_title(self) -> bool:
        return any(name == "title" for _, name in self._pieces)

    def fill(self, document: Document, question: str = "") -> str:
        place = document.place or Place(document.name)
        values = {
            "text": document.text,
            "name": document.name,
            "question": question,
            "book": place.book,
            "title": place.title,
            "part": str(place.part),
            "parts": str(place.parts),
        }
        return "".join(
            literal + ("" if name is None else values[name]) for literal, name in self._pieces
        )


class Prompt(ABC):
    """A request as texts to encode, and how its turns are made of their tokens."""

    def __init__(self, source: Source, texts: list[str], special_tokens: list[bool]) -> None:
        self.source = source
        self.texts = texts
        self.special_tokens = special_tokens  # per text: whether the tokenizer adds its own (BOS)

    is_fork = False

    @abstractmethod
    def turns(self, encodings: list[Encoding]) -> list[PackedTurn]: ...


class ChainPrompt(Prompt):
    """One turn, or turns that follow each other. With a chat template, the text of a later turn begins with
    the token that ends an answer; the answer brings it along, so it is left out here."""

    def __init__(
        self,
        source: Source,
        texts: list[str],
        samplings: list[Sampling],
        stop_token_ids: Optional[list[int]],
    ) -> None:
        is_plain = stop_token_ids is None
        super().__init__(source, texts, [is_plain and turn == 0 for turn in range(len(texts))])
        self._samplings = samplings
        self._stop_token_ids = stop_token_ids

    def turns(self, encodings: list[Encoding]) -> list[PackedTurn]:
        packed = []
        for turn, (encoding, sampling) in enumerate(zip(encodings, self._samplings)):
            ids = encoding.ids
            if turn > 0 and self._stop_token_ids is not None:
                if not ids or ids[0] not in self._stop_token_ids:
                    raise UserError(
                        f"{self.source.origin}: after an assistant message the chat template writes "
                        f"{self.texts[turn][:20]!r}, which does not begin with one of the model's stop tokens "
                        f"({self._stop_token_ids}), so turns cannot be joined to answers. Pack them as separate "
                        "requests, or correct eos_token_id in generation_config.json"
                    )
                ids = ids[1:]
            packed.append(PackedTurn(ids, sampling))
        return packed


class ForkPrompt(Prompt):
    """Questions about one document. Each text is the whole prompt of one question; the tokens that all have in
    common before the question are the shared first turn, so that shared + rest is what the tokenizer makes of
    the whole, token for token."""

    is_fork = True

    def __init__(
        self,
        source: Source,
        texts: list[str],
        shared_text: str,
        samplings: list[Sampling],
        special_tokens: bool,
    ) -> None:
        super().__init__(source, texts, [special_tokens] * len(texts))
        self._shared_characters = len(shared_text)
        self._samplings = samplings
        if not all(text.startswith(shared_text) for text in texts):
            raise UserError(
                f"{source.origin}: the chat template writes other text before one question than before "
                "another, so the document cannot be shared. Pack one question at a time"
            )

    def turns(self, encodings: list[Encoding]) -> list[PackedTurn]:
        shared = (
            min(
                bisect_right([end for _, end in encoding.offsets], self._shared_characters)
                for encoding in encodings
            )
            if encodings
            else 0
        )
        first = encodings[0].ids[:shared]
        for encoding in encodings[1:]:
            shared = min(shared, _common_length(first, encoding.ids))
        if shared == 0:
            raise UserError(f"{self.source.origin}: the questions' prompts have no token in common")
        none = 0 if self._samplings[0].max_new_tokens is not None else None
        document = PackedTurn(
            first[:shared], replace(self._samplings[0], max_new_tokens=none, stop=None)
        )
        return [document] + [
            PackedTurn(encoding.ids[shared:], sampling)
            for encoding, sampling in zip(encodings, self._samplings)
        ]


class CompletionPrompt(Prompt):
    """A text with the tokenizer's own special tokens, or tokens as given."""

    def __init__(self, source: Completion, sampling: Sampling) -> None:
        self._tokens = None if isinstance(source.prompt, str) else source.prompt
        texts = [source.prompt] if isinstance(source.prompt, str) else []
        super().__init__(source, texts, [True] * len(texts))
        self._sampling = sampling

    def turns(self, encodings: list[Encoding]) -> list[PackedTurn]:
        tokens = encodings[0].ids if self._tokens is None else self._tokens
        return [PackedTurn(tokens, self._sampling)]


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
    ) -> None:
        self._chat = ChatTemplate(model) if is_chat else None
        self._stop_token_ids = model.stop_token_ids if is_chat else None
        self._opening = [{"role": "system", "content": system}] if system else []
        self._template = template
        self._questions = questions
        self._defaults = defaults

    def of_document(self, document: Document) -> Prompt:
        sampling = document.sampling.over(self._defaults)
        if not self._questions:
            text = self._render(self._opening, self._template.fill(document))
            return ChainPrompt(document, [text], [sampling], self._stop_token_ids)
        return self._fork(document, self._opening, [(q, sampling) for q in self._questions])

    def of_completion(self, completion: Completion) -> Prompt:
        if self._opening:
            raise UserError(
                f"{completion.origin}: a completion has no messages; leave out --system"
            )
        return CompletionPrompt(completion, completion.sampling.over(self._defaults))

    def of_fork(self, conversation: Conversation) -> Prompt:
        """The first turn is a document, every later one a question about it alone."""
        if len(conversation.turns) < 2:
            raise UserError(
                f"{conversation.origin}: --fork needs a document and questions, two turns or more"
            )
        (text, sampling), *questions = conversation.turns
        document = Document(
            conversation.name,
            text,
            conversation.origin,
            sampling,
            conversation.arrival_s,
            conversation.num_choices,
        )
        asked = [(question, own.over(self._defaults)) for question, own in questions]
        return self._fork(document, self._opening_of(conversation), asked)

    def of_conversation(self, conversation: Conversation) -> Prompt:
        opening = self._opening_of(conversation)
        texts = [text for text, _ in conversation.turns]
        samplings = [sampling.over(self._defaults) for _, sampling in conversation.turns]
        if self._chat is not None:
            texts = self._chat.chain(opening, texts)
        return ChainPrompt(conversation, texts, samplings, self._stop_token_ids)

    def _fork(
        self, document: Document, opening: list[Message], questions: list[tuple[str, Sampling]]
    ) -> Prompt:
        mark = QUESTION_MARK
        while mark in document.text:
            mark += "x"
        shared = self._render(opening, self._template.fill(document, mark)).partition(mark)[0]
        texts = [self._render(opening, self._template.fill(document, q)) for q, _ in questions]
        samplings = [sampling for _, sampling in questions]
        return ForkPrompt(document, texts, shared, samplings, self._chat is None)

    def _opening_of(self, conversation: Conversation) -> list[Message]:
        if self._opening and conversation.opening:
            raise UserError(
                f"{conversation.origin}: has messages of its own before the prompt; leave out --system"
            )
        if self._chat is None and conversation.opening:
            raise UserError(
                f"{conversation.origin}: messages need a chat template; --no-chat packs plain prompts only"
            )
        return self._opening + conversation.opening

    def _render(self, opening: list[Message], text: str) -> str:
        if self._chat is None:
            return text
        return self._chat.render([*opening, {"role": "user", "content": text}])


def encode(model: ModelFolder, prompts: Iterable[Prompt]) -> Iterator[PackedRequest]:
    """Encodes in batches, in order."""
    batch: list[Prompt] = []
    characters = 0
    for prompt in prompts:
        batch.append(prompt)
        characters += sum(map(len, prompt.texts))
        if characters >= BATCH_CHARACTERS:
            yield from _encode_batch(model, batch)
            batch, characters = [], 0
    yield from _encode_batch(model, batch)


def _encode_batch(model: ModelFolder, batch: list[Prompt]) -> Iterator[PackedRequest]:
    encodings: dict[tuple[int, int], Encoding] = {}
    for special_tokens in (False, True):
        places = [
            (p, t)
            for p, prompt in enumerate(batch)
            for t in range(len(prompt.texts))
            if prompt.special_tokens[t] == special_tokens
        ]
        texts = [batch[p].texts[t] for p, t in places]
        encodings.update(
            zip(places, model.tokenizer.encode_batch(texts, add_special_tokens=special_tokens))
        )
    for p, prompt in enumerate(batch):
        turns = prompt.turns([encodings[p, t] for t in range(len(prompt.texts))])
        source = prompt.source
        yield PackedRequest(
            source.name,
            source.origin,
            turns,
            source.arrival_s,
            prompt.is_fork,
            source.num_choices,
            endpoint=source.endpoint,
            place=source.place if isinstance(source, Document) else None,
        )


def _common_length(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
