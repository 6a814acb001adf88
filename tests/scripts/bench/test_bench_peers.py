# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes  # noqa: F401 - makes numpy know bfloat16
import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors import safe_open

from pecia_tools.bench import model as bench_model
from pecia_tools.bench import peer_process, peers_report
from pecia_tools.bench import peers as bench_peers
from pecia_tools.bench.peers import Bench, Failure, of_pecia, read_lines
from pecia_tools.bench.peers_options import Configuration, chosen, parse
from pecia_tools.gguf.export import export_gguf
from pecia_tools.gguf.export_gpt_oss import export_gpt_oss
from pecia_tools.gguf.export_parts import pairs_from_halves
from pecia_tools.gguf.model import GgufModel
from pecia_tools.gguf.weights import halves_from_pairs, write_safetensors
from pecia_tools.runs.prompt_shard import PromptShard
from support import PROSE, ScriptTest, make_model, printed, quietly

SHAPE = [
    "--layers=2",
    "--hidden=32",
    "--heads=4",
    "--kv-heads=2",
    "--head-dim=8",
    "--ffn=48",
    "--vocab=64",
]


def line(peer: str, settings: str, rate: float, **others: Any) -> dict[str, Any]:
    facts = {"what": "prefill", "tokens": 512, "foreign_cpus": 0.25}
    return {**facts, "peer": peer, "settings": settings, "tokens_per_s": rate, **others}


class Choice(ScriptTest):
    def test_a_name_means_all_that_begins_with_its_parts(self) -> None:
        self.assertEqual(len(chosen("")), 4 + 2 + 6 * 2 * 2 + 2)
        self.assertEqual(len(chosen("llama.cpp/F16")), 4)
        names = [one.name for one in chosen("llama.cpp/Q8_0/fa-on,pecia/auto")]
        self.assertEqual(
            names, ["pecia/auto", "llama.cpp/Q8_0/fa-on/ub-512", "llama.cpp/Q8_0/fa-on/ub-2048"]
        )

    def test_unknown_names_are_refused_with_those_that_there_are(self) -> None:
        for word in ("llama.cpp/Q8", "vlm", "pecia/auto,"):
            self.assert_refused("--only", "transformers/bf16", call=lambda w=word: chosen(w))

    def test_a_peer_that_cannot_be_installed_is_refused_with_the_reason(self) -> None:
        for word in ("vllm", "pecia/auto,vllm/bf16"):
            self.assert_refused("vllm cannot be measured", "PyPI", call=lambda w=word: chosen(w))

    def test_those_that_no_case_measures_are_left_out_with_the_reason(self) -> None:
        batches = ["--prefill", "", "--decode", "", "--batches", "2", "--only"]
        bench = Bench(parse([*batches, "llama.cpp/F16/fa-on,pecia/auto"]))
        with contextlib.redirect_stderr(io.StringIO()) as said:
            bench.leave_out()
        self.assertEqual([one.name for one in bench.options.only], ["pecia/auto"])
        self.assertIn("llama.cpp is not in the batches: its library leaves it to its caller", said.getvalue())
        self.assert_refused("nothing of --only", call=lambda: parse([*batches, "llama.cpp"]))
        products = ["--prefill", "", "--decode", "", "--products", "--only", "openvino,pecia/int8"]
        self.assert_refused("nothing of --only", call=lambda: parse(products))

    def test_lengths_are_sorted_and_wrong_ones_refused(self) -> None:
        self.assertEqual(parse(["--prefill", "2048,512,512"]).prefill, [512, 2048])
        self.assertEqual(parse(["--decode", ""]).decode, [])
        self.assert_refused("--prefill", call=lambda: parse(["--prefill", "", "--decode", ""]))
        for wrong in (["--prefill", "0"], ["--decode", "5k"], ["--rounds", "0"], ["--new", "-1"]):
            with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(io.StringIO()):
                parse(wrong)
            self.assertEqual(ended.exception.code, 2)


