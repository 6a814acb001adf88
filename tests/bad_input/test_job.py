# SPDX-License-Identifier: Apache-2.0
"""Broken job files, and jobs that this version, this model or this machine cannot do."""

from __future__ import annotations

import json
import os
import re
import time
import unittest

import h5py
import numpy as np

from support import GOOD_JOB, VOCAB, BadInputTest, prompt, write_shard

# Values outside a key's range or of another type.
NUMBERS = {
    "parallel.dp": ("0", "-1", "1048577", "1.5", "two"),
    "parallel.cp": ("0", "-1", "1048577", "9223372036854775808"),
    "parallel.sp": ("0", "-2", "true"),
    "parallel.tp": ("0", "-2", "[1]"),
    "parallel.shift_threshold": ("0", "-1", "9223372036854775808"),
    "parallel.gather_threshold": ("0", "-1", "9223372036854775808"),
    "attention.levels": ("0", "5", "-1", "2.0", "all"),
    "attention.drop": ("-0.1", "0.96", "nan", "inf", "half", "{file: ''}", "{file: a, share: 0.5}",
                       "{layers: []}", "{layers: [0.96]}"),
    "attention.pipeline": ("0", "17", "-1", "1e1", "[]", "[17]"),
    "attention.objective": ("auto", "{loss: -1}", "{ttft: 0s}", "{loss: 0, ttft: 30s}", "{tbt: 1s}"),
    "generation.max_new_tokens": ("0", "-1", "2147483648", "1e3", "auto", "null"),
    "generation.temperature": ("-0.1", ".nan", ".inf", "nan", "inf", "1e39", "hot"),
    "generation.top_k": ("-1", "2147483648", "0.5", "'4'"),
    "generation.top_p": ("0", "-0.5", "1.01", "nan"),
    "generation.min_p": ("-0.1", "1.1", "nan"),
    "generation.repetition_penalty": ("0", "-1", "nan", "inf"),
    "generation.presence_penalty": ("-2.1", "2.1", "nan"),
    "generation.frequency_penalty": ("-2.1", "2.1", "nan"),
    "generation.seed": ("9223372036854775808", "-9223372036854775809", "1.0", "auto"),
    "generation.stop_token_ids": ("-1", "[1, -2]", "[2147483648]", "[[1]]", "two"),
    "generation.ignore_eos": ("yes", "1", "auto", "'true'"),
    "generation.logprobs": ("-2", "2147483648", "all"),
    "generation.prompt_logprobs": ("-2", "2147483648", "all"),
    "kv.memory": ("0", "-1", "12GG", "0.4", "9000TiB", "1e9"),
    "batch.max_sequences": ("0", "-1", "9223372036854775808"),
    "batch.max_batch_tokens": ("0", "-1", "9223372036854775808"),
    "batch.objective": ("tbt", "{tbt: 0s}", "{tbt: -1s}", "{loss: 0}", "{tbt: 1s, ttft: 1s}"),
    "limits.wall_time": ("0s", "-5s", "367d", "12 parsecs", "1e3s"),
    "limits.grace": ("-1s", "367d", "auto", "soon"),
    "limits.silence": ("0s", "0.5s", "-1s", "367d", "auto"),
    "limits.wait": ("0s", "-1s", "367d", "auto", "never"),
    "model.rope_scaling": ("yarn", "{type: yarn}", "{type: yarn, factor: 0.5}", "{type: ntk, factor: 2}"),
}
WORDS = (
    "model.dtype",
    "model.compute",
    "model.wire",
    "model.load",
    "model.replicate",
    "model.prepack",
    "backend",
    "allow_gpu_sharing",
    "parallel.prefill",
    "parallel.ring",
    "parallel.decode",
    "attention.sparse",
    "attention.geometry",
    "attention.decode",
    "kv.dtype",
    "batch.order",
    "batch.policy",
    "batch.arrivals",
    "limits.over_length",
    "report.trace",
    "report.progress",
    "reproducible",
)
PATHS = ("model.path", "output", "input", "topology")
SHOWN_AT_ONCE = 20  # problems in one message


