# SPDX-License-Identifier: Apache-2.0
import codecs

from pecia_tools.pack.decoding import Decoder, find_encoding
from support import ScriptTest


class Strict(ScriptTest):
    def refuse(self, data: bytes, *parts: str, encoding: str = "utf-8") -> None:
        decoder = Decoder(encoding)
        self.assert_refused(*parts, call=lambda: decoder.decode_document(data, "a.txt"))

    def test_bad_byte_is_named_by_its_offset_in_the_file(self) -> None:
        for content in (b"\xc3\xa9t\xe9 1", b"\xef\xbb\xbf\xe9"):
            self.refuse(content, f"a.txt: byte {content.index(bytes([0xE9]))} (0xe9) is not utf-8")
        self.refuse("é☃".encode(), "byte 3 (0x98) is not cp1250", encoding="cp1250")
        self.refuse(codecs.BOM_UTF16_LE + b"\0\xd8a\0", "byte 2 (0x00)", encoding="utf-16")

    def test_nul_is_named_by_its_offset(self) -> None:
        self.refuse(b"\xc3\xa9a\0", "byte 3 is NUL")
        self.refuse("ab\0".encode("utf-16-le"), "character 2 is NUL", encoding="utf-16-le")

    def test_byte_order_mark_says_what_to_do(self) -> None:
        for encoding in ("utf-16", "utf-32"):
            self.refuse("ab".encode(encoding), f"try --encoding {encoding}")

    def test_no_hint_to_the_encoding_that_was_tried(self) -> None:
        decoder = Decoder("utf-16-le")
        with self.assertRaises(Exception) as caught:
            decoder.decode(codecs.BOM_UTF16_LE + b"\0\xd8", "a.txt", "a.txt")
        self.assertNotIn("try --encoding", str(caught.exception))


class Encodings(ScriptTest):
    def test_marks_go_in_every_unicode_encoding(self) -> None:
        for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"):
            with self.subTest(encoding):
                data = "\ufeffé".encode(encoding) if encoding[-1] != "6" else "é".encode(encoding)
                self.assertEqual(Decoder(find_encoding(encoding)).decode(data, "a", "a"), "é")

    def test_legacy_encoding(self) -> None:
        self.assertEqual(Decoder("cp1252").decode(b"\x93caf\xe9\x94", "a", "a"), "“café”")

    def test_what_is_no_encoding_of_text(self) -> None:
        for name in ("base64", "rot13", "undefined", "no-such"):
            with self.subTest(name), self.assertRaises(LookupError):
                find_encoding(name)


class WhatIsRepaired(ScriptTest):
    def test_replaced_bytes_are_counted_by_file(self) -> None:
        decoder = Decoder(replace=True)
        self.assertEqual(decoder.decode_document(b"a\xff\xfe\0b\xe2\x82", "a"), "a���b�")
        self.assertEqual(decoder.decode_document("é".encode(), "b"), "é")
        decoder.decode_document(b"\xff", "c")
        self.assertEqual(decoder.repairs.replaced_bytes, {"a": 5, "c": 1})

    def test_all_line_ends_become_lf(self) -> None:
        decoder = Decoder()
        self.assertEqual(decoder.decode_document(b"a\r\nb\rc\n\r\n\r\r\n", "a"), "a\nb\nc\n\n\n\n")
        decoder.decode_document(b"a\n", "b")
        self.assertEqual(decoder.repairs.line_ends, {"a": 5})
