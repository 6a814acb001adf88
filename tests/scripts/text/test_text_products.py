# SPDX-License-Identifier: Apache-2.0
"""Vectors and scores as pecia-text gives them."""

import base64
import csv
import io
import json
from typing import Any

import h5py
import numpy as np
from pyarrow import parquet

from text_run import DONE, FAILED, OPEN, TextRun

URL = "/v1/embeddings"
VECTORS = np.array([[0.6, 0.8, 0], [0, 0.6, -0.8], [1, 0, 0]], dtype=np.float32)


class Products(TextRun):
    def write(self, dtype: str = "float32", **shard: Any) -> None:
        """A float embedding that is cut, one in base64, one that failed, one that is open, two vectors and scores."""
        rows = [
            {"id": "cut", "state": DONE, "slots": 0, "prompt": 4},
            {"id": "bytes", "state": DONE, "slots": 0, "prompt": 5},
            {"id": "bad", "state": FAILED, "slots": 0, "error": "the turn has no tokens"},
            {"id": "later", "state": OPEN, "slots": 0},
            {"id": "choices", "state": DONE, "slots": 0, "prompt": 6},
            {"id": "whole", "state": DONE, "slots": 0, "prompt": 3},
        ]
        requests = [{"id": row["id"], "turns": ["Some words"]} for row in rows]
        for request in requests[:4]:
            request["endpoint"] = URL
        shard_path = self.write_shard(requests)
        with h5py.File(shard_path, "a") as file:
            file["dimensions"] = np.array([2, 0, 0, 0, 0, 0], dtype=np.int32)
            formats = ["float", "base64", "float", "float", "", ""]
            file.create_dataset("encoding_format", data=formats, dtype=h5py.string_dtype("utf-8"))
            file["continuation_offsets"] = np.array([0, 0, 0, 0, 0, 2, 2])
            file["continuation_lengths"] = np.array([2, 1], dtype=np.int32)
        self.identity = {}
        with h5py.File(self.write_results(rows), "a") as file:
            file["vector_offsets"] = np.array([0, 1, 2, 3, 3, 3, 3])
            file["vectors"] = VECTORS.astype(dtype)
            file["score_offsets"] = np.array([0, 0, 0, 0, 0, 2, 3])
            file["scores"] = np.array([-3.5, -1, -2.25])
            file["score_token_offsets"] = np.array([0, 0, 0, 0, 0, 3, 6])
            file["score_token_logprob"] = np.array([-3, -0.5, -1, np.nan, -2, -0.25], np.float32)

    def test_jsonl_has_openais_form(self) -> None:
        self.write()
        lines = {
            line["custom_id"]: line
            for line in map(json.loads, self.write_text("--jsonl", code=3).splitlines())
        }
        self.assertEqual(set(lines), {"cut", "bytes", "bad", "choices", "whole"})
        cut = lines["cut"]["response"]
        self.assertEqual((cut["status_code"], lines["cut"]["error"]), (200, None))
        self.assertEqual(cut["body"]["object"], "list")
        self.assertEqual(cut["body"]["model"], "tiny")
        self.assertEqual(cut["body"]["usage"]["total_tokens"], 4)
        self.assertNotIn("completion_tokens", cut["body"]["usage"])
        (data,) = cut["body"]["data"]
        self.assertEqual((data["object"], data["index"]), ("embedding", 0))
        np.testing.assert_allclose(data["embedding"], [0.6, 0.8], atol=1e-7)
        (data,) = lines["bytes"]["response"]["body"]["data"]
        found = np.frombuffer(base64.b64decode(data["embedding"]), "<f4")
        np.testing.assert_array_equal(found, VECTORS[1])
        self.assertIsNone(lines["bad"]["response"])
        self.assertEqual(lines["bad"]["error"]["message"], "the turn has no tokens")
        scores = lines["choices"]["response"]["body"]["data"]
        self.assertEqual([one["score"] for one in scores], [-3.5, -1])
        self.assertEqual([one["token_logprobs"] for one in scores], [[-3, -0.5], [-1]])
        (whole,) = lines["whole"]["response"]["body"]["data"]
        self.assertEqual(whole["token_logprobs"], [None, -2, -0.25])

    def test_inputs_of_a_line_are_one_answer(self) -> None:
        for last in (OPEN, FAILED, DONE):
            states = (DONE, DONE, last)
            rows = [
                {"id": f"a~{n}", "state": state, "slots": 0, "prompt": n, "error": "too long"}
                for n, state in enumerate(states, 1)
            ]
            same = {"turns": ["Some words"], "endpoint": URL, "custom_id": "a"}
            order = (1, 0, 2)  # as the shard has them
            self.write_shard([{"id": f"a~{n + 1}", "choice": (n, 3), **same} for n in order])
            with h5py.File(self.write_results([rows[n] for n in order]), "a") as file:
                file["vector_offsets"] = np.arange(4)
                file["vectors"] = VECTORS
            lines = self.lines(code=0 if last == DONE else 3)
            if last == OPEN:
                self.assertEqual(lines, {})
            elif last == FAILED:
                self.assertEqual(lines["a"]["error"]["message"], "choice 2 of 3: too long")
            else:
                body = lines["a"]["response"]["body"]
                self.assertEqual([one["index"] for one in body["data"]], [0, 1, 2])
                found = [one["embedding"] for one in body["data"]]
                np.testing.assert_allclose(found, VECTORS[list(order)], atol=1e-7)
                self.assertEqual(body["usage"]["prompt_tokens"], 1 + 2 + 3)

    def test_a_cut_vector_has_length_one_again(self) -> None:
        self.write()
        with h5py.File(self.run_folder / "results.h5", "a") as file:
            file["vectors"][0] = [0.3, 0.4, 0.866]
        for normalize, wanted in ((True, [0.6, 0.8]), (False, [0.3, 0.4])):
            with h5py.File(self.run_folder / "results.h5", "a") as file:
                identity = json.loads(file.attrs["identity"])
                identity["vector"] = {"normalize": normalize}
                file.attrs["identity"] = json.dumps(identity)
            first = json.loads(self.write_text("--jsonl", code=3).splitlines()[0])
            found = first["response"]["body"]["data"][0]["embedding"]
            np.testing.assert_allclose(found, wanted, atol=1e-7)

    def test_npy_and_parquet(self) -> None:
        for dtype in ("float32", "float16"):
            self.write(dtype)
            npy, table = self.folder / "v.npy", self.folder / "v.parquet"
            self.write_text("--vectors", "--output", npy, "--force", code=3)
            self.assertIn("2 vectors written", self.message)
            found = np.load(npy)
            self.assertEqual(found.dtype, dtype)
            np.testing.assert_array_equal(found, VECTORS[:2].astype(dtype))
            rows = list(csv.DictReader(io.StringIO((self.folder / "v.npy.csv").read_text())))
            self.assertEqual([row["id"] for row in rows], ["cut", "bytes"])
            self.write_text("--vectors", "--output", table, "--force", code=3)
            read = parquet.read_table(table).to_pydict()
            self.assertEqual(read["id"], ["cut", "bytes"])
            np.testing.assert_array_equal(np.array(read["vector"], dtype), found)

    def test_scores_are_a_table(self) -> None:
        self.write()
        rows = list(csv.DictReader(io.StringIO(self.write_text("--scores", code=3))))
        found = [(row["id"], row["index"], row["score"], row["tokens"]) for row in rows]
        wanted = [("choices", "0", "-3.5", "2"), ("choices", "1", "-1.0", "1")]
        self.assertEqual(found, [*wanted, ("whole", "0", "-2.25", "3")])

    def test_what_cannot_be_is_refused(self) -> None:
        self.write()
        for arguments, part in (
            (("--vectors",), "needs --output"),
            (("--vectors", "--output", "v.txt"), ".npy or .parquet"),
        ):
            with self.subTest(part):
                self.assert_refused(part, call=lambda given=arguments: self.write_text(*given))
