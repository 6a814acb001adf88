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
    oracle: Config | None = None  # the model for transformers 4.57, if it cannot read `config`
    dtype: str = "bfloat16"
    shards: int = 1
    prompts: tuple[int, ...] = (1, 5, 37, 150)
    greedy_tokens: int = 24
    eos: int | tuple[int, ...] = 2  # of generation_config.json, which outranks config.json
    seed: int = 1
    mxfp4: bool = False  # experts are stored so
    prefix: str = ""  # what names begin with where a model has other parts, too
    transformers: int = 4  # the major version that makes it
    renamed: tuple[tuple[str, str], ...] = ()  # parts of transformers' names, and those of files

    def stored_name(self, name: str) -> str:
        """Of a model with other parts: its names follow the prefix, or take the place of "model."."""
        for part, of_file in self.renamed:
            name = name.replace(part, of_file)
        if not self.prefix.startswith("model."):
            return self.prefix + name
        return name if name.startswith("lm_head.") else self.prefix + name.removeprefix("model.")

    def own_name(self, name: str) -> str:
        """Transformers' name of a renamed tensor."""
        for part, of_file in self.renamed:
            name = name.replace(of_file, part)
        return name

    @property
    def oracle_config(self) -> Config:
        return self.oracle or self.config


MODEL_TYPES = {"gemma3": "gemma3_text", "qwen3moe": "qwen3_moe", "gptoss": "gpt_oss"}
MODEL_TYPES |= {"gemma4": "gemma4_text"}
MODEL_TYPES |= {"glm4moe": "glm4_moe", "minimaxm2": "minimax_m2"}
MODEL_TYPES |= {"deepseekv3": "deepseek_v3", "glm4moelite": "glm4_moe_lite"}
MODEL_TYPES |= {"llama4": "llama4_text", "qwen2moe": "qwen2_moe"}
MODEL_TYPES |= {"qwen3next": "qwen3_next", "nemotronh": "nemotron_h"}
MODEL_TYPES |= {"qwen3_5": "qwen3_5_text", "qwen3_5moe": "qwen3_5_moe_text"}


def config_of(architecture: str, **keys: Any) -> Config:
    """A config.json: the keys of every family, then the case's own; ABSENT drops a key."""
    model_type = architecture.removesuffix("ForCausalLM").lower()
    model_type = MODEL_TYPES.get(model_type, model_type)
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


def gemma3(**keys: Any) -> Config:
    """Three layers: two with a window and a base of their own, and a full one."""
    own = dict(
        hidden_act=ABSENT,
        hidden_activation="gelu_pytorch_tanh",
        num_hidden_layers=3,
        head_dim=16,
        query_pre_attn_scalar=24,
        rope_theta=1000000.0,
        rope_local_base_freq=10000.0,
        sliding_window=16,
        rms_norm_eps=0.05,  # norms after blocks hide a small one
        tie_word_embeddings=True,
        attn_logit_softcapping=None,
        final_logit_softcapping=None,
    )
    return config_of("Gemma3ForCausalLM", **{**own, **keys})


SLIDING, FULL = "sliding_attention", "full_attention"


def gemma4(**keys: Any) -> Config:
    """Heads of 8 in layers with a window and of 16 in others, as published before 5.23."""
    own = dict(
        hidden_act=ABSENT,
        hidden_activation="gelu_pytorch_tanh",
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=8,
        global_head_dim=16,
        rope_theta=ABSENT,
        torch_dtype=ABSENT,
        dtype="bfloat16",
        sliding_window=16,
        hidden_size_per_layer_input=0,
        rms_norm_eps=0.05,  # norms after blocks hide a small one
        tie_word_embeddings=True,
    )
    return config_of("Gemma4ForCausalLM", **{**own, **keys})


# Experts beside the feed-forward, and full layers of two KV heads whose keys are their values.
GEMMA4_MIXTURE = dict(
    num_hidden_layers=3,
    layer_types=[SLIDING, SLIDING, FULL],
    attention_k_eq_v=True,
    enable_moe_block=True,
    num_experts=8,
    top_k_experts=2,
    moe_intermediate_size=24,
    use_bidirectional_attention="vision",
    rope_parameters={
        FULL: dict(rope_type="proportional", rope_theta=1e6, partial_rotary_factor=0.5),
        SLIDING: dict(rope_type="default", rope_theta=10000.0),
    },
)