class Prompt(ScriptTest):
    def test_the_text_is_repeated_up_to_the_length(self) -> None:
        model = make_model(self.folder / "model")
        text = self.write("text", PROSE)
        once = bench_peers.ModelFolder(model).tokenizer.encode(PROSE, add_special_tokens=False).ids
        found = bench_peers.prompt(model, text, len(once) + 3).tolist()
        self.assertEqual(found, once + once[:3])
        self.assertEqual(bench_peers.prompt(model, text, 2).tolist(), once[:2])

    def test_a_model_without_a_tokenizer_has_random_tokens(self) -> None:
        model = self.folder / "model"
        quietly(bench_model.main, model, *SHAPE)
        found = bench_peers.prompt(model, self.folder / "none", 1000)
        self.assertEqual((len(found), found.dtype), (1000, np.int32))
        self.assertEqual((found.min(), found.max()), (0, 63))

    def test_no_text(self) -> None:
        model = make_model(self.folder / "model")
        for text, words in ((self.folder / "none", "--text"), (self.write("empty", ""), "no text")):
            self.assert_refused(words, call=lambda t=text: bench_peers.prompt(model, t, 2))


class Outputs(ScriptTest):
    def test_lines_of_pecia_s_benchmarks(self) -> None:
        names = ("version", "commit", "compiler", "mpi", "isa", "kv_dtype")
        both = {**dict.fromkeys(names, "x"), "tokens_per_s": 8.0, "share_of_floor": 0.5}
        prefill = of_pecia(
            {**both, "bench": "bench_prefill", "tokens": 512, "seconds": {"median": 64.0}}
        )
        self.assertEqual(
            (prefill["what"], prefill["tokens"], prefill["seconds"]), ("prefill", 512, 64)
        )
        decode = {
            "bench": "bench_decode",
            "context": 9,
            "steps": 16,
            "step_seconds": {"median": 0.125},
        }
        found = of_pecia({**both, **decode})
        self.assertEqual((found["what"], found["tokens"], found["seconds"]), ("decode", 9, 2))
        self.assertEqual((found["tokens_per_s"], found["share_of_floor"]), (8, 0.5))

    def test_a_broken_or_missing_output_names_its_process(self) -> None:
        good = self.write_lines("good", {"a": 1}, {"a": 2})
        self.assertEqual(read_lines(good, "it", 2), [{"a": 1}, {"a": 2}])
        broken = self.write("broken", '{"a": 1}\n{"a"')
        for path, count in ((good, 3), (broken, 2), (self.folder / "none", 1)):
            with self.assertRaisesRegex(Failure, r"llama\.cpp/F16 left"):
                read_lines(path, "llama.cpp/F16", count)


class Processes(ScriptTest):
    def test_a_failing_one_is_named_with_its_last_words(self) -> None:
        command = [sys.executable, "-c", "import sys; print('no memory'); sys.exit(7)"]
        with self.assertRaisesRegex(Failure, r"transformers/bf16 ended with code 7.*\n.*no memory"):
            bench_peers.start(command, self.folder / "log", "transformers/bf16")


