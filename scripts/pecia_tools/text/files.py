# SPDX-License-Identifier: Apache-2.0
"""How answers look in text files, and where these stand."""

from __future__ import annotations

import re
from hashlib import sha256

from ..model_folder import ModelFolder
from ..runs.answers import answer_text
from ..runs.books import Book
from ..runs.citations import citation_of
from ..runs.questions import Questions
from ..runs.requests import Request
from ..runs.results import Results, Turn

PARTS_FOLDER = "parts"
INDEX = "index.csv"
UNSAFE = re.compile(r'[\x00-\x1f\x7f\\:*?"<>|%]')
LONGEST_NAME_BYTES = 240  # file systems take 255
LEFT_OUT = {"truncate_left": "first ", "truncate_middle": "middle "}


def file_name(name: str) -> str:
    """A relative path; what could leave the folder or confuse a file system is written %XX, and the end of a
    name that is too long for a file system becomes a hash."""
    parts = []
    for part in name.split("/"):
        if part in ("", ".", ".."):
            parts.append("%2E" * len(part) or "%2F")
        else:
            parts.append(_shortened(UNSAFE.sub(lambda m: f"%{ord(m.group()):02X}", part)))
    return "/".join(parts) + ".txt"


def _shortened(name: str) -> str:
    data = name.encode()
    if len(data) <= LONGEST_NAME_BYTES:
        return name
    digest = sha256(data).hexdigest()[:16]
    return f"{data[: LONGEST_NAME_BYTES - 20].decode(errors='ignore')}%{digest}"


def request_file(request: Request) -> str:
    name = file_name(request.request_id)
    return f"{PARTS_FOLDER}/{name}" if request.is_part else name


class TextLayout:
    """Answers of one run as text. `states` are the turns that are shown; `with_finish_reason` marks answers that
    were cut, `with_citations` says below each text where its document stands."""

    def __init__(
        self,
        results: Results,
        model: ModelFolder,
        states: set[str],
        with_finish_reason: bool,
        with_citations: bool,
    ) -> None:
        self._results = results
        self._tokenizer = model.tokenizer
        self._questions = Questions(model)
        self._states = states
        self._with_finish_reason = with_finish_reason
        self._with_citations = with_citations

    def is_shown(self, request: Request) -> bool:
        return any(turn.state in self._states for turn in request.generating)

    def request(self, request: Request) -> str:
        """Where a request has several turns, each answer stands below its question."""
        shown = [turn for turn in request.generating if self._is_shown(turn)]
        blocks = []
        document = request.turns[0]
        if document not in shown and (mark := self._truncation(request, document)):
            blocks.append(mark)
        for turn in shown:
            lines = [f"--- turn {turn.turn} ---"] if len(request.generating) > 1 else []
            if question := self._question(request, turn):
                lines += [question, ""]
            if mark := self._truncation(request, turn):
                lines += [mark, ""]
            blocks.append("\n".join([*lines, self._answer(turn)]))
        if self._with_citations and (citation := str(citation_of(request))):
            blocks.append(f"[source: {citation}]")
        return "\n\n".join(blocks) + "\n"

    def book(self, book: Book) -> str:
        """The parts in their order, each below a line that says which it is."""
        blocks = [f"[{book.coverage()}]\n"]
        for part in book.parts:
            if not any(self._is_shown(turn) for turn in part.generating):
                continue
            origin = part.origin
            title = f": {' '.join(origin.title.split())}" if origin.title.strip() else ""
            pages = citation_of(part).page_range()
            where = f" ({pages})" if pages else ""
            head = f"=== part {origin.part} of {origin.num_parts}{title}{where} ==="
            blocks.append(f"{head}\n{self.request(part)}")
        return "\n".join(blocks)

    def _is_shown(self, turn: Turn) -> bool:
        """A turn that is not finished is named beside ones that are, so that no gap goes unseen."""
        return turn.state in self._states or turn.state != "done"

    def _question(self, request: Request, turn: Turn) -> str:
        text = self._questions.of_turn(request, turn)
        return "\n".join(f"> {line}".rstrip() for line in text.splitlines())

    def _truncation(self, request: Request, turn: Turn) -> str:
        left_out = request.truncated(turn)
        if not left_out or turn.state not in ("done", "partial"):
            return ""
        where = LEFT_OUT.get(turn.settings.get("limits.over_length", ""), "")
        of = left_out + turn.prompt_tokens
        return f"[{'the ' if where else ''}{where}{left_out:,} of {of:,} tokens were left out]"

    def _answer(self, turn: Turn) -> str:
        if turn.state == "failed":
            return f"[failed: {turn.error}]"
        if turn.state == "open":
            return "[not answered yet]"
        if turn.state not in self._states:
            return f"[not finished yet: {turn.output_tokens:,} tokens so far]"
        text = answer_text(self._tokenizer, turn, self._results.tokens(turn)).strip()
        if turn.state == "partial":
            return f"{text}\n\n[not finished yet: {turn.output_tokens:,} tokens so far]"
        if self._with_finish_reason and turn.finish_reason == "length":
            return f"{text}\n\n[{_why_cut(turn)}]"
        return text


def _why_cut(turn: Turn) -> str:
    if turn.output_tokens == turn.slots:
        return f"the answer was cut at max_new_tokens = {turn.slots:,}"
    return f"the answer was cut after {turn.output_tokens:,} tokens, at the model's length"