class Values(BadInputTest):
    def assert_all_named(self, wrong: dict[str, str]) -> None:
        """One run names all the keys, with their values and what they may be."""
        pairs = list(wrong.items())
        for begin in range(0, len(pairs), SHOWN_AT_ONCE):
            some = [f"{key}={value}" for key, value in pairs[begin : begin + SHOWN_AT_ONCE]]
            ended = self.assert_refused(f"--set {some[0]}: ", arguments=self.set(*some))
            for assignment in some:
                key = re.escape(assignment.split("=")[0])
                self.assertRegex(ended.err, f"--set {re.escape(assignment)}: {key} is .*; it may be .")
            self.assertEqual(len(ended.err.splitlines()), len(some), ended)

    def test_every_number_outside_its_range(self) -> None:
        for turn in range(max(map(len, NUMBERS.values()))):
            with self.subTest(turn=turn):
                self.assert_all_named(
                    {key: values[turn] for key, values in NUMBERS.items() if turn < len(values)}
                )

    def test_every_word_and_path(self) -> None:
        for value in ("nonsense", "3", "[cpu]", "{a: b}", "null", ""):
            with self.subTest(value=value):
                self.assert_all_named(dict.fromkeys(WORDS, value))
        for value in ("[[a]]", "{a: b}", "null", "''"):
            with self.subTest(value=value):
                self.assert_all_named(dict.fromkeys(PATHS, value))

    def test_what_this_model_cannot(self) -> None:
        for assignment, parts in {
            "generation.logprobs=97": ("generation.logprobs", "97", "96", "-1"),
            "generation.prompt_logprobs=2147483647": ("generation.prompt_logprobs", "96", "-1"),
            "generation.stop_token_ids=[5, 96]": ("generation.stop_token_ids", "96", "0 … 95"),
            "model.rope_scaling={type: yarn, factor: 1}": ("model.rope_scaling", "factor", "above 1"),
            "model.rope_scaling={type: yarn, factor: 1e300}": ("model.rope_scaling", "at most"),
            "kv.memory=5B": ("kv.memory", "5 bytes", "raise it"),
        }.items():
            with self.subTest(assignment=assignment):
                self.assert_refused(*parts[:1], *parts[1:], arguments=self.set(assignment))

    def test_extremes_within_range_run(self) -> None:
        ended = self.run_job(
            *self.set(
                "batch.max_sequences=9223372036854775807",
                "batch.max_batch_tokens=9223372036854775807",
                "kv.memory=4TiB",
                "generation.top_k=2147483647",
                "generation.temperature=3e38",
                "generation.repetition_penalty=3e38",
                "generation.logprobs=96",
                "generation.seed=-9223372036854775808",
            )
        )
        self.assertEqual(ended.code, 0, ended)


    def test_tiny_numbers_are_greedy_or_bounded(self) -> None:
        """1/T of these temperatures is infinite in fp32, and products with the penalty underflow."""
        greedy = self.answers()
        for assignments in (
            ("generation.temperature=1e-40",),
            ("generation.temperature=3e-39", "generation.top_p=0.9"),
        ):
            with self.subTest(assignments=assignments):
                self.assertEqual(self.answers(*assignments), greedy)
        answers = self.answers("generation.repetition_penalty=1e-42", "generation.temperature=1")
        self.assertTrue(all(0 <= token < VOCAB for answer in answers for token in answer), answers)

    def answers(self, *assignments: str) -> list[list[int]]:
        ended = self.run_job("--fresh", *self.set(*assignments))
        self.assertEqual(ended.code, 0, ended)
        with h5py.File(self.folder / "run/results.h5") as results:
            begins, counts = results["slot_offsets"][:], results["output_tokens"][:]
            tokens = results["tokens"][:]
            self.assertTrue(np.isfinite(results["token_logprob"][:][: counts[0]]).all())
        return [tokens[b : b + n].tolist() for b, n in zip(begins, counts)]