class Rounds(ScriptTest):
    """With a function in the place of the processes."""

    def bench(self, *options: str) -> Bench:
        return Bench(parse(["--json", str(self.folder / "out.jsonl"), *options]))

    def run_all(self, bench: Bench) -> tuple[int, str, str]:
        bench.prepare = lambda: None
        original, bench_peers.Bench = bench_peers.Bench, lambda options: bench
        self.addCleanup(setattr, bench_peers, "Bench", original)
        return quietly(bench_peers.main)

    def test_all_in_turn_and_every_line_kept(self) -> None:
        bench = self.bench("--rounds", "2", "--only", "pecia/auto,transformers/bf16")
        asked: list[str] = []

        def measured(one: Configuration, json_file: Path) -> list[dict[str, Any]]:
            asked.append(one.name)
            rate = 10 + len(asked)
            facts = {"what": "prefill", "tokens": 512, "foreign_cpus": 0, "share_of_floor": 0.5}
            return [{**facts, "tokens_per_s": rate}]

        bench.measure_own = bench.measure_peer = measured
        code, out, _ = self.run_all(bench)
        self.assertEqual(code, 0)
        self.assertEqual(asked, ["pecia/auto", "transformers/bf16"] * 2)
        kept = [json.loads(text) for text in (self.folder / "out.jsonl").read_text().splitlines()]
        self.assertEqual([one["round"] for one in kept], [1, 1, 2, 2])
        for name in ("cpu", "cores", "threads", "commit", "model", "load", "peer", "settings"):
            self.assertIn(name, kept[0])
        self.assertIn(
            "| prefill of 512 | 12.0 | auto | 13.0 | bf16 | – | – | – | – | 0.92 (transformers)", out
        )

    def test_what_fails_is_named_left_out_and_told_by_the_exit_code(self) -> None:
        bench = self.bench("--rounds", "2", "--only", "transformers")
        asked: list[str] = []

        def measured(one: Configuration, json_file: Path) -> list[dict[str, Any]]:
            asked.append(one.name)
            if one.settings == ("fp32",):
                raise Failure(f"{one.name} ended with code 9")
            return [{"what": "decode", "tokens": 512, "foreign_cpus": 0, "tokens_per_s": 5}]

        bench.measure_peer = measured
        code, out, err = self.run_all(bench)
        self.assertEqual(code, 1)
        self.assertEqual(asked, ["transformers/bf16", "transformers/fp32", "transformers/bf16"])
        self.assertIn("transformers/fp32 ended with code 9", err)
        self.assertIn("failed: transformers/fp32", err)
        self.assertIn("| decode after 512 | – | – | 5.0 | bf16 |", out)


    def test_one_that_crashes_and_one_that_is_not_there_are_named_and_the_rest_goes_on(self) -> None:
        """With real processes in the place of the others' Python."""
        python = self.folder / "build" / "peers" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text("#!/bin/sh\necho 'bad weights'\nkill -SEGV $$\n")
        python.chmod(0o755)
        self.play("pecia_tools.bench.peers", ROOT=self.folder)
        bench = self.bench("--rounds", "2", "--only", "transformers/bf16,openvino/bf16,pecia/auto")
        bench.work.mkdir(parents=True)
        facts = {"what": "decode", "tokens": 512, "foreign_cpus": 0, "share_of_floor": 0.5}
        bench.measure_own = lambda one, json_file: [{**facts, "tokens_per_s": 5}]
        code, out, err = self.run_all(bench)
        self.assertEqual(code, 1)
        self.assertRegex(err, r"transformers/bf16 was ended by SIGSEGV; .*\nbad weights\n")
        self.assertRegex(err, "openvino/bf16 cannot be started: .*peers-openvino/bin/python: No such file")
        self.assertIn("failed: transformers/bf16, openvino/bf16\n", err)
        self.assertIn("| decode after 512 | 5.0 | auto |", out)
        self.assertEqual(err.count("round 2 of 2"), 1, "pecia alone has a second round")


class Environments(ScriptTest):
    def prepared(self, only: str, failing: str) -> tuple[Bench, list[str], str]:
        """A bench whose command lines with that word fail; the names of what was made."""
        bench = Bench(parse(["--only", only, "--model", str(make_model(self.folder / "model"))]))
        bench.work, made = self.folder / "work", []

        def set_up(environment: str) -> None:
            made.append(environment)
            if failing == environment:
                raise Failure(f"{environment}: no such package")

        def kind(name: str) -> Path:
            made.append(name)
            if failing == name:
                raise Failure(f"{name}: no room")
            return Path(name)

        self.play("pecia_tools.bench.peers", set_up=set_up)
        bench.make_gguf = bench.make_openvino = kind
        with contextlib.redirect_stderr(io.StringIO()) as said:
            bench.options.text = self.write("text", PROSE)
            bench.prepare()
        return bench, made, said.getvalue()

    def test_one_that_cannot_be_had_is_named_and_the_others_go_on(self) -> None:
        bench, made, said = self.prepared("openvino,transformers/bf16", "peers-openvino")
        self.assertEqual(made, ["peers", "peers-openvino"])
        self.assertEqual(list(bench.failed), ["openvino/bf16", "openvino/int8"])
        self.assertIn("no such package", said)

    def test_a_model_that_a_peer_cannot_have_concerns_that_peer(self) -> None:
        model = self.folder / "model"
        quietly(bench_model.main, model, *SHAPE)
        config = json.loads((model / "config.json").read_text("utf-8"))
        (model / "config.json").write_text(json.dumps({**config, "model_type": "qwen2"}))
        only = ["--only", "llama.cpp/F32/fa-on,transformers/bf16", "--model", str(model)]
        bench = Bench(parse(only))
        bench.work, bench.gguf = self.folder / "work", self.folder / "gguf"
        self.play("pecia_tools.bench.peers", set_up=lambda environment: None)
        with contextlib.redirect_stderr(io.StringIO()) as said:
            bench.prepare()
        self.assertEqual(list(bench.failed), ["llama.cpp/F32/fa-on/ub-512", "llama.cpp/F32/fa-on/ub-2048"])
        self.assertIn("model_type", said.getvalue())

    def test_weights_that_cannot_be_made_concern_their_settings(self) -> None:
        bench, made, _ = self.prepared("openvino,llama.cpp/Q8_0/fa-on/ub-512", "int8")
        self.assertEqual(made, ["peers", "peers-openvino", "Q8_0", "bf16", "int8"])
        self.assertEqual(list(bench.failed), ["openvino/int8"])


