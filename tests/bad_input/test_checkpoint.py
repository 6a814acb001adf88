# SPDX-License-Identifier: Apache-2.0
"""Broken checkpoints: safetensors, their index, config.json, generation_config.json."""

from __future__ import annotations

import json
import struct
import unittest
from typing import Any, Optional

import checkpoints
from support import BadInputTest

NORM = "model.norm.weight"
GATE = "model.layers.1.mlp.gate_proj.weight"
AGAIN = "download or save the checkpoint again"


class Safetensors(BadInputTest):
    def setUp(self) -> None:
        super().setUp()
        self.file = self.model / "model.safetensors"

    def refused_tensors(self, *parts: str, ranks: int = 1) -> None:
        ended = self.assert_refused(*parts, ranks=ranks)
        self.assertIn("model.safetensors", ended.err)

    def test_truncated(self) -> None:
        content = self.file.read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        for size, part in {
            0: "has 0 bytes",
            7: "has 7 bytes",
            8: "cut off",
            8 + length // 2: "cut off",
            8 + length: "cut off",
            len(content) // 2: "cut off",
            len(content) - 1: "cut off",
        }.items():
            with self.subTest(size=size):
                self.file.write_bytes(content[:size])
                self.refused_tensors(part, AGAIN)

    def test_truncated_under_mpirun_is_said_once(self) -> None:
        self.file.write_bytes(self.file.read_bytes()[:-100])
        self.refused_tensors("cut off", AGAIN, ranks=2)

    def test_longer_than_its_tensors(self) -> None:
        self.file.write_bytes(self.file.read_bytes() + b"\0\0\0")
        self.refused_tensors("the last 3 bytes", AGAIN)

    def test_lying_header_length(self) -> None:
        content = self.file.read_bytes()
        for length in (0, 1, len(content) - 8, len(content), 99_999_999, 2**31, 2**63, 2**64 - 1):
            with self.subTest(length=length):
                self.file.write_bytes(struct.pack("<Q", length) + content[8:])
                self.refused_tensors("model.safetensors", AGAIN)

    def test_header_that_is_not_json(self) -> None:
        header, data = checkpoints.read(self.file)
        text = json.dumps(header).encode()
        for broken in (
            b"x" * len(text),
            text[:-1],
            text.replace(b'"F32"', b'"F\xff2"').replace(b'"BF16"', b'"B\xff16"'),
            b"[]",
            b"null",
            text[:-1] + b', "' + NORM.encode() + b'": {}}',
            b"[" * 5_000_000,
            b'{"a":' * 1_000_000,
            b'{"' + b"a" * 5_000_000,
        ):
            with self.subTest(broken=broken[:20]):
                checkpoints.write(self.file, broken, data)
                self.refused_tensors("model.safetensors", AGAIN)

    def test_offsets(self) -> None:
        header, data = checkpoints.read(self.file)
        begin, end = header[NORM]["data_offsets"]
        for offsets, part in (
            ([begin + 2, end + 2], "belong to no tensor|overlaps|not within"),
            ([0, end - begin], "overlaps"),
            ([len(data), len(data) + end - begin], "not within"),
            ([begin, end - 2], "data_offsets give"),
            ([end, begin], "not within"),
            ([-1, end], "is no size"),
            ([begin], "is no pair"),
            ("here", "is no pair"),
            ([float(begin), end], "is no size"),
            ([2**63, 2**63 + 64], "is no size"),
            ([2**64, 2**64], "is no size"),
        ):
            with self.subTest(offsets=offsets):
                header[NORM]["data_offsets"] = offsets
                checkpoints.write(self.file, header, data)
                ended = self.assert_refused("tensor '", AGAIN)
                self.assertRegex(ended.err, part)

    def test_shapes(self) -> None:
        header, data = checkpoints.read(self.file)
        for shape, part in (
            ([33], "data_offsets give"),
            ([2**32, 2**32], "more than 2^63 bytes"),
            ([2**63], "is no size"),
            ([-32], "is no size"),
            ([32, "x"], "is no size"),
            (32, "shape is no array"),
            ([1] * 100_000, "data_offsets give"),
            ([[]] * 100_000, "is no size"),
        ):
            with self.subTest(shape=str(shape)[:30]):
                header[NORM]["shape"] = shape
                checkpoints.write(self.file, header, data)
                self.refused_tensors(f"tensor '{NORM}'", part, AGAIN)

    def test_entries(self) -> None:
        for key in ("dtype", "shape", "data_offsets"):
            with self.subTest(key=key):
                header, data = checkpoints.read(self.file)
                kept = header[NORM].pop(key)
                checkpoints.write(self.file, header, data)
                self.refused_tensors(f"tensor '{NORM}' has no '{key}'", AGAIN)
                header[NORM][key] = kept
                checkpoints.write(self.file, header, data)
        checkpoints.change_header(self.file, lambda header: header.update(extra=5))
        self.refused_tensors("tensor 'extra' is no JSON object", AGAIN)

    def test_dtypes(self) -> None:
        for dtype in ("F8_E5M2", "F64", "BOOL", "Q4_K", "", "f32"):
            with self.subTest(dtype=dtype):
                checkpoints.change_header(self.file, lambda h, d=dtype: h[NORM].update(dtype=d))
                self.refused_tensors(f"tensor '{NORM}' has dtype {dtype}", "F32, BF16, F16")

    def test_integer_weights(self) -> None:
        data = bytes(32)
        checkpoints.without(self.file, NORM)
        checkpoints.with_tensor(self.file, NORM, "U8", [32], data)
        self.refused_tensors(f"tensor '{NORM}' is of type uint8", "weights must be fp32, bf16 or fp16")

    def test_missing_tensor(self) -> None:
        for tensor in (NORM, GATE, "lm_head.weight", "model.embed_tokens.weight"):
            with self.subTest(tensor=tensor):
                content = self.file.read_bytes()
                checkpoints.without(self.file, tensor)
                self.assert_refused(f"tensor '{tensor}' is missing", "config.json", "Download")
                self.file.write_bytes(content)

    def test_extra_tensor(self) -> None:
        checkpoints.with_tensor(self.file, "model.layers.2.mlp.up_proj.weight", "F32", [1], bytes(4))
        self.refused_tensors("tensor 'model.layers.2.mlp.up_proj.weight'", "and is the only one left over", "Check")

    def test_extra_tensor_with_a_long_name_is_cut_short(self) -> None:
        checkpoints.with_tensor(self.file, "x\x1b[31m" * 100_000, "F32", [1], bytes(4))
        ended = self.assert_refused("tensor 'x")
        self.assertNotIn("\x1b", ended.err)

    def test_misshaped_tensor(self) -> None:
        checkpoints.change_header(self.file, lambda h: h[GATE].update(shape=h[GATE]["shape"][::-1]))
        self.refused_tensors(f"tensor '{GATE}' has shape [32, 48], but config.json asks for [48, 32]",
                             "different models")  # fmt: skip
        checkpoints.change_header(self.file, lambda h: h[GATE].update(shape=[1, 1, 1, 32, 48]))
        self.refused_tensors(f"tensor '{GATE}' has 5 dimensions", "at most 4")

    def test_not_finite(self) -> None:
        for value, bits in {"nan": b"\xc0\x7f", "inf": b"\x80\x7f", "-inf": b"\x80\xff"}.items():
            for ranks in (1, 2):
                with self.subTest(value=value, ranks=ranks):
                    content = self.file.read_bytes()
                    checkpoints.change_data(self.file, GATE, 1535, bits)
                    self.refused_tensors(f"tensor '{GATE}' holds {value} at element 1535", "download it again",
                                         ranks=ranks)  # fmt: skip
                    self.file.write_bytes(content)

    def test_too_large_for_the_dtype_asked_for(self) -> None:
        checkpoints.change_data(self.file, GATE, 7, b"\x00\x7f")  # 1.7e38
        self.assert_refused(f"tensor '{GATE}' holds 1.", "which fp16 cannot hold", "model.dtype",
                            arguments=self.set("model.dtype=fp16"))  # fmt: skip

    def test_no_weights(self) -> None:
        self.file.unlink()
        self.assert_refused("holds neither model.safetensors nor model.safetensors.index.json", "convert")
        (self.model / "pytorch_model.bin").write_bytes(b"x")
        self.assert_refused("only safetensors checkpoints are read", "convert")
        self.file.mkdir()
        self.assert_refused("model.safetensors: no regular file, but a folder")
        self.file.rmdir()
        self.file.symlink_to("model.safetensors")
        self.assert_refused("holds neither model.safetensors nor")


