# SPDX-License-Identifier: Apache-2.0
"""Books of several formats become text with chapters and pages."""

import io
import unittest
from typing import ClassVar

import docx
from docx.oxml import OxmlElement, parse_xml

from book_files import cited, make_epub, make_pdf
from pecia_tools.pack import read_docx, read_epub, read_html, read_pdf
from pecia_tools.pack.decoding import BadInput, Decoder
from pecia_tools.pack.structure import StructuredText
from pecia_tools.pack.text_builder import Unreadable


class Pdf(unittest.TestCase):
    PAGES = (
        ("The Scribes",),
        (),
        ("CHAPTER 1", "A scribe copies a", "word. And then"),
        ("goes on.",),
    )

    def read(self, *arguments: object, **named: object) -> StructuredText:
        return read_pdf.read(make_pdf(*arguments, **named), Decoder())

    def test_pages_are_cited_as_the_document_numbers_them(self) -> None:
        found = self.read(self.PAGES, first_label=7)
        self.assertEqual(
            cited(found),
            [
                ("page", 0, "7", "The Scribes"),
                ("page", 0, "9", "CHAPTER 1\nA scribe copies a\nword. And then"),
                ("page", 0, "10", "goes on."),
            ],
        )

    def test_sentence_goes_on_over_the_end_of_a_page(self) -> None:
        self.assertIn("And then\ngoes on.", self.read(self.PAGES).text)
        self.assertIn("One.\n\nTwo.", self.read([["One."], ["Two."]]).text)

    def test_says_which_pages_have_no_text(self) -> None:
        pages = [["a"], [], ["b"], [], [], ["c"]]
        self.assertEqual(self.read(pages).notes, ("3 of 6 pages have no text: 2, 4-5",))

    def test_scanned_book_is_refused(self) -> None:
        with self.assertRaisesRegex(Unreadable, "none of its 2 pages has text.*ocrmypdf"):
            self.read([[], []])

    def test_bookmarks_are_chapters_where_their_title_stands(self) -> None:
        found = self.read(
            [["Front"], ["End of one.", "1.2 chapter 2", "Two."]],
            bookmarks=[("Front matter", 0), ("CHAPTER  2", 1)],
            title="The  Scribes",
        )
        chapters = [entry[1:] for entry in cited(found) if entry[0] == "chapter"]
        self.assertEqual(
            chapters,
            [(1, "Front matter", "Front\nEnd of one."), (1, "CHAPTER 2", "1.2 chapter 2\nTwo.")],
        )
        self.assertEqual(found.structure.title, "The Scribes")

    def test_damaged_file_is_refused(self) -> None:
        with self.assertRaisesRegex(Unreadable, "not a readable PDF"):
            read_pdf.read(b"%PDF-1.4 and nothing more", Decoder())
        lost = make_pdf([["a"], ["b"]]).replace(b"/Kids [5 0 R 7 0 R]", b"/Kids [5 0 R 77 0 R]")
        with self.assertRaisesRegex(Unreadable, "page 2 of 2 is damaged"):
            read_pdf.read(lost, Decoder())