def qwen3moe(**keys: Any) -> Config:
    own = dict(
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=8,
        num_hidden_layers=3,
        moe_intermediate_size=24,
        num_experts_per_tok=2,
        attention_bias=False,
        use_sliding_window=False,
        sliding_window=None,
        rope_theta=1000000.0,
    )
    return config_of("Qwen3MoeForCausalLM", **{**own, **keys})


LINEAR = "linear_attention"


def delta_net(architecture: str, **keys: Any) -> Config:
    """Two key heads of 12 numbers for eight heads of 8, and half of each attention head rotated."""
    own = dict(
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=8,
        attention_bias=False,
        partial_rotary_factor=0.5,
        linear_num_key_heads=2,
        linear_key_head_dim=12,
        linear_num_value_heads=8,
        linear_value_head_dim=8,
        linear_conv_kernel_dim=4,
    )
    return config_of(architecture, **{**own, **keys})


def in_keys_of_5(config: Config, **keys: Any) -> Config:
    """With the axes of images that a text's tokens have alike."""
    moved = ("rope_theta", "partial_rotary_factor", "torch_dtype")
    rope = dict(
        rope_type="default",
        rope_theta=config["rope_theta"],
        partial_rotary_factor=config["partial_rotary_factor"],
        mrope_section=[1, 1, 0],
        mrope_interleaved=True,
    )
    kept = {key: value for key, value in config.items() if key not in moved}
    return {**kept, "dtype": "bfloat16", "rope_parameters": rope, **keys}


QWEN35_DENSE: Config = dict(
    num_hidden_layers=5,
    layer_types=[LINEAR, FULL, LINEAR, LINEAR, FULL],
    linear_conv_kernel_dim=3,
    rope_theta=100.0,  # so that another base shows in so few rotated numbers
    tie_word_embeddings=True,
)
QWEN35_PART: Config = dict(
    num_hidden_layers=3, layer_types=[LINEAR, LINEAR, FULL], rope_theta=100.0
)
QWEN35_MOE: Config = dict(
    num_hidden_layers=4,
    rope_theta=100.0,
    moe_intermediate_size=24,
    shared_expert_intermediate_size=40,
    num_experts=6,
    num_experts_per_tok=2,
)


def granitehybrid(**keys: Any) -> Config:
    """Mamba-2 with eight heads of 8 over two groups of 12."""
    own = dict(
        num_attention_heads=8,
        num_key_value_heads=4,
        layer_types=["mamba", "mamba", "attention", "mamba"],
        num_hidden_layers=4,
        attention_multiplier=0.5,
        embedding_multiplier=6.0,
        residual_multiplier=0.6,
        logits_scaling=0.5,
        mamba_n_heads=8,
        mamba_d_head=8,
        mamba_d_state=12,
        mamba_n_groups=2,
        mamba_d_conv=4,
        mamba_expand=2,
        mamba_conv_bias=True,
        mamba_proj_bias=False,
        position_embedding_type="nope",
        shared_intermediate_size=40,
    )
    return config_of("GraniteMoeHybridForCausalLM", **{**own, **keys})


def gptoss(**keys: Any) -> Config:
    own = dict(
        num_attention_heads=8,
        head_dim=16,
        num_hidden_layers=3,
        layer_types=["sliding_attention", "full_attention", "full_attention"],
        sliding_window=16,
        num_local_experts=4,
        num_experts_per_tok=2,
        attention_bias=True,
        max_position_embeddings=256,
        rope_theta=10000.0,  # so that yarn blends frequencies of so small heads
        rope_scaling={"truncate": False, "beta_fast": 4.0, **YARN},
        swiglu_limit=7.0,
        pad_token_id=0,
    )
    return config_of("GptOssForCausalLM", **{**own, **keys})


def ministral3(**keys: Any) -> Config:
    return config_of(
        "Ministral3ForCausalLM",
        **{**dict(head_dim=16, max_position_embeddings=256, sliding_window=None), **keys},
    )


