# SPDX-License-Identifier: Apache-2.0
import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pecia_tools.bench.trace_prompts import main
from pecia_tools.bench.traces import gamma_arrivals
from support import ScriptTest, quietly, read_turns

TRACE = (
    {"timestamp": 2000, "input_length": 700, "output_length": 9, "hash_ids": [0, 7]},
    {"timestamp": 2500, "input_length": 600, "output_length": 0, "hash_ids": [0, 8]},
    {"timestamp": 2250, "input_length": 1024, "output_length": 30, "hash_ids": [5, 7]},
    {"timestamp": 9000, "input_length": 40, "output_length": 2},
)
AZURE = "ContextTokens,GeneratedTokens\n374,44\n396,109\n91,16\n"


class TracePrompts(ScriptTest):
    def setUp(self) -> None:
        super().setUp()
        self.trace = self.write_lines("mooncake.jsonl", *TRACE)
        self.lengths = self.write("azure.csv", AZURE)

    def shard(self, *arguments: object, vocab: int = 1000) -> Path:
        path = self.folder / "prompts.h5"
        code, out, _ = quietly(main, *arguments, "--output", path, "--vocab", vocab, "--force")
        self.assertEqual((code, out), (0, ""))
        return path

    def columns(self, *arguments: object) -> dict[str, Any]:
        """arrival_s, max_new_tokens and the prompts' lengths."""
        with h5py.File(self.shard(*arguments)) as file:
            found = {name: dataset[()].tolist() for name, dataset in file.items()}
        lengths = np.diff(found["turn_offsets"]).tolist()
        return {**found, "lengths": lengths}

    def test_a_trace_keeps_its_times_and_lengths(self) -> None:
        found = self.columns(self.trace)
        self.assertEqual(found["arrival_s"], [0, 0.5, 0.25, 7])
        self.assertEqual(found["lengths"], [700, 600, 1024, 40])
        self.assertEqual(found["max_new_tokens"], [9, 1, 30, 2])
        self.assertEqual(found["request_id"][2], b"mooncake-000002")

    def test_it_is_a_prompt_shard(self) -> None:
        with h5py.File(self.shard(self.trace)) as file:
            self.assertEqual(file.attrs["schema"], "pecia.prompts/1")
            self.assertEqual(file.attrs["followup"], "chain")
            self.assertEqual(file.attrs["vocab_size"], 1000)
            self.assertEqual(file["tokens"].dtype, np.int32)
            self.assertEqual(file["arrival_s"].dtype, np.float64)
            self.assertEqual(file["max_new_tokens"].dtype, np.int32)
            tokens = file["tokens"][()]
        self.assertEqual((tokens.min(), tokens.max()), (3, 999))
        self.assertGreater(len(np.unique(tokens)), 700)

    def test_equal_blocks_are_equal_tokens(self) -> None:
        for scale in (1.0, 0.1):
            size = round(512 * scale + 0.4999)
            prompts = [
                turns[0]
                for turns in read_turns(self.shard(self.trace, "--scale-lengths", scale)).values()
            ]
            self.assertEqual(prompts[0][:size], prompts[1][:size])
            self.assertNotEqual(prompts[0][:size], prompts[2][:size])
            shared = prompts[0][size:]
            self.assertGreater(len(shared), 10)
            self.assertEqual(shared, prompts[2][size:][: len(shared)])
            self.assertNotEqual(prompts[1][size:], prompts[0][size:][: len(prompts[1]) - size])

    def test_scales_and_limits(self) -> None:
        found = self.columns(
            self.trace,
            "--scale-lengths",
            0.1,
            "--scale-time",
            2,
            "--max-tokens",
            72,
            "--requests",
            3,
        )
        self.assertEqual(found["arrival_s"], [0, 1.0, 0.5])
        self.assertEqual(found["lengths"], [70, 60, 69])
        self.assertEqual(found["max_new_tokens"], [1, 1, 3])

    def test_same_options_give_the_same_prompts_and_another_seed_others(self) -> None:
        first = read_turns(self.shard(self.trace))
        self.assertEqual(read_turns(self.shard(self.trace)), first)
        self.assertNotEqual(read_turns(self.shard(self.trace, "--seed", 2)), first)

    def test_lengths_alone_have_no_times(self) -> None:
        found = self.columns(self.lengths)
        self.assertEqual(found["lengths"], [374, 396, 91])
        self.assertEqual(found["max_new_tokens"], [44, 109, 16])
        self.assertNotIn("arrival_s", found)
        other = self.write("other.csv", "task,words,answer\nqa,12,3\n")
        self.assertEqual(
            self.columns(other, "--columns", "words", "answer", "--poisson", 1)["lengths"], [12]
        )

    def test_made_up_arrivals_replace_those_of_the_trace(self) -> None:
        found = self.columns(self.lengths, "--poisson", 4)
        self.assertEqual(found["arrival_s"][0], 0)
        self.assertEqual(found["arrival_s"], sorted(found["arrival_s"]))
        same = self.columns("--lengths", 20, 5, "--requests", 3, "--gamma", 4, 1)
        self.assertEqual(same["arrival_s"], found["arrival_s"], "a gamma of CV 1 is Poisson")
        self.assertEqual((same["lengths"], same["max_new_tokens"]), ([20] * 3, [5] * 3))
        self.assertNotEqual(self.columns(self.trace, "--poisson", 4)["arrival_s"][3], 7)

    def test_gaps_have_the_rate_and_variation_asked_for(self) -> None:
        for rate, variation in ((4.0, 1.0), (0.5, 3.0), (10.0, 0.2)):
            gaps = np.diff(gamma_arrivals(rate, variation, 200_001, 7))
            self.assertTrue((gaps >= 0).all())
            # The error of a mean of n is 1/sqrt(n) of the deviation: 5 of them.
            self.assertLess(abs(gaps.mean() * rate - 1), 5 * variation / np.sqrt(200_000))
            self.assertLess(abs(gaps.std() / gaps.mean() / variation - 1), 0.05)

    def test_what_is_wrong_is_named(self) -> None:
        bad = (
            ({**TRACE[0], "input_length": -1}, "bad.jsonl:2: input_length is -1"),
            ({**TRACE[0], "timestamp": None}, "bad.jsonl:2: timestamp is None"),
            ({**TRACE[0], "hash_ids": [1]}, "1 hash_ids of 512 tokens"),
            ({**TRACE[0], "hash_ids": ["a"]}, "hash_ids must be"),
        )
        for line, words in bad:
            path = self.write_lines("bad.jsonl", TRACE[0], line)
            self.assert_refused(words, call=lambda path=path: self.shard(path))
        self.write("bad.jsonl", json.dumps(TRACE[0]) + "\n{\n")
        self.assert_refused("bad.jsonl:2: not JSON", call=lambda: self.shard(path))
        path = self.write("bad.csv", "a,b\n1,2\n")
        self.assert_refused("--columns", call=lambda: self.shard(path))
        path = self.write("bad.csv", AZURE + "7,x\n")
        self.assert_refused("bad.csv:5: GeneratedTokens is 'x'", call=lambda: self.shard(path))
        for arguments, words in (
            ((self.trace, "--requests", 5), "has 4 requests"),
            ((self.trace, "--requests", 0), "--requests is 0"),
            ((), "TRACE or --lengths"),
            (("--lengths", 3, 4), "--requests"),
            ((self.folder / "absent.csv",), "no such trace"),
        ):
            self.assert_refused(words, call=lambda arguments=arguments: self.shard(*arguments))
        self.assertEqual(list(self.folder.glob("*.h5")), [])