class Batches(ScriptTest):
    def test_a_shard_has_a_request_for_each_prompt(self) -> None:
        path = self.folder / "prompts.h5"
        bench_peers.write_prompts(path, np.arange(1, 7), [2, 2, 2])
        shard = PromptShard(path)
        self.assertEqual([shard.request_id(i) for i in range(3)], [f"prompt-{i}" for i in range(3)])
        with h5py.File(path) as file:
            self.assertEqual(file["tokens"][:].tolist(), [1, 2, 3, 4, 5, 6])
            self.assertEqual(file["turn_offsets"][:].tolist(), [0, 2, 4, 6])

    def test_a_run_s_start_does_not_count(self) -> None:
        startup = {"main_unix_s": 1e9, "mpi_s": 5, "read_job_s": 1, "schedule_s": 2}
        self.assertEqual(bench_peers.seconds_after_start({"seconds": 10, "startup": startup}), 7)

    def test_are_a_case_after_the_others(self) -> None:
        lines = [
            line("pecia", "auto", 300, what="batch", tokens=16),
            line("openvino", "bf16", 200, what="batch", tokens=16),
            line("openvino", "bf16", 50),
        ]
        out = printed(peers_report.tables, lines)
        self.assertIn("| 16 prompts at once | 300.0 | auto | – | – | – | – | 200.0 | bf16 | 1.50", out)
        self.assertLess(out.index("prefill of 512"), out.index("16 prompts"))


class OwnPrograms(ScriptTest):
    def test_the_prompt_that_warms_up_does_not_count(self) -> None:
        bench = Bench(parse(["--prefill", "9,3", "--decode", "5", "--new", "4"]))
        bench.work = self.folder
        asked: list[list[str]] = []
        facts = dict.fromkeys(("version", "commit", "compiler", "mpi", "isa", "kv_dtype"), "x")

        def start(command: list[object], log: Path, what: str) -> float:
            words = [str(word) for word in command]
            asked.append(words)
            if "--tokens" in words:
                cases = words[words.index("--tokens") + 1].split(",")
                lines = [
                    {"bench": "bench_prefill", "tokens": int(case), "seconds": {"median": number}}
                    for number, case in enumerate(cases)
                ]
            else:
                step = {"step_seconds": {"median": 1}, "steps": 4}
                lines = [{"bench": "bench_decode", "context": 5, **step}]
            rates = {"tokens_per_s": 1, "share_of_floor": 0.5}
            self.write_lines("lines", *({**facts, **rates, **line} for line in lines))
            return 0.125

        original, bench_peers.start = bench_peers.start, start
        self.addCleanup(setattr, bench_peers, "start", original)
        found = bench.measure_own(chosen("pecia/fp32")[0], self.folder / "lines")
        self.assertEqual(
            [(line["what"], line["tokens"], line["seconds"]) for line in found],
            [("prefill", 3, 1), ("prefill", 9, 2), ("decode", 5, 4)],
        )
        self.assertEqual({line["foreign_cpus"] for line in found}, {0.125})
        prefill, decode = (" ".join(words) for words in asked)
        self.assertIn("--compute fp32", prefill)
        self.assertIn("--tokens 3,3,9 --warmups 0", prefill)
        self.assertIn("--contexts 5 --batches 1 --steps 4", decode)
        asked.clear()
        bench.measure_own(chosen("pecia/int8")[0], self.folder / "lines")
        for words in asked:
            self.assertIn("--dtype int8", " ".join(words))


