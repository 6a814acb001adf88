# SPDX-License-Identifier: Apache-2.0
"""GGUF files of hybrids, tensor by tensor beside the checkpoint."""

from __future__ import annotations

import json
import unittest
from collections.abc import Callable
from typing import Any

import ml_dtypes  # noqa: F401 - makes numpy know bfloat16
import numpy as np
from gguf import GGUFReader
from safetensors import safe_open

from pecia_tools.bench import model as bench_model
from pecia_tools.gguf.export import export_gguf
from support import ScriptTest, quietly

SHAPE = ["--layers=3", "--hidden=32", "--heads=4", "--kv-heads=2", "--head-dim=8", "--ffn=24", "--vocab=64"]
EXPERTS = ["--experts=3", "--experts-per-token=2", "--shared-experts=2"]
KEY_HEADS, HEADS, DIM = 2, 6, 4
DELTA_NET = [f"--delta-net={KEY_HEADS}:{HEADS}:{DIM}", "--full-every=3"]
MAMBA = ["--mamba=8:8:6:2", "--full-every=3"]  # 8 heads of 8, states of 6 numbers, 2 groups


class Hybrid(ScriptTest):
    prefix = "model.layers"

    def export(self, *options: str) -> None:
        """Keeps the file's fields and tensors, and those of the checkpoint."""
        folder = self.folder / "model"
        quietly(bench_model.main, folder, *SHAPE, *options)
        export_gguf(folder, self.folder / "F32.gguf")
        self.reader = GGUFReader(self.folder / "F32.gguf")
        self.made = {tensor.name: np.array(tensor.data) for tensor in self.reader.tensors}
        with safe_open(folder / "model.safetensors", "numpy") as file:
            self.source = {name: file.get_tensor(name).astype(np.float32) for name in file.keys()}  # noqa: SIM118

    def of_layer(self, layer: int) -> set[str]:
        prefix = f"blk.{layer}."
        return {name.removeprefix(prefix) for name in self.made if name.startswith(prefix)}

    def assert_fields(self, architecture: str, **fields: Any) -> None:
        for name, value in fields.items():
            key = f"{architecture}.{name.replace('__', '.')}"
            found = self.reader.fields[key].contents()
            self.assertEqual(found, type(value)(value), key)

    def assert_same(self, layer: int, names: dict[str, str | Callable[[], np.ndarray]]) -> None:
        """Each tensor of a layer of the file is that of the checkpoint, or what the function makes."""
        for name, source in names.items():
            wanted = self.source[f"{self.prefix}.{layer}.{source}"] if isinstance(source, str) else source()
            np.testing.assert_array_equal(self.made[f"blk.{layer}.{name}"], wanted, name)

    def assert_refused_with(self, changes: dict[str, Any], words: str) -> None:
        """A change of config.json alone."""
        path = self.folder / "model" / "config.json"
        kept = path.read_text("utf-8")
        path.write_text(json.dumps({**json.loads(kept), **changes}))
        self.assert_refused(words, call=lambda: export_gguf(path.parent, self.folder / "other.gguf"))
        self.assertFalse((self.folder / "other.gguf").exists())
        path.write_text(kept)


