# SPDX-License-Identifier: Apache-2.0
"""What a run leaves: columns, errors of single requests, report, progress, trace; and from text to text."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import time
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

import h5py
import numpy as np

from harness import (
    DONE,
    FAILED,
    MODEL,
    MPIEXEC,
    POSITIONS,
    PROGRAM,
    SOME_FAILED,
    SOURCE,
    VOCAB,
    Request,
    RunTest,
    random_requests,
)

LENGTH = 2  # of finish_reason


def log_softmax(values: np.ndarray) -> np.ndarray:
    shifted = values - values.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


class ColumnsTest(RunTest):
    requests = random_requests(5, 1, 40, seed=61, every_second_turn=2)

    def run_with(self, name: str, ranks: int, **generation: int) -> tuple[Path, Any]:
        generation = {"max_new_tokens": 7, "ignore_eos": True, **generation}
        job = self.write_job(self.requests, name, generation=generation)
        self.run_job(job, ranks)
        return self.output(job) / "results.h5", self.results(job)

    def test_datasets_have_the_documented_types_and_lengths(self) -> None:
        path, found = self.run_with("columns", 2, logprobs=3, prompt_logprobs=2)
        turns = sum(len(request.turns) for request in self.requests)
        slots = 7 * turns
        prompt = sum(len(turn) for request in self.requests for turn in request.turns)
        i4, i8, f4 = np.dtype("<i4"), np.dtype("<i8"), np.dtype("<f4")
        expected: dict[str, tuple[Any, tuple[int, ...]]] = {
            "shard": (i4, (turns,)),
            "request": (i8, (turns,)),
            "turn": (i4, (turns,)),
            "slot_offsets": (i8, (turns + 1,)),
            "tokens": (i4, (slots,)),
            "token_logprob": (f4, (slots,)),
            "top_tokens": (i4, (slots, 3)),
            "top_logprobs": (f4, (slots, 3)),
            "prompt_slot_offsets": (i8, (turns + 1,)),
            "prompt_token_logprob": (f4, (prompt,)),
            "prompt_top_tokens": (i4, (prompt, 2)),
            "prompt_top_logprobs": (f4, (prompt, 2)),
            "state": (np.dtype("u1"), (turns,)),
            "replica": (i4, (turns,)),
            "truncated_tokens": (i4, (turns,)),
            "text_bytes": (i8, (turns,)),
            "settings": (i4, (turns,)),
            "yields": (i4, (turns,)),
            "draft_accepted": (i4, (turns,)),
        }
        expected |= {f"{name}_tokens": (i4, (turns,)) for name in ("prompt", "cached", "output")}
        seconds = ("queue", "ttft", "decode", "prefill_compute", "prefill_comm", "decode_compute")
        expected |= {f"{name}_s": (f4, (turns,)) for name in (*seconds, "decode_comm")}
        with h5py.File(path, "r") as file:
            self.assertEqual(file.attrs["schema"], "pecia.results/1")
            self.assertEqual(json.loads(file.attrs["identity"])["generation"]["logprobs"], 3)
            for name, (dtype, shape) in expected.items():
                self.assertEqual((file[name].dtype, file[name].shape), (dtype, shape), name)
                self.assertIsNone(file[name].chunks, f"{name} is contiguous")
            for name in ("request_id", "error", "mode"):
                self.assertEqual(h5py.check_string_dtype(file[name].dtype).encoding, "utf-8")
                self.assertEqual(file[name].shape, (turns,))
            self.assertEqual(file["error"].dtype.itemsize, 256)
            reasons = {"none": 0, "stop": 1, "length": 2, "failed": 3}
            self.assertEqual(h5py.check_enum_dtype(file["finish_reason"].dtype), reasons)
            known = {*expected, "request_id", "error", "mode", "finish_reason"}
            self.assertEqual(set(file), known)
        for name in (n for n in expected if n.endswith("_s")):
            self.assertTrue((found[name] >= 0).all(), name)
        self.assertTrue((found["ttft_s"] > 0).all())
        self.assertLessEqual(
            set(found["mode"]), {b"ring/pass_kv+pass_q", b"ring/pass_q+pass_q"}
        )
        lengths = [len(turn) for request in self.requests for turn in request.turns]
        self.assertEqual(found["prompt_tokens"].tolist(), lengths)

    def test_top_log_probabilities_are_the_head_of_the_whole_vocabulary(self) -> None:
        _, top = self.run_with("top", 2, logprobs=3, prompt_logprobs=2)
        path, whole = self.run_with("whole", 3, logprobs=-1, prompt_logprobs=-1)
        with h5py.File(path, "r") as file:
            self.assertNotIn("top_tokens", file)
            self.assertNotIn("prompt_top_tokens", file)
        self.assertEqual(whole["top_logprobs"].shape[1], VOCAB)
        self.assertEqual(whole["prompt_top_logprobs"].shape[1], VOCAB)
        self.assert_same_answers(top, whole, top.rows(DONE))
        for logprobs, top_tokens, top_logprobs, tokens, own in (
            (
                whole["top_logprobs"],
                top["top_tokens"],
                top["top_logprobs"],
                whole["tokens"],
                whole["token_logprob"],
            ),
            (
                whole["prompt_top_logprobs"],
                top["prompt_top_tokens"],
                top["prompt_top_logprobs"],
                np.array([t for r in self.requests for turn in r.turns for t in turn]),
                whole["prompt_token_logprob"],
            ),
        ):
            first = np.isnan(own)  # first tokens of first turns have no prediction
            self.assertTrue(np.isnan(logprobs[first]).all())
            self.assertTrue((top_tokens[first] == -1).all())
            logprobs, top_tokens, top_logprobs = (
                values[~first] for values in (logprobs, top_tokens, top_logprobs)
            )
            # Distributions: sums of 96 fp32 terms, and what is stored is rounded once more.
            np.testing.assert_allclose(log_softmax(logprobs), logprobs, rtol=0, atol=1e-5)
            at = np.take_along_axis(logprobs, tokens[~first, None], axis=1)[:, 0]
            np.testing.assert_array_equal(at, own[~first])
            width = top_tokens.shape[1]
            best = np.sort(logprobs, axis=1)[:, ::-1][:, :width]
            np.testing.assert_allclose(top_logprobs, best, rtol=0, atol=1e-4)
            at = np.take_along_axis(logprobs, top_tokens, axis=1)
            np.testing.assert_allclose(top_logprobs, at, rtol=0, atol=1e-4)
        missing = np.flatnonzero(np.isnan(top["prompt_token_logprob"]))
        first_turns = np.flatnonzero(top["turn"] == 0)
        np.testing.assert_array_equal(missing, top["prompt_slot_offsets"][first_turns])


class FailedRequestTest(RunTest):
    def test_a_bad_request_fails_alone_and_says_why(self) -> None:
        good = random_requests(4, 5, 30, seed=71)
        bad = (
            ("outside", [5, VOCAB, 7], f"token 1 of the turn is {VOCAB}"),
            ("negative", [5, 6, -1], "token 2 of the turn is -1"),
            ("empty", [], "no tokens"),
            ("too-long", [5] * (POSITIONS + 1), f"{POSITIONS + 1} prompt tokens"),
        )
        for name, tokens, why in bad:
            for ranks in (1, 3):
                with self.subTest(name, ranks=ranks):
                    requests = [*good[:2], Request(name, [tokens]), *good[2:]]
                    generation = {"max_new_tokens": 5}
                    job = self.write_job(requests, f"{name}-{ranks}", generation=generation)
                    self.run_job(job, ranks, expect=SOME_FAILED)
                    found = self.results(job)
                    self.assertEqual(found["state"].tolist(), [DONE, DONE, FAILED, DONE, DONE])
                    self.assertIn(why.encode(), found["error"][2])
                    self.assertEqual(found["finish_reason"][2], 3)
                    self.assertEqual(found["output_tokens"][2], 0)
                    counts = self.report(job)["counts"]
                    self.assertEqual((counts["done"], counts["failed"]), (4, 1))

    def test_a_conversation_ends_at_its_first_bad_turn(self) -> None:
        request = Request("talk", [[5, 6], [7, VOCAB], [8]])
        job = self.write_job([request], generation={"max_new_tokens": 3})
        self.run_job(job, 2, expect=SOME_FAILED)
        found = self.results(job)
        self.assertEqual(found["state"].tolist(), [DONE, FAILED, FAILED])
        self.assertIn(b"an earlier turn of this request failed", found["error"][2])


class ReportTest(RunTest):
    def run_job_with(self, ranks: int, **sections: Any) -> tuple[Path, list[Request]]:
        requests = random_requests(6, 5, 60, seed=81)
        generation = {"max_new_tokens": 8, "ignore_eos": True}
        job = self.write_job(requests, generation=generation, **sections)
        self.run_job(job, ranks)
        return job, requests

    def test_report_and_progress(self) -> None:
        begun_unix_s = time.time()
        job, requests = self.run_job_with(4, parallel={"dp": 2})
        report = self.report(job)
        tokens = sum(len(request.turns[0]) for request in requests)
        self.assertEqual(report["schema"], "pecia.report/1")
        counts = {"done": 6, "failed": 0, "partial": 0, "open": 0, "arrived": None}
        counts |= {"prompt_tokens": tokens, "cached_tokens": 0, "output_tokens": 48}
        counts |= {"truncated_turns": 0, "truncated_tokens": 0}
        counts |= {"cut_by_length": 6, "cut_by_model_length": 0}
        counts |= {"vectors": 0, "scores": 0, "score_tokens": 0}
        self.assertEqual(report["counts"], counts)
        self.assertEqual(report["job"]["generation"]["max_new_tokens"], 8)
        self.assertEqual(report["grid"], {"dp": 2, "cp": 2, "sp": 1, "tp": 1})
        self.assertEqual([rank["rank"] for rank in report["ranks"]], [0, 1, 2, 3])
        self.assertEqual(len(report["topology"]), 4)
        self.assertEqual(report["phases"]["prefill"]["tokens"], tokens)
        self.assertEqual(report["phases"]["decode"]["tokens"], 48 - 6)
        for times in (report["ttft_s"], report["tbt_s"]):
            self.assertTrue(0 < times["p50"] <= times["p90"] <= times["p99"])
        predicted = report["predicted"]
        self.assertGreater(predicted["seconds"], 0)
        self.assertEqual(list(predicted["phases"]), ["prefill", "decode"])
        for phase in predicted["phases"].values():
            self.assertGreater(phase["tokens_per_s"], 0)
        self.assertGreater(predicted["ttft_s"]["p50"], 0)
        for rank in report["ranks"]:
            spent = rank["compute_s"] + rank["exposed_communication_s"] + rank["idle_s"]
            self.assertTrue(0 < spent <= report["seconds"])
        self.assertGreater(report["links"][0]["bytes"], 0)

        startup = dict(report["startup"])
        main_unix_s = startup.pop("main_unix_s")
        written_unix_s = (self.output(job) / "report.json").stat().st_mtime
        self.assertTrue(begun_unix_s <= main_unix_s <= written_unix_s)
        self.assertIn("load_weights_s", startup)
        self.assertGreater(min(startup.values()), 0)
        self.assertLess(sum(startup.values()), written_unix_s - main_unix_s)
        self.assertLess(sum(startup.values()) - startup["mpi_s"], report["seconds"])

        progress = json.loads((self.output(job) / "progress.json").read_text())
        self.assertEqual(progress["schema"], "pecia.progress/1")
        self.assertTrue(progress["finished"])
        self.assertEqual(progress["turns"], {"total": 6, "done": 6, "failed": 0})
        self.assertEqual(progress["output_tokens"], 48)
        self.assertEqual(progress["work_share"], 1)

    def test_what_windows_spared_is_reported(self) -> None:
        model = {"path": str(MODEL.parent / "gemma3-windows")}
        job, _ = self.run_job_with(3, output="windows", model=model, parallel={"ring": "pass_kv"})
        report = self.report(job)
        windows = report["windows"]
        sent = sum(link["bytes"] for link in report["links"] if link["pattern"] == "ring")
        self.assertTrue(0 < windows["sent_bytes"] < windows["whole_ring_bytes"], windows)
        self.assertLess(windows["sent_bytes"], sent)
        share = 1 - windows["sent_bytes"] / windows["whole_ring_bytes"]
        self.assertAlmostEqual(windows["saved_share"], share)
        job, _ = self.run_job_with(1, output="alone", model=model)
        self.assertIsNone(self.report(job)["windows"])

    def test_every_kind_of_run_is_foreseen(self) -> None:
        sparse = {"sparse": "csa", "drop": 0.2}
        for name, ranks, sections in (
            ("layout", 2, {"reproducible": "layout"}),
            ("elastic", 2, {"parallel": {"cp": "elastic"}}),
            ("levels", 2, {"parallel": {"cp": 2}, "attention": sparse}),
        ):
            with self.subTest(name):
                job, _ = self.run_job_with(ranks, output=name, **sections)
                self.assertGreater(self.report(job)["predicted"]["seconds"], 0)

    def test_a_continued_run_foresees_what_is_left(self) -> None:
        requests = random_requests(6, 5, 60, seed=81)
        job = self.write_job(requests, generation={"max_new_tokens": 8, "ignore_eos": True})
        self.run_job(job, 1)
        whole = self.foreseen_tokens(job)
        file = self.output(job) / "results.h5"
        with h5py.File(file, "r+") as results:
            results["state"][2:] = 0
        self.run_job(job, 1)
        self.assertAlmostEqual(whole, sum(len(request.turns[0]) for request in requests))
        rest = self.foreseen_tokens(job)
        self.assertAlmostEqual(rest, sum(len(request.turns[0]) for request in requests[2:]))

    def foreseen_tokens(self, job: Path) -> float:
        prefill = self.report(job)["predicted"]["phases"]["prefill"]
        return prefill["seconds"] * prefill["tokens_per_s"]

    def test_full_trace_has_a_track_per_rank(self) -> None:
        job, _ = self.run_job_with(4, parallel={"dp": 2}, report={"trace": "full"})
        folder = self.output(job) / "trace"
        self.assertEqual([path.name for path in folder.iterdir()], ["trace.json.gz"])
        whole = json.loads(gzip.decompress((folder / "trace.json.gz").read_bytes()))
        self.assertEqual(whole["otherData"]["ranks"], 4)
        self.assertEqual(whole["otherData"]["dropped_spans"], 0)
        events = whole["traceEvents"]
        tracks = {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"}
        self.assertEqual(tracks, {(0, 0), (0, 1), (1, 2), (1, 3)})
        names = [e["tid"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"]
        self.assertEqual(sorted(names), [0, 1, 2, 3])
        spans = [event for event in events if event["ph"] == "X"]
        for span in spans:
            self.assertGreaterEqual(span["ts"], 0)
            self.assertGreaterEqual(span["dur"], 0)
            self.assertGreaterEqual(span["args"]["bytes"], 0)
        # A replica that started late may have found no request left.
        busy = {2 * replica + i for replica in self.results(job)["replica"] for i in (0, 1)}
        for phase in ("prefill", "decode"):
            for layer in (0, 1):
                found = {s["tid"] for s in spans if s["name"].startswith(f"{phase}/layer {layer}/")}
                self.assertEqual(found, busy)
        ends_us = [span["ts"] + span["dur"] for span in spans]
        self.assertAlmostEqual(whole["otherData"]["end_us"], max(ends_us), places=2)

    def test_share_of_peak_is_of_what_the_hardware_gives(self) -> None:
        with mock.patch.dict(os.environ, XDG_CACHE_HOME=str(self.folder / "cache")):
            job, _ = self.run_job_with(2, report={"progress": "lines"})
            report = self.report(job)
            self.run_job(job, 2, "--fresh")
            kept = self.report(job)["peak"]
        peak = report["peak"]
        self.assertFalse(peak["kept"])
        self.assertTrue(kept["kept"])
        self.assertIsNone(kept["end"])
        self.assertEqual(kept["start"]["best"], max(peak[at]["best"] for at in ("start", "end")))
        for rate in (peak["start"], peak["end"], peak["bandwidth"]):
            self.assertTrue(0 <= rate["least"] <= rate["median"] <= rate["best"])
            self.assertGreater(rate["best"], 0)
            self.assertGreaterEqual(rate["windows"] * rate["window_s"], 0.008)
        self.assertGreaterEqual(peak["flops"], max(peak[at]["best"] for at in ("start", "end")))
        self.assertEqual(report["peak_flops"], peak["flops"])
        for phase in report["phases"].values():
            self.assertTrue(0 < phase["share_of_peak"] <= 1)
        self.assertGreater(report["startup"]["measure_peak_s"], 0.016)
        self.run_job(job, 2, "--fresh", "--set", "report.peak=off")
        without = self.report(job)
        self.assertIsNone(without["peak"])
        self.assertIsNone(without["phases"]["prefill"]["share_of_peak"])

    def test_progress_and_the_last_line_agree(self) -> None:
        requests = random_requests(6, 5, 60, seed=82)
        generation = {"max_new_tokens": 40, "ignore_eos": True}
        job = self.write_job(requests, generation=generation, report={"progress": "lines"})
        words = self.run_job(job, 2)
        speeds = r"prefill (\S+) tok/s(?: \([^)]*\))? · decode (\S+) tok/s"
        progress, last = [
            re.findall(speeds, line) for line in words.splitlines() if "tok/s" in line
        ][-2:]
        self.assertEqual(progress, last, words)
        self.assertRegex(
            words, r"6 of 6 requests done, 0 failed · 100 % of the work · (\d+) of \1 tok"
        )
        self.assertRegex(
            words, r"6 done, 0 failed in \S+ m?s \(\S+ core-seconds\) · \d+ tokens read, 240 w"
        )
        report = self.report(job)
        self.assertAlmostEqual(report["core_hours"], report["cores"] * report["seconds"] / 3600)


class TextTest(RunTest):
    WORDS = ("one", "two", "three", "four", "the", "ring", "passes", "keys", "and", "values")

    def make_model(self) -> Path:
        """The tiny model with a tokenizer of whole words."""
        model = self.folder / "model"
        shutil.copytree(MODEL, model, ignore=shutil.ignore_patterns("golden.json"))
        special = ["<unk>", "<s>", "</s>"]
        words = [*special, *self.WORDS]
        words += [f"word{number}" for number in range(VOCAB - len(words))]
        tokenizer = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [
                {
                    "id": index,
                    "content": word,
                    "single_word": False,
                    "lstrip": False,
                    "rstrip": False,
                    "normalized": False,
                    "special": True,
                }
                for index, word in enumerate(special)
            ],
            "normalizer": None,
            "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": None,
            "decoder": None,
            "model": {
                "type": "WordLevel",
                "vocab": {word: index for index, word in enumerate(words)},
                "unk_token": "<unk>",
            },
        }
        (model / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
        self.words = words
        return model

    def script(self, name: str, *arguments: object) -> None:
        command = [str(SOURCE / "scripts" / name), *map(str, arguments)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(ended.returncode, 0, ended.stderr)

    def test_documents_become_texts(self) -> None:
        model = self.make_model()
        documents = self.folder / "documents"
        documents.mkdir()
        (documents / "a.txt").write_text("the ring passes keys and values", encoding="utf-8")
        (documents / "b.txt").write_text("one two three four " * 20, encoding="utf-8")
        shard = self.folder / "job.h5"
        self.script("pecia-pack", "--model", model, "--no-chat", "--output", shard, documents)
        generation = {"max_new_tokens": 6, "ignore_eos": True}
        job = self.write_job(model={"path": str(model)}, generation=generation)
        self.run_job(job, 2)
        found = self.results(job)
        self.assertEqual(found["prompt_tokens"].tolist(), [6, 80])
        self.assertEqual(found["finish_reason"].tolist(), [LENGTH, LENGTH])
        texts = self.folder / "texts"
        self.script("pecia-text", self.output(job), "--model", model, "--output", texts)
        for row, name in enumerate(found["request_id"]):
            text = (texts / f"{name.decode()}.txt").read_text().split()
            expected = [
                self.words[t] for t in found.tokens(row) if t > 2
            ]  # special ones are left out
            self.assertEqual(text, expected)
            self.assertGreater(len(text), 0)

    def test_books_become_summaries(self) -> None:
        """A book of several parts, whose summaries a second run puts together, and a short one."""
        model = self.make_model()
        books = self.folder / "books"
        books.mkdir()
        (books / "long.txt").write_text("one two three four. " * 150, encoding="utf-8")
        (books / "short.txt").write_text("the ring passes keys", encoding="utf-8")
        output = self.folder / "summaries"
        arguments = [books, "--model", model, "--no-chat", "--output", output, "--pecia", PROGRAM]
        arguments += ["--launch", f"{MPIEXEC} -np 2 --bind-to none", "--context", 300]
        arguments += ["--max-new-tokens", 16, "--set", "generation.ignore_eos=true"]
        self.script("pecia-summarize", *arguments)
        coverage, _, summary = (output / "long.txt").read_text().split("\n", 2)
        parts, tokens, levels = re.fullmatch(
            r"\[(\d+) of \1 parts, 100 % of ([\d,]+) tokens, in (\d+) levels\]", coverage
        ).groups()
        self.assertGreater(int(parts), 2)
        self.assertEqual(tokens, "750")
        words, cut, rest = summary.partition("\n\n[cut at the longest length]\n")
        self.assertTrue(cut)  # answers go on to their longest length
        self.assertEqual(rest, "")
        self.assertGreater(len(words.split()), 0)
        self.assertTrue(set(words.split()) <= set(self.words))
        rounds = sorted(path.name for path in (output / "rounds").iterdir())
        self.assertGreater(len(rounds), 1)
        self.assertEqual(len(rounds), int(levels))
        written = {path: path.stat().st_mtime_ns for path in output.glob("rounds/*/run/results.h5")}
        self.script("pecia-summarize", *arguments)  # nothing is left to do
        self.assertEqual(written, {path: path.stat().st_mtime_ns for path in written})


if __name__ == "__main__":
    unittest.main()
