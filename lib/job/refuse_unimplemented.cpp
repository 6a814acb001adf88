// SPDX-License-Identifier: Apache-2.0
/// Refuses, by name, the settings that the job language has and this version does not implement.

#include <algorithm>

#include "lib/core/error.hpp"
#include "lib/core/json.hpp"
#include "lib/device/cuda_device.hpp"
#include "lib/grammar/grammars.hpp"
#include "lib/job/job.hpp"
#include "lib/job/job_codecs.hpp"
#include "lib/job/job_schema.hpp"

namespace pecia::job {
namespace {

bool is_integer(std::optional<Precision> precision) {
  return precision == Precision::int8 || precision == Precision::int4;
}

/// Refuses settings that work on no GPU.
void refuse_on_any_gpu(const Job& job) {
  if (is_integer(job.model.dtype))
    fail<Unsupported>(
        "model.dtype: {} is for CPUs in this version; use dtype: fp8 or bf16, or backend: cpu",
        name_of(*job.model.dtype));
  if (job.reproducible == Reproducible::layout && job.model.dtype == Precision::fp8)
    fail<Unsupported>(
        "reproducible: layout with model.dtype: fp8 is not in this version: a rank rounds its part "
        "of a row by that part's own maximum; use dtype: bf16, or reproducible: run");
  if (job.model.compute == Precision::fp32 && job.model.dtype != Precision::fp32)
    fail<Unsupported>(
        "model.compute: fp32 on GPUs multiplies weights of that type alone in this version; use "
        "model.dtype: fp32, or compute: auto");
  if (job.model.compute == Precision::bf16 && job.model.dtype == Precision::fp8)
    fail<Unsupported>(
        "model.compute: bf16 does not multiply weights of fp8 in this version; use compute: auto, "
        "or model.dtype: bf16");
}

/// A value as a job file has it, where it is a word, a number or a map with one key.
std::string in_words(const nlohmann::ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.size() == 1)
    return fmt::format("{{{}: {}}}", value.begin().key(), in_words(value.front()));
  return json_text(value);
}

/// Refuses keys that would do nothing.
void refuse_attention_keys_without_csa(const Job& job) {
  const Job defaults;
  for (const Field& field : schema()) {
    if (field.section() != "attention") continue;
    const auto value = field.write(job), usual = field.write(defaults);
    if (value != usual)
      fail<Unsupported>("{}: {} needs attention.sparse: csa; without it use {}: {}", field.key,
                        in_words(value), field.name(), in_words(usual));
  }
}

/// Refuses what sparse attention itself has not in this version.
void refuse_attention_keys(const Job& job) {
  const Job::Attention& attention = job.attention;
  const bool tuned = attention.drop && !attention.drop->file.empty();
  if (attention.objective != AttentionGoal{} && !tuned)
    fail<Unsupported>(
        "attention.objective: {} needs a tuned file: use attention.drop: {{file: tuned.json}} with "
        "one that pecia tune wrote, or objective: off",
        in_words(attention_goal().write(attention.objective)));
  if (attention.first_tokens && attention.geometry == parallel::Geometry::nested)
    fail<Unsupported>(
        "attention.first_tokens: {} with geometry: nested is not in this version: nested levels "
        "are as published, without tokens that all rows see; use geometry: disjoint, or "
        "first_tokens: auto",
        *attention.first_tokens);
  if (tuned && (attention.first_tokens || attention.selection != parallel::Selection::importance))
    fail<Unsupported>(
        "attention.drop: {{file: {}}} is of pecia tune, which measures with first_tokens: auto and "
        "selection: importance; leave these keys out",
        attention.drop->file.string());
  if (attention.decode == SparseDecode::sparse)
    fail<Unsupported>(
        "attention.decode: sparse is not in this version: output tokens attend to all keys; use "
        "decode: dense");
}

/// Refuses the settings of other sections with which sparse attention does not go together.
void refuse_beside_csa(const Job& job) {
  const Job::Parallel& parallel = job.parallel;
  if (parallel.cp.elastic)
    fail<Unsupported>(
        "attention.sparse: csa with parallel.cp: elastic is not in this version: levels follow "
        "from the ranks' places, and teams change from pass to pass; use cp: auto, or sparse: off");
  if (parallel.ring == RingMode::pass_q)
    fail<Unsupported>(
        "attention.sparse: csa with parallel.ring: pass_q is not in this version: csa sends "
        "keys, and pass_q leaves them where they are; use ring: auto");
  if (parallel.decode == DecodeMode::sp || parallel.decode == DecodeMode::shift)
    fail<Unsupported>(
        "attention.sparse: csa with parallel.decode: {} is not in this version: csa keeps keys "
        "with their tokens, and {} needs them by heads; use decode: auto",
        name_of(*parallel.decode), name_of(*parallel.decode));
  if (job.batch.policy == Policy::chunked)
    fail<Unsupported>(
        "attention.sparse: csa with batch.policy: chunked is not in this version: which tokens "
        "count is seen from a prompt's last rows, before which its chunks are read; use policy: "
        "prefill_first");
  if (job.reproducible == Reproducible::layout)
    fail<Unsupported>(
        "attention.sparse: csa with reproducible: layout is not in this version: levels follow "
        "from the ranks' places, so each layout drops other tokens; use reproducible: run, or "
        "sparse: off");
}

}  // namespace