# So short that prompts pass the original length, and with a slope that shows.
TEMPERATURE = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "beta_fast": 2.0,
    "beta_slow": 0.25,
    "mscale": 1.0,
    "mscale_all_dim": 0.5,
    "llama_4_scaling_beta": 0.5,
}


# 8 of the 16 numbers of a query rotate.
TEMPERATURE_OF_A_PART = {"partial_rotary_factor": 0.5, "truncate": False, **TEMPERATURE}


def latent(architecture: str, **keys: Any) -> Config:
    """Latent attention: heads have keys of 8 + 8 and values of 10 numbers, tokens keep 16 + 8."""
    own = dict(
        num_attention_heads=8,
        num_key_value_heads=8,
        num_hidden_layers=3,
        q_lora_rank=12,
        kv_lora_rank=16,
        qk_nope_head_dim=8,
        qk_rope_head_dim=8,
        v_head_dim=10,
        moe_intermediate_size=24,
        n_routed_experts=8,
        n_shared_experts=1,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
        norm_topk_prob=True,
        routed_scaling_factor=2.5,
    )
    return config_of(architecture, **{**own, **keys})


def mistral4(**keys: Any) -> Config:
    own = dict(max_position_embeddings=256, routed_scaling_factor=ABSENT, first_k_dense_replace=0)
    return latent("Mistral4ForCausalLM", **{**own, **keys})


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
    # As Mistral Small 3.1: the text part of a model that reads images.
    Case(
        "mistral3-text-part",
        {
            "architectures": ["Mistral3ForConditionalGeneration"],
            "model_type": "mistral3",
            "torch_dtype": "bfloat16",
            "text_config": config_of(
                "MistralForCausalLM",
                architectures=ABSENT,
                bos_token_id=ABSENT,
                eos_token_id=ABSENT,
                torch_dtype=ABSENT,
                tie_word_embeddings=ABSENT,
                head_dim=16,
                rope_theta=1000000000.0,
                sliding_window=None,
            ),
            "vision_config": {"model_type": "pixtral"},
        },
        oracle=config_of(
            "MistralForCausalLM", head_dim=16, rope_theta=1000000000.0, sliding_window=None
        ),
        prefix="language_model.",
        transformers=5,
    ),
    Case(
        "ministral-window-lists",
        config_of(
            "MinistralForCausalLM",
            head_dim=16,
            num_hidden_layers=3,
            sliding_window=16,
            layer_types=["full_attention", "sliding_attention", "sliding_attention"],
        ),
        transformers=5,
    ),
    Case(
        "ministral3-temperature",
        ministral3(
            rope_theta=ABSENT,
            torch_dtype=ABSENT,
            dtype="bfloat16",
            rope_parameters=dict(
                type="yarn", rope_theta=10000.0, max_position_embeddings=256, **TEMPERATURE
            ),
        ),
        oracle=ministral3(rope_scaling=TEMPERATURE),
        transformers=5,
    ),
    Case(
        "apertus-xielu",
        config_of(
            "ApertusForCausalLM",
            hidden_act="xielu",
            attention_bias=False,
            mlp_bias=False,
            qk_norm=True,
            post_norm=False,
            max_position_embeddings=512,
            rope_scaling={
                "rope_type": "llama3",
                "type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        ),
        transformers=5,
        seed=2,
    ),
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
    Case(
        "granite-multipliers",
        config_of(
            "GraniteForCausalLM",
            head_dim=16,
            rms_norm_eps=0.05,  # the embedding multiplier hides a small one
            attention_multiplier=0.15,
            embedding_multiplier=6.0,
            residual_multiplier=0.4,
            logits_scaling=2.0,
        ),
    ),
    Case(
        "smollm3-nope",
        config_of(
            "SmolLM3ForCausalLM",
            head_dim=16,
            num_hidden_layers=3,
            pad_token_id=0,
            no_rope_layers=[1, 0, 1],
            no_rope_layer_interval=2,
            use_sliding_window=False,
            sliding_window=None,
            tie_word_embeddings=ABSENT,
        ),
        oracle=config_of(
            "SmolLM3ForCausalLM",
            head_dim=16,
            num_hidden_layers=3,
            pad_token_id=0,
            no_rope_layers=[1, 0, 1],
            tie_word_embeddings=True,
        ),
    ),
    # Prompts of 37 tokens and fewer stay within 64 positions, one of 150 is beyond them.
    Case(
        "phi3-longrope",
        config_of(
            "Phi3ForCausalLM",
            hidden_size=64,
            max_position_embeddings=512,
            original_max_position_embeddings=64,
            partial_rotary_factor=0.75,
            sliding_window=262144,
            rope_scaling={
                "type": "longrope",
                "short_factor": [1.0, 1.05, 1.15, 1.3, 1.6, 2.0],
                "long_factor": [1.0, 1.4, 2.2, 4.0, 7.0, 8.0],
            },
            pad_token_id=0,
        ),
    ),
    Case("olmo2-postnorm", config_of("Olmo2ForCausalLM", head_dim=16, pad_token_id=0)),
    Case(
        "olmo3-window-yarn",
        config_of(
            "Olmo3ForCausalLM",
            head_dim=16,
            num_hidden_layers=3,
            layer_types=["full_attention", "sliding_attention", "sliding_attention"],
            sliding_window=16,
            max_position_embeddings=256,
            rope_scaling=YARN,
            rope_theta=500000.0,
            pad_token_id=0,
        ),
    ),
    Case(
        "gemma3-windows",
        gemma3(sliding_window_pattern=3, tie_word_embeddings=ABSENT),
        oracle=gemma3(layer_types=["sliding_attention", "sliding_attention", "full_attention"]),
        eos=(2, 3),
    ),
    # The text part of a model that reads images, in the keys of transformers 5.
    Case(
        "gemma3-text-part",
        {
            "architectures": ["Gemma3ForConditionalGeneration"],
            "model_type": "gemma3",
            "dtype": "bfloat16",
            "eos_token_id": [2, 3],
            "text_config": gemma3(
                architectures=ABSENT,
                eos_token_id=ABSENT,
                torch_dtype=ABSENT,
                tie_word_embeddings=ABSENT,
                rope_theta=ABSENT,
                rope_local_base_freq=ABSENT,
                layer_types=["full_attention", "sliding_attention", "sliding_attention"],
                _sliding_window_pattern=6,
                rope_parameters={
                    "full_attention": {
                        "rope_type": "linear",
                        "rope_theta": 1000000.0,
                        "factor": 8.0,
                    },
                    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                },
            ),
            "vision_config": {"model_type": "siglip_vision_model"},
        },
        oracle=gemma3(
            layer_types=["full_attention", "sliding_attention", "sliding_attention"],
            rope_scaling={"rope_type": "linear", "factor": 8.0},
        ),
        eos=(2, 3),
        prefix="language_model.",
        seed=7,
    ),
    Case(
        "qwen3moe-norm-dense",
        qwen3moe(num_experts=6, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[1]),
    ),
    # The keys of transformers 5; weights of the chosen experts stay below 1 by default.
    Case(
        "qwen3moe-raw-step2",
        qwen3moe(
            num_local_experts=8,
            num_experts_per_tok=3,
            decoder_sparse_step=2,
            mlp_only_layers=[],
            torch_dtype=ABSENT,
            dtype="float32",
            rope_theta=ABSENT,
            rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
        ),
        oracle=qwen3moe(
            num_experts=8,
            num_experts_per_tok=3,
            norm_topk_prob=False,
            decoder_sparse_step=2,
            mlp_only_layers=[],
        ),
        dtype="float32",
    ),
    Case(
        "mixtral-window16",
        config_of(
            "MixtralForCausalLM", num_local_experts=4, num_experts_per_tok=2, sliding_window=16
        ),
    ),
    Case(
        "olmoe-qknorm",
        config_of(
            "OlmoeForCausalLM",
            intermediate_size=24,
            num_experts=8,
            num_experts_per_tok=3,
            norm_topk_prob=False,
            clip_qkv=None,
            pad_token_id=0,
        ),
    ),
    # As many FFN columns as hidden ones: down_proj's shape cannot tell which axis is which.
    Case("gptoss-bf16", gptoss(intermediate_size=32)),
    Case(
        "gptoss-mxfp4",
        gptoss(
            intermediate_size=64,
            num_local_experts=6,
            num_experts_per_tok=3,
            quantization_config={
                "quant_method": "mxfp4",
                "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"],
            },
        ),
        oracle=gptoss(intermediate_size=64, num_local_experts=6, num_experts_per_tok=3),
        mxfp4=True,
    ),
    # Two of four groups of two experts, and of these two experts.
    Case(
        "glm4moe-groups",
        config_of(
            "Glm4MoeForCausalLM",
            num_attention_heads=8,
            num_key_value_heads=4,
            head_dim=8,
            num_hidden_layers=3,
            attention_bias=True,
            use_qk_norm=True,
            partial_rotary_factor=0.5,
            rope_scaling=None,
            first_k_dense_replace=1,
            moe_intermediate_size=24,
            n_routed_experts=8,
            n_shared_experts=1,
            n_group=4,
            topk_group=2,
            num_experts_per_tok=2,
            norm_topk_prob=True,
            routed_scaling_factor=2.5,
            num_nextn_predict_layers=1,
        ),
        transformers=5,
    ),
    Case(
        "minimaxm2-allheads",
        config_of(
            "MiniMaxM2ForCausalLM",
            num_attention_heads=8,
            num_key_value_heads=4,
            head_dim=8,
            attn_type_list=[1, 1],
            intermediate_size=24,
            num_local_experts=6,
            num_experts_per_tok=3,
            qk_norm_type="per_layer",
            rotary_dim=4,
            scoring_func="sigmoid",
            shared_intermediate_size=0,
            use_qk_norm=True,
            use_routing_bias=True,
        ),
        transformers=5,
    ),
    Case(
        "afmoe-gates",
        config_of(
            "AfmoeForCausalLM",
            num_attention_heads=8,
            num_key_value_heads=4,
            head_dim=8,
            num_hidden_layers=4,
            layer_types=[
                "sliding_attention",
                "full_attention",
                "sliding_attention",
                "full_attention",
            ],
            global_attn_every_n_layers=2,
            sliding_window=16,
            rms_norm_eps=0.05,  # norms after blocks hide a small one
            mup_enabled=True,
            num_dense_layers=1,
            moe_intermediate_size=24,
            num_experts=8,
            num_experts_per_tok=2,
            num_shared_experts=2,
            n_group=1,
            topk_group=1,
            route_norm=True,
            route_scale=2.0,
            score_func="sigmoid",
            rope_scaling=None,
        ),
        transformers=5,
    ),
    # Yarn scales the rotated parts by the ratio of two mscale, and all scores by the square of one.
    Case(
        "deepseek3-groups",
        latent(
            "DeepseekV3ForCausalLM",
            attention_bias=True,
            first_k_dense_replace=1,
            moe_layer_freq=1,
            n_group=4,
            topk_group=2,
            topk_method="noaux_tc",
            scoring_func="sigmoid",
            num_nextn_predict_layers=1,
            max_position_embeddings=256,
            rope_scaling={
                "type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 64,
                "beta_fast": 2.0,
                "beta_slow": 0.25,
                "mscale": 2.0,
                "mscale_all_dim": 0.5,
                "truncate": False,
            },
        ),
        transformers=5,
    ),
    # Queries are not made of latents.
    Case(
        "glm4moelite-direct",
        latent(
            "Glm4MoeLiteForCausalLM",
            q_lora_rank=None,
            mlp_layer_types=["dense", "sparse", "dense"],
            rope_interleave=False,
            rope_scaling=None,
            num_nextn_predict_layers=1,
        ),
        transformers=5,
    ),
    Case(
        "mistral4-temperature",
        mistral4(
            rope_theta=ABSENT,
            torch_dtype=ABSENT,
            dtype="bfloat16",
            rope_parameters=dict(rope_theta=10000.0, **TEMPERATURE_OF_A_PART),
        ),
        oracle=mistral4(rope_scaling=TEMPERATURE_OF_A_PART),
        transformers=5,
    ),
    # Chunks of 20 positions, of which prompts of 37 and 150 have several; the second layer sees all.
    Case(
        "llama4-chunks",
        config_of(
            "Llama4ForCausalLM",
            num_attention_heads=8,
            num_key_value_heads=4,
            head_dim=8,
            num_hidden_layers=4,
            intermediate_size=24,
            intermediate_size_mlp=48,
            no_rope_layers=[1, 0, 1, 1],
            attention_chunk_size=20,
            attn_temperature_tuning=True,
            attn_scale=0.5,
            floor_scale=13,
            use_qk_norm=True,
            interleave_moe_layer_step=2,
            num_local_experts=4,
            num_experts_per_tok=2,
            rope_scaling=None,
        ),
        transformers=5,
    ),
    Case(
        "qwen2moe-shared-gate",
        config_of(
            "Qwen2MoeForCausalLM",
            num_attention_heads=8,
            num_key_value_heads=4,
            num_hidden_layers=3,
            moe_intermediate_size=24,
            shared_expert_intermediate_size=40,
            num_experts=6,
            num_experts_per_tok=2,
            norm_topk_prob=False,
            decoder_sparse_step=1,
            mlp_only_layers=[1],
        ),
        transformers=5,
    ),
    # The last layer has no window, whatever the list says.
    Case(
        "gemma4-keys-as-values",
        gemma4(
            num_hidden_layers=4,
            layer_types=[SLIDING, FULL, SLIDING, SLIDING],
            attention_k_eq_v=True,
            num_global_key_value_heads=2,
            final_logit_softcapping=4.0,
        ),
        transformers=5,
    ),
    Case(
        "gemma4-shared-keys",
        gemma4(
            num_hidden_layers=6,
            layer_types=[SLIDING, FULL, SLIDING, SLIDING, SLIDING, FULL],
            num_kv_shared_layers=3,
            use_double_wide_mlp=True,
            hidden_size_per_layer_input=8,
            vocab_size_per_layer_input=96,
        ),
        transformers=5,
    ),
    # The text part of a model that also sees and hears, in the keys of transformers 5.23.
    Case(
        "gemma4-mixture",
        {
            "architectures": ["Gemma4ForConditionalGeneration"],
            "model_type": "gemma4",
            "dtype": "bfloat16",
            "eos_token_id": [2, 3],
            "text_config": gemma4(
                architectures=ABSENT,
                eos_token_id=ABSENT,
                dtype=ABSENT,
                tie_word_embeddings=ABSENT,
                global_head_dim=ABSENT,
                per_layer_config={"2": {"head_dim": 16, "num_key_value_heads": 2}},
                **GEMMA4_MIXTURE,
            ),
            "vision_config": {"model_type": "gemma4_vision"},
        },
        oracle=gemma4(num_global_key_value_heads=2, **GEMMA4_MIXTURE),
        eos=(2, 3),
        seed=6,
        prefix="model.language_model.",
        transformers=5,
    ),
    # Three delta nets and attention. Projections by key head, and a tensor for drafts.
    Case(
        "qwen3next-delta",
        delta_net(
            "Qwen3NextForCausalLM",
            num_hidden_layers=4,
            moe_intermediate_size=24,
            shared_expert_intermediate_size=40,
            num_experts=6,
            num_experts_per_tok=2,
            norm_topk_prob=True,
            decoder_sparse_step=1,
            mlp_only_layers=[1],
            full_attention_interval=4,
        ),
        transformers=5,
    ),
    Case(
        "qwen35-tied",
        in_keys_of_5(delta_net("Qwen3_5ForCausalLM", **QWEN35_DENSE)),
        oracle=delta_net("Qwen3_5ForCausalLM", **QWEN35_DENSE),
        transformers=5,
    ),
    # The text part of a model that also sees and drafts.
    Case(
        "qwen35-text-part",
        {
            "architectures": ["Qwen3_5ForConditionalGeneration"],
            "model_type": "qwen3_5",
            "text_config": in_keys_of_5(
                delta_net("Qwen3_5ForCausalLM", architectures=ABSENT, **QWEN35_PART)
            ),
            "tie_word_embeddings": False,
            "vision_config": {"model_type": "qwen3_5_vision"},
        },
        oracle=delta_net("Qwen3_5ForCausalLM", **QWEN35_PART),
        prefix="model.language_model.",
        transformers=5,
    ),
    Case(
        "qwen35moe-stacked",
        in_keys_of_5(delta_net("Qwen3_5MoeForCausalLM", **QWEN35_MOE)),
        oracle=delta_net("Qwen3_5MoeForCausalLM", **QWEN35_MOE),
        transformers=5,
    ),
    # Experts in two tensors a layer, under names of their own.
    Case(
        "granitehybrid-experts",
        granitehybrid(intermediate_size=24, num_local_experts=4, num_experts_per_tok=2),
        transformers=5,
        renamed=(
            ("router.weight", "router.layer.weight"),
            ("experts.gate_up_proj", "input_linear.weight"),
            ("experts.down_proj", "output_linear.weight"),
        ),
    ),
    # No experts, one group, and attention that rotates; infinity as transformers 4 writes it.
    Case(
        "granitehybrid-dense",
        granitehybrid(
            layer_types=["mamba", "attention", "mamba"],
            num_hidden_layers=3,
            mamba_n_groups=1,
            mamba_d_head="auto",
            num_local_experts=0,
            num_experts_per_tok=0,
            position_embedding_type="rope",
            time_step_limit=[0.0, float("inf")],
        ),
        transformers=5,
    ),
    # Each layer is one block: Mamba-2, attention, a feed-forward or experts without gates.
    Case(
        "nemotronh-blocks",
        config_of(
            "NemotronHForCausalLM",
            num_hidden_layers=ABSENT,
            hidden_act=ABSENT,
            rms_norm_eps=ABSENT,
            rope_theta=ABSENT,
            layer_norm_epsilon=1e-3,
            hybrid_override_pattern="M*E-ME",
            num_attention_heads=8,
            num_key_value_heads=4,
            head_dim=8,
            attention_bias=False,
            mlp_bias=False,
            use_bias=False,
            mlp_hidden_act="relu2",
            mamba_hidden_act="silu",
            mamba_num_heads=8,
            mamba_head_dim=8,
            n_groups=2,
            ssm_state_size=12,
            conv_kernel=4,
            use_conv_bias=True,
            time_step_limit=[0.0, float("inf")],
            n_routed_experts=6,
            n_shared_experts=1,
            num_experts_per_tok=2,
            moe_intermediate_size=24,
            moe_shared_expert_intermediate_size=40,
            n_group=1,
            topk_group=1,
            norm_topk_prob=True,
            routed_scaling_factor=1.5,
        ),
        transformers=5,
        renamed=(("model.", "backbone."),),
    ),
    # Its experts work on latents, which are narrower than hidden states.
    Case(
        "nemotronh-latents",
        config_of(
            "NemotronHForCausalLM",
            num_hidden_layers=ABSENT,
            hidden_act=ABSENT,
            rms_norm_eps=ABSENT,
            rope_theta=ABSENT,
            layer_norm_epsilon=1e-3,
            hybrid_override_pattern="ME*E",
            num_attention_heads=8,
            num_key_value_heads=4,
            head_dim=8,
            attention_bias=False,
            mlp_bias=False,
            use_bias=False,
            mlp_hidden_act="relu2",
            mamba_hidden_act="silu",
            mamba_num_heads=8,
            mamba_head_dim=8,
            n_groups=2,
            ssm_state_size=12,
            conv_kernel=4,
            use_conv_bias=True,
            time_step_limit=[0.0, float("inf")],
            n_routed_experts=6,
            n_shared_experts=1,
            num_experts_per_tok=2,
            moe_intermediate_size=24,
            moe_latent_size=20,
            moe_shared_expert_intermediate_size=40,
            n_group=1,
            topk_group=1,
            norm_topk_prob=True,
            routed_scaling_factor=1.5,
        ),
        transformers=5,
        renamed=(("model.", "backbone."),),
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
