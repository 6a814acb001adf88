# SPDX-License-Identifier: Apache-2.0
"""Broken prompt shards, and damage that concerns one request alone."""

from __future__ import annotations

import os
import unittest
from typing import Any, Optional

import h5py
import numpy as np

from support import DONE, FAILED, GOOD_JOB, GOOD_REQUESTS, VOCAB, BadInputTest, prompt, write_shard

DATASETS = ("tokens", "turn_offsets", "request_offsets", "request_id")


class Shard(BadInputTest):
    def refused_shard(self, *parts: str, attributes: Optional[dict[str, Any]] = None, ranks: int = 1,
                      **datasets: Any) -> None:  # fmt: skip
        write_shard(self.shard, GOOD_REQUESTS, attributes, **datasets)
        ended = self.assert_refused(*parts, ranks=ranks)
        self.assertIn("prompts/a.h5", ended.err)

    def test_not_hdf5(self) -> None:
        for content in (b"", b"x", b"not HDF5 at all\n" * 1000, b"\x89HDF\r\n\x1a", bytes(4096)):
            with self.subTest(content=content[:10]):
                self.shard.write_bytes(content)
                self.assert_refused("prompts/a.h5 is no HDF5 file", "pecia-pack")

    def test_not_hdf5_under_mpirun_is_said_once(self) -> None:
        self.shard.write_bytes(b"text")
        self.assert_refused("prompts/a.h5 is no HDF5 file", "pecia-pack", ranks=2)

    def test_truncated(self) -> None:
        content = self.shard.read_bytes()
        for size in (8, 9, 48, 95, 96, 97, 500, 1000, len(content) // 2, len(content) - 64, len(content) - 1):
            with self.subTest(size=size):
                self.shard.write_bytes(content[:size])
                self.assert_refused("prompts/a.h5", "cut off")

    def test_missing_dataset(self) -> None:
        for name in DATASETS:
            with self.subTest(name=name):
                self.refused_shard(f"/{name} is missing", "pecia-pack", **{name: None})
                with h5py.File(self.shard, "a") as file:
                    file.create_group(name)
                self.assert_refused(f"prompts/a.h5: /{name} ")

    def test_offsets(self) -> None:
        turns, requests = [0, 12, 17, 47], [0, 2, 3]
        for name, good in (("turn_offsets", turns), ("request_offsets", requests)):
            last = len(good) - 1
            for offsets, part in (
                ([1, *good[1:]], f"/{name}[0] is 1; it must be 0"),
                ([-1, *good[1:]], f"/{name}[0] is -1; it must be 0"),
                ([0, -5, *good[2:]], f"/{name}[1] is -5, less than the 0 before it"),
                ([*good[:-1], good[-2] - 1], f"/{name}[{last}] is {good[-2] - 1}, less than"),
                ([*good[:-1], 2**62], f"/{name}[{last}] is {2**62}, beyond the {good[-1]} entries"),
                ([*good[:-2], 10**9, good[-1]], f"/{name}[{last - 1}] is 1000000000, beyond"),
                ([], f"/{name} is empty"),
                ([0], f"/{name}[0], the last, is 0, but"),
            ):
                with self.subTest(name=name, offsets=offsets):
                    self.refused_shard(part, "pecia-pack", **{name: np.array(offsets, dtype=np.int64)})
        self.refused_shard("/turn_offsets[3], the last, is 46, but /tokens has 47", "left over",
                           turn_offsets=np.array([0, 12, 17, 46]))  # fmt: skip
        self.refused_shard("/request_offsets[1]: request 'second' has no turns", "pecia-pack",
                           request_offsets=np.array([0, 3, 3]))  # fmt: skip
        self.refused_shard("/turn_offsets[3] is 18446744073709551615, more than an int64 holds",
                           turn_offsets=np.array([0, 12, 17, 2**64 - 1], dtype=np.uint64))  # fmt: skip

    def test_type_and_rank(self) -> None:
        for name in DATASETS:
            for value in (
                np.zeros((2, 2), dtype=np.int64),
                np.float32(1.5),
                np.zeros(3, dtype=np.float64),
                np.zeros(3, dtype=[("a", "i4")]),
                h5py.Empty("i8"),
                np.array([b"a", b"b"], dtype="S4"),
            ):
                if name == "request_id" and np.asarray(value).dtype.kind == "S":
                    continue
                with self.subTest(name=name, value=str(value)):
                    self.refused_shard(f"/{name} h", **{name: value})

    def test_ids(self) -> None:
        for ids, part in (
            ([b"same", b"same"], "/request_id[1] is 'same', as is row 0"),
            ([b"", b"b"], "/request_id[0] is empty"),
            ([b"a", b"\xff\xfe"], "/request_id[1] is no UTF-8 text"),
            ([b"only one"], "/request_id has 1 row,"),
            ([b"a", b"b", b"c"], "/request_id has 3 rows"),
        ):
            with self.subTest(ids=ids):
                self.refused_shard(part, request_id=np.array(ids, dtype="S8"))

    def test_id_in_two_shards(self) -> None:
        write_shard(self.folder / "prompts/b.h5", [("other", [prompt(3)]), ("second", [prompt(4)])])
        self.assert_refused("b.h5: /request_id[1] is 'second'", "unique")

    def test_optional_datasets(self) -> None:
        for name, values, part in (
            ("max_new_tokens", np.array([1, 2], np.int32), "/max_new_tokens has 2 rows for 3 turns"),
            ("max_new_tokens", np.array([1, -2, 3], np.int32), "/max_new_tokens[1] is -2; it must be"),
            ("max_new_tokens", np.array([1, 2, 2**40]), "/max_new_tokens[2] is 1099511627776; it must fit"),
            ("temperature", np.array([0, np.inf, 1], np.float32), "/temperature[1] is inf; it must be"),
            ("temperature", np.array([0, 1, -1], np.float32), "/temperature[2] is -1; it must be"),
            ("temperature", np.array([0, 1, 1], np.int32), "/temperature holds int32; write it as float32"),
            ("top_p", np.array([0, 1, 1], np.float32), "/top_p[0] is 0; it must be above 0"),
            ("top_p", np.array([1, 1.5, 1], np.float32), "/top_p[1] is 1.5; it must be above 0"),
            ("min_p", np.array([0, 1.5, 1], np.float32), "/min_p[1] is 1.5; it must be from 0 to 1"),
            ("repetition_penalty", np.array([1, 0, 1], np.float32), "/repetition_penalty[1] is 0; it must"),
            ("presence_penalty", np.array([1, 0, 3], np.float32), "/presence_penalty[2] is 3; it must be"),
            ("frequency_penalty", np.array([-9, 0, 1], np.float32), "/frequency_penalty[0] is -9; it must"),
            ("top_k", np.array([1, 2, -2], np.int32), "/top_k[2] is -2; it must be 0 (all) or more"),
            ("ignore_eos", np.array([0, 2, 1], np.int8), "/ignore_eos[1] is 2; it must be 0, 1, or -1"),
            ("logit_bias", np.array([1], np.float32), "/logit_bias_offsets is missing; biases need"),
            ("seed", np.array([1.0, 2, 3]), "/seed holds float64; write it as"),
            ("stop", np.array([b"", b"x", b"[]"], "S2"), "/stop[1] is 'x'; it must be a JSON array"),
            ("arrival_s", np.array([0, np.inf]), "/arrival_s[1] is inf; it must be"),
            ("arrival_s", np.array([0, 1, 2.0]), "/arrival_s has 3 rows for 2 requests"),
        ):
            with self.subTest(name=name, values=values):
                self.refused_shard(part, **{name: values})

    def test_biases(self) -> None:
        good: dict[str, Any] = {
            "logit_bias_offsets": np.array([0, 1, 1, 3]),
            "logit_bias_tokens": np.array([5, 6, 7], np.int32),
            "logit_bias": np.array([1, -100, 100], np.float32),
        }
        for name, values, part in (
            ("logit_bias_offsets", np.array([0, 1, 4, 3]), "/logit_bias_offsets[2] is 4, beyond"),
            ("logit_bias_offsets", np.array([0, 3]), "/logit_bias_offsets has 2 rows for 3 turns"),
            ("logit_bias_tokens", np.array([5, 7, 7], np.int32), "names token 7 twice in turn 2"),
            ("logit_bias_tokens", np.array([-5, 6, 7], np.int32), "/logit_bias_tokens[0] is -5; it must"),
            ("logit_bias", np.array([1, -101, 0], np.float32), "/logit_bias[1] is -101; it must be a number"),
            ("logit_bias", np.array([1, np.nan, 0], np.float32), "/logit_bias[1] is nan; it must be a number"),
            ("logit_bias", np.array([1, 0], np.float32), "/logit_bias has 2 rows for 3 tokens"),
        ):
            with self.subTest(name=name, values=values):
                self.refused_shard(part, **{**good, name: values})

    def test_attributes(self) -> None:
        for attributes, *parts in (
            ({"schema": "pecia.prompts/2"}, "'schema' is 'pecia.prompts/2'", "pecia.prompts/1"),
            ({"schema": "pecia.results/1"}, "'schema' is 'pecia.results/1'", "pecia-pack"),
            ({"schema": 5}, "'schema' must be text"),
            ({"schema": ["a", "b"]}, "'schema' must be a single value"),
            ({"schema": "x" * 60_000}, "'schema' is 'xxxx"),
            ({"followup": "tree"}, "'followup' is 'tree'", "'chain' or 'fork'"),
            ({"vocab_size": 128256}, "vocab_size is 128256", "has 96 tokens", "pecia-pack --model"),
            ({"vocab_size": -1}, "'vocab_size' is -1"),
            ({"vocab_size": 96.0}, "'vocab_size' must be an integer"),
        ):
            with self.subTest(attributes=str(attributes)[:60]):
                self.refused_shard(*parts, attributes=attributes)

    def test_tokenizer_of_another_model(self) -> None:
        (self.model / "tokenizer.json").write_text("{}")
        self.refused_shard("tokenizer_sha256 is aaaaaaaaaaaa", "44136fa355b3", "pecia-pack --model",
                           attributes={"tokenizer_sha256": "a" * 64})  # fmt: skip

    def test_not_wholly_written(self) -> None:
        write_shard(self.shard, GOOD_REQUESTS, tokens=None)
        with h5py.File(self.shard, "a") as file:
            file.create_dataset("tokens", (47,), dtype=np.int32)
        self.assert_refused("prompts/a.h5: /tokens was not wholly written", "write the file again")
        for options in ({}, {"compression": "gzip"}):
            with self.subTest(options=options):
                write_shard(self.shard, GOOD_REQUESTS, tokens=None)
                with h5py.File(self.shard, "a") as file:
                    tokens = file.create_dataset("tokens", (47,), dtype=np.int32, chunks=(16,), **options)
                    tokens[:16] = 5
                self.assert_refused("prompts/a.h5: /tokens was not wholly written: 1 of 3 chunks",
                                    "write the file again")  # fmt: skip

    def test_claims_more_than_the_file_holds(self) -> None:
        for rows in (10**9, 10**15, 2**60):
            with self.subTest(rows=rows):
                write_shard(self.shard, GOOD_REQUESTS, tokens=None, turn_offsets=np.array([0, 12, 17, rows]))
                with h5py.File(self.shard, "a") as file:
                    file.create_dataset("tokens", (rows,), dtype=np.int32, chunks=(1024,), compression="gzip")
                self.assert_refused("prompts/a.h5: /tokens was not wholly written")

    def test_what_requests_ask_for_is_refused_by_run_and_validate_alike(self) -> None:
        grammar = np.array([b"", b'{"regex": "(a"}', b""])
        for dataset, values, parts in (
            ("logprobs", np.array([-1, 5, -1], np.int32), ("asks for 5", "generation.logprobs: 5")),
            ("shape", grammar, ()),  # no grammar can be made of it, or this build makes none
        ):
            for arguments in (["--validate"], []):
                with self.subTest(dataset=dataset, arguments=arguments):
                    write_shard(self.shard, GOOD_REQUESTS, **{dataset: values})
                    self.assert_refused("prompts/a.h5: request 'first', turn 2: ", *parts, arguments=arguments)

    def test_control_characters_in_ids_do_nothing(self) -> None:
        write_shard(self.shard, [("a\x1b[2J\nb", [[]]), ("good", [prompt(4)])])
        ended = self.run_job("--validate")
        self.assertIn(r"a\x1b[2J\nb: the turn has no tokens", ended.err, ended)
        self.assertNotIn("\x1b", ended.err)

    def test_nothing_to_do_is_done(self) -> None:
        write_shard(self.shard, [])
        ended = self.run_job()
        self.assertEqual(ended.code, 0, ended)

    def test_results_as_prompts(self) -> None:
        self.assertEqual(self.run_job().code, 0)
        self.assert_refused("'schema' is 'pecia.results/1'", "run/results.h5",
                            arguments=self.set("input=run/results.h5", "output=other"))  # fmt: skip

    def test_external_link(self) -> None:
        write_shard(self.shard, GOOD_REQUESTS, tokens=None)
        with h5py.File(self.shard, "a") as file:
            file["tokens"] = h5py.ExternalLink("absent.h5", "/tokens")
        self.assert_refused("prompts/a.h5: /tokens is in another file (absent.h5)", "h5copy")
        with h5py.File(self.shard, "a") as file:
            del file["tokens"]
            file["tokens"] = h5py.SoftLink("/tokens")
        self.assert_refused("prompts/a.h5: /tokens")

    def test_data_in_another_file(self) -> None:
        """A file of the reader's own must not come out in the results, and a pipe must not be waited for."""
        secret, pipe = self.folder / "secret", self.folder / "pipe"
        secret.write_bytes(np.arange(47, dtype=np.int32).tobytes())
        secret.chmod(0o600)
        os.mkfifo(pipe)
        for other in (secret, pipe):
            with self.subTest(other=other.name):
                write_shard(self.shard, GOOD_REQUESTS, tokens=None)
                with h5py.File(self.shard, "a") as file:
                    file.create_dataset("tokens", (47,), np.int32, external=[(str(other), 0, 4 * 47)])
                self.assert_refused("prompts/a.h5: /tokens has its data in another file", other.name, "h5repack")

    def test_no_regular_file(self) -> None:
        self.shard.unlink()
        os.mkfifo(self.shard)
        self.assert_refused("prompts/a.h5: no regular file, but a pipe")


class OneRequest(BadInputTest):
    """The damaged request fails with its reason, the others finish."""

    def outcome(self, ranks: int, *arguments: str) -> tuple[int, dict[str, tuple[int, str]]]:
        ended = self.run_job("--fresh", *arguments, ranks=ranks)
        with h5py.File(self.folder / "run/results.h5") as file:
            rows = zip(file["request_id"][:], file["turn"][:], file["state"][:], file["error"][:])
            return ended.code, {
                f"{name.decode()}.{turn}": (state, error.decode()) for name, turn, state, error in rows
            }

    def test_each_kind_of_damage(self) -> None:
        good = prompt(10)
        long_prompt = prompt(4200)
        write_shard(
            self.shard,
            [
                ("good", [good]),
                ("beyond", [[5, VOCAB, 7]]),
                ("far", [[5, 6, 2**31 - 1]]),
                ("negative", [[-1]]),
                ("empty", [[]]),
                ("long", [long_prompt]),
                ("later", [good, [3, 1000], good]),
                ("last", [good, good]),
            ],
        )
        reasons = {
            "beyond.0": ("token 1 of the turn is 96", "0 … 95"),
            "far.0": ("token 2 of the turn is 2147483647", "0 … 95"),
            "negative.0": ("token 0 of the turn is -1", "0 … 95"),
            "empty.0": ("no tokens",),
            "long.0": ("4200 prompt tokens", "4096", "limits.over_length"),
            "later.1": ("token 1 of the turn is 1000",),
        }
        finished = {"good.0", "later.0", "last.0", "last.1"}
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                code, rows = self.outcome(ranks)
                self.assertEqual(code, 3, rows)
                self.assertEqual({name for name, (state, _) in rows.items() if state == DONE}, finished)
                self.assertEqual({name for name, (state, _) in rows.items() if state == FAILED},
                                 set(rows) - finished)  # fmt: skip
                for name, parts in reasons.items():
                    for part in parts:
                        self.assertIn(part, rows[name][1], name)
                self.assertNotEqual(rows["later.2"][1], "")

    def test_wide_tokens(self) -> None:
        tokens = np.array([5, 2**40, 6, 7], dtype=np.int64)
        write_shard(self.shard, [("wide", [[5, 5]]), ("good", [[6, 7]])], tokens=tokens)
        code, rows = self.outcome(1)
        self.assertEqual((code, rows["good.0"][0], rows["wide.0"][0]), (3, DONE, FAILED))
        self.assertIn("token 1 of the turn is 2147483647", rows["wide.0"][1])

    def test_first_of_a_fork(self) -> None:
        write_shard(self.shard, [("fork", [[200], prompt(4)]), ("good", [prompt(4)])], {"followup": "fork"})
        code, rows = self.outcome(1)
        self.assertEqual(code, 3)
        self.assertEqual([rows[r][0] for r in ("fork.0", "fork.1", "good.0")], [FAILED, FAILED, DONE])
        self.assertNotEqual(rows["fork.1"][1], "")

    def test_too_large_for_the_memory_given(self) -> None:
        write_shard(self.shard, [("large", [prompt(2000)]), ("small", [prompt(10)])])
        code, rows = self.outcome(1, *self.set("kv.memory=4KiB"))
        self.assertEqual((code, rows["small.0"][0], rows["large.0"][0]), (3, DONE, FAILED), rows)
        self.assertIn("kv.memory", rows["large.0"][1])

    def test_all_damaged(self) -> None:
        self.write_job({**GOOD_JOB, "input": "prompts/a.h5"})
        write_shard(self.shard, [("a", [[]]), ("b", [[-5]])])
        code, rows = self.outcome(1)
        self.assertEqual(code, 3)
        self.assertEqual({state for state, _ in rows.values()}, {FAILED})


if __name__ == "__main__":
    unittest.main()
