# SPDX-License-Identifier: Apache-2.0
import json
import tempfile
import unittest
from pathlib import Path

import ml_dtypes  # noqa: F401  its bfloat16 becomes NumPy's
import numpy as np
from safetensors import safe_open

from pecia_tools.bench.model import main
from pecia_tools.command import UserError

SMALL = [
    "--heads",
    "4",
    "--kv-heads",
    "2",
    "--head-dim",
    "8",
    "--hidden",
    "16",
    "--ffn",
    "24",
    "--layers",
    "2",
]
SMALL += ["--vocab", "40"]


class BenchModel(unittest.TestCase):
    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def test_same_options_give_the_same_bytes(self) -> None:
        for name in ("a", "b"):
            self.assertEqual(main([str(self.folder / name), *SMALL]), 0)
        for file in ("config.json", "model.safetensors"):
            self.assertEqual(
                (self.folder / "a" / file).read_bytes(), (self.folder / "b" / file).read_bytes()
            )

    def test_shapes_are_those_asked_for(self) -> None:
        main([str(self.folder / "a"), *SMALL])
        config = json.loads((self.folder / "a" / "config.json").read_text())
        self.assertEqual((config["num_attention_heads"], config["num_key_value_heads"]), (4, 2))
        with safe_open(self.folder / "a" / "model.safetensors", "numpy") as file:
            self.assertEqual(
                file.get_slice("model.layers.1.self_attn.k_proj.weight").get_shape(), [16, 16]
            )
            self.assertEqual(
                file.get_slice("model.layers.1.mlp.down_proj.weight").get_shape(), [16, 24]
            )
            self.assertEqual(len(list(file.keys())), 2 + 2 * 9)

    def test_experts_have_matrices_of_their_own_and_a_router(self) -> None:
        main([str(self.folder / "a"), *SMALL, "--experts", "3", "--experts-per-token", "2"])
        config = json.loads((self.folder / "a" / "config.json").read_text())
        self.assertEqual(config["model_type"], "qwen3_moe")
        self.assertEqual((config["num_experts"], config["num_experts_per_tok"]), (3, 2))
        with safe_open(self.folder / "a" / "model.safetensors", "numpy") as file:
            self.assertEqual(file.get_slice("model.layers.0.mlp.gate.weight").get_shape(), [3, 16])
            expert = "model.layers.1.mlp.experts.2.down_proj.weight"
            self.assertEqual(file.get_slice(expert).get_shape(), [16, 24])
            # Projections, router, experts and norms of each layer.
            self.assertEqual(len(list(file.keys())), 2 + 2 * (4 + 1 + 3 * 3 + 4))

    def test_numbers_are_of_the_size_of_one_over_the_root_of_the_inputs(self) -> None:
        main([str(self.folder / "a"), *SMALL])
        with safe_open(self.folder / "a" / "model.safetensors", "numpy") as file:
            for name in ("model.layers.0.mlp.down_proj.weight", "model.embed_tokens.weight"):
                values = file.get_tensor(name).astype(np.float32)
                size = np.sqrt(np.mean(values**2) * values.shape[1])
                self.assertTrue(2**-0.6 < size < 2**0.6, size)
                self.assertTrue(abs(np.mean(values > 0) - 0.5) < 0.1)
            norms = file.get_tensor("model.layers.1.input_layernorm.weight").astype(np.float32)
            self.assertEqual(norms.tolist(), [1.0] * 16)

    def test_experts_of_gpt_oss_are_mxfp4(self) -> None:
        shape = [*SMALL, "--hidden", "64", "--ffn", "32", "--experts", "3", "--experts-per-token", "2"]
        main([str(self.folder / "a"), *shape, "--gpt-oss"])
        config = json.loads((self.folder / "a" / "config.json").read_text())
        self.assertEqual((config["model_type"], config["num_local_experts"]), ("gpt_oss", 3))
        with safe_open(self.folder / "a" / "model.safetensors", "numpy") as file:
            experts = "model.layers.1.mlp.experts."
            blocks = file.get_tensor(f"{experts}down_proj_blocks")
            scales = file.get_tensor(f"{experts}down_proj_scales")
            self.assertEqual((blocks.shape, scales.shape), ((3, 64, 1, 16), (3, 64, 1)))
            numbers = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])[blocks & 7] * 2.0 ** (scales[..., None] - 127.0)
            size = np.sqrt(np.mean(numbers**2) * 32)
            self.assertTrue(2**-0.6 < size < 2**0.6, size)
            self.assertEqual(file.get_slice(f"{experts}gate_up_proj_bias").get_shape(), [3, 64])
            # Projections with biases, sinks, router, experts and norms of each layer.
            self.assertEqual(len(list(file.keys())), 2 + 2 * (8 + 1 + 2 + 6 + 2))

    def test_matrices_of_layers_may_be_nvfp4(self) -> None:
        main([str(self.folder / "a"), *SMALL, "--ffn", "32", "--nvfp4"])
        config = json.loads((self.folder / "a" / "config.json").read_text())
        self.assertEqual(config["quantization_config"]["format"], "nvfp4-pack-quantized")
        with safe_open(self.folder / "a" / "model.safetensors", "numpy") as file:
            down = "model.layers.1.mlp.down_proj.weight"
            packed = file.get_tensor(f"{down}_packed")
            self.assertEqual(packed.shape, (16, 16))
            self.assertEqual(file.get_slice(f"{down}_scale").get_shape(), [16, 2])
            divisor = file.get_tensor(f"{down}_global_scale")
            # An E4M3 of 0x40 is 2; 4096 / 2.93 / √32 is near 2⁸.
            numbers = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])[packed & 7] * 2.0**8 / divisor
            size = np.sqrt(np.mean(numbers**2) * 32)
            self.assertTrue(2**-0.6 < size < 2**0.6, size)
            # Embedding and last norm; seven matrices of three tensors and two norms of each layer.
            self.assertEqual(len(list(file.keys())), 2 + 2 * (7 * 3 + 2))
        with self.assertRaises(UserError):
            main([str(self.folder / "b"), *SMALL, "--ffn", "24", "--nvfp4"])

    def test_experts_of_llama_4_lie_inputs_first(self) -> None:
        shape = [*SMALL, "--experts", "3", "--experts-per-token", "1", "--llama-4"]
        main([str(self.folder / "a"), *shape])
        config = json.loads((self.folder / "a" / "config.json").read_text())
        self.assertEqual((config["model_type"], config["num_local_experts"]), ("llama4_text", 3))
        with safe_open(self.folder / "a" / "model.safetensors", "numpy") as file:
            experts = file.get_tensor("model.layers.1.feed_forward.experts.gate_up_proj").astype(np.float32)
            self.assertEqual(experts.shape, (3, 16, 48))
            size = np.sqrt(np.mean(experts**2) * 16)
            self.assertTrue(2**-0.6 < size < 2**0.6, size)
            # Projections, router, experts, shared expert and norms of each layer.
            self.assertEqual(len(list(file.keys())), 2 + 2 * (4 + 1 + 2 + 3 + 2))

    def test_latents_are_those_of_deepseek(self) -> None:
        shape = [*SMALL, "--kv-rank", "12", "--rope-dim", "4"]
        main([str(self.folder / "a"), *shape, "--q-rank", "6"])
        main([str(self.folder / "b"), *shape, "--experts", "3", "--experts-per-token", "2"])
        config = json.loads((self.folder / "a" / "config.json").read_text())
        self.assertEqual((config["model_type"], config["q_lora_rank"]), ("deepseek_v3", 6))
        self.assertEqual((config["first_k_dense_replace"], config["kv_lora_rank"]), (2, 12))
        attention = "model.layers.1.self_attn."
        with safe_open(self.folder / "a" / "model.safetensors", "numpy") as file:
            for name, rows, columns in (
                ("q_b_proj", 4 * (8 + 4), 6),
                ("kv_a_proj_with_mqa", 12 + 4, 16),
                ("kv_b_proj", 4 * (8 + 8), 12),
                ("o_proj", 16, 4 * 8),
            ):
                found = file.get_slice(f"{attention}{name}.weight").get_shape()
                self.assertEqual(found, [rows, columns], name)
            # Projections and norms of latents, feed-forward and norms of each layer.
            self.assertEqual(len(list(file.keys())), 2 + 2 * (5 + 2 + 3 + 2))
        with safe_open(self.folder / "b" / "model.safetensors", "numpy") as file:
            self.assertEqual(file.get_slice(f"{attention}q_proj.weight").get_shape(), [48, 16])
            bias = file.get_slice("model.layers.0.mlp.gate.e_score_correction_bias")
            self.assertEqual(bias.get_shape(), [3])

    def test_shared_experts_follow_dense_layers(self) -> None:
        experts = ["--experts", "3", "--experts-per-token", "2", "--shared-experts", "2"]
        dense = ["--dense-layers", "1", "--dense-ffn", "32"]
        main([str(self.folder / "a"), *SMALL, *experts, *dense, "--glm-4"])
        config = json.loads((self.folder / "a" / "config.json").read_text())
        self.assertEqual((config["model_type"], config["intermediate_size"]), ("glm4_moe", 32))
        with safe_open(self.folder / "a" / "model.safetensors", "numpy") as file:
            self.assertEqual(file.get_slice("model.layers.0.mlp.down_proj.weight").get_shape(), [16, 32])
            shared = file.get_slice("model.layers.1.mlp.shared_experts.up_proj.weight")
            self.assertEqual(shared.get_shape(), [48, 16])
            # Projections, biases and norms of each layer; dense, or router, its bias, experts and the shared one.
            self.assertEqual(len(list(file.keys())), 2 + 2 * (4 + 3 + 2) + 3 + (2 + 9 + 3))

    def test_experts_of_mistral_4_lie_outputs_first(self) -> None:
        latent = ["--kv-rank", "12", "--rope-dim", "4", "--value-dim", "6", "--mistral-4"]
        main([str(self.folder / "a"), *SMALL, *latent, "--experts", "3"])
        config = json.loads((self.folder / "a" / "config.json").read_text())
        self.assertEqual((config["model_type"], config["v_head_dim"]), ("mistral4", 6))
        self.assertNotIn("head_dim", config)  # transformers would take it for its own, which differs by family
        with safe_open(self.folder / "a" / "model.safetensors", "numpy") as file:
            experts = file.get_tensor("model.layers.1.mlp.experts.gate_up_proj").astype(np.float32)
            self.assertEqual(experts.shape, (3, 48, 16))
            size = np.sqrt(np.mean(experts**2) * 16)
            self.assertTrue(2**-0.6 < size < 2**0.6, size)
            attention = "model.layers.1.self_attn."
            self.assertEqual(file.get_slice(f"{attention}o_proj.weight").get_shape(), [16, 24])
            self.assertEqual(file.get_slice(f"{attention}kv_b_proj.weight").get_shape(), [56, 12])

    def test_layers_without_a_window_have_heads_of_their_own(self) -> None:
        shape = [*SMALL, "--full-head-dim", "16", "--full-kv-heads", "1", "--window", "64"]
        main([str(self.folder / "a"), *shape])
        config = json.loads((self.folder / "a" / "config.json").read_text())
        self.assertEqual((config["model_type"], config["sliding_window"]), ("gemma4_text", 64))
        with safe_open(self.folder / "a" / "model.safetensors", "numpy") as file:
            for name, rows, columns in (
                ("0.self_attn.v_proj", 2 * 8, 16),
                ("1.self_attn.q_proj", 4 * 16, 16),
                ("1.self_attn.k_proj", 16, 16),
                ("1.self_attn.o_proj", 16, 4 * 16),
            ):
                self.assertEqual(file.get_slice(f"model.layers.{name}.weight").get_shape(), [rows, columns], name)
            # Projections, but no v of the last layer; feed-forward, norms and scalar of each.
            self.assertEqual(len(list(file.keys())), 2 + 2 * (4 + 3 + 7) - 1)

    def test_another_model_is_kept(self) -> None:
        main([str(self.folder / "a"), *SMALL])
        before = (self.folder / "a" / "model.safetensors").read_bytes()
        with self.assertRaisesRegex(UserError, "another model"):
            main([str(self.folder / "a"), *SMALL, "--seed", "2"])
        self.assertEqual((self.folder / "a" / "model.safetensors").read_bytes(), before)

    def test_shapes_that_cannot_be_are_named(self) -> None:
        for options, words in (
            (["--kv-heads", "3"], "--kv-heads 3"),
            (["--ffn", "0"], "--ffn is 0"),
            (["--experts", "2", "--experts-per-token", "3"], "--experts-per-token 3"),
            (["--kv-rank", "-1"], "--kv-rank is -1"),
            (["--kv-rank", "8", "--gpt-oss"], "--gpt-oss has no latents"),
            (["--gpt-oss"], "--gpt-oss needs --experts"),
            (["--gpt-oss", "--glm-4"], "--gpt-oss and --glm-4 are different families"),
            (["--mistral-4", "--experts", "2"], "--mistral-4 needs --kv-rank"),
            (["--shared-experts", "1"], "--shared-experts is for"),
            (["--dense-layers", "1"], "--dense-layers is for"),
            (["--shared-experts", "-1"], "--shared-experts is -1; it must be at least 0"),
            (["--full-head-dim", "16", "--experts", "2"], "--full-head-dim is for dense models"),
            (["--full-head-dim", "16", "--full-kv-heads", "3"], "--full-kv-heads 3"),
        ):
            with self.assertRaisesRegex(UserError, words):
                main([str(self.folder / "a"), *options])
