# SPDX-License-Identifier: Apache-2.0
"""The page of summaries: what each was made of."""

import unittest
from html.parser import HTMLParser

from pecia_tools.runs.citations import Citation
from pecia_tools.summarize.page import END, HEAD, book_section, made_of
from pecia_tools.summarize.tree import Gap, Node, merged


def node(part: int, book: str = "b") -> Node:
    return Node(book, (part,), 5, "", Citation("T"), f"text {part}")


PARTS = [node(n) for n in (1, 2, 3, 4, 5)]
PAIRS = [merged((PARTS[0], PARTS[1]), "first"), merged((PARTS[2], PARTS[3]), "second"), PARTS[4]]
WHOLE = merged(tuple(PAIRS), "a < b & all")
LEVELS = [[*PARTS, node(1, "other")], PAIRS, [WHOLE]]


class Outline(HTMLParser):
    """Texts by the number of <details> that they are in; all elements must be closed in their order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[tuple[int, str]] = []
        self.feed(page)
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip() and self.open[-1] in ("p", "h2"):
            self.texts.append((self.open.count("details"), data))


class Page(unittest.TestCase):
    def test_a_summary_is_made_of_those_of_the_round_that_changed_it(self) -> None:
        below, before = made_of(WHOLE, LEVELS)
        self.assertEqual((below, before), (PAIRS, LEVELS[:1]))
        self.assertEqual(made_of(PAIRS[0], before)[0], PARTS[:2])
        self.assertEqual(made_of(PARTS[4], before)[0], [])

    def test_the_tree_is_nested(self) -> None:
        page = HEAD + book_section("b", "all read", WHOLE, LEVELS, []) + END
        texts = Outline(page).texts
        self.assertEqual(texts[:2], [(0, "b"), (0, "all read")])
        for depth, text in ((0, "a < b & all"), (1, "first"), (2, "text 1"), (2, "text 4"), (1, "text 5")):
            self.assertEqual([found for found in texts if found[1] == text], [(depth, text)])

    def test_a_book_without_a_summary_shows_what_there_is(self) -> None:
        gap = Gap("b", (1, 2, 3, 4, 5), 5, 3, "no room")
        texts = Outline(HEAD + book_section("b", "some", None, LEVELS[:2], [gap]) + END).texts
        self.assertIn((0, "missing: parts 1-5 of 5, merged in round 3: no room"), texts)
        self.assertIn((1, "second"), texts)
        self.assertIn((2, "text 3"), texts)
