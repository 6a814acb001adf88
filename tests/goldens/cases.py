# SPDX-License-Identifier: Apache-2.0
"""The checkpoints to make: what stands in each config.json and how the tensors are stored."""

from dataclasses import dataclass
from typing import Any

Config = dict[str, Any]
ABSENT = object()


@dataclass(frozen=True)
class Case:
    """One checkpoint folder with its golden.json."""

    name: str
    config: Config  # config.json, as a published checkpoint of the family would have it
    oracle: Config | None = None  # the model for transformers 4.55, if it cannot read `config`
    dtype: str = "bfloat16"
    shards: int = 1
    prompts: tuple[int, ...] = (1, 5, 37, 150)
    greedy_tokens: int = 24
    eos: int | tuple[int, ...] = 2  # of generation_config.json, which outranks config.json
    seed: int = 1

    @property
    def oracle_config(self) -> Config:
        return self.oracle or self.config


def config_of(architecture: str, **keys: Any) -> Config:
    """A config.json: the keys of every family, then the case's own; ABSENT drops a key."""
    model_type = architecture.removesuffix("ForCausalLM").lower()
    every = {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": 96,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_act": "silu",
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-3,  # so large that another value moves the logits
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "bfloat16",
    }
    return {key: value for key, value in {**every, **keys}.items() if value is not ABSENT}


def llama(**keys: Any) -> Config:
    return config_of("LlamaForCausalLM", **keys)


def internlm2(**keys: Any) -> Config:
    return config_of("InternLM2ForCausalLM", **keys)


# Published Qwen2 models name a window too that use_sliding_window then forbids.
QWEN2 = {"sliding_window": 16, "max_window_layers": 1, "rope_theta": 1000000.0}

YARN = {"factor": 4.0, "original_max_position_embeddings": 64, "rope_type": "yarn"}
YARN_KEYS5 = dict(attention_factor=0.8, beta_fast=2.0, **YARN)

CASES = (
    Case(
        "llama-gqa-fp32",
        llama(num_attention_heads=8, num_key_value_heads=4, head_dim=8, torch_dtype="float32"),
        dtype="float32",
    ),
    # Six heads split by 2, 3 and 6; neither head_dim nor num_key_value_heads in the config.
    Case(
        "llama-mha-tied",
        llama(
            hidden_size=48,
            num_attention_heads=6,
            num_key_value_heads=ABSENT,
            tie_word_embeddings=True,
            vocab_size=113,
        ),
    ),
    Case("llama-rope-linear", llama(head_dim=16, rope_scaling={"type": "linear", "factor": 4.0})),
    # A prompt of 150 is past the 64 positions; one of 50 crosses them while it generates.
    Case(
        "llama-rope-dynamic",
        llama(
            head_dim=16,
            max_position_embeddings=64,
            rope_scaling={"rope_type": "dynamic", "factor": 4.0},
        ),
        prompts=(1, 5, 37, 50, 150),
        greedy_tokens=32,
    ),
    # Wavelengths 6, 20, 63, 199, ...: one is kept, the next two are blended, the others divided.
    Case(
        "llama-rope-llama3",
        llama(
            head_dim=16,
            max_position_embeddings=512,
            rope_scaling={
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
            eos_token_id=[2, 3],
        ),
        eos=(2, 3),
    ),
    Case(
        "llama-rope-yarn",
        llama(head_dim=16, max_position_embeddings=256, rope_scaling=dict(type="yarn", **YARN)),
    ),
    Case(
        "llama-rope-yarn-mscale",
        llama(
            head_dim=16,
            max_position_embeddings=256,
            rope_scaling=dict(
                beta_fast=8.0, beta_slow=0.5, mscale=3.0, mscale_all_dim=0.5, truncate=False, **YARN
            ),
        ),
    ),
    Case("llama-biases", llama(attention_bias=True, mlp_bias=True)),
    Case("llama-mqa", llama(num_key_value_heads=1)),
    Case(
        "llama-fp16-3shards",
        llama(vocab_size=128, torch_dtype="float16"),
        dtype="float16",
        shards=3,
    ),
    # No width is one that the kernels' tiles divide.
    Case(
        "llama-odd-sizes",
        llama(
            hidden_size=60,
            intermediate_size=101,
            num_attention_heads=6,
            num_key_value_heads=3,
            head_dim=24,
            num_hidden_layers=1,
            tie_word_embeddings=True,
            vocab_size=509,
        ),
    ),
    # The key style of transformers 5: dtype, and all of rope in one object.
    Case(
        "llama-keys5-yarn",
        llama(
            head_dim=16,
            max_position_embeddings=256,
            rope_theta=ABSENT,
            torch_dtype=ABSENT,
            dtype="bfloat16",
            rope_parameters=dict(rope_theta=5000.0, **YARN_KEYS5),
        ),
        oracle=llama(
            head_dim=16, max_position_embeddings=256, rope_theta=5000.0, rope_scaling=YARN_KEYS5
        ),
    ),
    Case("mistral-window16", config_of("MistralForCausalLM", head_dim=None, sliding_window=16)),
    Case(
        "qwen2-biases",
        config_of("Qwen2ForCausalLM", use_sliding_window=False, vocab_size=101, **QWEN2),
    ),
    Case(
        "qwen2-window-upper-layer", config_of("Qwen2ForCausalLM", use_sliding_window=True, **QWEN2)
    ),
    Case(
        "qwen3-qknorm-tied",
        config_of(
            "Qwen3ForCausalLM",
            head_dim=16,
            attention_bias=False,
            tie_word_embeddings=True,
            use_sliding_window=False,
            sliding_window=None,
            max_window_layers=2,
            rope_theta=1000000.0,
        ),
        # A chat model's two ends, where config.json has the one of its base model.
        eos=(4, 2),
    ),
    Case(
        "glm-partial-rope",
        config_of(
            "GlmForCausalLM",
            head_dim=16,
            partial_rotary_factor=0.5,
            attention_bias=True,
            pad_token_id=0,
        ),
    ),
    Case(
        "glm-keys5",
        config_of(
            "GlmForCausalLM",
            head_dim=16,
            attention_bias=True,
            pad_token_id=0,
            rope_theta=ABSENT,
            torch_dtype=ABSENT,
            dtype="bfloat16",
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 5000.0,
                "partial_rotary_factor": 0.25,
            },
        ),
        oracle=config_of(
            "GlmForCausalLM",
            head_dim=16,
            partial_rotary_factor=0.25,
            attention_bias=True,
            pad_token_id=0,
            rope_theta=5000.0,
        ),
    ),
    # InternLM2 is Llama with other tensor names and q, k and v in one tensor.
    Case("internlm2", internlm2(bias=False, rope_scaling=None), oracle=llama()),
    Case(
        "internlm2-dynamic-bias",
        internlm2(
            bias=True,
            max_position_embeddings=64,
            rope_scaling={"type": "dynamic", "factor": 2.0},
            rope_theta=1000000.0,
        ),
        oracle=llama(
            attention_bias=True,
            max_position_embeddings=64,
            rope_scaling={"rope_type": "dynamic", "factor": 2.0},
            rope_theta=1000000.0,
        ),
    ),
)