class OtherProgram(ScriptTest):
    def test_what_a_process_feeds_and_says(self) -> None:
        fed: list[str] = []

        class Peer:
            versions: dict[str, str] = {"it": "1"}  # noqa: RUF012 - read alone

            def reset(self) -> None:
                fed.append("reset")

            def feed(self, tokens: list[int]) -> int:
                fed.append(str(len(tokens)) if len(tokens) > 1 else f"token {tokens[0]}")
                return tokens[-1] + 1

        out = self.folder / "out"
        options = argparse.Namespace(prefill=[2, 3], decode=[3], new=2, json=out, product=[], attention=[], batches=[])
        peer_process.measure(Peer(), [10, 20, 30], options)
        steps = [f"token {token}" for token in (31, 32, 33, 34)]
        self.assertEqual(fed, ["2", "reset", "2", "reset", "3", *steps])
        lines = read_lines(out, "it", 3)
        self.assertEqual(
            [(line["what"], line["tokens"], line["next_token"]) for line in lines],
            [("prefill", 2, 21), ("prefill", 3, 31), ("decode", 3, 35)],
        )
        for one, count in zip(lines, (2, 3, 2)):
            self.assertAlmostEqual(one["tokens_per_s"] * one["seconds"], count)

    def test_what_a_process_generates_and_says(self) -> None:
        asked: list[tuple[int, int]] = []

        class Peer:
            versions: dict[str, str] = {}  # noqa: RUF012 - read alone

            def generate(self, tokens: list[int], new: int) -> tuple[list[float], int]:
                asked.append((len(tokens), new))
                return [4 + 0.5 * i for i in range(new)], tokens[-1]

        out = self.folder / "out"
        options = argparse.Namespace(
            prefill=[2, 3], decode=[3], new=2, json=out, product=[], attention=[], batches=[]
        )
        peer_process.measure(Peer(), [10, 20, 30], options)
        self.assertEqual(asked, [(2, 2), (2, 1), (3, 5)])
        self.assertEqual(
            [(one["what"], one["tokens"], one["seconds"]) for one in read_lines(out, "it", 3)],
            [("prefill", 2, 4), ("prefill", 3, 4), ("decode", 3, 1)],
        )

    def test_batches_of_prompts_that_begin_differently(self) -> None:
        asked: list[tuple[list[list[int]], int]] = []

        class Peer:
            versions: dict[str, str] = {}  # noqa: RUF012 - read alone

            def batch(self, prompts: list[list[int]], new: int) -> int:
                asked.append((prompts, new))
                return 7

        out = self.folder / "out"
        options = argparse.Namespace(
            prefill=[], decode=[], new=2, json=out, product=[], attention=[], batches=[3]
        )
        options.batch_prompt, options.batch_new = 2, 5
        peer_process.measure(Peer(), [10, 20, 30], options)
        prompts = [[10, 20], [20, 30], [30, 10]]
        self.assertEqual(asked, [(prompts[:2], 2), (prompts, 5)])
        (one,) = read_lines(out, "it", 1)
        self.assertEqual((one["what"], one["tokens"], one["next_token"]), ("batch", 3, 7))
        self.assertAlmostEqual(one["tokens_per_s"] * one["seconds"], 3 * 5)

    def test_products_alone(self) -> None:
        class Peer:
            versions: dict[str, str] = {}  # noqa: RUF012 - read alone

            def seconds_of_product(self, rows: int, depth: int, columns: int) -> float:
                return rows * depth * columns / 1000

            def seconds_of_attention(
                self, tokens: int, heads: int, kv_heads: int, head_dim: int
            ) -> float:
                return tokens * heads * head_dim / kv_heads / 100

        out = self.folder / "out"
        shapes = [[8, 5, 10], [4, 2, 25]]
        options = argparse.Namespace(
            prefill=[], decode=[], new=2, json=out, product=shapes, batches=[]
        )
        options.attention = [["attention", "10", "6", "3", "5"]]
        peer_process.measure(Peer(), [], options)
        self.assertEqual(
            [
                (line["what"], line["tokens"], line["seconds"], line["tokens_per_s"])
                for line in read_lines(out, "it", 3)
            ],
            [("product", 8, 0.4, 20), ("product", 4, 0.2, 20), ("attention", 10, 1, 10)],
        )


