from pecia_tools.inputs import Sampling, find_files, read_document
from support import ScriptTest


class FindFiles(ScriptTest):
    def test_folder_is_searched_recursively_in_sorted_order(self) -> None:
        for name in ("b.txt", "a.md", "deep/er/c.jsonl", "deep/d.pdf"):
            self.write(name, "x")
        found = find_files([str(self.folder)], [], "auto")
        self.assertEqual([f.name for f in found], ["a", "b", "deep/er/c"])
        self.assertEqual([f.is_jsonl for f in found], [False, False, True])

    def test_glob_replaces_the_patterns(self) -> None:
        self.write("b.txt", "x")
        self.write("c.rst", "x")
        found = find_files([str(self.folder)], ["*.rst"], "auto")
        self.assertEqual([f.path.name for f in found], ["c.rst"])

    def test_file_without_suffix_keeps_its_name(self) -> None:
        path = self.write("LGPL-2.1", "x")
        self.assertEqual([f.name for f in find_files([str(path)], [], "auto")], ["LGPL-2.1"])

    def test_nothing_found_is_refused(self) -> None:
        self.assert_refused("--glob", call=lambda: find_files([str(self.folder)], [], "auto"))
        self.assert_refused("no such", call=lambda: find_files(["absent.txt"], [], "auto"))


class ReadDocument(ScriptTest):
    def read(self, content: bytes, errors: str = "strict") -> str:
        path = self.write("a.txt", content)
        return read_document(find_files([str(path)], [], "auto")[0], errors).text

    def test_byte_order_mark_and_blank_ends_go(self) -> None:
        self.assertEqual(self.read("\ufeff\n  Café.\n\n".encode()), "Café.")

    def test_bad_byte_is_named_by_its_offset_in_the_file(self) -> None:
        for content in (b"\xc3\xa9t\xe9 1", b"\xef\xbb\xbf\xe9"):
            offset = content.index(b"\xe9")
            self.assert_refused(
                "a.txt",
                f"byte {offset} (0xe9)",
                "--encoding-errors",
                call=lambda c=content: self.read(c),
            )

    def test_nul_is_named_by_its_offset(self) -> None:
        self.assert_refused("byte 3 is NUL", call=lambda: self.read(b"\xc3\xa9a\0"))

    def test_replace_takes_both(self) -> None:
        self.assertEqual(self.read(b"a\xff\0b", "replace"), "a\ufffd\ufffdb")

    def test_empty_document_is_refused(self) -> None:
        self.assert_refused("a.txt", "empty", call=lambda: self.read(b" \n\t\n"))


class Defaults(ScriptTest):
    def test_own_options_come_first_and_zero_counts_as_given(self) -> None:
        own = Sampling(temperature=0.0)
        self.assertEqual(own.over(Sampling(7, 0.5)), Sampling(7, 0.0))
