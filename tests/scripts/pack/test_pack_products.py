# SPDX-License-Identifier: Apache-2.0
"""What shards say of turns that give vectors and scores."""

import json

import h5py

from pecia_tools.pack import main as pack
from support import ScriptTest, make_model, make_tokenizer, quietly, read_turns


class PackedProducts(ScriptTest):
    def setUp(self) -> None:
        super().setUp()
        self.model = make_model(self.folder / "tiny")
        config = json.loads((self.model / "config.json").read_text())
        (self.model / "config.json").write_text(json.dumps({**config, "hidden_size": 64}))
        self.shard = self.folder / "p.h5"
        self.tokenizer = make_tokenizer()

    def pack(self, *arguments: object) -> h5py.File:
        options = ("--model", self.model, "--output", self.shard, "--force")
        code, _, message = quietly(pack.main, *options, *arguments)
        self.assertEqual(code, 0, message)
        return h5py.File(self.shard)

    def encode(self, text: str, special: bool = False) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=special).ids

    def lines(self, *lines: object) -> str:
        path = self.folder / "lines.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return str(path)

    def test_embeddings_lines(self) -> None:
        url = "/v1/embeddings"
        file = self.pack(
            self.lines(
                {"custom_id": "a", "url": url, "body": {"input": "Some words", "dimensions": 8}},
                {"custom_id": "b", "url": url, "body": {"input": [7, 8, 9]}},
                {"custom_id": "c", "url": "/v1/completions", "body": {"prompt": "Words"}},
            )
        )
        with file:
            self.assertEqual(file["produce"][:].tolist(), [1, 1, 0])
            self.assertEqual(file["produce"].dtype, "uint8")
            self.assertEqual(file["dimensions"][:].tolist(), [8, 0, 0])
            self.assertEqual(file["encoding_format"][:].tolist(), [b"float", b"float", b""])
        turns = read_turns(self.shard)
        self.assertEqual(turns["a"], [self.encode("Some words", special=True)])
        self.assertEqual(turns["b"], [[7, 8, 9]])

    def test_several_inputs_of_a_line_are_requests_of_one_custom_id(self) -> None:
        inputs = ["Some words", [7, 8, 9], "Words"]
        body = {"input": inputs, "dimensions": 8}
        line = {"custom_id": "a", "url": "/v1/embeddings", "body": body}
        with self.pack(self.lines(line)) as file:
            self.assertEqual([id.decode() for id in file["request_id"][:]], ["a~1", "a~2", "a~3"])
            self.assertEqual([id.decode() for id in file["custom_id"][:]], ["a"] * 3)
            self.assertEqual(file["choice"][:].tolist(), [[0, 3], [1, 3], [2, 3]])
            self.assertEqual(file["produce"][:].tolist(), [1, 1, 1])
            self.assertEqual(file["dimensions"][:].tolist(), [8, 8, 8])
        turns = read_turns(self.shard)
        first, last = (self.encode(text, special=True) for text in ("Some words", "Words"))
        self.assertEqual(turns, {"a~1": [first], "a~2": [[7, 8, 9]], "a~3": [last]})

    def test_a_line_with_an_input_that_is_too_long_is_skipped_whole(self) -> None:
        lines = [
            {"custom_id": name, "url": "/v1/embeddings", "body": {"input": inputs}}
            for name, inputs in (("long", [[7], [7] * 9, [8]]), ("short", [[7] * 6, [8] * 6]))
        ]
        options = ("--max-tokens", 8, "--over-length", "skip")
        with self.pack(*options, self.lines(*lines)) as file:
            self.assertEqual([id.decode() for id in file["custom_id"][:]], ["short"] * 2)
            self.assertEqual([id.decode() for id in file["skipped/custom_id"][:]], ["long"])

    def test_continuations_and_spans(self) -> None:
        file = self.pack(
            "--no-chat",
            self.lines(
                {"id": "a", "prompt": "Is it?", "continuations": [" yes it is", " no"]},
                {"id": "b", "prompt": "Words", "produce": "vector", "spans": [[0, 1], [1, 2]]},
                {"id": "c", "prompt": "Words", "produce": "score"},
            ),
        )
        with file:
            self.assertEqual(file["produce"][:].tolist(), [2, 1, 2])
            yes, no = self.encode(" yes it is"), self.encode(" no")
            self.assertEqual(file["continuation_offsets"][:].tolist(), [0, 2, 2, 2])
            self.assertEqual(file["continuation_lengths"][:].tolist(), [len(yes), len(no)])
            self.assertEqual(file["continuation_tokens"][:].tolist(), yes + no)
            self.assertEqual(file["span_offsets"][:].tolist(), [0, 0, 2, 2])
            self.assertEqual(file["spans"][:].tolist(), [[0, 1], [1, 2]])

    def test_documents_of_embedding_and_of_rerankers(self) -> None:
        document = self.folder / "d.txt"
        document.write_text("Some {words}")
        with self.pack("--for", "qwen3-embedding", document) as file:
            self.assertEqual(file["produce"][:].tolist(), [1])
        self.assertEqual(read_turns(self.shard)["d"], [self.encode("Some {words}", special=True)])
        self.pack("--for", "qwen3-embedding", "--instruction", "Find {it}", document).close()
        query = "Instruct: Find {it}\nQuery:Some {words}"
        self.assertEqual(read_turns(self.shard)["d"], [self.encode(query, special=True)])

    def test_a_pair_for_a_reranker(self) -> None:
        add = self.tokenizer.add_tokens
        add(["yes", "no"])
        self.tokenizer.save(str(self.model / "tokenizer.json"))
        config = json.loads((self.model / "config.json").read_text())
        config["vocab_size"] = self.tokenizer.get_vocab_size()
        (self.model / "config.json").write_text(json.dumps(config))
        asked = (
            "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
            "<Query>: Who?\n<Document>: Some words<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
        )
        line = {"id": "a", "text": "Some words"}
        for options, row in ((("--query", "Who?"), line), ((), {**line, "query": "Who?"})):
            with self.pack("--for", "qwen3-reranker", *options, self.lines(row)) as file:
                self.assertEqual(file["produce"][:].tolist(), [3])
                self.assertEqual(file["continuation_lengths"][:].tolist(), [1, 1])
                words = [self.tokenizer.id_to_token(t) for t in file["continuation_tokens"][:]]
                self.assertEqual(words, ["yes", "no"])
            (tokens,) = read_turns(self.shard)["a"]
            self.assertEqual(tokens[-len(self.encode(asked)) :], self.encode(asked))
            self.assertNotEqual(tokens[0], self.encode("x", special=True)[0])  # no BOS

    def test_what_contradicts_is_refused(self) -> None:
        document = self.folder / "d.txt"
        document.write_text("Words")
        for arguments, part in (
            (("--continuation", "a"), "--produce score or rerank"),
            (("--produce", "vector", "--max-new-tokens", "3"), "has no answer"),
            (("--produce", "rerank", "--continuation", "a"), "two continuations"),
            (
                ("--produce", "rerank", "--continuation", "a long one", "--continuation", "b"),
                "is not one token",
            ),
            (("--for", "qwen3-reranker", "--question", "x"), "leave out --question"),
            (("--query", "x"), "--for qwen3-reranker"),
        ):
            with self.subTest(part):
                given = ("--model", self.model, "--output", self.shard, *arguments, document)
                self.assert_refused(part, call=lambda given=given: quietly(pack.main, *given))
