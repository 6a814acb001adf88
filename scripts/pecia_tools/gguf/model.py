# SPDX-License-Identifier: Apache-2.0
"""What a GGUF file says about a Llama model, as transformers' config.json says it."""

from __future__ import annotations

from typing import Any

from gguf import GGUFReader

from ..command import UserError

ARCHITECTURE = "llama"
# Each changes the model's results, and none is carried over.
UNSUPPORTED_KEYS = (
    "expert_count",
    "attention.sliding_window",
    "attention.clamp_kqv",
    "logit_scale",
    "embedding_scale",
    "residual_scale",
    "attention.scale",
    "rope.scaling.attn_factor",
    "rope.scaling.yarn_log_multiplier",
)
TORCH_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


class GgufModel:
    def __init__(self, reader: GGUFReader, where: str) -> None:
        self.tensors = reader.tensors
        self.where = where
        self._reader = reader
        architecture = self.get("general.architecture")
        if architecture != ARCHITECTURE:
            raise self.unsupported(
                f"general.architecture is '{architecture}'; only '{ARCHITECTURE}' can be imported"
            )
        for key in UNSUPPORTED_KEYS:
            value = self.get(f"{ARCHITECTURE}.{key}")
            if value:
                raise self.unsupported(f"{ARCHITECTURE}.{key} is {value}")
        self.num_heads: int = self.need(f"{ARCHITECTURE}.attention.head_count")
        self.num_kv_heads: int = self.get(f"{ARCHITECTURE}.attention.head_count_kv", self.num_heads)
        self.num_layers: int = self.need(f"{ARCHITECTURE}.block_count")
        self.hidden: int = self.need(f"{ARCHITECTURE}.embedding_length")
        for key, value in (("head_count", self.num_heads), ("head_count_kv", self.num_kv_heads)):
            if not isinstance(value, int):
                raise self.unsupported(
                    f"{ARCHITECTURE}.attention.{key} differs between layers ({value})"
                )
        self.head_dim: int = self.get(
            f"{ARCHITECTURE}.attention.key_length", self.hidden // self.num_heads
        )
        self._refuse_other_heads()

    def get(self, key: str, default: Any = None) -> Any:
        field = self._reader.get_field(key)
        return default if field is None else field.contents()

    def need(self, key: str) -> Any:
        value = self.get(key)
        if value is None:
            raise UserError(
                f"{self.where}: key {key} is missing; the file is damaged or no language model"
            )
        return value

    def unsupported(self, what: str) -> UserError:
        return UserError(
            f"{self.where}: {what}: not supported. Use the model's Hugging Face checkpoint instead"
        )

    def config(self, dtype: str) -> dict[str, Any]:
        ids = {
            f"{name}_token_id": self.get(f"tokenizer.ggml.{key}_token_id")
            for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))
        }
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": len(self.need("tokenizer.ggml.tokens")),
            "hidden_size": self.hidden,
            "intermediate_size": self.need("llama.feed_forward_length"),
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            # The file holds a float32; seven digits give back the decimal that it came from.
            "rms_norm_eps": float(f"{self.need('llama.attention.layer_norm_rms_epsilon'):.7g}"),
            "rope_theta": float(self.get("llama.rope.freq_base", 10000.0)),
            "rope_scaling": self._rope_scaling(),
            "max_position_embeddings": self.need("llama.context_length"),
            "tie_word_embeddings": all(tensor.name != "output.weight" for tensor in self.tensors),
            **ids,
            "torch_dtype": TORCH_DTYPES[dtype],
            "use_cache": True,
        }

    def _rope_scaling(self) -> Any:
        kind = self.get("llama.rope.scaling.type", "none")
        if kind == "none":
            return None
        factor = self.need("llama.rope.scaling.factor")
        if kind == "linear":
            return {"rope_type": "linear", "factor": factor}
        if kind == "yarn":
            original = self.need("llama.rope.scaling.original_context_length")
            return {
                "rope_type": "yarn",
                "factor": factor,
                "original_max_position_embeddings": original,
            }
        raise self.unsupported(f"llama.rope.scaling.type is '{kind}'")

    def _refuse_other_heads(self) -> None:
        for key in ("attention.value_length", "rope.dimension_count"):
            value = self.get(f"{ARCHITECTURE}.{key}", self.head_dim)
            if value != self.head_dim:
                raise self.unsupported(
                    f"{ARCHITECTURE}.{key} is {value}, but heads have {self.head_dim} dimensions"
                )