class Absent(BadInputTest):
    """What this version has not is refused by name, with the nearest setting that works."""

    def test_integer_weights(self) -> None:
        for assignments, parts in (
            (("model.dtype=int8", "reproducible=layout"), ("dtype: bf16", "reproducible: run")),
            (("model.dtype=int4", "parallel.tp=2"), ("model.dtype: int4", "use cp and dp")),
        ):
            with self.subTest(assignments=assignments):
                self.assert_refused(
                    "is not in this version", *parts, arguments=self.set(*assignments)
                )

    def test_products_of_bf16(self) -> None:
        self.assert_refused(
            "model.compute: bf16 multiplies weights of bf16, int8 and int4 alone",
            "or compute: auto",
            arguments=self.set("model.compute=bf16", "model.dtype=fp32"),
        )

    def test_fp8_weights_on_cpus(self) -> None:
        self.assert_refused(
            "model.dtype: fp8 is for GPUs", "use dtype: bf16", arguments=self.set("model.dtype=fp8")
        )
        self.assert_refused(
            "model.compute: fp8", "or compute: auto", arguments=self.set("model.compute=fp8")
        )

    def test_sparse_attention(self) -> None:
        self.assert_refused(
            "attention.geometry: nested needs attention.sparse: csa",
            "geometry: disjoint",
            arguments=self.set("attention.geometry=nested"),
        )
        for assignment, parts in {
            "attention.decode=sparse": ("attention.decode: sparse", "use decode: dense"),
            "parallel.cp=elastic": ("parallel.cp: elastic", "use cp: auto"),
            "parallel.ring=pass_q": ("parallel.ring: pass_q", "use ring: auto"),
            "parallel.decode=shift": ("parallel.decode: shift", "use decode: auto"),
            "batch.policy=chunked": ("batch.policy: chunked", "use policy: prefill_first"),
            "reproducible=layout": ("reproducible: layout", "use reproducible: run"),
        }.items():
            with self.subTest(assignment=assignment):
                self.assert_refused(
                    "is not in this version",
                    *parts,
                    arguments=self.set("attention.sparse=csa", assignment),
                )

    def test_sparse_attention_before_weights_are_read(self) -> None:
        (self.model / "model.safetensors").unlink()
        for assignment, parts in {
            "attention.levels=5": ("attention.levels is 5", "1 to 4"),
            "attention.drop=0.96": ("attention.drop is 0.96", "0 to 0.95"),
            "attention.pipeline=17": ("attention.pipeline is 17", "1 to 16"),
            "attention.drop={file: tuned.json}": ("tuned.json", "correct the path"),
            "attention.objective={ttft: 30s}": ("objective: {ttft: 30s} needs", "objective: off"),
            "attention.decode=sparse": ("attention.decode: sparse", "use decode: dense"),
            "parallel.prefill=sp_tp": ("parallel.prefill sp_tp needs tp above 1", "one rank"),
            "parallel.decode=tp": ("parallel.decode tp needs", "one rank"),
            "parallel.decode=broadcast_q": ("parallel.decode broadcast_q needs", "one rank"),
        }.items():
            with self.subTest(assignment=assignment):
                self.assert_refused(*parts, arguments=self.set("attention.sparse=csa", assignment))

    def test_gpus_in_a_build_without_them(self) -> None:
        self.assert_refused(
            "backend: cuda", "built without CUDA", "use backend: cpu", arguments=self.set("backend=cuda")
        )


