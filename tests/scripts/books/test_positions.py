# SPDX-License-Identifier: Apache-2.0
"""Chapters and pages of documents, in texts and in shards."""

import unittest
from typing import Any

import h5py
import numpy as np

from book_files import make_epub, make_pdf
from pecia_tools.pack import main as pack
from pecia_tools.pack.headings import make_heading
from pecia_tools.pack.structure import Page, Structure, positions
from support import CHATML, PROSE, ScriptTest, make_model, make_tokenizer, quietly

BOOK = f"CHAPTER 1. One.\n\n{PROSE}\n\nCHAPTER 2. Two.\n\n{PROSE}".strip()


class Ranges(unittest.TestCase):
    STRUCTURE = Structure(
        headings=tuple(
            make_heading(b, b, d, t) for b, d, t in ((2, 1, "A"), (4, 2, "a"), (8, 1, "B"))
        ),
        pages=(Page(0, "i"), Page(5, "1"), Page(5, "2"), Page(9, "3")),
    )

    def ranges(self, begin: int, end: int) -> dict[str, tuple[int, int]]:
        return {p.label: (p.begin, p.end) for p in positions(self.STRUCTURE, begin, end)}

    def test_chapters_end_at_the_next_that_is_as_high(self) -> None:
        self.assertEqual(
            self.ranges(0, 10),
            {"A": (2, 8), "a": (4, 8), "B": (8, 10), "i": (0, 5), "2": (5, 9), "3": (9, 10)},
        )

    def test_piece_has_what_lies_in_it(self) -> None:
        self.assertEqual(self.ranges(6, 8), {"A": (6, 8), "a": (6, 8), "2": (6, 8)})
        self.assertEqual(self.ranges(0, 2), {"i": (0, 2)})


class InShards(ScriptTest):
    tokenizer = make_tokenizer()

    def pack(self, *arguments: object, template: str = CHATML) -> list[dict[str, Any]]:
        """Each request's positions by label: kind, depth, characters, and the text of their tokens."""
        model = make_model(self.folder / "tiny", template)
        self.shard = self.folder / "out.h5"
        quietly(pack.main, "--model", model, "--output", self.shard, "--force", *arguments)
        with h5py.File(self.shard) as file:
            turns, requests = file["turn_offsets"][:], file["request_offsets"][:]
            group = file["positions"]
            offsets = group["offsets"][:]
            return [
                {
                    group["label"][row].decode(): (
                        int(group["kind"][row]),
                        int(group["depth"][row]),
                        tuple(group["characters"][row].tolist()),
                        self.decoded(file, int(turns[request]), group["tokens"][row]),
                    )
                    for row in range(offsets[number], offsets[number + 1])
                }
                for number, request in enumerate(requests[:-1])
            ]

    def decoded(self, file: h5py.File, turn_begin: int, tokens: np.ndarray) -> str:
        if tokens[0] < 0:
            return "unknown"
        begin, end = (turn_begin + tokens).tolist()
        return self.tokenizer.decode(file["tokens"][begin:end], skip_special_tokens=False).strip()

    def chapters(self, text: str) -> dict[str, Any]:
        at = text.index("CHAPTER 2")
        return {
            "CHAPTER 1. One.": (0, 2, (0, at), text[:at].strip()),
            "CHAPTER 2. Two.": (0, 2, (at, len(text)), text[at:]),
        }

    def test_tokens_of_a_chapter_in_a_prompt_with_templates(self) -> None:
        path = self.write("a.txt", BOOK)
        template = self.write("t", "  {name}: {text}\n\nSummarize.")
        for arguments in ((), ("--no-chat",), ("--template", template, "--system", "Short.")):
            with self.subTest(arguments):
                self.assertEqual(self.pack(path, *arguments), [self.chapters(BOOK)])

    def test_chat_template_that_takes_off_blank_space_or_rewrites(self) -> None:
        path = self.write("a.txt", BOOK)
        template = self.write("t", "  {text}\n\n")
        trimming = CHATML.replace("message['content']", "message['content'] | trim")
        found = self.pack(path, "--template", template, template=trimming)
        self.assertEqual(found, [self.chapters(BOOK)])
        upper = CHATML.replace("message['content']", "message['content'] | upper")
        (found,) = self.pack(path, template=upper)
        self.assertEqual([text for *_, text in found.values()], ["unknown"] * 2)

    def test_questions_share_the_document_that_has_the_positions(self) -> None:
        text = BOOK.replace(PROSE, PROSE * 40).strip()
        path = self.write("a.txt", text)
        found = self.pack(path, "--question", "Who?", "--question", "Why?", "--no-chat")
        self.assertEqual(found, [self.chapters(text)])

    def test_parts_have_their_piece_of_chapters_and_pages(self) -> None:
        lines = ["One two three four five six seven eight nine ten."] * 6
        path = self.write("a.pdf", make_pdf([lines] * 3, [("Beginning", 0), ("Later", 1)]))
        found = self.pack(path, "--split-tokens", 200, "--no-chat")
        self.assertGreater(len(found), 3)
        self.assertEqual(list(found[0]), ["1", "Beginning"])
        self.assertEqual(list(found[-1]), ["3", "Later"])
        page = [entry["2"] for entry in found if "2" in entry]
        self.assertEqual(" ".join(text for *_, text in page).split(), " ".join(lines).split())
        self.assertTrue(all(a[2][1] <= b[2][0] for a, b in zip(page, page[1:])))

    def test_chapters_of_an_epub_are_where_parts_begin(self) -> None:
        pages = {"1": "<p>One.</p><p>Loomings</p><p>Two.</p>", "2": "<p>Three.</p>"}
        nav = '<nav epub:type="toc"><a href="text/1">Loomings</a><a href="text/2">The Bag</a></nav>'
        self.pack(self.write("a.epub", make_epub(pages, nav)), "--split-at", "chapter", "--no-chat")
        with h5py.File(self.shard) as file:
            self.assertEqual(file["title"][:].tolist(), [b"Loomings", b"The Bag"])
            self.assertEqual(file["document_title"][:].tolist(), [b"The Scribes"] * 2)

    def test_lines_of_jsonl_and_texts_without_headings_have_none(self) -> None:
        line = self.write_lines("b.jsonl", {"id": "b", "prompt": BOOK})
        for path in (self.write("a.txt", "No heading."), line):
            with self.assertRaises(KeyError):
                self.pack(path)
