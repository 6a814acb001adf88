# SPDX-License-Identifier: Apache-2.0
"""make-bench-model FOLDER: a Llama, Qwen3-MoE, gpt-oss, GLM-4.5, DeepSeek-V3, Mistral 4, Llama 4 or Gemma 4
checkpoint of a given shape with random weights, for benchmarks alone.

Weights are bf16, the experts of gpt-oss MXFP4, and with --nvfp4 the layers' matrices NVFP4. The same options give the
same bytes. Nothing is done where the folder already holds that model. Needs Python alone: on a machine without this
project's packages `python3 -m pecia_tools.bench.model`, in scripts, does too.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import struct
from collections.abc import Iterator
from pathlib import Path

from ..command import UserError, note, run

PROGRAM = "make-bench-model"
CONTEXT = 1 << 20  # position limit of the configuration; no cost hangs on it
ONE = b"\x80\x3f"  # 1 in bf16
BLOCK = 32  # numbers of MXFP4 that share a scale
NVFP4_BLOCK = 16  # numbers of NVFP4 that share a scale
NVFP4_DIVISOR = 4096.0  # of all numbers of a matrix
FP4_SIZE = 2.93  # root of the mean square of its 16 numbers


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description=__doc__,
        epilog="example: scripts/make-bench-model models/bench --hidden 1024 --heads 16 --layers 8",
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--kv-heads", type=int, default=4)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--ffn", type=int, default=2048)
    parser.add_argument("--experts", type=int, default=0, help="of each layer; 0: a dense model")
    parser.add_argument("--experts-per-token", type=int, default=1)
    parser.add_argument("--gpt-oss", action="store_true", help="experts, in MXFP4, are those of gpt-oss")
    parser.add_argument("--nvfp4", action="store_true", help="matrices of layers, as compressed-tensors stores them")
    parser.add_argument("--llama-4", action="store_true", help="experts and attention in chunks, as in Llama 4")
    parser.add_argument("--glm-4", action="store_true", help="experts, a shared one and biases, as in GLM-4.5")
    parser.add_argument("--kv-rank", type=int, default=0, help="latents of a token, as in DeepSeek-V3; 0: none")
    parser.add_argument("--q-rank", type=int, default=0, help="with --kv-rank: latents of a query; 0: none")
    parser.add_argument("--rope-dim", type=int, default=64, help="with --kv-rank: rotated beside --head-dim")
    parser.add_argument("--value-dim", type=int, default=0, help="with --kv-rank: of a head; 0: as --head-dim")
    parser.add_argument("--mistral-4", action="store_true", help="with --kv-rank: experts as in Mistral 4")
    parser.add_argument(
        "--shared-experts",
        type=int,
        default=0,
        help="with --glm-4 or --kv-rank: for every token; 0: none",
    )
    parser.add_argument(
        "--dense-layers",
        type=int,
        default=0,
        help="with --glm-4 or --kv-rank: the first ones, without experts",
    )
    parser.add_argument("--dense-ffn", type=int, default=0, help="of --dense-layers; 0: as --ffn")
    parser.add_argument(
        "--full-head-dim",
        type=int,
        default=0,
        help="of each sixth layer, as in Gemma 4; others have windows; 0: none",
    )
    parser.add_argument("--full-kv-heads", type=int, default=1, help="with --full-head-dim: of the same layers")
    parser.add_argument("--window", type=int, default=1024, help="with --full-head-dim: of the other layers")
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--vocab", type=int, default=32768)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    for name, value in vars(options).items():
        least = 0 if parser.get_default(name) == 0 else 1
        if name != "seed" and type(value) is int and value < least:
            raise UserError(f"--{name.replace('_', '-')} is {value}; it must be at least {least}")
    if options.heads % options.kv_heads != 0:
        raise UserError(f"--kv-heads {options.kv_heads} does not divide --heads {options.heads}")
    if options.experts and options.experts_per_token > options.experts:
        raise UserError(f"--experts-per-token {options.experts_per_token} of --experts {options.experts}")
    families = [name for name in ("gpt_oss", "llama_4", "glm_4", "mistral_4") if getattr(options, name)]
    named = " and ".join(f"--{name.replace('_', '-')}" for name in families)
    if len(families) > 1:
        raise UserError(f"{named} are different families; name one")
    if options.kv_rank and families not in ([], ["mistral_4"]):
        raise UserError(f"{named} has no latents; leave out --kv-rank")
    if families and not options.experts:
        raise UserError(f"{named} needs --experts")
    if options.mistral_4 and not options.kv_rank:
        raise UserError("--mistral-4 needs --kv-rank")
    has_shared = options.glm_4 or (options.kv_rank and options.experts)
    if not has_shared and (options.shared_experts or options.dense_layers):
        raise UserError("--shared-experts and --dense-layers are for --glm-4, and for --kv-rank with --experts")
    options.value_dim = options.value_dim or options.head_dim
    options.dense_ffn = options.dense_ffn or options.ffn
    if options.full_head_dim and (options.kv_rank or options.experts):
        raise UserError("--full-head-dim is for dense models without latents")
    if options.heads % options.full_kv_heads != 0:
        raise UserError(f"--full-kv-heads {options.full_kv_heads} does not divide --heads {options.heads}")
    if options.gpt_oss and (options.hidden % BLOCK or options.ffn % BLOCK):
        raise UserError(f"--gpt-oss needs --hidden and --ffn of whole blocks of {BLOCK}")
    if options.nvfp4 and (families or options.kv_rank or options.full_head_dim):
        raise UserError("--nvfp4 is for models of Llama's and Qwen3-MoE's form")
    inputs = (options.hidden, options.ffn, options.heads * options.head_dim)
    if options.nvfp4 and any(size % NVFP4_BLOCK for size in inputs):
        raise UserError(f"--nvfp4 needs --hidden, --ffn and --heads · --head-dim of whole blocks of {NVFP4_BLOCK}")
    return options


def configuration(options: argparse.Namespace) -> dict[str, object]:
    dense = dense_configuration(options) | (nvfp4_configuration() if options.nvfp4 else {})
    if options.kv_rank:
        return dense | latent_configuration(options)
    if options.full_head_dim:
        return dense | own_heads_configuration(options)
    if not options.experts:
        return dense
    if options.gpt_oss:
        return dense | gpt_oss_configuration(options)
    if options.llama_4:
        return dense | llama_4_configuration(options)
    if options.glm_4:
        return dense | glm_4_configuration(options)
    return dense | {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "moe_intermediate_size": options.ffn,
        "num_experts": options.experts,
        "num_experts_per_tok": options.experts_per_token,
        "norm_topk_prob": True,
        "use_sliding_window": False,
    }


def nvfp4_configuration() -> dict[str, object]:
    weights = {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "tensor_group", "group_size": NVFP4_BLOCK}
    return {
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": "nvfp4-pack-quantized",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
            "ignore": ["lm_head"],
        }
    }


def shared_configuration(options: argparse.Namespace) -> dict[str, object]:
    """Of experts with shared ones, in layers behind dense ones."""
    return {
        "intermediate_size": options.dense_ffn,
        "moe_intermediate_size": options.ffn,
        "n_routed_experts": max(options.experts, 2),
        "num_experts_per_tok": options.experts_per_token,
        "n_shared_experts": options.shared_experts,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": options.dense_layers if options.experts else options.layers,
        "norm_topk_prob": True,
    }


def glm_4_configuration(options: argparse.Namespace) -> dict[str, object]:
    return {
        **shared_configuration(options),
        "architectures": ["Glm4MoeForCausalLM"],
        "model_type": "glm4_moe",
        "attention_bias": True,
        "partial_rotary_factor": 0.5,
        "routed_scaling_factor": 1.0,
        "use_qk_norm": False,
    }


def latent_configuration(options: argparse.Namespace) -> dict[str, object]:
    return {
        **shared_configuration(options),
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "num_key_value_heads": options.heads,
        "q_lora_rank": options.q_rank or None,
        "kv_lora_rank": options.kv_rank,
        "qk_nope_head_dim": options.head_dim,
        "qk_rope_head_dim": options.rope_dim,
        "v_head_dim": options.value_dim,
        **(mistral_4_configuration() if options.mistral_4 else {}),
    }


def mistral_4_configuration() -> dict[str, object]:
    return {
        "architectures": ["Mistral4ForCausalLM"],
        "model_type": "mistral4",
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 128.0,
            "original_max_position_embeddings": CONTEXT // 128,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "llama_4_scaling_beta": 0.1,
        },
    }


def llama_4_configuration(options: argparse.Namespace) -> dict[str, object]:
    return {
        "architectures": ["Llama4ForCausalLM"],
        "model_type": "llama4_text",
        "intermediate_size_mlp": options.ffn,
        "num_local_experts": options.experts,
        "num_experts_per_tok": options.experts_per_token,
        "attention_chunk_size": 8192,
    }


def own_heads_configuration(options: argparse.Namespace) -> dict[str, object]:
    return {
        "architectures": ["Gemma4ForCausalLM"],
        "model_type": "gemma4_text",
        "hidden_act": None,
        "hidden_activation": "gelu_pytorch_tanh",
        "rope_theta": None,
        "global_head_dim": options.full_head_dim,
        "num_global_key_value_heads": options.full_kv_heads,
        "attention_k_eq_v": True,
        "hidden_size_per_layer_input": 0,
        "sliding_window": options.window,
    }


def is_full(options: argparse.Namespace, layer: int) -> bool:
    """Whether the layer has heads of --full-head-dim."""
    return bool(options.full_head_dim) and (layer % 6 == 5 or layer == options.layers - 1)


def gpt_oss_configuration(options: argparse.Namespace) -> dict[str, object]:
    kinds = ["sliding_attention", "full_attention"]
    return {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "num_local_experts": options.experts,
        "num_experts_per_tok": options.experts_per_token,
        "attention_bias": True,
        "layer_types": [kinds[layer % 2] for layer in range(options.layers)],
        "sliding_window": 128,
        "swiglu_limit": 7.0,
        "rope_theta": 150000.0,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "original_max_position_embeddings": 4096,
            "truncate": False,
        },
        "quantization_config": {"quant_method": "mxfp4"},
    }


def dense_configuration(options: argparse.Namespace) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": options.vocab,
        "hidden_size": options.hidden,
        "intermediate_size": options.ffn,
        "num_hidden_layers": options.layers,
        "num_attention_heads": options.heads,
        "num_key_value_heads": options.kv_heads,
        "head_dim": options.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "bfloat16",
        "seed": options.seed,
    }


Shape = tuple[int, ...]


def tensors(options: argparse.Namespace) -> Iterator[tuple[str, Shape]]:
    """In the order of the file. See type_of for what their names say."""
    for name, shape in tensors_of_bf16(options):
        if not (options.nvfp4 and name.endswith("_proj.weight")):
            yield name, shape
            continue
        outputs, inputs = shape
        yield f"{name}_packed", (outputs, inputs // 2)
        yield f"{name}_scale", (outputs, inputs // NVFP4_BLOCK)
        yield f"{name}_global_scale", (1,)


def tensors_of_bf16(options: argparse.Namespace) -> Iterator[tuple[str, Shape]]:
    yield "model.embed_tokens.weight", (options.vocab, options.hidden)
    for layer in range(options.layers):
        prefix = f"model.layers.{layer}"
        full = is_full(options, layer)
        head_dim = options.full_head_dim if full else options.head_dim
        queries, keys = (
            options.heads * head_dim,
            (options.full_kv_heads if full else options.kv_heads) * head_dim,
        )
        if options.kv_rank:
            yield from latent_tensors(f"{prefix}.self_attn", options)
        else:
            yield f"{prefix}.self_attn.q_proj.weight", (queries, options.hidden)
            yield f"{prefix}.self_attn.k_proj.weight", (keys, options.hidden)
            if not full:
                yield f"{prefix}.self_attn.v_proj.weight", (keys, options.hidden)
        values = options.heads * options.value_dim if options.kv_rank else queries
        yield f"{prefix}.self_attn.o_proj.weight", (options.hidden, values)
        if options.gpt_oss:
            yield from gpt_oss_tensors(prefix, options)
            continue
        if options.llama_4:
            yield from llama_4_tensors(f"{prefix}.feed_forward", options)
            continue
        if not options.experts or layer < options.dense_layers:
            yield from gated_tensors(f"{prefix}.mlp", options.hidden, options.dense_ffn)
            continue
        yield f"{prefix}.mlp.gate.weight", (options.experts, options.hidden)
        if options.glm_4 or (options.kv_rank and not options.mistral_4):
            yield f"{prefix}.mlp.gate.e_score_correction_bias", (options.experts,)
        if options.mistral_4:
            experts = f"{prefix}.mlp.experts"
            yield f"{experts}.gate_up_proj", (options.experts, 2 * options.ffn, options.hidden)
            yield f"{experts}.down_proj", (options.experts, options.hidden, options.ffn)
        for expert in range(0 if options.mistral_4 else options.experts):
            yield from gated_tensors(f"{prefix}.mlp.experts.{expert}", options.hidden, options.ffn)
        if options.shared_experts:
            shared = options.shared_experts * options.ffn
            yield from gated_tensors(f"{prefix}.mlp.shared_experts", options.hidden, shared)
    yield "model.norm.weight", (options.hidden,)
    for layer in range(options.layers):
        prefix = f"model.layers.{layer}"
        yield f"{prefix}.input_layernorm.weight", (options.hidden,)
        yield f"{prefix}.post_attention_layernorm.weight", (options.hidden,)
        if options.full_head_dim:
            head_dim = options.full_head_dim if is_full(options, layer) else options.head_dim
            yield f"{prefix}.self_attn.q_norm.weight", (head_dim,)
            yield f"{prefix}.self_attn.k_norm.weight", (head_dim,)
            yield f"{prefix}.pre_feedforward_layernorm.weight", (options.hidden,)
            yield f"{prefix}.post_feedforward_layernorm.weight", (options.hidden,)
            yield f"{prefix}.layer_scalar", (1,)
        if options.kv_rank:
            yield f"{prefix}.self_attn.kv_a_layernorm.weight", (options.kv_rank,)
            if options.q_rank:
                yield f"{prefix}.self_attn.q_a_layernorm.weight", (options.q_rank,)
        elif options.glm_4:
            for name, heads in (
                ("q", options.heads),
                ("k", options.kv_heads),
                ("v", options.kv_heads),
            ):
                yield f"{prefix}.self_attn.{name}_proj.bias", (heads * options.head_dim,)
        elif options.experts and not (options.gpt_oss or options.llama_4):
            yield f"{prefix}.self_attn.q_norm.weight", (options.head_dim,)
            yield f"{prefix}.self_attn.k_norm.weight", (options.head_dim,)


def gated_tensors(prefix: str, hidden: int, ffn: int) -> Iterator[tuple[str, Shape]]:
    yield f"{prefix}.gate_proj.weight", (ffn, hidden)
    yield f"{prefix}.up_proj.weight", (ffn, hidden)
    yield f"{prefix}.down_proj.weight", (hidden, ffn)


def latent_tensors(prefix: str, options: argparse.Namespace) -> Iterator[tuple[str, Shape]]:
    queries = options.heads * (options.head_dim + options.rope_dim)
    if options.q_rank:
        yield f"{prefix}.q_a_proj.weight", (options.q_rank, options.hidden)
        yield f"{prefix}.q_b_proj.weight", (queries, options.q_rank)
    else:
        yield f"{prefix}.q_proj.weight", (queries, options.hidden)
    yield (
        f"{prefix}.kv_a_proj_with_mqa.weight",
        (options.kv_rank + options.rope_dim, options.hidden),
    )
    ups = options.heads * (options.head_dim + options.value_dim)
    yield f"{prefix}.kv_b_proj.weight", (ups, options.kv_rank)


def llama_4_tensors(prefix: str, options: argparse.Namespace) -> Iterator[tuple[str, Shape]]:
    experts, hidden, ffn = options.experts, options.hidden, options.ffn
    yield f"{prefix}.router.weight", (experts, hidden)
    yield f"{prefix}.experts.gate_up_proj", (experts, hidden, 2 * ffn)
    yield f"{prefix}.experts.down_proj", (experts, ffn, hidden)
    yield from gated_tensors(f"{prefix}.shared_expert", hidden, ffn)


def gpt_oss_tensors(prefix: str, options: argparse.Namespace) -> Iterator[tuple[str, Shape]]:
    experts, hidden, ffn = options.experts, options.hidden, options.ffn
    yield f"{prefix}.mlp.router.weight", (experts, hidden)
    for name, outputs, inputs in (("gate_up_proj", 2 * ffn, hidden), ("down_proj", hidden, ffn)):
        mlp = f"{prefix}.mlp.experts.{name}"
        yield f"{mlp}_blocks", (experts, outputs, inputs // BLOCK, BLOCK // 2)
        yield f"{mlp}_scales", (experts, outputs, inputs // BLOCK)
        yield f"{mlp}_bias", (experts, outputs)
    yield f"{prefix}.mlp.router.bias", (experts,)
    yield f"{prefix}.self_attn.sinks", (options.heads,)
    for name in ("q", "k", "v", "o"):
        heads = options.heads if name == "q" else options.kv_heads
        outputs = hidden if name == "o" else heads * options.head_dim
        yield f"{prefix}.self_attn.{name}_proj.bias", (outputs,)


class RandomNumbers:
    """Endless bf16 numbers ±2^e·(1 + m/128), m in 0 … 127: one run of random bytes, over and over. Its length is a
    prime, so that no two rows of a matrix begin alike."""

    LENGTH = 4_194_301

    def __init__(self, seed: int) -> None:
        self.bytes = random.Random(seed).randbytes(self.LENGTH)
        self.runs: dict[int, memoryview] = {}

    def run(self, exponent: int) -> memoryview:
        if exponent not in self.runs:
            biased = exponent + 127
            high = bytes((byte & 0x80) | biased >> 1 for byte in range(256))
            low = bytes((biased & 1) << 7 | (byte & 0x7F) for byte in range(256))
            run = bytearray(2 * self.LENGTH)
            run[0::2] = self.bytes.translate(low)
            run[1::2] = self.bytes.translate(high)
            self.runs[exponent] = memoryview(run)
        return self.runs[exponent]

    def codes(self, first: int, count: int) -> Iterator[memoryview]:
        """Random bytes first … first + count − 1, each of two codes of FP4."""
        run = memoryview(self.bytes)
        while count > 0:
            begin = first % self.LENGTH
            taken = min(count, self.LENGTH - begin)
            yield run[begin : begin + taken]
            first += taken
            count -= taken

    def pieces(self, exponent: int, first: int, count: int) -> Iterator[memoryview]:
        """Numbers first … first + count − 1."""
        run = self.run(exponent)
        while count > 0:
            begin = first % self.LENGTH
            taken = min(count, self.LENGTH - begin)
            yield run[2 * begin : 2 * (begin + taken)]
            first += taken
            count -= taken


def type_of(name: str) -> tuple[str, int]:
    """Its name and bytes: codes and scales of MXFP4 and NVFP4, and the divisors of the latter's matrices."""
    if name.endswith(("_blocks", "_scales", "_packed")):
        return "U8", 1
    if name.endswith("_global_scale"):
        return "F32", 4
    return ("F8_E4M3", 1) if name.endswith("_scale") else ("BF16", 2)


