# SPDX-License-Identifier: Apache-2.0
import unittest

from pecia_tools.pack.headings import Outline


def titles(text: str) -> list[str]:
    return [heading.title for heading in Outline(text).headings]


def chapters(text: str) -> list[str]:
    return [heading.title for heading in Outline(text).chapters()]


BODY = "\n\nIt was a line of prose, and then another one that ended it.\n\n"


class Kinds(unittest.TestCase):
    def test_each_kind_is_found(self) -> None:
        for text, title in (
            ("# Whales", "Whales"),
            ("###  Of *ships*  ##", "Of *ships*"),
            ("Whales\n======", "Whales"),
            ("Whales\n---", "Whales"),
            ("# Whales {#whales .big}", "Whales"),
            ("Whales {.big key=1}\n------", "Whales"),
            ("# {#whales}", "{#whales}"),
            ("# Sets {a, b}", "Sets {a, b}"),
            ("CHAPTER 1. Loomings.", "CHAPTER 1. Loomings."),
            ("Chapter 61", "Chapter 61"),
            ("CHAPTER IV", "CHAPTER IV"),
            ("  Chapter the First\n  In which it begins", "Chapter the First In which it begins"),
            ("Chapter Twenty", "Chapter Twenty"),
            ("PART II.", "PART II."),
            ("Kapitel 3", "Kapitel 3"),
            ("第三章 海", "第三章 海"),
            ("XXXIX.", "XXXIX."),
            ("Epilogue", "Epilogue"),
        ):
            with self.subTest(text):
                self.assertEqual(titles(BODY + text + BODY), [title])
                self.assertEqual(titles(text), [title])

    def test_prose_is_no_heading(self) -> None:
        for text in (
            "#hashtag",
            "Chapters were short then.",
            "Chapter 3 was a long one, and its first line went on for so many words that it was prose.",
            "Chapter 3\nwas one of\nmany lines.",
            "IIII",
            "I am.",
            "MIX",
            "=====",
            "a\nb\n---",
            "57     180\n-----------",
            "Epilogue of a life",
            "```\n# a comment\n```",
        ):
            with self.subTest(text):
                self.assertEqual(titles(BODY + text + BODY), [])

    def test_heading_stands_where_its_line_begins(self) -> None:
        text = "a\n\n  Chapter 1\n\nb\n# Two\n"
        (one, two) = Outline(text).headings
        self.assertEqual(text[one.begin : one.end], "  Chapter 1")
        self.assertEqual(text[two.begin : two.end], "# Two")


class Contents(unittest.TestCase):
    def test_table_of_contents_holds_no_heading(self) -> None:
        entries = "\n\n".join(f"CHAPTER {n}. Name" for n in range(1, 9))
        text = f"Book\n\n{entries}\n\nEpilogue\n\nA note.{BODY}CHAPTER 1. Name{BODY}"
        outline = Outline(text)
        self.assertEqual(len(outline.headings), 1)
        self.assertGreater(outline.headings[0].begin, text.index("A note."))

    def test_headings_of_falling_depth_stay(self) -> None:
        self.assertEqual(len(titles(f"# Book\n\n## Part\n\n### Chapter{BODY}")), 3)


class Chapters(unittest.TestCase):
    def test_called_so_with_what_is_above(self) -> None:
        text = BODY.join(["# Book", "## Chapter 1", "### One", "## Chapter 2", "### Two", ""])
        self.assertEqual(chapters(text), ["Book", "Chapter 1", "Chapter 2"])

    def test_else_the_first_depth_that_occurs_twice(self) -> None:
        text = BODY.join(["# Book", "## One", "### a", "### b", "### c", "## Two", ""])
        self.assertEqual(chapters(text), ["Book", "One", "Two"])

    def test_roman_numbers_with_an_epilogue(self) -> None:
        self.assertEqual(chapters(BODY.join(["I", "II", "Epilogue", ""])), ["I", "II", "Epilogue"])

    def test_none(self) -> None:
        self.assertEqual(chapters(BODY), [])


class Places(unittest.TestCase):
    def test_cut_before_the_first_of_several_in_a_row(self) -> None:
        text = f"a{BODY}PART I\n\nCHAPTER 1{BODY}CHAPTER 2{BODY}"
        outline = Outline(text)
        self.assertEqual(
            outline.begins(outline.chapters()), [text.index("PART I"), text.index("CHAPTER 2")]
        )

    def test_title_is_the_innermost_that_a_place_is_under(self) -> None:
        text = f"a{BODY}PART I\n\nCHAPTER 1{BODY}CHAPTER 2{BODY}"
        outline = Outline(text)
        for place, title in (
            (0, ""),
            (text.index("PART I"), "CHAPTER 1"),
            (text.index("PART I") - 1, "CHAPTER 1"),
            (text.index("CHAPTER 2") - 5, "CHAPTER 1"),
            (text.index("CHAPTER 2"), "CHAPTER 2"),
            (len(text) - 3, "CHAPTER 2"),
        ):
            with self.subTest(place):
                self.assertEqual(outline.title_at(place), title)
