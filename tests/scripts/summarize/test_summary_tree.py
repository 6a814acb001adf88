# SPDX-License-Identifier: Apache-2.0
"""How summaries of parts are put together."""

import unittest
from collections.abc import Sequence

from pecia_tools.runs.citations import Citation
from pecia_tools.summarize.tree import Node, groups, merged

SIZE = 10  # tokens of each summary


def node(part: int, chapter: str = "", num_parts: int = 9) -> Node:
    where = Citation("T", (chapter, chapter), (str(10 * part), str(10 * part + 9)))
    return Node("b", (part,), num_parts, chapter, where, f"text {part}")


def shapes(nodes: Sequence[Node], room: int) -> list[list[int]]:
    """The parts in each group."""
    return [
        [part for n in group for part in n.parts] for group in groups(nodes, room, lambda _: SIZE)
    ]


class Groups(unittest.TestCase):
    def test_what_fits_becomes_one(self) -> None:
        nodes = [node(n) for n in (1, 2, 3)]
        self.assertEqual(shapes(nodes, 30), [[1, 2, 3]])

    def test_what_does_not_fit_is_shared_out_evenly(self) -> None:
        nodes = [node(n) for n in range(1, 10)]
        self.assertEqual(shapes(nodes, 40), [[1, 2, 3], [4, 5, 6], [7, 8, 9]])
        self.assertTrue(all(len(group) * SIZE <= 40 for group in shapes(nodes, 40)))

    def test_chapters_come_first_and_single_ones_wait(self) -> None:
        nodes = [node(1, "A"), node(2, "A"), node(3, "B"), node(4, "C"), node(5, "C")]
        self.assertEqual(shapes(nodes, 100), [[1, 2], [3], [4, 5]])
        self.assertEqual(shapes([node(1, "A"), node(3, "B"), node(4, "C")], 100), [[1, 3, 4]])

    def test_parts_before_the_first_chapter_are_no_chapter(self) -> None:
        nodes = [node(1), node(2), node(3, "A"), node(4, "A")]
        self.assertEqual(shapes(nodes, 100), [[1], [2], [3, 4]])

    def test_every_book_comes_to_one_summary(self) -> None:
        for count in range(1, 40):
            for per_chapter in (1, 2, 7):
                nodes = [node(n, f"C{n // per_chapter}") for n in range(1, count + 1)]
                rounds = 0
                while len(nodes) > 1:
                    found = groups(nodes, 25, lambda _: SIZE)
                    self.assertLess(len(found), len(nodes))
                    nodes = [merged(g, "m") if len(g) > 1 else g[0] for g in found]
                    rounds += 1
                self.assertEqual(nodes[0].parts, tuple(range(1, count + 1)))
                self.assertLess(rounds, 12)

    def test_two_go_together_even_where_they_seem_too_long(self) -> None:
        self.assertEqual(shapes([node(1), node(2), node(3)], 5), [[1, 2], [3]])


class Merged(unittest.TestCase):
    def test_says_what_it_tells_of(self) -> None:
        found = merged((node(3, "A"), node(4, "A"), node(6, "B")), "all")
        self.assertEqual(found.parts, (3, 4, 6))
        self.assertEqual(found.label, "Parts 3-6 of 9, A – B, pages 30–69")
        self.assertEqual(found.chapter, "A")
        self.assertEqual(node(2).block, "[Part 2 of 9, pages 20–29]\ntext 2")