def contents(name: str, shape: Shape, first: int, numbers: RandomNumbers) -> Iterator[bytes | memoryview]:
    """The bytes of a tensor whose numbers are `first` and those after it."""
    count = math.prod(shape)
    if name.endswith(("_blocks", "_packed")):
        yield from numbers.codes(first, count)
    elif name.endswith("_scales"):
        yield bytes([127 + round(math.log2(1 / FP4_SIZE / math.sqrt(shape[2] * BLOCK)))]) * count
    elif name.endswith("_global_scale"):
        yield struct.pack("<f", NVFP4_DIVISOR)
    elif name.endswith("_scale"):
        yield bytes([7 + round(math.log2(NVFP4_DIVISOR / FP4_SIZE / math.sqrt(shape[1] * NVFP4_BLOCK))) << 3]) * count
    elif name.endswith(("bias", "sinks")):
        yield bytes(2 * count)
    elif len(shape) == 1:
        yield ONE * count
    else:
        # 1/sqrt(inputs) keeps activations of order 1 through any number of layers; √(7/3) is what 1 + m/128 has.
        inputs = shape[1] if ".feed_forward.experts." in name else shape[-1]
        exponent = round(math.log2(math.sqrt(3 / 7 / inputs)))
        yield from numbers.pieces(exponent, first, count)


