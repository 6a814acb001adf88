# SPDX-License-Identifier: Apache-2.0
"""Small checkpoints whose matrices are stored as codes, in the forms that hubs have, and the numbers that these stand
for, in plain numpy. Each form is a function of a random generator and the shape [out, in] of a matrix. It gives the
tensors of the module, by the ends of their names, and the numbers in fp64."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Tensors = dict[str, np.ndarray]
Form = Callable[[np.random.Generator, int, int], tuple[Tensors, np.ndarray]]

EXPERTS, EXPERT_FFN = 4, 256
HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM, LAYERS, VOCAB = 256, 512, 8, 4, 32, 2, 96
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


@dataclass
class Fp8:
    """Codes of E4M3, which numpy lacks."""

    codes: np.ndarray

    def __getitem__(self, part: slice) -> Fp8:
        return Fp8(self.codes[part])

    def numbers(self) -> np.ndarray:
        codes = self.codes.astype(np.int64)
        exponent, fraction = codes >> 3 & 15, codes & 7
        magnitude = np.where(exponent == 0, fraction / 512, (8 + fraction) / 8 * 2.0 ** (exponent - 7))
        return np.where(codes & 128, -magnitude, magnitude)


def words(codes: np.ndarray, bits: int = 4) -> np.ndarray:
    """Codes along the last axis, eight of 4 bits or four of 8, become an int32, the first one in the lowest bits."""
    groups = codes.astype(np.uint32).reshape(*codes.shape[:-1], -1, 32 // bits)
    packed = np.zeros(groups.shape[:-1], np.uint32)
    for place in range(32 // bits):
        packed |= groups[..., place] << np.uint32(bits * place)
    return np.ascontiguousarray(packed).view(np.int32)


def in_groups(
    draw: np.random.Generator, out: int, inputs: int, group: int, bits: int = 4
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes [out, in], zeros and scales [out, groups] that make numbers of about 1/sqrt(in)."""
    groups, most = inputs // group, 2**bits
    codes = draw.integers(0, most, (out, inputs))
    zeros = draw.integers(1, most, (out, groups))
    scales = (draw.uniform(1.6, 4.8, (out, groups)) / most / np.sqrt(inputs)).astype(np.float16)
    return codes, zeros, scales


def numbers(codes: np.ndarray, zeros: np.ndarray, scales: np.ndarray, group_of: np.ndarray) -> np.ndarray:
    return (codes - zeros[:, group_of]) * scales.astype(np.float64)[:, group_of]


def gptq(group: int, shuffled: bool = False, less_one: bool = True, bits: int = 4) -> Form:
    def make(draw: np.random.Generator, out: int, inputs: int) -> tuple[Tensors, np.ndarray]:
        size = inputs if group == -1 else group
        codes, zeros, scales = in_groups(draw, out, inputs, size, bits)
        zeros[::7, 0] = 0  # less one, it is stored as the largest code
        group_of = np.arange(inputs) // size
        if shuffled:
            draw.shuffle(group_of)
        tensors = {
            "qweight": np.ascontiguousarray(words(codes, bits).T),
            "qzeros": words(zeros.T - (1 if less_one else 0) & (2**bits - 1), bits),
            "scales": np.ascontiguousarray(scales.T),
            "g_idx": group_of.astype(np.int32),
        }
        return tensors, numbers(codes, zeros, scales, group_of)

    return make