class Html(unittest.TestCase):
    def read(self, page: str, encoding: str = "utf-8") -> StructuredText:
        return read_html.read(page.encode(encoding), Decoder())

    def test_reads_as_a_browser_shows_it(self) -> None:
        found = self.read(
            "<html><head><title>A  book</title><style>p {}</style></head><body><nav>Home</nav>"
            "<h1>One</h1>\n<p>A <b>bold</b>\n  word.<br>Next&nbsp;line.<script>x()</script> End.</p>"
            "<ul><li>first</li> <li><p>second</p></li><li></li></ul><p>after</p>"
            "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td>2</td></tr></tbody></table>"
            "<pre>x = 1\n  y = 2</pre><!-- no -->tail</body></html>"
        )
        self.assertEqual(
            found.text,
            "One\n\nA bold word.\nNext\u00a0line. End.\n\n- first\n- second\n\nafter\n\na\tb\n1\t2\n\n"
            "x = 1\n  y = 2\n\ntail",
        )
        self.assertEqual(found.structure.title, "A book")

    def test_formulas_are_what_their_author_wrote(self) -> None:
        annotated = (
            r"<math{0}><semantics><mrow><msup><mi>x</mi><mn>2</mn></msup></mrow>"
            r'<annotation encoding="application/x-tex">x^{2}  \text{a}_i*b*</annotation></semantics></math>'
        )
        for page, text in (
            (
                "<p>$a_b*c$ \\(x_1*y\\) $$\\frac{a}{b}$$ \\[z\\]</p>",
                "$a_b*c$ \\(x_1*y\\) $$\\frac{a}{b}$$ \\[z\\]",
            ),
            (
                f"<p>So {annotated.replace('{0}', '')} holds.</p>",
                r"So $x^{2} \text{a}_i*b*$ holds.",
            ),
            (
                '<p><span class="katex-display"><span class="katex"><span class="katex-mathml">'
                + annotated.replace("{0}", ' display="block"')
                + '</span><span class="katex-html" aria-hidden="true"><b>x2</b></span></span></span> End</p>',
                r"$$x^{2} \text{a}_i*b*$$ End",
            ),
            (r'<p>a <math alttext="\alpha^2"><mi>a</mi></math></p>', r"a $\alpha^2$"),
            (
                '<p><span class="MathJax_Preview">x</span><span class="MathJax">x2</span>'
                '<script type="math/tex">x < y</script>, <script type="math/tex; mode=display">z</script></p>',
                "$x < y$, $$z$$",
            ),
        ):
            with self.subTest(page):
                self.assertEqual(self.read(page).text, text)

    def test_formulas_without_tex_keep_their_scripts_and_fractions(self) -> None:
        self.assertEqual(
            self.read(
                "<p>E = <math><mrow><mi>m</mi><msup><mi>c</mi><mn>2</mn></msup><mo>−</mo><mfrac><mi>a</mi>"
                "<msqrt><mi>b</mi></msqrt></mfrac><msubsup><mrow><mi>x</mi><mi>y</mi></mrow><mi>i</mi><mn>3</mn>"
                "</msubsup></mrow></math></p>"
            ).text,
            r"E = $mc^{2}-\frac{a}{\sqrt{b}}{xy}_{i}^{3}$",
        )

    def test_headings_hold_what_is_under_them(self) -> None:
        found = self.read("<h1>A</h1><p>a</p><h2>A.1</h2><p>b</p><h1>B</h1><p>c</p>")
        self.assertEqual(
            cited(found),
            [
                ("chapter", 1, "A", "A\n\na\n\nA.1\n\nb"),
                ("chapter", 2, "A.1", "A.1\n\nb"),
                ("chapter", 1, "B", "B\n\nc"),
            ],
        )

    def test_encoding_that_the_page_names(self) -> None:
        self.assertEqual(
            self.read('<meta charset="cp1252"><p>caf\u00e9</p>', "cp1252").text, "café"
        )
        with self.assertRaisesRegex(BadInput, "0xe9"):
            self.read("<p>caf\u00e9</p>", "cp1252")
        with self.assertRaisesRegex(Unreadable, "klingon"):
            self.read('<meta charset="klingon"><p>x</p>')

    def test_page_without_text_is_refused(self) -> None:
        for page in ("<p> </p>", "  "):
            with self.assertRaises(Unreadable):
                self.read(page)


class Epub(unittest.TestCase):
    PAGES: ClassVar = {
        "1.xhtml": '<p>Title page</p><p id="c1">First <span id="p2"/>words.</p>',
        "2.xhtml": "<h1>Second</h1><p>More &nbsp;words.</p>",
    }
    NAV = (
        '<nav epub:type="toc"><ol><li><a href="text/1.xhtml">Book</a><ol>'
        '<li><a href="text/1.xhtml#c1">Chapter 1</a></li></ol></li>'
        '<li><a href="text/2.xhtml">Second</a></li></ol></nav>'
        '<nav epub:type="page-list"><ol><li><a href="text/1.xhtml">1</a></li>'
        '<li><a href="text/1.xhtml#p2">2</a></li></ol></nav>'
    )
    NCX = (
        '<navMap><navPoint><navLabel><text>Book</text></navLabel><content src="text/1.xhtml"/>'
        '<navPoint><navLabel><text>Chapter 1</text></navLabel><content src="text/1.xhtml#c1"/></navPoint></navPoint>'
        '<navPoint><navLabel><text>Second</text></navLabel><content src="text/2.xhtml"/></navPoint></navMap>'
        '<pageList><pageTarget><navLabel><text>1</text></navLabel><content src="text/1.xhtml"/></pageTarget>'
        '<pageTarget><navLabel><text>2</text></navLabel><content src="text/1.xhtml#p2"/></pageTarget></pageList>'
    )
    CHAPTERS: ClassVar = [
        ("chapter", 1, "Book", "Title page\n\nFirst words."),
        ("chapter", 2, "Chapter 1", "First words."),
        ("chapter", 1, "Second", "Second\n\nMore \u00a0words."),
        ("page", 0, "1", "Title page\n\nFirst"),
        ("page", 0, "2", "words.\n\nSecond\n\nMore \u00a0words."),
    ]

    def test_chapters_and_pages_of_the_navigation(self) -> None:
        for name, given in (("EPUB 3", {"nav": self.NAV}), ("EPUB 2", {"ncx": self.NCX})):
            with self.subTest(name):
                found = read_epub.read(make_epub(self.PAGES, **given), Decoder())
                self.assertEqual(cited(found), self.CHAPTERS)
                self.assertEqual(found.structure.title, "The Scribes")

    def test_without_navigation_headings_are_chapters(self) -> None:
        found = read_epub.read(make_epub(self.PAGES), Decoder())
        self.assertEqual(cited(found), [("chapter", 1, "Second", "Second\n\nMore \u00a0words.")])

    def test_locked_and_damaged_books_are_refused(self) -> None:
        locked = '<encryption><EncryptionMethod Algorithm="http://example.org/aes"/></encryption>'
        with self.assertRaisesRegex(Unreadable, "encrypted"):
            read_epub.read(
                make_epub(self.PAGES, more={"META-INF/encryption.xml": locked}), Decoder()
            )
        with self.assertRaisesRegex(Unreadable, "not an EPUB"):
            read_epub.read(make_epub(self.PAGES)[:500], Decoder())
        lost = '<package xmlns="http://www.idpf.org/2007/opf"><spine><itemref idref="x"/></spine></package>'
        with self.assertRaisesRegex(Unreadable, "spine names 'x'"):
            read_epub.read(make_epub({}, more={"OPS/book.opf": lost}), Decoder())