class DeltaNet(Hybrid):
    def mixer(self, name: str) -> np.ndarray:
        return self.source[f"{self.prefix}.0.linear_attn.{name}"]

    def one_more(self, name: str) -> Callable[[], np.ndarray]:
        return lambda: self.source[f"{self.prefix}.{name}.weight"] + 1

    def test_value_heads_of_qwen3_5_take_turns(self) -> None:
        self.export(*DELTA_NET)
        # Heads 0, 1, 2 read key head 0; llama.cpp's heads 0, 2, 4 do.
        heads = [0, 3, 1, 4, 2, 5]
        rows = [head * DIM + i for head in heads for i in range(DIM)]
        keys = list(range(2 * KEY_HEADS * DIM))
        channels = keys + [len(keys) + row for row in rows]
        self.assert_same(
            0,
            {
                "attn_qkv.weight": lambda: self.mixer("in_proj_qkv.weight")[channels],
                "attn_gate.weight": lambda: self.mixer("in_proj_z.weight")[rows],
                "ssm_beta.weight": lambda: self.mixer("in_proj_b.weight")[heads],
                "ssm_alpha.weight": lambda: self.mixer("in_proj_a.weight")[heads],
                "ssm_conv1d.weight": lambda: self.mixer("conv1d.weight")[channels, 0],
                "ssm_a": lambda: -np.exp(self.mixer("A_log"))[heads],
                "ssm_dt.bias": lambda: self.mixer("dt_bias")[heads],
                "ssm_norm.weight": "linear_attn.norm.weight",
                "ssm_out.weight": lambda: self.mixer("out_proj.weight")[:, rows],
                "attn_norm.weight": self.one_more("0.input_layernorm"),
                "post_attention_norm.weight": self.one_more("0.post_attention_layernorm"),
                "ffn_gate.weight": "mlp.gate_proj.weight",
                "ffn_up.weight": "mlp.up_proj.weight",
                "ffn_down.weight": "mlp.down_proj.weight",
            },
        )
        self.assertEqual(len(self.of_layer(0)), 14)
        self.assert_attention()
        np.testing.assert_array_equal(self.made["output_norm.weight"], self.source["model.norm.weight"] + 1)
        self.assertNotIn("output.weight", self.made)
        self.assert_header("qwen35")
        self.assert_fields("qwen35", rope__dimension_sections=[1, 0, 0, 0])

    def assert_attention(self) -> None:
        self.assert_same(
            2,
            {
                **{f"attn_{one}.weight": f"self_attn.{one}_proj.weight" for one in "qkv"},
                "attn_output.weight": "self_attn.o_proj.weight",
                "attn_q_norm.weight": self.one_more("2.self_attn.q_norm"),
                "attn_k_norm.weight": self.one_more("2.self_attn.k_norm"),
            },
        )
        self.assertFalse({name for name in self.of_layer(2) if name.startswith("ssm")})

    def assert_header(self, architecture: str) -> None:
        self.assert_fields(
            architecture,
            block_count=3,
            full_attention_interval=3,
            rope__dimension_count=2,
            rope__freq_base=1e7,
            ssm__conv_kernel=4,
            ssm__state_size=DIM,
            ssm__group_count=KEY_HEADS,
            ssm__time_step_rank=HEADS,
            ssm__inner_size=HEADS * DIM,
            attention__head_count_kv=2,
            attention__key_length=8,
        )

    def test_rows_of_qwen3_next_lie_by_kind(self) -> None:
        self.export(*DELTA_NET, *EXPERTS)
        # Of each key head: q, k, the v of its three heads, their z.
        by_head = np.arange(2 * (KEY_HEADS + HEADS) * DIM).reshape(KEY_HEADS, -1)
        q, k, v, z = (part.ravel() for part in np.split(by_head, [DIM, 2 * DIM, 5 * DIM], axis=1))
        together = self.mixer("in_proj_qkvz.weight")
        self.assert_same(
            0,
            {
                "attn_qkv.weight": lambda: together[[*q, *k, *v]],
                "attn_gate.weight": lambda: together[z],
                "ssm_ba.weight": "linear_attn.in_proj_ba.weight",
                "ssm_conv1d.weight": lambda: self.mixer("conv1d.weight")[:, 0],
                "ssm_a": lambda: -np.exp(self.mixer("A_log")),
                "ssm_dt.bias": "linear_attn.dt_bias",
                "ssm_norm.weight": "linear_attn.norm.weight",
                "ssm_out.weight": "linear_attn.out_proj.weight",
                "ffn_gate_inp.weight": "mlp.gate.weight",
                "ffn_gate_inp_shexp.weight": lambda: self.source[f"{self.prefix}.0.mlp.shared_expert_gate.weight"][0],
                **{f"ffn_{one}_shexp.weight": f"mlp.shared_expert.{one}_proj.weight" for one in ("gate", "up", "down")},
            },
        )
        for one in ("gate", "up", "down"):
            for expert in range(3):
                own = self.source[f"{self.prefix}.1.mlp.experts.{expert}.{one}_proj.weight"]
                np.testing.assert_array_equal(self.made[f"blk.1.ffn_{one}_exps.weight"][expert], own)
        self.assertEqual(len(self.of_layer(0)), 8 + 2 + 1 + 3 + 1 + 3)
        self.assert_attention()
        self.assert_header("qwen3next")
        self.assert_fields(
            "qwen3next",
            expert_count=3,
            expert_used_count=2,
            expert_feed_forward_length=24,
            expert_shared_feed_forward_length=48,
        )

    def test_layers_that_attend_follow_the_interval_where_no_types_are_named(self) -> None:
        self.export(*DELTA_NET)
        path = self.folder / "model" / "config.json"
        config = json.loads(path.read_text())
        del config["layer_types"]
        path.write_text(json.dumps({**config, "full_attention_interval": 3}))
        export_gguf(path.parent, self.folder / "same.gguf")
        self.assertEqual((self.folder / "same.gguf").read_bytes(), (self.folder / "F32.gguf").read_bytes())

    def test_what_a_file_could_not_say(self) -> None:
        self.export(*DELTA_NET)
        rope = {"rope_type": "yarn", "factor": 4.0}
        for changes, words in (
            ({"linear_value_head_dim": 8}, "different sizes"),
            ({"layer_types": ["full_attention", "linear_attention", "linear_attention"]}, "one interval"),
            ({"rope_parameters": rope}, "yarn"),
            ({"rope_parameters": {}}, "no mrope_section"),
        ):
            with self.subTest(words):
                self.assert_refused_with(changes, words)