class Modes(BadInputTest):
    """What the table of parallel modes has not is refused with key, value, reason and nearest setting."""

    def edit_config(self, **values: object) -> None:
        path = self.model / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    def test_grid_that_is_not_the_ranks(self) -> None:
        for dp, cp in ((2, "auto"), (1, 2), (3, 1), (1048576, 1048576)):
            with self.subTest(dp=dp, cp=cp):
                self.assert_refused(
                    f"parallel.dp {dp} × cp",
                    "ranks, 1",
                    "cp auto",
                    arguments=self.set(f"parallel.dp={dp}", f"parallel.cp={cp}"),
                )
        self.assert_refused(
            "parallel.dp 1 × cp 3",
            "ranks, 2",
            "start 3 ranks",
            arguments=self.set("parallel.cp=3"),
            ranks=2,
        )
        million = [f"parallel.{name}=1048576" for name in ("dp", "cp", "sp", "tp")]
        self.assert_refused("sp 1048576 × tp 1048576", "start that many", arguments=self.set(*million))
        self.assert_refused("cp 1 × sp 2 × tp 1", "start 2 ranks", arguments=self.set("parallel.sp=2"))

    def test_one_rank_has_no_modes_to_choose(self) -> None:
        for assignment in (
            *(f"parallel.prefill={mode}" for mode in ("ring", "ulysses", "usp", "sp_tp", "tp")),
            *(f"parallel.ring={mode}" for mode in ("pass_kv", "pass_q")),
            *(f"parallel.decode={mode}" for mode in ("pass_q", "broadcast_q", "sp", "tp", "shift")),
        ):
            key, mode = assignment.split("=")
            with self.subTest(assignment=assignment):
                parts = (f"{key} {mode} needs", "a replica is one rank", f"use {key.split('.')[1]} auto")
                self.assert_refused(*parts, arguments=self.set(assignment))
        self.assert_refused(
            "parallel.shift_threshold 64 belongs to decode shift",
            "use shift_threshold auto",
            arguments=self.set("parallel.shift_threshold=64"),
        )
        self.assert_refused("parallel.prefill is single", arguments=self.set("parallel.prefill=single"))

    def test_pairs_outside_the_table(self) -> None:
        for assignments, parts in {
            ("prefill=ulysses",): ("parallel.prefill ulysses needs cp 1", "CP 2", "use prefill ring"),
            ("decode=shift",): ("parallel.decode shift needs cp 1, sp above 1", "pass_q or broadcast_q"),
            ("sp=2", "decode=pass_q"): ("parallel.decode pass_q needs cp above 1", "use decode sp or shift"),
            ("tp=2", "prefill=usp"): ("parallel.prefill usp needs cp above 1, sp above 1", "TP 2"),
            ("tp=2", "ring=pass_kv"): ("parallel.ring pass_kv needs cp above 1", "use ring auto"),
            ("shift_threshold=8",): ("parallel.shift_threshold 8 belongs to decode shift", "auto"),
            ("gather_threshold=8",): ("parallel.gather_threshold 8 belongs to prefill ulysses", "CP 2"),
            ("tp=2", "prefill=sp_tp", "gather_threshold=8"): ("belongs to prefill ulysses", "prefill sp_tp"),
        }.items():
            with self.subTest(assignments=assignments):
                settings = self.set(*(f"parallel.{assignment}" for assignment in assignments))
                self.assert_refused(*parts, arguments=settings, ranks=2)

    def test_elastic_teams_with_the_same_bits_in_every_layout(self) -> None:
        """Both keys are named, however many ranks there are, and before weights are read."""
        self.write_job({**GOOD_JOB, "parallel": {"cp": "elastic"}, "reproducible": "layout"})
        (self.model / "model.safetensors").unlink()
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                both = "parallel.cp: elastic with reproducible: layout"
                self.assert_refused(both, "use cp: auto, or reproducible: run", ranks=ranks)

    def test_degrees_that_the_model_cannot_take(self) -> None:
        # 4 query heads, 1 KV head, an FFN of 48 columns
        for assignment, parts in {
            "parallel.sp=3": ("parallel.sp 3 does not divide the 4 query heads", "use sp 1"),
            "parallel.tp=3": ("parallel.tp 3 does not divide the 4 query heads", "use tp 1"),
        }.items():
            with self.subTest(assignment=assignment):
                self.assert_refused(*parts, arguments=self.set(assignment), ranks=3)
        self.edit_config(num_attention_heads=6, num_key_value_heads=3, head_dim=8)
        self.assert_refused("parallel.sp 2 neither divides the 3 KV heads", "use sp 1",
                            arguments=self.set("parallel.sp=2"), ranks=2)  # fmt: skip
        self.edit_config(num_attention_heads=4, num_key_value_heads=1, intermediate_size=45)
        self.assert_refused("parallel.tp 2 does not divide the FFN's 45 columns", "use tp 1",
                            arguments=self.set("parallel.tp=2"), ranks=2)  # fmt: skip
        self.assert_refused("parallel.decode shift cuts the FFN's 45 columns", "use decode sp", ranks=2,
                            arguments=self.set("parallel.sp=2", "parallel.decode=shift"))  # fmt: skip

    def test_refused_before_the_weights_are_read(self) -> None:
        (self.model / "model.safetensors").unlink()
        self.assert_refused("parallel.decode sp needs", arguments=self.set("parallel.decode=sp"))

    def test_validate_refuses_for_the_ranks_it_is_started_on(self) -> None:
        settings = self.set("parallel.prefill=ring")
        self.assert_refused("parallel.prefill ring needs", arguments=["--validate", *settings])
        ended = self.run_job("--validate", *settings, ranks=2)
        self.assertEqual(ended.code, 0, ended)


