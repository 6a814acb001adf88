# SPDX-License-Identifier: Apache-2.0
"""Runs of models with recurrent layers, whose states go from rank to rank and are kept beside the keys."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import unittest
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from harness import (
    DONE,
    DRAINED,
    FAILED,
    SOME_FAILED,
    SOURCE,
    VOCAB,
    Request,
    Results,
    RunTest,
    covering,
    random_requests,
    wait_for,
)
from test_demand import stop_and_go_on

FOLLOWUPS = ("chain", "fork")
HYBRIDS = ("qwen3next-delta", "qwen35-text-part", "granitehybrid-experts", "nemotronh-blocks")
# For long answers beside other ranks': where sums round otherwise, a row may choose other experts, if there are any.
DENSE = "qwen35-text-part"
# What is narrower rounds differently where sums have another order.
FP32 = {"dtype": "fp32"}
ALL_FP32: dict[str, Any] = {"model": {"compute": "fp32"}, "kv": FP32}
SECTIONS: dict[str, Any] = {
    "generation": {"max_new_tokens": 8, "ignore_eos": True, "logprobs": 1},
    "batch": {"max_sequences": 4, "max_batch_tokens": 32},
}
LENGTH = 3_500  # tokens of a long prompt; seconds of work in small passes
LONG: dict[str, Any] = {
    "generation": {"max_new_tokens": 6, "ignore_eos": True, "logprobs": 1},
    # One after the other, so that the short answer is done before the long prompt is begun.
    "batch": {"max_sequences": 1, "order": "fcfs", "max_batch_tokens": 2},
    "limits": {"grace": "40s"},
    "reproducible": "layout",
}


class HybridRuns(RunTest):
    # States carry the rounding of all tokens before. Over texts of some hundred tokens log-probabilities were up to
    # 5.9e-4 from float64 (apps/results/epyc-zen3-2cores.md), so two runs are within twice that.
    logprob_tolerance: ClassVar[float] = 1.2e-3

    def job(self, hybrid: str, name: str = "job", followup: str = "chain", **sections: Any) -> Path:
        turns = 1 if followup == "fork" else 3
        requests = random_requests(9, 5, 70, seed=4, every_second_turn=turns)
        model = {"path": str(SOURCE / "tests" / "goldens" / hybrid), **sections.pop("model", {})}
        return self.write_job(requests, f"{hybrid}-{name}", followup, model=model, **{**SECTIONS, **sections})

    def alone(self, hybrid: str, followup: str, **sections: Any) -> Results:
        """The results of one rank, which runs once in a test for each hybrid and kind of turns."""
        name = f"alone-{followup}"
        job = self.folder / f"{hybrid}-{name}.yaml"
        if not job.exists():
            job = self.job(hybrid, name, followup, **sections)
            self.run_job(job, 1)
        return self.results(job)

    def long_prompt(self, hybrid: str, name: str, count: int = 1, **sections: Any) -> Path:
        """A short prompt, and then some that are read in many passes."""
        short, *long = random_requests(1 + count, 20, 40, seed=5)
        for request in long:
            request.turns = [(request.turns[0] * LENGTH)[:LENGTH]]
        model = {"path": str(SOURCE / "tests" / "goldens" / hybrid), **sections.pop("model", {})}
        return self.write_job([short, *long], f"{hybrid}-{name}", model=model, **{**LONG, **sections})

    def go_on(self, job: Path, ranks_and_modes: tuple[int, dict[str, Any]]) -> str:
        """Runs to the end, cut in another way than before."""
        ranks, modes = ranks_and_modes
        asked = json.loads(job.read_text())
        job.write_text(json.dumps({**asked, "parallel": modes}))
        return self.run_job(job, ranks)

    def save_of(self, job: Path) -> Path:
        return self.output(job) / "kv" / "00000001-request-1"


class HybridTest(HybridRuns):
    def test_bits_depend_neither_on_ranks_nor_on_the_batch(self) -> None:
        layouts = (
            (2, {"cp": 2}, {"max_sequences": 4, "max_batch_tokens": 32}),
            (2, {"sp": 2}, {"max_sequences": 9, "max_batch_tokens": 32}),
            (4, {"cp": 2, "tp": 2}, {"max_sequences": 2, "max_batch_tokens": 32}),
        )
        for hybrid, followup, (ranks, parallel, batch) in covering(HYBRIDS, FOLLOWUPS, layouts):
            with self.subTest(hybrid=hybrid, followup=followup, parallel=parallel):
                alone = self.alone(hybrid, followup, reproducible="layout")
                sections = {"reproducible": "layout", "parallel": parallel, "batch": batch}
                job = self.job(hybrid, f"{followup}-{ranks}", followup, **sections)
                self.run_job(job, ranks, "--fresh")
                self.assert_same_bits(self.results(job), alone)

    def test_a_stopped_and_a_killed_run_go_on_on_other_ranks(self) -> None:
        generation = {**SECTIONS["generation"], "max_new_tokens": 300}
        long: dict[str, Any] = {"generation": generation, "reproducible": "layout", "kv": FP32}
        alone = self.job(DENSE, "alone", **long)
        self.run_job(alone, 1)
        job = self.job(DENSE, "stopped", **long)
        for number in (signal.SIGTERM, signal.SIGKILL):
            done = self.done(job)
            launch = self.start(job, 2, together=True)
            wait_for("an answer", partial(lambda done: self.done(job) > done, done))
            launch.ranks()
            if number == signal.SIGKILL:
                launch.kill()
                continue
            launch.signal_ranks(number)
            self.end(launch, DRAINED)
        self.run_job(job, 4)
        # What an earlier start has answered is read with the prompt.
        self.assert_same_answers(self.results(job), self.results(alone), self.results(alone).rows(DONE))

    def test_yields_change_no_bit(self) -> None:
        os.environ["PECIA_FORCE_YIELDS"] = "3"
        self.addCleanup(os.environ.pop, "PECIA_FORCE_YIELDS", None)
        generation = {**SECTIONS["generation"], "max_new_tokens": 30}
        layout: dict[str, Any] = {"generation": generation, "reproducible": "layout"}
        layouts = (
            (1, "host", {}),
            (2, "disk", {"cp": 2}),
            (2, "off", {"cp": 2}),
            (4, "host", {"cp": 2, "tp": 2}),
        )
        for hybrid, followup, (ranks, park, parallel) in covering((HYBRIDS[0], HYBRIDS[3]), FOLLOWUPS, layouts):
            with self.subTest(hybrid=hybrid, followup=followup, park=park, parallel=parallel):
                reserve = self.alone(hybrid, followup, kv={"admission": "reserve"}, **layout)
                kv = {"admission": "demand", "park": park}
                job = self.job(hybrid, f"{park}-{ranks}-{followup}", followup, kv=kv, parallel=parallel, **layout)
                self.run_job(job, ranks)
                demand = self.report(job)["kv"]["demand"]
                self.assertGreater(demand["forgotten" if park == "off" else "parked"], 0)
                self.assert_same_bits(self.results(job), reserve)

    def test_what_is_parked_when_a_run_stops_is_kept(self) -> None:
        os.environ["PECIA_FORCE_YIELDS"] = "3"
        self.addCleanup(os.environ.pop, "PECIA_FORCE_YIELDS", None)
        long = {"generation": {**SECTIONS["generation"], "max_new_tokens": 300}, "reproducible": "layout"}
        reserve = self.job(DENSE, "reserve-long", kv={**FP32, "admission": "reserve"}, **long)
        self.run_job(reserve, 1)
        for before, after, park in ((2, 4, "host"), (4, 1, "disk")):
            with self.subTest(before=before, after=after, park=park):
                stopped = self.job(DENSE, f"stopped-{before}", kv={**FP32, "park": park}, **long)
                self.assertGreater(stop_and_go_on(self, stopped, before, after), 0)
                rows = self.results(reserve).rows(DONE)
                self.assert_same_answers(self.results(stopped), self.results(reserve), rows)

    def test_a_prompt_goes_on_from_its_state_on_other_ranks(self) -> None:
        for hybrid, before, after in (
            (HYBRIDS[0], (2, {"cp": 2}), (4, {"cp": 2, "tp": 2})),
            (HYBRIDS[0], (2, {"tp": 2}), (1, {})),
            (HYBRIDS[2], (1, {}), (2, {"sp": 2})),
            (HYBRIDS[3], (4, {"cp": 4}), (2, {"cp": 2})),
        ):
            with self.subTest(hybrid=hybrid, before=before, after=after):
                whole = self.long_prompt(hybrid, "whole", kv={"save": "off"})
                self.run_job(whole, 1, "--fresh")
                job = self.long_prompt(hybrid, f"from-{before[0]}", parallel=before[1])
                self.stop_in_the_prompt(job, before[0])
                kept = self.report(job)["kv"]["kept_tokens"]
                self.assertGreater(kept, 0)
                save = json.loads((self.save_of(job) / "save.json").read_text())["save"]
                self.assertEqual((save["tokens"], save["least"]), (kept, kept))
                self.go_on(job, after)
                self.assertEqual(self.report(job)["kv"]["restored_tokens"], kept)
                self.assertEqual(self.report(job)["counts"]["prompt_tokens"], LENGTH - kept)
                self.assert_same_bits(self.results(job), self.results(whole))
                shutil.rmtree(self.output(job))

    def test_a_damaged_state_is_made_again(self) -> None:
        whole = self.long_prompt(HYBRIDS[0], "whole", kv={"save": "off"})
        self.run_job(whole, 1)
        job = self.long_prompt(HYBRIDS[0], "job", parallel={"tp": 2})
        self.stop_in_the_prompt(job, 2)
        kept = self.folder / "kept"
        shutil.copytree(self.save_of(job), kept)
        results = (self.output(job) / "results.h5").read_bytes()
        files = sorted(path.name for path in kept.glob("*-states.h5"))
        self.assertEqual(len(files), 2, "each rank writes its heads")

        def change(path: Path) -> None:
            content = bytearray(path.read_bytes())
            state = np.frombuffer(content, np.uint8)
            state[len(state) // 2 :] ^= 4
            path.write_bytes(content)

        for name, damage in (("changed", change), ("gone", Path.unlink)):
            with self.subTest(name):
                shutil.rmtree(self.save_of(job), ignore_errors=True)
                shutil.copytree(kept, self.save_of(job))
                (self.output(job) / "results.h5").write_bytes(results)
                damage(self.save_of(job) / files[1])
                words = self.run_job(job, 2)
                self.assertIn(files[1], words)
                self.assertIn("the prompt is read again from position 0 on", words)
                self.assertEqual(self.report(job)["kv"]["restored_tokens"], 0)
                self.assertEqual(self.report(job)["counts"]["prompt_tokens"], LENGTH)
                self.assert_same_bits(self.results(job), self.results(whole))

    def test_branches_begin_with_the_state_of_a_saved_prefix(self) -> None:
        def job(name: str, **sections: Any) -> Path:
            prefix, *questions = random_requests(5, 20, 40, seed=8)
            turns = [(prefix.turns[0] * LENGTH)[:2000], *(each.turns[0] for each in questions)]
            document = Request("document", turns, max_new_tokens=[0, 4, 200, 200, 200])
            model = {"path": str(SOURCE / "tests" / "goldens" / HYBRIDS[0]), "compute": "fp32"}
            long = {key: value for key, value in LONG.items() if key != "reproducible"}
            return self.write_job([document], name, "fork", model=model, **{**long, **sections})

        whole = job("whole", kv={**FP32, "save": "off"})
        self.run_job(whole, 1)
        stopped = job("stopped", kv=FP32, parallel={"cp": 2})
        launch = self.start(stopped, 2, together=True)
        wait_for("an answer", lambda: self.done(stopped) > 1)
        launch.ranks()
        launch.signal_ranks(signal.SIGTERM)
        self.end(launch, DRAINED)
        self.assertEqual(self.report(stopped)["kv"]["kept_tokens"], 2000)
        self.go_on(stopped, (1, {}))
        self.assertEqual(self.report(stopped)["kv"]["restored_tokens"], 2000)
        self.assert_same_answers(self.results(stopped), self.results(whole), self.results(whole).rows(DONE))

    def test_a_later_turn_goes_on_from_the_state(self) -> None:
        """As if all had been one prompt."""
        first, second = ([int(token) for token in each.turns[0]] for each in random_requests(2, 20, 40, seed=3))
        for hybrid in HYBRIDS:
            with self.subTest(hybrid=hybrid):
                model = {"path": str(SOURCE / "tests" / "goldens" / hybrid), "compute": "fp32"}
                sections = {**SECTIONS, "model": model, "kv": FP32}
                turns = self.write_job([Request("turns", [first, second])], f"{hybrid}-turns", **sections)
                self.run_job(turns, 2)
                found = self.results(turns)
                prompt = first + [int(token) for token in found.tokens(0)] + second
                alone = self.write_job([Request("alone", [prompt])], f"{hybrid}-alone", **sections)
                self.run_job(alone, 1)
                self.assertEqual(found.tokens(1), self.results(alone).tokens(0))
                np.testing.assert_allclose(
                    found.slots(1, "token_logprob"), self.results(alone).slots(0, "token_logprob"), rtol=0, atol=1e-4
                )

    def overflowing_model(self) -> tuple[Path, int]:
        """The values of the first layer's recurrence overflow for one token, which is never generated: dimension 0 of
        the embedding tells it from the others. Returns the model and the token."""
        folder, bad = self.folder / "model", VOCAB - 1
        shutil.copytree(SOURCE / "tests" / "goldens" / HYBRIDS[0], folder)
        path = folder / "model.safetensors"
        data = bytearray(path.read_bytes())
        header_end = 8 + struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:header_end])

        def tensor(name: str) -> np.ndarray:
            begin, end = (header_end + at for at in header[name]["data_offsets"])
            view = np.frombuffer(data, dtype=np.uint16, count=(end - begin) // 2, offset=begin)
            return view.reshape(header[name]["shape"])

        def bf16(value: float) -> int:
            return int(np.float32(value).view(np.uint32)) >> 16

        head = tensor("lm_head.weight")
        head[bad] = head[bad - 1]  # of equal logits the lowest token is taken
        embedding = tensor("model.embed_tokens.weight")
        embedding[:, 0] = 0
        embedding[bad, 0] = bf16(4)
        projection = tensor("model.layers.0.linear_attn.in_proj_qkvz.weight")
        config = json.loads((folder / "config.json").read_text())
        value = projection[2 * config["linear_key_head_dim"]]  # behind q and k of the first key head
        value[:] = 0
        value[0] = bf16(3e38)
        path.write_bytes(data)
        return folder, bad

    def test_a_state_without_numbers_names_the_layer_and_the_request(self) -> None:
        """The token is far before the end of its prompt, so the state alone has what it did. The next request has the
        slot of that state."""
        model, bad = self.overflowing_model()
        draw = np.random.default_rng(5)
        prompts = [draw.integers(3, VOCAB - 1, size=size).tolist() for size in (40, 30, 23)]

        one_by_one = {"max_sequences": 1, "order": "fcfs", "max_batch_tokens": 8}
        in_one_pass = {"max_sequences": 3, "max_batch_tokens": 128}

        def job(name: str, token: int, batch: dict[str, Any], **parallel: Any) -> Path:
            prompts[1][10] = token
            requests = [Request(f"request-{index}", [prompt]) for index, prompt in enumerate(prompts)]
            of_model = {"path": str(model), "compute": "fp32"}
            sections = {**SECTIONS, "model": of_model, "kv": FP32, "batch": batch}
            return self.write_job(requests, name, parallel=parallel, **sections)

        good = job("good", 3, one_by_one)
        self.run_job(good, 1)
        for ranks, parallel, batch in (
            (1, {}, one_by_one),
            (2, {"cp": 2}, one_by_one),
            (2, {"tp": 2}, one_by_one),
            (1, {}, in_one_pass),
            (2, {"cp": 2}, in_one_pass),
            (2, {"sp": 2}, in_one_pass),
            (3, {"cp": "elastic"}, in_one_pass),
            (2, {"cp": 2, "phases": "apart"}, in_one_pass),
        ):
            with self.subTest(ranks=ranks, parallel=parallel, batch=batch):
                broken = job("bad", bad, batch, **parallel)
                self.run_job(broken, ranks, "--fresh", expect=SOME_FAILED)
                found = self.results(broken)
                self.assertEqual(found.rows(FAILED), [1])
                self.assertIn("came from the recurrence of layer 0", found["error"][1].decode())
                self.assert_same_answers(found, self.results(good), [0, 2])

    def test_states_go_with_teams_that_change(self) -> None:
        teams = (
            (2, {}, "prefill_first"),
            (3, {}, "chunked"),
            (3, {"scheduler": "loongserve"}, "prefill_first"),
            (4, {}, "prefill_first"),
            (4, {"tp": 2}, "chunked"),
        )
        for hybrid, followup, (ranks, parallel, policy) in covering(HYBRIDS, FOLLOWUPS, teams):
            with self.subTest(hybrid=hybrid, followup=followup, ranks=ranks, parallel=parallel):
                wanted = self.alone(hybrid, followup, **ALL_FP32)
                job = self.job(
                    hybrid,
                    f"elastic-{followup}",
                    followup,
                    **ALL_FP32,
                    parallel={"cp": "elastic", **parallel},
                    batch={**SECTIONS["batch"], "policy": policy},
                )
                self.run_job(job, ranks, "--fresh")
                found = self.results(job)
                self.assert_same_answers(found, wanted, wanted.rows(DONE))
                self.assertTrue(all(b"elastic:" in mode for mode in found["mode"]), set(found["mode"]))

    def test_teams_are_killed_and_go_on_on_other_ranks(self) -> None:
        long = {**ALL_FP32, "generation": {**SECTIONS["generation"], "max_new_tokens": 300}}
        alone = self.job(DENSE, "alone-long", **long)
        self.run_job(alone, 1)
        wanted = self.results(alone)
        job = self.job(DENSE, "elastic-long", parallel={"cp": "elastic"}, **long)
        launch = self.start(job, 4, together=True)
        wait_for("an answer", lambda: self.done(job) > 0)
        launch.ranks()
        launch.kill()
        before = self.results(job)
        self.run_job(job, 2)
        found = self.results(job)
        for row in before.rows(DONE):
            self.assertEqual(found.row_bytes(row), before.row_bytes(row))
        self.assert_same_answers(found, wanted, wanted.rows(DONE))


if __name__ == "__main__":
    unittest.main()
