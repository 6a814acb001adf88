# SPDX-License-Identifier: Apache-2.0
from typing import Any

from pecia_tools.runs.books import Coverage, union_length
from text_run import FAILED, OPEN, TextRun


class Books(TextRun):
    TOKENS = 1000

    def parts(self, book: str = "moby", number: int = 3, **more: Any) -> list[dict[str, Any]]:
        """A book of 1,000 tokens in parts of 400, 400 and 200."""
        spans = [(0, 400), (400, 800), (800, 1000)]
        titles = ["Loomings", "", "The\nSpouter-Inn"]
        return [
            {
                "id": f"{book}#{part + 1:03}",
                "turns": ["text"],
                "book": book,
                "title": titles[part],
                "part": (part + 1, number),
                "span": spans[part],
                "book_tokens": self.TOKENS,
                **more,
            }
            for part in range(number)
        ]

    def rows(self, *, words: str = "Sum", prompt: int = 1) -> list[dict[str, Any]]:
        return [
            self.answered(p["id"], f"{words} {p['part'][0]}", prompt=prompt) for p in self.parts()
        ]

    def test_book_and_parts(self) -> None:
        self.write_shard([*self.parts(), {"id": "note", "turns": ["one"]}])
        self.write_results([*self.rows(), self.answered("note", "Alone", prompt=1)])
        self.assertEqual(
            self.write_files(),
            {
                "moby.txt": "[3 of 3 parts, 100 % of 1,000 tokens]\n\n"
                "=== part 1 of 3: Loomings ===\nSum 1\n\n"
                "=== part 2 of 3 ===\nSum 2\n\n"
                "=== part 3 of 3: The Spouter-Inn ===\nSum 3\n",
                "parts/moby#001.txt": "Sum 1\n",
                "parts/moby#002.txt": "Sum 2\n",
                "parts/moby#003.txt": "Sum 3\n",
                "note.txt": "Alone\n",
            },
        )
        self.assertIn("moby: 3 of 3 parts, 100 % of 1,000 tokens\n", self.message)
        self.assertIn("5 texts written", self.last_line)

    def test_parts_stand_in_the_books_order_whatever_the_shards(self) -> None:
        self.write_shard(list(reversed(self.parts())))
        self.write_results(list(reversed(self.rows())))
        text = self.write_files()["moby.txt"]
        self.assertLess(text.index("Sum 1"), text.index("Sum 2"))
        self.assertLess(text.index("Sum 2"), text.index("Sum 3"))

    def test_unfinished_parts_are_seen_and_do_not_count(self) -> None:
        rows = self.rows()
        rows[1] = {"id": "moby#002", "state": OPEN, "slots": 9}
        rows[2] = {"id": "moby#003", "state": FAILED, "slots": 9, "error": "too long"}
        self.write_shard(self.parts())
        self.write_results(rows)
        files = self.write_files(code=3)
        self.assertTrue(files["moby.txt"].startswith("[1 of 3 parts, 40 % of 1,000 tokens]\n"))
        self.assertIn("part 2 of 3 ===\n[not answered yet]\n", files["moby.txt"])
        self.assertIn("Spouter-Inn ===\n[failed: too long]\n", files["moby.txt"])
        self.assertNotIn("parts/moby#002.txt", files)

    def test_book_without_answers_has_no_file(self) -> None:
        self.write_shard(self.parts())
        self.write_results([{"id": p["id"], "state": OPEN, "slots": 9} for p in self.parts()])
        self.assertEqual(self.write_files(code=3), {})
        self.assertIn("moby: 0 of 3 parts, 0 % of 1,000 tokens\n", self.message)
        self.assertIn("0 texts written", self.last_line)

    def test_truncated_tokens_are_not_covered(self) -> None:
        rows = self.rows(prompt=300)
        rows[0]["truncated"] = 101
        self.write_shard(self.parts())
        self.write_results(rows)
        text = self.write_files()["moby.txt"]
        self.assertTrue(text.startswith("[3 of 3 parts, 89 % of 1,000 tokens]\n"), text)
        self.assertIn("[101 of 401 tokens were left out]\n\nSum 1", text)

    def test_books_in_all(self) -> None:
        whole = {"id": "short", "turns": ["x"], "book": "short", "part": (1, 1), "span": (0, 50)}
        self.write_shard([*self.parts(), {**whole, "book_tokens": 50}])
        rows = self.rows()
        rows[1] = {"id": "moby#002", "state": OPEN, "slots": 9}
        self.write_results([*rows, self.answered("short", "Short", prompt=1)])
        files = self.write_files(code=3)
        self.assertEqual(files["short.txt"], "Short\n")
        self.assertIn("2 documents in all: 3 of 4 parts, 61 % of 1,050 tokens\n", self.message)
        self.assertNotIn("short: ", self.message)

    def test_document_that_was_not_cut_but_truncated_is_named(self) -> None:
        whole = {"id": "long", "turns": ["x"], "book": "long", "part": (1, 1), "span": (0, 50)}
        self.write_shard([{**whole, "book_tokens": 50}])
        self.write_results([self.answered("long", prompt=30, truncated=25)])
        self.write_files()
        self.assertIn("long: 1 of 1 part, 50 % of 50 tokens\n", self.message)

    def test_book_named_as_a_request_is_refused(self) -> None:
        self.write_shard([*self.parts(), {"id": "moby", "turns": ["one"]}])
        self.write_results([*self.rows(), self.answered("moby", prompt=1)])
        self.assert_refused("'moby'", "moby.txt", call=self.write_files)

    def test_many_books_are_not_all_named(self) -> None:
        names = [f"book{n:02}" for n in range(25)]
        parts = [part for name in names for part in self.parts(name)]
        self.write_shard(parts)
        rows = [self.answered(part["id"], prompt=1) for part in parts]
        rows[-1] = {"id": parts[-1]["id"], "state": OPEN, "slots": 9}
        self.write_results(rows)
        self.write_files(code=3)
        self.assertIn("book24: 2 of 3 parts, 80 % of 1,000 tokens\n", self.message)
        self.assertIn("5 more books, 5 of them whole\n", self.message)
        self.assertIn("25 documents in all: 74 of 75 parts, 99 % of 25,000 tokens\n", self.message)


class Counting(TextRun):
    def test_union(self) -> None:
        self.assertEqual(union_length([]), 0)
        self.assertEqual(union_length([(5, 9), (0, 6), (5, 7), (20, 20)]), 9)

    def test_less_than_all_is_not_100_percent(self) -> None:
        self.assertEqual(
            str(Coverage(12, 12, 99_999, 100_000)), "12 of 12 parts, 99 % of 100,000 tokens"
        )
        self.assertEqual(str(Coverage(1, 2)), "1 of 2 parts")