void refuse_on_gpus(const Job& job, int compute_capability) {
  refuse_on_any_gpu(job);
  constexpr int first_with_fp8 = 89;
  if (job.model.dtype == Precision::fp8 && compute_capability < first_with_fp8)
    fail<Unsupported>(
        "model.dtype: fp8 needs GPUs of compute capability 8.9 or newer, this one has {}.{}; use "
        "dtype: bf16",
        compute_capability / 10, compute_capability % 10);
}

void refuse_on_cpus(const Job& job) {
  if (job.reproducible == Reproducible::layout && is_integer(job.model.dtype))
    fail<Unsupported>(
        "reproducible: layout with model.dtype: {} is not in this version; use dtype: bf16, or "
        "reproducible: run",
        name_of(*job.model.dtype));
  const int sp = job.parallel.sp.value_or(1), tp = job.parallel.tp.value_or(1);
  if (job.model.dtype == Precision::int4 && sp * tp > 1)
    fail<Unsupported>(
        "model.dtype: int4 with parallel.sp {} and parallel.tp {} is not in this version: a group "
        "of 128 numbers is not cut; use cp and dp, or dtype: int8",
        sp, tp);
  if (job.model.compute == Precision::bf16) {
    const Precision held = job.model.dtype.value_or(Precision::bf16);
    if (held != Precision::bf16 && !is_integer(held))
      fail<Unsupported>(
          "model.compute: bf16 multiplies weights of bf16, int8 and int4 alone on CPUs; use "
          "model.dtype: bf16, or compute: auto");
  }
  if (job.model.dtype == Precision::fp8)
    fail<Unsupported>(
        "model.dtype: fp8 is for GPUs in this version; use dtype: bf16, or backend: cuda");
}

namespace {

/// Refuses what cannot be had together with a shape of answers.
void refuse_beside_a_shape(const Job& job) {
  const Job::Generation& generation = job.generation;
  const int shapes =
      generation.schema.has_value() + generation.regex.has_value() + !generation.choice.empty();
  if (shapes == 0) return;
  if (!grammar::why_none().empty())
    fail<Unsupported>("generation.schema, regex and choice: {}", grammar::why_none());
  if (shapes > 1)
    fail<Unsupported>("generation has several of schema, regex and choice; use one of them");
  if (generation.ignore_eos)
    fail<Unsupported>(
        "generation.ignore_eos with schema, regex or choice: a stop token ends such an answer; use "
        "ignore_eos: false");
  if (!generation.stop.empty())
    fail<Unsupported>(
        "generation.stop with schema, regex or choice: an answer that a text ends has not its "
        "shape; leave stop out");
}

}  // namespace

void refuse_unimplemented(const Job& job) {
  refuse_beside_a_shape(job);
  const bool on_gpus = job.backend == BackendKind::cuda;
  if (on_gpus && !device::has_cuda())
    fail<Unsupported>(
        "backend: cuda: this pecia was built without CUDA; use backend: cpu, or build the preset "
        "cuda");
  if (on_gpus) refuse_on_any_gpu(job);
  if (job.backend == BackendKind::cpu || !device::has_cuda()) refuse_on_cpus(job);
  if (job.model.compute == Precision::fp8 && job.model.dtype != Precision::fp8)
    fail<Unsupported>(
        "model.compute: fp8 multiplies weights of that type alone; use model.dtype: fp8, or "
        "compute: auto");
  if (job.batch.objective == Objective::ttft && !job.parallel.cp.elastic)
    fail<Unsupported>(
        "batch.objective: ttft without parallel.cp: elastic is not in this version: other runs "
        "read "
        "prompts in batch.order; use cp: elastic, or objective: auto");
  if (job.reproducible == Reproducible::layout && job.batch.policy == Policy::chunked)
    fail<Unsupported>(
        "batch.policy: chunked with reproducible: layout is not in this version: where a prompt is "
        "cut depends on what else is in the batch; use policy: prefill_first");
  if (job.reproducible == Reproducible::layout && job.parallel.cp.elastic)
    fail<Unsupported>(
        "parallel.cp: elastic with reproducible: layout is not in this version: teams cut "
        "sequences by what else runs; use cp: auto, or reproducible: run");
  if (job.attention.sparse == Sparse::off) {
    refuse_attention_keys_without_csa(job);
  } else {
    refuse_attention_keys(job);
    refuse_beside_csa(job);
  }
}

}  // namespace pecia::job