class Products(ScriptTest):
    def test_of_ops_the_plain_ones_of_bf16(self) -> None:
        def op(shape: str, seconds: float) -> dict[str, Any]:
            return {"op": "linear", "shape": shape, "median_s": seconds, "share_of_floor": 0.5}

        found = bench_peers.of_ops(
            [
                {"machine": "2 threads"},
                op("2048 rows × 2048×2048 bf16, square, in panels", 2),
                op("8192 rows × 1536×576 int8, SmolLM2-135M", 3),
                op("8192 rows × 1536×576 bf16, SmolLM2-135M, row invariant, splits 1", 5),
                op("8192 rows × 1536×576 bf16, SmolLM2-135M", 6),
                op("8192 rows × 1536×576 bf16, SmolLM2-135M, in panels", 4),
                op("8192 queries, 8192 keys, 32/8 heads of 128 bf16", 16),
                op("8192 queries, 8192 keys, 32/8 heads of 128 fp8", 17),
            ]
        )
        self.assertEqual(
            [(line["what"], line["tokens"], line["tokens_per_s"]) for line in found],
            [
                ("product", 8192, 2048),
                ("product", 2048, 1024),
                ("attention, 32/8 heads of 128", 8192, 512),
            ],
        )

    def test_are_a_case_before_the_others(self) -> None:
        lines = [
            line("pecia", "auto", 8192, what="product", tokens=8192, share_of_floor=1),
            line("pecia", "auto", 10, share_of_floor=1),
            line("transformers", "bf16", 4096, what="product", tokens=8192),
        ]
        out = printed(peers_report.tables, lines)
        product = (
            "| rows of [8192 × 576] · [576 × 1536] | 8192.0 | auto | 4096.0 | bf16 | – | – | – | – | 2.00"
        )
        self.assertIn(product, out)
        self.assertLess(out.index("rows of"), out.index("prefill of 512"))


class Tables(ScriptTest):
    def printed(self, *lines: dict[str, Any]) -> str:
        return printed(peers_report.tables, lines)

    def test_medians_winners_and_ratios(self) -> None:
        rounds = {
            ("pecia", "auto"): (80, 120, 100),  # median 100
            ("pecia", "fp32"): (60, 300, 50),  # 60, whatever its best round is
            ("pecia", "int4"): (110, 150, 160),
            ("transformers", "bf16"): (20, 25, 30),
            ("llama.cpp", "F16/fa-on/ub-512"): (50, 49, 400),
            ("llama.cpp", "Q4_0/fa-off/ub-512"): (90, 125, 130),
        }
        text = self.printed(
            *(
                line(*key, rate, share_of_floor=rate / 200)
                for number in range(3)
                for key, rates in rounds.items()
                for rate in rates[number : number + 1]
            )
        )
        self.assertIn(
            "| prefill of 512 | 150.0 | int4 | 25.0 | bf16 | 125.0 | Q4_0/fa-off/ub-512 "
            "| – | – | 1.20 (llama.cpp) | 2.00 (llama.cpp) | 75 % |",
            text,
        )
        self.assertIn("| llama.cpp | F16/fa-on/ub-512 | 50.0 (49.0–400.0) |", text)
        self.assertIn("0.25 CPUs busy meanwhile, at most 0.25", text)

    def test_the_winner_is_of_the_case(self) -> None:
        text = self.printed(
            line("transformers", "bf16", 10),
            line("transformers", "fp32", 20),
            line("transformers", "bf16", 8, what="decode"),
            line("transformers", "fp32", 4, what="decode"),
        )
        self.assertIn("| prefill of 512 | – | – | 20.0 | fp32 | – | – | – | – | – | – | – |", text)
        self.assertIn("| decode after 512 | – | – | 8.0 | bf16 |", text)