class Mamba(Hybrid):
    def mamba(self, mixer: str) -> dict[str, str | Callable[[], np.ndarray]]:
        def read(name: str) -> np.ndarray:
            return self.source[f"{self.prefix}.0.{mixer}.{name}"]

        return {
            "ssm_in.weight": f"{mixer}.in_proj.weight",
            "ssm_conv1d.weight": lambda: read("conv1d.weight")[:, 0],
            "ssm_conv1d.bias": f"{mixer}.conv1d.bias",
            "ssm_dt.bias": f"{mixer}.dt_bias",
            "ssm_a": lambda: -np.exp(read("A_log")).reshape(8, 1),
            "ssm_d": lambda: read("D").reshape(8, 1),
            "ssm_norm.weight": lambda: read("norm.weight").reshape(2, 32),
            "ssm_out.weight": f"{mixer}.out_proj.weight",
        }

    def assert_header(self, architecture: str) -> None:
        self.assert_fields(
            architecture,
            block_count=3,
            ssm__conv_kernel=4,
            ssm__state_size=6,
            ssm__group_count=2,
            ssm__time_step_rank=8,
            ssm__inner_size=64,
        )

    def test_granite_4(self) -> None:
        self.export(*MAMBA, *EXPERTS)
        layer = f"{self.prefix}.0"
        shared, moe = "shared_mlp", "block_sparse_moe"
        self.assert_same(
            0,
            {
                **self.mamba("mamba"),
                "attn_norm.weight": "input_layernorm.weight",
                "ffn_norm.weight": "post_attention_layernorm.weight",
                "ffn_gate_inp.weight": f"{moe}.router.layer.weight",
                "ffn_gate_exps.weight": lambda: self.source[f"{layer}.{moe}.input_linear.weight"][:, :24],
                "ffn_up_exps.weight": lambda: self.source[f"{layer}.{moe}.input_linear.weight"][:, 24:],
                "ffn_down_exps.weight": f"{moe}.output_linear.weight",
                "ffn_gate_shexp.weight": lambda: self.source[f"{layer}.{shared}.input_linear.weight"][:48],
                "ffn_up_shexp.weight": lambda: self.source[f"{layer}.{shared}.input_linear.weight"][48:],
                "ffn_down_shexp.weight": f"{shared}.output_linear.weight",
            },
        )
        self.assertEqual(len(self.of_layer(0)), 8 + 2 + 4 + 3)
        self.assert_same(2, {f"attn_{one}.weight": f"self_attn.{one}_proj.weight" for one in "qkv"})
        self.assert_header("granitehybrid")
        self.assert_fields(
            "granitehybrid",
            attention__head_count_kv=[0, 0, 2],
            attention__scale=np.float32(8**-0.5),
            embedding_scale=1.0,
            residual_scale=1.0,
            logit_scale=1.0,
            rope__scaling__finetuned=False,
            feed_forward_length=24,
            expert_count=3,
            expert_used_count=2,
            expert_shared_feed_forward_length=48,
        )

    def test_granite_4_without_experts(self) -> None:
        self.export(*MAMBA)
        both = self.source[f"{self.prefix}.1.shared_mlp.input_linear.weight"]
        self.assert_same(1, {"ffn_gate.weight": lambda: both[:24], "ffn_up.weight": lambda: both[24:]})
        self.assert_same(1, {"ffn_down.weight": "shared_mlp.output_linear.weight"})
        self.assert_fields("granitehybrid", feed_forward_length=24)
        for changes, words in (
            ({"position_embedding_type": "rope"}, "rope"),
            ({"mamba_expand": 4}, "mamba_expand is 4"),
            ({"mamba_proj_bias": True}, "mamba_proj_bias"),
            ({"time_step_limit": [0.001, 0.1]}, "time_step_limit"),
        ):
            with self.subTest(words):
                self.assert_refused_with(changes, words)

    def test_nemotron_h_with_experts(self) -> None:
        self.prefix = "backbone.layers"
        self.export(*MAMBA, *EXPERTS, "--nemotron-h=M*E")
        self.assert_same(0, {**self.mamba("mixer"), "attn_norm.weight": "norm.weight"})
        self.assertEqual(len(self.of_layer(0)), 9)
        attention = {f"attn_{one}.weight": f"mixer.{one}_proj.weight" for one in "qkv"}
        self.assert_same(1, {**attention, "attn_output.weight": "mixer.o_proj.weight"})
        self.assert_same(
            2,
            {
                "ffn_gate_inp.weight": "mixer.gate.weight",
                "exp_probs_b.bias": "mixer.gate.e_score_correction_bias",
                "ffn_up_shexp.weight": "mixer.shared_experts.up_proj.weight",
                "ffn_down_shexp.weight": "mixer.shared_experts.down_proj.weight",
            },
        )
        for one in ("up", "down"):
            experts = [self.source[f"{self.prefix}.2.mixer.experts.{expert}.{one}_proj.weight"] for expert in range(3)]
            np.testing.assert_array_equal(self.made[f"blk.2.ffn_{one}_exps.weight"], experts)
        self.assertEqual(len(self.of_layer(2)), 1 + 4 + 2)
        for name, source in (("token_embd", "backbone.embeddings"), ("output", "lm_head")):
            np.testing.assert_array_equal(self.made[f"{name}.weight"], self.source[f"{source}.weight"])
        self.assert_header("nemotron_h_moe")
        self.assert_fields(
            "nemotron_h_moe",
            attention__head_count_kv=[0, 2, 0],
            feed_forward_length=[0, 0, 24],
            attention__layer_norm_rms_epsilon=np.float32(1e-5),
            attention__layer_norm_epsilon=np.float32(1e-5),
            expert_count=3,
            expert_used_count=2,
            expert_shared_feed_forward_length=48,
            expert_weights_norm=True,
            expert_weights_scale=1.0,
        )

    def test_nemotron_h_with_feed_forwards(self) -> None:
        self.prefix = "backbone.layers"
        self.export(*MAMBA, "--nemotron-h=M-*")
        self.assert_same(1, {f"ffn_{one}.weight": f"mixer.{one}_proj.weight" for one in ("up", "down")})
        self.assert_header("nemotron_h")
        self.assert_fields("nemotron_h", attention__head_count_kv=[0, 0, 2], feed_forward_length=[0, 24, 0])
        path = self.folder / "model" / "config.json"
        config = path.read_text()
        names = {"hybrid_override_pattern": None, "layers_block_type": ["mamba", "mlp", "attention"]}
        path.write_text(json.dumps({**json.loads(config), **names}))
        export_gguf(path.parent, self.folder / "same.gguf")
        self.assertEqual((self.folder / "same.gguf").read_bytes(), (self.folder / "F32.gguf").read_bytes())
        path.write_text(config)
        for changes, words in (
            ({"hybrid_override_pattern": "M-E"}, "with experts and without"),
            ({"moe_latent_size": 16}, "moe_latent_size is 16"),
            ({"use_bias": True}, "use_bias is True"),
            ({"n_group": 2}, "n_group is 2"),
        ):
            with self.subTest(words):
                self.assert_refused_with(changes, words)


if __name__ == "__main__":
    unittest.main()