def awq(group: int) -> Form:
    def make(draw: np.random.Generator, out: int, inputs: int) -> tuple[Tensors, np.ndarray]:
        codes, zeros, scales = in_groups(draw, out, inputs, group)

        def in_order(values: np.ndarray) -> np.ndarray:
            return words(values.reshape(values.shape[0], -1, 8)[:, :, AWQ_ORDER].reshape(values.shape))

        tensors = {
            "qweight": in_order(codes.T),
            "qzeros": in_order(zeros.T),
            "scales": np.ascontiguousarray(scales.T),
        }
        return tensors, numbers(codes, zeros, scales, np.arange(inputs) // group)

    return make


def packed(group: int, symmetric: bool = True, bits: int = 4) -> Form:
    def make(draw: np.random.Generator, out: int, inputs: int) -> tuple[Tensors, np.ndarray]:
        size = inputs if group == -1 else group
        codes, zeros, scales = in_groups(draw, out, inputs, size, bits)
        if symmetric:
            zeros = np.full_like(zeros, 2 ** (bits - 1))
        tensors = {
            "weight_packed": words(codes, bits),
            "weight_scale": scales,
            "weight_shape": np.array([out, inputs], np.int64),
        }
        if not symmetric:
            tensors["weight_zero_point"] = np.ascontiguousarray(words(zeros.T, bits).T)
        return tensors, numbers(codes, zeros, scales, np.arange(inputs) // size)

    return make


def int8(of_tensor: bool = False) -> Form:
    def make(draw: np.random.Generator, out: int, inputs: int) -> tuple[Tensors, np.ndarray]:
        codes = draw.integers(-128, 128, (out, inputs)).astype(np.int8)
        scales = draw.uniform(0.005, 0.02, (1,) if of_tensor else (out, 1)) / np.sqrt(inputs)
        scales = scales.astype(np.float32)
        return {"weight": codes, "weight_scale": scales}, codes * scales.astype(np.float64)

    return make


def fp8_static(draw: np.random.Generator, out: int, inputs: int) -> tuple[Tensors, np.ndarray]:
    """One scale without dimensions for the matrix and one for its inputs, which is not taken."""
    tensors, values = fp8_inverse(draw, out, inputs)
    named = {"weight": "weight", "weight_scale_inv": "weight_scale", "activation_scale": "input_scale"}
    return {named[name]: tensor for name, tensor in tensors.items()}, values


def fp8_inverse(draw: np.random.Generator, out: int, inputs: int) -> tuple[Tensors, np.ndarray]:
    """The same under the names that transformers gives them, as in Ministral 3."""
    codes = draw.integers(0, 256, (out, inputs)).astype(np.uint8)
    codes[(codes & 127) > 0x70] = 0x38
    scale = np.float32(draw.uniform(0.01, 0.04) / np.sqrt(inputs))
    tensors: dict[str, Any] = {
        "weight": Fp8(codes),
        "weight_scale_inv": np.array(scale),
        "activation_scale": np.array(np.float32(0.5)),
    }
    return tensors, Fp8(codes).numbers() * np.float64(scale)


def fp8(block: int = 0, scale_name: str = "weight_scale") -> Form:
    def make(draw: np.random.Generator, out: int, inputs: int) -> tuple[Tensors, np.ndarray]:
        codes = draw.integers(0, 256, (out, inputs)).astype(np.uint8)
        codes[(codes & 127) > 0x70] = 0x38  # neither NaN nor so large that nothing else counts
        shape = (-(-out // block), -(-inputs // block)) if block else (out, 1)
        scales = (draw.uniform(0.01, 0.04, shape) / np.sqrt(inputs)).astype(np.float32)
        wide = scales.astype(np.float64)
        if block:
            wide = np.repeat(np.repeat(wide, block, 0)[:out], block, 1)[:, :inputs]
        tensors: dict[str, Any] = {"weight": Fp8(codes), scale_name: scales}
        return tensors, Fp8(codes).numbers() * wide

    return make


FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def nvfp4(by_modelopt: bool) -> Form:
    """FP4 codes, a scale of E4M3 for each 16 of a row, a scale of the matrix."""

    def make(draw: np.random.Generator, out: int, inputs: int) -> tuple[Tensors, np.ndarray]:
        codes = draw.integers(0, 16, (out, inputs)).astype(np.uint8)
        scales = draw.integers(0x28, 0x60, (out, inputs // 16)).astype(np.uint8)
        scales[0, 0], scales[-1, -1] = 0, 3  # zero, and a subnormal
        packed = codes[:, ::2] | codes[:, 1::2] << 4
        largest = np.float32(draw.uniform(0.002, 0.004) / np.sqrt(inputs))
        tensors: dict[str, Any] = {"weight_scale": Fp8(scales), "input_scale": np.array(np.float32(0.25))}
        if by_modelopt:
            tensors |= {"weight": packed, "weight_scale_2": np.array(largest)}
            factor = np.float64(largest)
        else:
            inverse = np.array([1 / largest], np.float32)
            tensors |= {"weight_packed": packed, "weight_global_scale": inverse}
            factor = 1 / np.float64(inverse[0])
        return tensors, FP4[codes] * np.repeat(Fp8(scales).numbers(), 16, axis=1) * factor

    return make


NAMES = {"uint8": "U8", "float16": "F16", "float32": "F32", "int8": "I8", "int32": "I32", "int64": "I64"}


def write_safetensors(path: Path, tensors: dict[str, Any]) -> None:
    header, data = {}, b""
    for name, values in sorted(tensors.items()):
        stored = values.codes if isinstance(values, Fp8) else values
        kind = "F8_E4M3" if isinstance(values, Fp8) else NAMES[str(values.dtype)]
        raw = np.ascontiguousarray(stored).tobytes()
        header[name] = {"dtype": kind, "shape": list(stored.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def compressed(fmt: str, weights: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "quant_method": "compressed-tensors",
        "format": fmt,
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}},
        "ignore": ["lm_head"],
        **more,
    }


def modules_of(mixture: bool, layer: int) -> list[tuple[str, int, int]]:
    """The matrices of a layer that are stored as codes: name, outputs and inputs."""
    heads = [
        ("self_attn.q_proj", HEADS * HEAD_DIM, HIDDEN),
        ("self_attn.k_proj", KV_HEADS * HEAD_DIM, HIDDEN),
        ("self_attn.v_proj", KV_HEADS * HEAD_DIM, HIDDEN),
        ("self_attn.o_proj", HIDDEN, HEADS * HEAD_DIM),
    ]

    def gated(block: str, ffn: int) -> list[tuple[str, int, int]]:
        inner = [(f"{block}.{matrix}_proj", ffn, HIDDEN) for matrix in ("gate", "up")]
        return [*inner, (f"{block}.down_proj", HIDDEN, ffn)]

    if not mixture or layer == 0:
        return heads + gated("mlp", FFN)
    blocks = [f"mlp.experts.{expert}" for expert in range(EXPERTS)] + ["mlp.shared_experts"]
    return heads + [module for block in blocks for module in gated(block, EXPERT_FFN)]


def write_model(
    folder: Path,
    form: Form,
    quantization: dict[str, Any],
    left_out: str = "",
    seed: int = 5,
    mixture: bool = False,
) -> dict[str, np.ndarray]:
    """Writes a Llama, or a mixture with a shared expert, whose layers' matrices are in a form, but for modules whose
    name ends with `left_out`. Returns what they all stand for."""
    draw = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    tensors: dict[str, Any] = {}
    plain: dict[str, np.ndarray] = {}

    def add(name: str, values: np.ndarray, dtype: type = np.float16) -> None:
        tensors[name] = values.astype(dtype)
        plain[name] = tensors[name].astype(np.float64)

    add("model.embed_tokens.weight", draw.normal(0, 1, (VOCAB, HIDDEN)))
    add("lm_head.weight", draw.normal(0, 0.2, (VOCAB, HIDDEN)))
    add("model.norm.weight", draw.uniform(0.5, 1.5, HIDDEN))
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            add(f"{prefix}{norm}.weight", draw.uniform(0.5, 1.5, HIDDEN))
        if mixture and layer > 0:
            add(f"{prefix}mlp.gate.weight", draw.normal(0, 1, (EXPERTS, HIDDEN)) / np.sqrt(HIDDEN))
            add(f"{prefix}mlp.gate.e_score_correction_bias", draw.normal(0, 0.3, EXPERTS), np.float32)
        for module, out, inputs in modules_of(mixture, layer):
            if left_out and module.endswith(left_out):
                add(f"{prefix}{module}.weight", draw.normal(0, 1, (out, inputs)) / np.sqrt(inputs))
                continue
            made, values = form(draw, out, inputs)
            if "g_idx" in made:  # AutoGPTQ writes biases that the family does not have
                made["bias"] = np.zeros(out, np.float16)
            tensors.update({f"{prefix}{module}.{end}": tensor for end, tensor in made.items()})
            plain[f"{prefix}{module}.weight"] = values
    write_safetensors(folder / "model.safetensors", tensors)
    write_config(folder, "float16", quantization, mixture)
    return plain


HYBRID_LAYERS = "M*E-"
LATENT = 128
MAMBA = {"mamba_num_heads": 8, "mamba_head_dim": 32, "n_groups": 2, "ssm_state_size": 16, "conv_kernel": 4}
HYBRID_CONFIG: dict[str, Any] = {
    "architectures": ["NemotronHForCausalLM"],
    "model_type": "nemotron_h",
    "hidden_size": HIDDEN,
    "intermediate_size": FFN,
    "hybrid_override_pattern": HYBRID_LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "layer_norm_epsilon": 1e-5,
    "mlp_hidden_act": "relu2",
    "tie_word_embeddings": False,
    "torch_dtype": "float32",  # of what is widened
    "n_routed_experts": EXPERTS,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": EXPERT_FFN,
    "moe_shared_expert_intermediate_size": EXPERT_FFN,
    "moe_latent_size": LATENT,
    **MAMBA,
}


def write_hybrid(folder: Path, plain_folder: Path, form: Form, quantization: dict[str, Any]) -> None:
    """A model with a layer of Mamba-2, one of attention, experts that work on latents, and a feed-forward, all in a
    form; and the same model as numbers."""
    draw = np.random.default_rng(7)
    tensors: dict[str, Any] = {}
    plain: dict[str, np.ndarray] = {}

    def add(name: str, values: np.ndarray, dtype: type = np.float16) -> None:
        tensors[name] = values.astype(dtype)
        plain[name] = tensors[name].astype(np.float32)

    def add_codes(module: str, out: int, inputs: int) -> None:
        made, values = form(draw, out, inputs)
        tensors.update({f"{module}.{end}": tensor for end, tensor in made.items()})
        plain[f"{module}.weight"] = values.astype(np.float32)

    add("backbone.embeddings.weight", draw.normal(0, 1, (VOCAB, HIDDEN)))
    add("lm_head.weight", draw.normal(0, 0.2, (VOCAB, HIDDEN)))
    add("backbone.norm_f.weight", draw.uniform(0.5, 1.5, HIDDEN))
    heads = MAMBA["mamba_num_heads"]
    inner, of_groups = heads * MAMBA["mamba_head_dim"], MAMBA["n_groups"] * MAMBA["ssm_state_size"]
    for layer, kind in enumerate(HYBRID_LAYERS):
        prefix = f"backbone.layers.{layer}."
        add(f"{prefix}norm.weight", draw.uniform(0.5, 1.5, HIDDEN))
        mixer = f"{prefix}mixer."
        if kind == "M":
            channels = inner + 2 * of_groups
            add_codes(f"{mixer}in_proj", inner + channels + heads, HIDDEN)
            add_codes(f"{mixer}out_proj", HIDDEN, inner)
            add(f"{mixer}conv1d.weight", draw.normal(0, 0.6, (channels, 1, MAMBA["conv_kernel"])))
            add(f"{mixer}conv1d.bias", draw.normal(0, 0.3, channels))
            add(f"{mixer}norm.weight", draw.uniform(0.5, 1.5, inner))
            for vector in ("A_log", "D", "dt_bias"):
                add(mixer + vector, draw.normal(-1, 0.5, heads), np.float32)
        elif kind == "*":
            add_codes(f"{mixer}q_proj", HEADS * HEAD_DIM, HIDDEN)
            add_codes(f"{mixer}k_proj", KV_HEADS * HEAD_DIM, HIDDEN)
            add_codes(f"{mixer}v_proj", KV_HEADS * HEAD_DIM, HIDDEN)
            add_codes(f"{mixer}o_proj", HIDDEN, HEADS * HEAD_DIM)
        elif kind == "E":
            add(f"{mixer}gate.weight", draw.normal(0, 1, (EXPERTS, HIDDEN)) / np.sqrt(HIDDEN))
            add(f"{mixer}gate.e_score_correction_bias", draw.normal(0, 0.3, EXPERTS), np.float32)
            add_codes(f"{mixer}fc1_latent_proj", LATENT, HIDDEN)
            add_codes(f"{mixer}fc2_latent_proj", HIDDEN, LATENT)
            for expert in range(EXPERTS):
                add_codes(f"{mixer}experts.{expert}.up_proj", EXPERT_FFN, LATENT)
                add_codes(f"{mixer}experts.{expert}.down_proj", LATENT, EXPERT_FFN)
            add_codes(f"{mixer}shared_experts.up_proj", EXPERT_FFN, HIDDEN)
            add_codes(f"{mixer}shared_experts.down_proj", HIDDEN, EXPERT_FFN)
        else:
            add_codes(f"{mixer}up_proj", FFN, HIDDEN)
            add_codes(f"{mixer}down_proj", HIDDEN, FFN)
    for where, stored, config in (
        (folder, tensors, {**HYBRID_CONFIG, "quantization_config": quantization}),
        (plain_folder, plain, HYBRID_CONFIG),
    ):
        where.mkdir(parents=True)
        write_safetensors(where / "model.safetensors", stored)
        (where / "config.json").write_text(json.dumps(config))


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Tensors of fp32 and bf16, as fp32."""
    raw = path.read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    tensors = {}
    for name, entry in json.loads(raw[8:end]).items():
        if name == "__metadata__":
            continue
        first, last = entry["data_offsets"]
        content = raw[end + first : end + last]
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(content, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(content, {"F32": np.float32}[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"])
    return tensors


# What quantisers leave out: routers, and what makes decays and gates of whole rows where these are by themselves.
LEFT_OUT = (".mlp.gate", ".mixer.gate", ".router.layer", "in_proj_ba", "in_proj_a", "in_proj_b", "shared_expert_gate")


def write_family(
    golden: Path, folder: Path, plain_folder: Path, form: Form, unit: int, quantization: dict[str, Any]
) -> int:
    """A golden checkpoint with other numbers: all matrices of its layers that quantisers take are in a form, for which
    `unit` divides the inputs; and the same model as numbers. Returns how many matrices are codes."""
    draw = np.random.default_rng(11)
    tensors: dict[str, Any] = {}
    plain: dict[str, np.ndarray] = {}
    count = 0
    for name, values in sorted(read_safetensors(golden / "model.safetensors").items()):
        module = name.removesuffix(".weight")
        takes = ".layers." in name and name.endswith(".weight") and values.ndim == 2
        # Zeros of eight rows share a word.
        fits = takes and values.shape[0] % 8 == 0 and values.shape[1] % unit == 0
        if not fits or module.endswith(LEFT_OUT):
            tensors[name] = plain[name] = values
            continue
        made, numbers_of = form(draw, *values.shape)
        tensors.update({f"{module}.{end}": tensor for end, tensor in made.items()})
        plain[name] = numbers_of.astype(np.float32)
        count += 1
    config = json.loads((golden / "config.json").read_text())
    for where, stored, more in ((folder, tensors, {"quantization_config": quantization}), (plain_folder, plain, {})):
        where.mkdir(parents=True)
        write_safetensors(where / "model.safetensors", stored)
        types = {"torch_dtype": "float32", "dtype": "float32"}
        (where / "config.json").write_text(json.dumps({**config, **types, **more}))
    return count


def write_config(folder: Path, dtype: str, quantization: dict[str, Any] | None, mixture: bool = False) -> None:
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": FFN,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "num_hidden_layers": LAYERS,
        "vocab_size": VOCAB,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "torch_dtype": dtype,
    }
    if mixture:
        config |= {
            "architectures": ["Glm4MoeForCausalLM"],
            "model_type": "glm4_moe",
            "moe_intermediate_size": EXPERT_FFN,
            "n_routed_experts": EXPERTS,
            "num_experts_per_tok": 2,
        }
    if quantization is not None:
        config["quantization_config"] = quantization
    (folder / "config.json").write_text(json.dumps(config))


def write_plain(
    folder: Path, plain: dict[str, np.ndarray], rounded: type = np.float32, mixture: bool = False
) -> None:
    """The same model as numbers of fp32, which may have been rounded to a narrower type first."""
    folder.mkdir(parents=True)
    values = {name: numbers.astype(rounded).astype(np.float32) for name, numbers in plain.items()}
    write_safetensors(folder / "model.safetensors", values)
    write_config(folder, "float32", None, mixture)