class Text(BadInputTest):
    GOOD = "model: {path: model}\ninput: prompts/a.h5\noutput: run\n"

    def refused_text(self, text: str | bytes, *parts: str, ranks: int = 1) -> None:
        self.job.write_bytes(text.encode() if isinstance(text, str) else text)
        ended = self.assert_refused("pecia: ", *parts, ranks=ranks)
        self.assertIn("job.yaml", ended.err)

    def test_unknown_key_names_the_nearest(self) -> None:
        self.refused_text(
            self.GOOD + "generation:\n  max_new_token: 5\n",
            "job.yaml:5: unknown key generation.max_new_token; did you mean generation.max_new_tokens?",
        )
        self.refused_text(
            self.GOOD + "parallell: {dp: 1}\n", "job.yaml:4: unknown key parallell; did you mean parallel?"
        )

    def test_unknown_key_under_mpirun_is_said_once(self) -> None:
        self.refused_text(self.GOOD + "outptu: x\n", "unknown key outptu; did you mean output?", ranks=2)

    def test_section_that_is_none(self) -> None:
        self.refused_text(self.GOOD + "kv: 12GiB\n", "job.yaml:4: kv is 12GiB", "dtype, memory")

    def test_doubled_key(self) -> None:
        self.refused_text(self.GOOD + "output: other\n", "job.yaml:4: key 'output' is given twice", "keep one")

    def test_key_that_is_missing(self) -> None:
        self.refused_text("model: {path: model}\n", "output is missing", "input is missing", "prompts/*.h5")
        self.refused_text("", "model.path is missing")

    def test_alias_bomb(self) -> None:
        bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n"
        for before, after in zip("abcdefgh", "bcdefghi"):
            bomb += f"{after}: &{after} [{', '.join(['*' + before] * 9)}]\n"
        self.refused_text(self.GOOD + bomb, "job.yaml:4: an anchor (&name)", "write the value out")

    def test_deep_nesting(self) -> None:
        for deep in ("[" * 100_000, "{a: " * 100_000, "- " * 100_000, "? " * 100_000, "[[" * 200 + "]]" * 200):
            with self.subTest(deep=deep[:4]):
                self.refused_text(deep, "job.yaml:1: nested deeper than 16 levels")

    def test_large_file(self) -> None:
        with open(self.job, "wb") as file:
            file.truncate(100_000_000)
        self.assert_refused("job.yaml: larger than 1000000 bytes", "names its prompts")

    def test_texts_that_take_long_elsewhere(self) -> None:
        for text in ("a" * 999_999, '"' * 999_999, "a: " * 333_333, "!" * 999_999, "\n" * 999_999 + ":",
                     "# \n" * 333_333, "[a," * 10 + "b," * 400_000, "a\n" * 400_000, "'\n" * 400_000,
                     "".join(f"k{i}: 1\n" for i in range(60_000)), "[" + "{a: b}," * 140_000 + "]",
                     "a: [" + "b, " * 300_000, "|\n" * 400_000, "%YAML 1.2\n" * 90_000):  # fmt: skip
            with self.subTest(text=text[:10]):
                begin = time.monotonic()
                self.refused_text(text, "pecia: ")
                self.assertLess(time.monotonic() - begin, 10)

    def test_not_yaml(self) -> None:
        self.refused_text("model: {path: model\n", "job.yaml:", "not valid YAML")
        self.refused_text("\tmodel: x\n", "job.yaml:1", "not valid YAML")
        self.refused_text("just words\n", "job.yaml: just words instead of keys", "--print-default")
        self.refused_text("[a, b]\n", "job.yaml: a list instead of keys", "--print-default")
        self.refused_text(self.GOOD + "---\n" + self.GOOD, "a second YAML document")
        self.refused_text(self.GOOD + "backend: !!str cpu\n", "job.yaml:4: a tag", "leave it out")
        self.refused_text(bytes(range(256)), "job.yaml")
        self.refused_text(b"\xff\xfe\x00", "job.yaml")
        self.refused_text(self.GOOD.encode() + b"backend: \xff\xfe\xc0\n", "job.yaml:4: backend is")

    def test_dotted_key(self) -> None:
        self.refused_text(self.GOOD + "kv.memory: 1GiB\n", "job.yaml:4: kv.memory has a dot", "section")