def write(path: Path, options: argparse.Namespace) -> int:
    """The safetensors file; how many numbers it has."""
    found = dict(tensors(options))
    header: dict[str, object] = {}
    end = 0
    for name, shape in found.items():
        kind, size = type_of(name)
        begin, end = end, end + math.prod(shape) * size
        header[name] = {
            "dtype": kind,
            "shape": shape,
            "data_offsets": [begin, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    numbers = RandomNumbers(options.seed)
    total = first = 0
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in found.items():
            for piece in contents(name, shape, first, numbers):
                file.write(piece)
            if len(shape) > 1:
                first += math.prod(shape)
            if not name.endswith(("_scales", "_scale")):
                total += math.prod(shape) * (2 if name.endswith(("_blocks", "_packed")) else 1)
    return total


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    text = json.dumps(configuration(options), indent=2) + "\n"
    kept = options.folder / "config.json"
    if kept.is_file():
        if kept.read_text(encoding="utf-8") == text:
            return 0
        raise UserError(f"{options.folder} holds another model; name another folder or remove it")
    options.folder.mkdir(parents=True, exist_ok=True)
    count = write(options.folder / "model.safetensors", options)
    kept.write_text(text, encoding="utf-8")  # last: whoever finds it finds a whole model
    note(PROGRAM, f"{count / 1e6:.1f}M parameters → {options.folder}")
    return 0


if __name__ == "__main__":
    run(PROGRAM, main)