class Index(BadInputTest):
    checkpoint = "llama-fp16-3shards"
    SECOND = "model-00002-of-00003.safetensors"

    def setUp(self) -> None:
        super().setUp()
        self.file = self.model / "model.safetensors.index.json"
        self.index = json.loads(self.file.read_text())
        self.of_second = next(t for t, s in self.index["weight_map"].items() if s == self.SECOND)

    def refused_index(self, *parts: str, text: Optional[str] = None, ranks: int = 1) -> None:
        self.file.write_text(json.dumps(self.index) if text is None else text)
        self.assert_refused(*parts, ranks=ranks)

    def test_missing_shard(self) -> None:
        (self.model / self.SECOND).unlink()
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                self.refused_index(f"said to be in {self.SECOND}, which is missing", "index.json", "download it",
                                   ranks=ranks)  # fmt: skip

    def test_tensor_that_is_not_in_its_shard(self) -> None:
        self.index["weight_map"][self.of_second] = "model-00001-of-00003.safetensors"
        self.refused_index(f"tensor '{self.of_second}' is said to be in model-00001", "does not hold it")

    def test_tensor_that_is_nowhere(self) -> None:
        self.index["weight_map"]["ghost"] = self.SECOND
        self.refused_index("tensor 'ghost' is said to be in", "does not hold it", "different checkpoints")

    def test_tensor_in_two_shards(self) -> None:
        checkpoints.with_tensor(self.model / self.SECOND, "model.norm.weight", "F32", [1], bytes(4))
        self.refused_index("tensor 'model.norm.weight' is in", self.SECOND)

    def test_names_that_lead_elsewhere(self) -> None:
        for name in ("../a.safetensors", "/etc/passwd", "", "a/b", "..", 5, None, ["a"]):
            with self.subTest(name=name):
                self.index["weight_map"][self.of_second] = name
                self.refused_index(f"tensor '{self.of_second}' is said to be in", "index.json")

    def test_damaged(self) -> None:
        for text in ("", "{", "[]", "{}", '{"weight_map": []}', "[" * 100_000, '{"weight_map": {"a": "b", "a": "c"}}'):
            with self.subTest(text=text[:30]):
                self.refused_index("model.safetensors.index.json", "again", text=text)

    def test_empty(self) -> None:
        self.refused_index("model.embed_tokens.weight", "missing", text='{"weight_map": {}}')

    def test_shard_that_is_a_folder(self) -> None:
        (self.model / self.SECOND).unlink()
        (self.model / self.SECOND).mkdir()
        self.refused_index(self.SECOND, "folder")