class Docx(unittest.TestCase):
    def read(self, document: "docx.document.Document") -> StructuredText:
        file = io.BytesIO()
        document.save(file)
        return read_docx.read(file.getvalue(), Decoder())

    def test_headings_lists_and_tables(self) -> None:
        document = docx.Document()
        document.core_properties.title = "The Scribes"
        document.add_heading("Part one", 1)
        document.add_paragraph("Before\tthe table.")
        table = document.add_table(2, 2)
        for row, texts in zip(table.rows, (("a", "b"), ("1", "2"))):
            for cell, text in zip(row.cells, texts):
                cell.text = text
        document.add_heading("A section", 2)
        document.add_paragraph("")
        document.add_paragraph("The end.")
        found = self.read(document)
        self.assertEqual(
            cited(found),
            [
                ("chapter", 1, "Part one", found.text),
                ("chapter", 2, "A section", "A section\n\nThe end."),
            ],
        )
        self.assertIn("Before\tthe table.\n\na\tb\n1\t2\n\nA section", found.text)
        self.assertEqual(found.structure.title, "The Scribes")

    def test_formulas(self) -> None:
        space = "http://schemas.openxmlformats.org/officeDocument/2006/math"

        def text(of: str) -> str:
            return f"<m:r><m:t>{of}</m:t></m:r>"

        def made(inside: str) -> object:
            return parse_xml(inside.replace(">", f' xmlns:m="{space}">', 1))

        document = docx.Document()
        paragraph = document.add_paragraph("E = ")
        power = f"<m:sSup><m:e>{text('c')}</m:e><m:sup>{text('2')}</m:sup></m:sSup>"
        root = f"<m:rad><m:deg/><m:e>{text('x')}</m:e></m:rad>"
        sides = f"<m:d><m:e>{text('a')}</m:e></m:d>"
        total = (
            '<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr>'
            f"<m:sub>{text('i')}</m:sub><m:sup/><m:e>{text('y')}</m:e></m:nary>"
        )
        paragraph._p.append(made(f"<m:oMath>{text('m')}{power}</m:oMath>"))
        paragraph.add_run(" and ")
        fraction = f"<m:f><m:num>{root}</m:num><m:den>{sides}{total}</m:den></m:f>"
        paragraph._p.append(made(f"<m:oMathPara><m:oMath>{fraction}</m:oMath></m:oMathPara>"))
        self.assertEqual(
            self.read(document).text, r"E = $mc^{2}$ and $$\frac{\sqrt{x}}{(a)∑_{i} y}$$"
        )

    def test_items_and_numbered_headings(self) -> None:
        document = docx.Document()
        document.add_paragraph("Before.")
        for text in ("one", "two"):
            document.add_paragraph(text, style="List Bullet")
        heading = document.add_heading("A numbered chapter", 1)
        properties = heading._p.get_or_add_pPr()
        properties.get_or_add_numPr().get_or_add_numId().val = 1
        document.add_paragraph("three", style="List Number")
        plain = document.add_paragraph("No item.", style="List Number")
        plain._p.get_or_add_pPr().get_or_add_numPr().get_or_add_numId().val = 0
        self.assertEqual(
            self.read(document).text,
            "Before.\n\n- one\n- two\n\nA numbered chapter\n\n- three\n\nNo item.",
        )

    def test_text_is_as_the_last_revision_has_it(self) -> None:
        document = docx.Document()
        paragraph = document.add_paragraph("Kept, ")
        for name, text in (("w:ins", "inserted"), ("w:del", "deleted")):
            change = OxmlElement(name)
            change.append(paragraph.add_run(text)._r)
            paragraph._p.append(change)
        self.assertEqual(self.read(document).text, "Kept, inserted")

    def test_damaged_file_is_refused(self) -> None:
        with self.assertRaisesRegex(Unreadable, "not a readable DOCX"):
            read_docx.read(b"PK and nothing more", Decoder())
