# SPDX-License-Identifier: Apache-2.0
"""Shapes of hybrids that make-bench-model makes."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes  # noqa: F401  its bfloat16 becomes NumPy's
import numpy as np
from safetensors import safe_open

from pecia_tools.bench.model import main
from pecia_tools.command import UserError
from support import ScriptTest, quietly

SMALL = ["--heads=4", "--kv-heads=2", "--head-dim=8", "--hidden=32", "--ffn=24", "--layers=5", "--vocab=40"]
EXPERTS = ["--experts=3", "--experts-per-token=2", "--shared-experts=2"]
DELTA_NET = ["--delta-net=2:6:4", "--full-every=3"]
MAMBA = ["--mamba=8:8:6:2", "--full-every=3"]


class Hybrids(ScriptTest):
    def made(self, *options: str) -> tuple[dict[str, Any], dict[str, list[int]]]:
        """config.json, and the shapes of tensors by name."""
        quietly(main, self.folder / "a", *SMALL, *options)
        config = json.loads((self.folder / "a" / "config.json").read_text())
        with safe_open(self.folder / "a" / "model.safetensors", "numpy") as file:
            return config, {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118

    def values(self, name: str) -> np.ndarray:
        with safe_open(self.folder / "a" / "model.safetensors", "numpy") as file:
            return file.get_tensor(name).astype(np.float32)

    def assert_shapes(self, found: dict[str, list[int]], prefix: str, wanted: dict[str, list[int]]) -> None:
        """All tensors that begin so."""
        own = {name.removeprefix(prefix): shape for name, shape in found.items() if name.startswith(prefix)}
        self.assertEqual(own, wanted)

    def test_a_delta_net_is_that_of_qwen3_5(self) -> None:
        config, shapes = self.made(*DELTA_NET)
        self.assertEqual(config["model_type"], "qwen3_5_text")
        self.assertEqual(
            [kind.split("_")[0] for kind in config["layer_types"]], ["linear"] * 2 + ["full"] + ["linear"] * 2
        )
        self.assertEqual((config["linear_num_key_heads"], config["linear_num_value_heads"]), (2, 6))
        self.assertEqual((config["linear_key_head_dim"], config["linear_value_head_dim"]), (4, 4))
        self.assertEqual(config["rope_parameters"]["mrope_section"], [1, 0, 0])
        self.assert_shapes(
            shapes,
            "model.layers.1.linear_attn.",
            {
                "in_proj_qkv.weight": [2 * 8 + 24, 32],
                "in_proj_z.weight": [24, 32],
                "in_proj_b.weight": [6, 32],
                "in_proj_a.weight": [6, 32],
                "conv1d.weight": [40, 1, 4],
                "A_log": [6],
                "dt_bias": [6],
                "norm.weight": [4],
                "out_proj.weight": [32, 24],
            },
        )
        self.assert_shapes(
            shapes,
            "model.layers.2.self_attn.",
            {
                "q_proj.weight": [2 * 32, 32],
                "k_proj.weight": [16, 32],
                "v_proj.weight": [16, 32],
                "o_proj.weight": [32, 32],
                "q_norm.weight": [8],
                "k_norm.weight": [8],
            },
        )
        # Embedding and last norm; a mixer, three of the feed-forward and two norms of each layer.
        self.assertEqual(len(shapes), 2 + 4 * 9 + 6 + 5 * (3 + 2))

    def test_with_experts_it_is_that_of_qwen3_next(self) -> None:
        config, shapes = self.made(*DELTA_NET, *EXPERTS)
        self.assertEqual(config["model_type"], "qwen3_next")
        self.assertEqual((config["num_experts"], config["shared_expert_intermediate_size"]), (3, 48))
        mixer = "model.layers.0.linear_attn."
        self.assertEqual(shapes[f"{mixer}in_proj_qkvz.weight"], [2 * 8 + 2 * 24, 32])
        self.assertEqual(shapes[f"{mixer}in_proj_ba.weight"], [12, 32])
        self.assertEqual(shapes["model.layers.2.mlp.shared_expert_gate.weight"], [1, 32])
        self.assertEqual(shapes["model.layers.2.mlp.shared_expert.down_proj.weight"], [32, 48])
        # In place of four projections two; a router, three experts, a shared one and its gate.
        self.assertEqual(len(shapes), 2 + 4 * 7 + 6 + 5 * (1 + 3 * 3 + 3 + 1 + 2))

    def test_norms_of_a_delta_net_s_model_add_one_but_its_own(self) -> None:
        self.made(*DELTA_NET)
        for name in ("layers.0.input_layernorm", "layers.2.self_attn.q_norm", "norm"):
            self.assertEqual(set(self.values(f"model.{name}.weight")), {0})
        self.assertEqual(set(self.values("model.layers.0.linear_attn.norm.weight")), {1})

    def test_states_forget_as_those_of_new_models_do(self) -> None:
        self.made("--delta-net=64:64:4")
        mixer = "model.layers.0.linear_attn."
        rates = np.exp(self.values(f"{mixer}A_log"))
        self.assertTrue(0.98 < rates.min() < 3 and 14 < rates.max() < 16.3, rates)
        steps = np.log1p(np.exp(self.values(f"{mixer}dt_bias")))
        self.assertTrue(0.00098 < steps.min() < 0.002 and 0.05 < steps.max() < 0.102, steps)
        self.assertFalse(np.array_equal(rates, np.exp(self.values("model.layers.1.linear_attn.A_log"))))
        conv = self.values(f"{mixer}conv1d.weight")
        self.assertTrue(2**-0.6 < np.sqrt(np.mean(conv**2) * 4) < 2**0.6)

    def test_mamba_2_is_that_of_granite_4(self) -> None:
        config, shapes = self.made(*MAMBA, *EXPERTS)
        self.assertEqual(config["model_type"], "granitemoehybrid")
        self.assertEqual(config["layer_types"], ["mamba", "mamba", "attention", "mamba", "mamba"])
        self.assertEqual((config["mamba_n_groups"], config["mamba_d_state"], config["mamba_expand"]), (2, 6, 2))
        self.assertEqual((config["num_local_experts"], config["shared_intermediate_size"]), (3, 48))
        self.assert_shapes(
            shapes,
            "model.layers.0.",
            {
                "mamba.in_proj.weight": [2 * 64 + 2 * 12 + 8, 32],
                "mamba.conv1d.weight": [64 + 2 * 12, 1, 4],
                "mamba.conv1d.bias": [88],
                "mamba.A_log": [8],
                "mamba.D": [8],
                "mamba.dt_bias": [8],
                "mamba.norm.weight": [64],
                "mamba.out_proj.weight": [32, 64],
                "block_sparse_moe.router.layer.weight": [3, 32],
                "block_sparse_moe.input_linear.weight": [3, 48, 32],
                "block_sparse_moe.output_linear.weight": [3, 32, 24],
                "shared_mlp.input_linear.weight": [96, 32],
                "shared_mlp.output_linear.weight": [32, 48],
                "input_layernorm.weight": [32],
                "post_attention_layernorm.weight": [32],
            },
        )
        self.assertEqual(len(shapes), 2 + 4 * 8 + 4 + 5 * (5 + 2))
        self.assertEqual(set(self.values("model.layers.0.mamba.D")), {1})
        self.assertEqual(set(self.values("model.layers.0.mamba.norm.weight")), {1})

    def test_granite_4_without_experts(self) -> None:
        config, shapes = self.made(*MAMBA)
        self.assertEqual((config["num_local_experts"], config["shared_intermediate_size"]), (0, 24))
        self.assertEqual(shapes["model.layers.0.shared_mlp.input_linear.weight"], [48, 32])
        self.assertFalse([name for name in shapes if "moe" in name])

    def test_a_pattern_is_that_of_nemotron_h(self) -> None:
        config, shapes = self.made(*MAMBA, *EXPERTS, "--nemotron-h=M*-E", "--dense-ffn=40")
        self.assertEqual((config["model_type"], config["hybrid_override_pattern"]), ("nemotron_h", "M*-EM"))
        self.assertEqual((config["intermediate_size"], config["moe_intermediate_size"]), (40, 24))
        self.assertEqual(shapes["backbone.layers.4.mixer.in_proj.weight"], [160, 32])
        self.assertEqual(shapes["backbone.layers.1.mixer.k_proj.weight"], [16, 32])
        self.assertEqual(shapes["backbone.layers.2.mixer.up_proj.weight"], [40, 32])
        self.assertEqual(shapes["backbone.layers.3.mixer.experts.2.down_proj.weight"], [32, 24])
        self.assertEqual(shapes["backbone.layers.3.mixer.shared_experts.up_proj.weight"], [48, 32])
        # Embedding, head and last norm; a norm and one block of each layer.
        self.assertEqual(len(shapes), 3 + 5 + 2 * 8 + 4 + 2 + (2 + 2 * 3 + 2))
        self.assertEqual(set(self.values("backbone.norm_f.weight")), {1})

    def test_what_cannot_be_is_named(self) -> None:
        for options, words in (
            (["--delta-net=4:6:8"], "4 key heads do not divide 6 heads"),
            (["--delta-net=2:6:8", "--head-dim=12"], "--head-dim 12"),
            (["--delta-net=2:6:8", "--experts=2"], "name --shared-experts"),
            (["--delta-net=2:6:8", "--shared-experts=2"], "--shared-experts is for"),
            (["--delta-net=2:6:8", "--mamba=8:8:6:2"], "--delta-net and --mamba are different families"),
            (["--delta-net=2:6:8", "--kv-rank=4"], "--delta-net has no latents"),
            (["--delta-net=2:6:8", "--full-head-dim=16"], "--full-head-dim is for dense models"),
            (["--delta-net=2:6:8", "--nvfp4", "--ffn=32"], "--nvfp4 is for"),
            (["--nemotron-h=M"], "--nemotron-h needs --mamba"),
            (["--mamba=8:8:6:3"], "3 groups do not divide 8 heads"),
            (["--mamba=8:8:6:2", "--head-dim=16"], "is not --hidden 32"),
            (["--mamba=9:8:6:1"], "no multiple of --hidden 32"),
            (["--mamba=8:8:6:2", "--nemotron-h=MX"], "'X'"),
            (["--mamba=8:8:6:2", "--nemotron-h=ME"], "--experts need each other"),
            (["--mamba=8:8:6:2", "--nemotron-h=M-", *EXPERTS], "--experts need each other"),
            (["--mamba=8:8:6:2", "--full-every=0"], "--full-every is 0"),
        ):
            with self.subTest(words), self.assertRaisesRegex(UserError, words):
                main([str(self.folder / "a"), *SMALL, *options])
        for wrong in ("--delta-net=4:8", "--mamba=1:2:3:x", "--mamba=1:2:0:1"):
            with self.subTest(wrong):
                self.assertEqual(quietly(self.ended, wrong)[0], 2)

    def ended(self, arguments: list[str]) -> int:
        try:
            main([str(self.folder / "a"), *arguments])
        except SystemExit as end:
            return int(end.code or 0)
        return 0