class Places(BadInputTest):
    def test_job_file(self) -> None:
        self.job.unlink()
        self.assert_refused("job.yaml: cannot be read: No such file")
        self.job.mkdir()
        self.assert_refused("job.yaml: a folder, not a job file")
        self.job.rmdir()
        self.job.symlink_to("job.yaml")
        self.assert_refused("job.yaml: cannot be read: Too many levels of symbolic links")

    def test_model_folder(self) -> None:
        long_name = "m" * 300
        (self.folder / "loop").symlink_to("loop")
        for path, part in {
            "absent": "absent/config.json",
            "prompts": "prompts/config.json",
            "job.yaml": "job.yaml/config.json",
            "loop": "loop/config.json",
            long_name: "config.json: cannot be opened (File name too long)",
        }.items():
            with self.subTest(path=path):
                self.assert_refused(part, arguments=self.set(f"model.path={path}"))

    def test_missing_model_under_mpirun_is_said_once(self) -> None:
        self.assert_refused("absent/config.json", "Hugging Face folder", ranks=2,
                            arguments=self.set("model.path=absent"))  # fmt: skip

    def test_inputs(self) -> None:
        (self.folder / "prompts/loop").symlink_to("loop")
        for pattern, parts in {
            "none/*.h5": ("input none/*.h5 matches no file", "looked for"),
            "absent.h5": ("input absent.h5 matches no file", "looked for"),
            "prompts/loop": ("prompts/loop",),
            "prompts": ("prompts is a folder", "name the HDF5 files in it"),
            "[prompts/a.h5, prompts/*.h5]": ("prompts/a.h5 twice", "leave one pattern out"),
            "p" * 300: ("input ppp",),
            "a/" * 3000 + "b": ("input a/a/",),
            "[a/b]": ("input a/b matches no file",),
            "'[!'": ("input [! matches no file",),
        }.items():
            with self.subTest(pattern=pattern[:40]):
                self.assert_refused(*parts, arguments=self.set(f"input={pattern}"))

    def test_output_that_cannot_be(self) -> None:
        (self.folder / "file").write_text("mine")
        (self.folder / "loop").symlink_to("loop")
        for path, parts in {
            "file": ("file", "choose another folder"),
            "file/below": ("file/below", "choose another folder"),
            "loop": ("loop", "choose another folder"),
            "o" * 300: ("output", "too long", "choose another folder"),
            "/proc/run": ("/proc/run", "choose another folder"),
            "/sys/kernel": ("/sys/kernel", "choose another folder"),
        }.items():
            with self.subTest(path=path[:40]):
                self.assert_refused(*parts, arguments=self.set(f"output={path}"))

    def test_output_that_cannot_be_under_mpirun_is_said_once(self) -> None:
        (self.folder / "file").write_text("mine")
        self.assert_refused("file cannot be", "choose another folder", ranks=2,
                            arguments=self.set("output=file"))  # fmt: skip

    def test_pipes_are_not_waited_for(self) -> None:
        for name in ("model/config.json", "model/model.safetensors", "prompts/a.h5"):
            with self.subTest(name=name):
                path = self.folder / name
                content = path.read_bytes()
                path.unlink()
                os.mkfifo(path)
                before = sorted(self.folder.rglob("*"))
                ended = self.run_job()
                self.assert_refusal(ended, name, "no regular file")
                self.assertEqual(before, sorted(self.folder.rglob("*")))
                path.unlink()
                path.write_bytes(content)

    def test_the_unbroken_job_runs(self) -> None:
        write_shard(self.folder / "prompts/b.h5", [("third", [prompt(4)])])
        ended = self.run_job()
        self.assertEqual(ended.code, 0, ended)
        self.assertTrue((self.folder / "run/report.json").exists())


if __name__ == "__main__":
    unittest.main()