class Config(BadInputTest):
    def setUp(self) -> None:
        super().setUp()
        self.config = json.loads((self.model / "config.json").read_text())

    def refused_config(self, *parts: str, ranks: int = 1, **changes: Any) -> None:
        (self.model / "config.json").write_text(json.dumps({**self.config, **changes}))
        ended = self.assert_refused(*parts, ranks=ranks)
        self.assertIn("config.json", ended.err)

    def refused_text(self, text: bytes, *parts: str, name: str = "config.json") -> None:
        (self.model / name).write_bytes(text)
        self.assert_refused(f"model/{name}", *parts)

    def test_contradictions(self) -> None:
        self.refused_config("num_attention_heads is 4, which num_key_value_heads = 3", "correct",
                            num_key_value_heads=3)  # fmt: skip
        self.refused_config("num_attention_heads is 4, which num_key_value_heads = 8", "correct",
                            num_key_value_heads=8)  # fmt: skip
        self.refused_config("hidden_size is 32, which num_attention_heads = 5", "correct", num_attention_heads=5,
                            num_key_value_heads=1)  # fmt: skip
        self.refused_config("heads have 7 dimensions", "even number", "correct head_dim", head_dim=7)
        self.refused_config("has shape [96, 32], but config.json asks for [97, 32]", "different models",
                            vocab_size=97)  # fmt: skip
        self.refused_config("tensor 'model.layers.2.input_layernorm.weight' is missing", "[32]",
                            num_hidden_layers=3)  # fmt: skip
        self.refused_config("left over", "1 layers", num_hidden_layers=1)
        self.refused_config("tensors 'model.embed_tokens.weight' and 'lm_head.weight' differ",
                            "tie_word_embeddings to false", tie_word_embeddings=True)  # fmt: skip
        self.refused_config("'model.layers.0.self_attn.q_proj.bias' is missing", attention_bias=True)

    def test_values(self) -> None:
        for key in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                    "num_key_value_heads", "head_dim", "max_position_embeddings"):  # fmt: skip
            for value in (0, -1, 2**63, 2**64, 1.5, "32", [32], True):
                with self.subTest(key=key, value=value):
                    self.refused_config(f"{key} is ", "must be an integer of", "correct it", **{key: value})
        for key in ("rms_norm_eps", "rope_theta"):
            for value in (-1, "1e-5", [], True):
                with self.subTest(key=key, value=value):
                    self.refused_config(f"{key} is ", "must be a number of", "correct it", **{key: value})
        for value in (-1, 96, 1.5, "2", [2, 96], {}):
            with self.subTest(value=value):
                (self.model / "generation_config.json").unlink(missing_ok=True)
                self.refused_config("eos_token_id is ", "0 … 95", "correct it", eos_token_id=value)
        self.refused_config("tie_word_embeddings is 1", "true or false", tie_word_embeddings=1)

    def test_missing_keys(self) -> None:
        for key in ("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                    "num_attention_heads", "max_position_embeddings"):  # fmt: skip
            for absent in (None, ...):
                with self.subTest(key=key, absent=absent):
                    changed = {k: v for k, v in self.config.items() if k != key}
                    if absent is None:
                        changed[key] = None
                    (self.model / "config.json").write_text(json.dumps(changed))
                    self.assert_refused(f"config.json: {key} is missing", "complete the file")

    def test_unsupported(self) -> None:
        longrope = {"rope_type": "longrope", "factor": 4.0, "long_factor": [1.0], "short_factor": [1.0]}
        for key, value in {
            "quantization_config.quant_method": {"quant_method": "hqq"},
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
            "hidden_act": "gelu",
            "num_local_experts": 8,
            "kv_lora_rank": 512,
            "sliding_window": 64,
            "partial_rotary_factor": 0.5,
            "layer_types": ["full_attention", "linear_attention"],
        }.items():
            with self.subTest(key=key):
                self.refused_config(f"config.json: {key} is ", **{key.split(".")[0]: value})
        ntk = {"rope_type": "ntk", "factor": 4.0}
        self.refused_config('rope_scaling.rope_type is "ntk"', "not implemented", "yarn", rope_scaling=ntk)
        self.refused_config("rope_scaling.short_factor is [1.0]", "with 1 entries", rope_scaling=longrope)
        self.refused_config("rope_scaling.factor is missing", rope_scaling={"rope_type": "yarn"})
        self.refused_config("rope_scaling.beta is 3", "remove it if it is a leftover",
                            rope_scaling={"rope_type": "yarn", "factor": 2.0, "beta": 3})  # fmt: skip

    def test_unknown_architecture(self) -> None:
        self.refused_config('model_type is "mamba"', "known are llama, mistral", model_type="mamba")
        self.refused_config("architectures is ", "known as LlamaForCausalLM", architectures=["LlamaForTokens"])
        self.refused_config('model_type is "mamba"', "known are llama", model_type="mamba", ranks=2)

    def test_long_values_are_cut_short(self) -> None:
        self.refused_config('model_type is "aaaa', "…", model_type="a" * 100_000)

    def test_damaged(self) -> None:
        for name in ("config.json", "generation_config.json"):
            whole = (self.model / name).read_bytes()
            for text in (b"", b"{", whole[: len(whole) // 2], b"[]", b"\xff\xfe{}", b"null",
                         b'{"model_type": ' + b"[" * 1_000_000,
                         b'{"model_type": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
                         b'{"a": 1, "a": 2}', b'{"a": "' + b"x" * 20_000_000 + b'"}'):  # fmt: skip
                with self.subTest(name=name, text=text[:20]):
                    self.refused_text(text, "again", name=name)
            (self.model / name).unlink()
            (self.model / name).mkdir()
            with self.subTest(name=name, text="folder"):
                self.assert_refused(f"model/{name}", "folder")
            (self.model / name).rmdir()
            (self.model / name).write_bytes(whole)

    def test_missing(self) -> None:
        (self.model / "config.json").unlink()
        self.assert_refused("model/config.json", "Hugging Face folder")

    def test_generation_config(self) -> None:
        for value in (-1, 96, "2", [1, 96]):
            with self.subTest(value=value):
                (self.model / "generation_config.json").write_text(json.dumps({"eos_token_id": value}))
                self.assert_refused("generation_config.json: eos_token_id is ", "0 … 95", "correct it")

    def test_tokenizer_that_is_a_folder(self) -> None:
        (self.model / "tokenizer.json").mkdir()
        self.assert_refused("model/tokenizer.json", "folder")


if __name__ == "__main__":
    unittest.main()