class Weights(ScriptTest):
    def setUp(self) -> None:
        super().setUp()
        self.model = self.folder / "model"
        quietly(bench_model.main, self.model, *SHAPE)

    def test_the_file_gives_the_checkpoint_back(self) -> None:
        export_gguf(self.model, self.folder / "F32.gguf")
        model = GgufModel(GGUFReader(self.folder / "F32.gguf"), "F32.gguf")
        self.assertEqual((model.num_layers, model.num_heads, model.num_kv_heads), (2, 4, 2))
        self.assertEqual(model.head_dim, 8)
        self.assertEqual(model.get("llama.vocab_size"), 64)
        write_safetensors(model, "bf16", self.folder / "back.safetensors")
        with (
            safe_open(self.model / "model.safetensors", "numpy") as ours,
            safe_open(self.folder / "back.safetensors", "numpy") as back,
        ):
            self.assertEqual(set(ours.keys()), set(back.keys()))
            for name in ours.keys():  # noqa: SIM118 - it has no iterator
                np.testing.assert_array_equal(ours.get_tensor(name), back.get_tensor(name), name)

    def test_experts_are_stacked(self) -> None:
        folder = self.folder / "mixture"
        quietly(bench_model.main, folder, *SHAPE, "--experts=3", "--experts-per-token=2")
        export_gguf(folder, self.folder / "F32.gguf")
        reader = GGUFReader(self.folder / "F32.gguf")
        held = {tensor.name: tensor for tensor in reader.tensors}
        self.assertEqual(reader.fields["qwen3moe.expert_count"].contents(), 3)
        self.assertEqual(reader.fields["qwen3moe.expert_used_count"].contents(), 2)
        self.assertEqual(len(held), 2 + 2 * 12)
        with safe_open(folder / "model.safetensors", "numpy") as ours:
            for name, source in (
                ("ffn_up_exps", "mlp.experts.{}.up_proj"),
                ("ffn_down_exps", "mlp.experts.{}.down_proj"),
            ):
                for expert in range(3):
                    theirs = held[f"blk.1.{name}.weight"].data[expert]
                    own = ours.get_tensor(f"model.layers.1.{source.format(expert)}.weight")
                    np.testing.assert_array_equal(theirs, own.astype(np.float32))
            queries = ours.get_tensor("model.layers.0.self_attn.q_proj.weight").astype(np.float32)
            np.testing.assert_array_equal(held["blk.0.attn_q.weight"].data, queries)

    def exported(self, *shape: str) -> tuple[GGUFReader, dict[str, np.ndarray], Any]:
        """The file's fields and tensors, and how a tensor of the checkpoint is read."""
        folder = self.folder / "more"
        quietly(bench_model.main, folder, *SHAPE, "--experts=3", "--experts-per-token=2", *shape)
        export_gguf(folder, self.folder / "F32.gguf")
        reader = GGUFReader(self.folder / "F32.gguf")

        def read(name: str) -> np.ndarray:
            with safe_open(folder / "model.safetensors", "numpy") as ours:
                return ours.get_tensor(f"model.layers.1.{name}").astype(np.float32)

        return reader, {tensor.name: tensor.data for tensor in reader.tensors}, read

    def test_a_shared_expert_and_dense_layers(self) -> None:
        shared = ("--glm-4", "--shared-experts=2", "--dense-layers=1", "--dense-ffn=48")
        reader, held, read = self.exported(*shared)
        for field, value in (
            ("leading_dense_block_count", 1),
            ("expert_shared_count", 2),
            ("expert_gating_func", 2),
            ("rope.dimension_count", 4),
            ("feed_forward_length", 48),
        ):
            self.assertEqual(reader.fields[f"glm4moe.{field}"].contents(), value, field)
        self.assertEqual(held["blk.0.ffn_up.weight"].shape, (48, 32))
        self.assertNotIn("blk.0.ffn_gate_inp.weight", held)
        for name, source in (
            ("ffn_up_shexp.weight", "mlp.shared_experts.up_proj.weight"),
            ("post_attention_norm.weight", "post_attention_layernorm.weight"),
            ("exp_probs_b.bias", "mlp.gate.e_score_correction_bias"),
            ("attn_q.bias", "self_attn.q_proj.bias"),
            ("attn_q.weight", "self_attn.q_proj.weight"),
        ):
            np.testing.assert_array_equal(held[f"blk.1.{name}"], read(source), name)

    def test_latents_are_attended_as_they_are(self) -> None:
        latent = ("--kv-rank=12", "--q-rank=10", "--rope-dim=4", "--value-dim=6", "--shared-experts=1")
        for family, architecture in ((), "deepseek2"), (("--mistral-4",), "mistral4"):
            with self.subTest(architecture):
                shutil.rmtree(self.folder / "more", ignore_errors=True)
                reader, held, read = self.exported(*latent, *family)
                for field, value in (
                    ("attention.key_length", 16),
                    ("attention.value_length", 12),
                    ("attention.key_length_mla", 12),
                    ("attention.value_length_mla", 6),
                    ("attention.head_count_kv", 1),
                    ("rope.dimension_count", 4),
                ):
                    found = reader.fields[f"{architecture}.{field}"].contents()
                    self.assertEqual(found, value, field)
                both = read("self_attn.kv_b_proj.weight").reshape(4, 8 + 6, 12)
                latents = np.random.default_rng(1).standard_normal(12).astype(np.float32)
                for head in range(4):
                    k_b, v_b = (held[f"blk.1.attn_{one}_b.weight"][head] for one in ("k", "v"))
                    np.testing.assert_allclose(latents @ k_b, both[head, :8] @ latents, rtol=1e-5)
                    np.testing.assert_array_equal(v_b, both[head, 8:])
                if family:
                    gate_up = read("mlp.experts.gate_up_proj")
                    up = held["blk.1.ffn_up_exps.weight"]
                    np.testing.assert_array_equal(up, gate_up[:, up.shape[1] :])

    def test_experts_of_gpt_oss_are_kept_as_stored(self) -> None:
        folder = self.folder / "gpt-oss"
        shape = [*SHAPE, "--ffn=64", "--experts=3", "--experts-per-token=2", "--gpt-oss"]
        quietly(bench_model.main, folder, *shape)
        export_gpt_oss(folder, self.folder / "MXFP4.gguf")
        reader = GGUFReader(self.folder / "MXFP4.gguf")
        held = {tensor.name: tensor for tensor in reader.tensors}
        self.assertEqual(reader.fields["gpt-oss.expert_count"].contents(), 3)
        self.assertEqual(reader.fields["gpt-oss.rope.scaling.type"].contents(), "yarn")
        with safe_open(folder / "model.safetensors", "numpy") as ours:
            experts = "model.layers.1.mlp.experts"
            blocks = ours.get_tensor(f"{experts}.gate_up_proj_blocks")
            scales = ours.get_tensor(f"{experts}.gate_up_proj_scales")
            codes = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(*scales.shape, 32)
            sizes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=np.float32)
            numbers = np.concatenate([sizes, -sizes])[codes]
            numbers *= np.exp2(scales[..., None].astype(np.float32) - 127)
            expected = numbers.reshape(3, 128, 32)
            for first, name in enumerate(("gate", "up")):
                found = held[f"blk.1.ffn_{name}_exps.weight"]
                values = dequantize(found.data, found.tensor_type).reshape(3, 64, 32)
                np.testing.assert_array_equal(values, expected[:, first::2])
                bias = ours.get_tensor(f"{experts}.gate_up_proj_bias").astype(np.float32)
                np.testing.assert_array_equal(
                    held[f"blk.1.ffn_{name}_exps.bias"].data, bias[:, first::2]
                )
            sinks = ours.get_tensor("model.layers.0.self_attn.sinks").astype(np.float32)
            np.testing.assert_array_equal(held["blk.0.attn_sinks.weight"].data, sinks)
        self.assert_refused(
            "not 'gpt_oss'", call=lambda: export_gpt_oss(self.model, self.folder / "other.gguf")
        )

    def test_files_are_made_once_and_again_of_another_checkpoint(self) -> None:
        bench = Bench(parse(["--model", str(self.model)]))
        bench.gguf = self.folder / "gguf"
        made: list[str] = []

        def peer(arguments: list[object], what: str) -> float:
            made.append(what)
            Path(str(arguments[2])).write_bytes(Path(str(arguments[1])).read_bytes()[:4])
            return 0

        bench.peer = peer
        with contextlib.redirect_stderr(io.StringIO()) as said:
            for _ in range(2):
                self.assertEqual(bench.make_gguf("Q8_0").read_bytes(), b"GGUF")
            self.assertEqual(made, ["quantize-Q8_0"])
            os.utime(self.model / "model.safetensors", ns=(0, 0))
            bench.make_gguf("Q8_0")
        self.assertEqual(made, ["quantize-Q8_0"] * 2)
        self.assertEqual(said.getvalue().count("F32.gguf"), 2)

    def test_rows_of_a_head_in_pairs(self) -> None:
        halves = np.array([[0], [1], [10], [11], [2], [3], [12], [13]])  # two heads of four
        pairs = pairs_from_halves(halves, 2)
        self.assertEqual(pairs.ravel().tolist(), [0, 10, 1, 11, 2, 12, 3, 13])
        np.testing.assert_array_equal(halves_from_pairs(pairs, 2), halves)

    def test_other_models_are_refused(self) -> None:
        config = json.loads((self.model / "config.json").read_text())
        for key, value in (
            ("model_type", "qwen2"),
            ("rope_scaling", {"rope_type": "llama3"}),
            ("attention_bias", True),
            ("num_hidden_layers", 3),
        ):
            (self.model / "config.json").write_text(json.dumps({**config, key: value}))
            words = "missing" if key == "num_hidden_layers" else key
            self.assert_refused(
                words, call=lambda: export_gguf(self.model, self.folder / "F32.gguf")
            )
            self.assertFalse((self.folder / "F32.gguf").exists())
