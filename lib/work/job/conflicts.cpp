// SPDX-License-Identifier: Apache-2.0
/// The table of what does not go together in a job, each with the reason and the nearest setting
/// that is legal. Modes and degrees have a table of their own (lib/ranks/parallel/modes.cpp).

#include <algorithm>
#include <array>
#include <functional>

#include "lib/base/core/error.hpp"
#include "lib/base/core/json.hpp"
#include "lib/base/device/cuda_device.hpp"
#include "lib/files/grammar/grammars.hpp"
#include "lib/work/job/job.hpp"
#include "lib/work/job/job_codecs.hpp"
#include "lib/work/job/job_schema.hpp"

namespace pecia::job {
namespace {

/// Where a conflict is one.
enum class On { any, cpus, gpus };

struct Conflict {
  On on;
  bool (*holds)(const Job& job);
  std::string (*why)(const Job& job);  ///< which settings, and the reason
  const char* nearest;                 ///< what to do; null: `why` says it, too
};

bool is_integer(std::optional<Precision> precision) {
  return precision == Precision::int8 || precision == Precision::int4;
}
bool is_layout(const Job& job) {
  return job.reproducible == Reproducible::layout;
}
bool is_csa(const Job& job) {
  return job.attention.sparse == Sparse::csa;
}
bool is_apart(const Job& job) {
  return job.parallel.phases == Phases::apart;
}
bool is_tuned(const Job& job) {
  return job.attention.drop && !job.attention.drop->file.empty();
}
int shapes_of(const Job& job) {
  const Job::Generation& generation = job.generation;
  return generation.schema.has_value() + generation.regex.has_value() + !generation.choice.empty();
}

/// A value as a job file has it, where it is a word, a number or a map with one key.
std::string in_words(const nlohmann::ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.size() == 1)
    return fmt::format("{{{}: {}}}", value.begin().key(), in_words(value.front()));
  return json_text(value);
}

/// The text whatever the job is.
#define PECIA_WHY(text) [](const Job&) { return std::string(text); }

/// The first that holds is told.
const Conflict conflicts[] = {
    // Answers with a shape.
    {On::any, [](const Job& job) { return shapes_of(job) > 1; },
     PECIA_WHY("generation has several of schema, regex and choice"), "use one of them"},
    {On::any, [](const Job& job) { return shapes_of(job) > 0 && job.generation.ignore_eos; },
     PECIA_WHY("generation.ignore_eos with schema, regex or choice: a stop token ends such an "
               "answer"),
     "use ignore_eos: false"},
    {On::any, [](const Job& job) { return shapes_of(job) > 0 && !job.generation.stop.empty(); },
     PECIA_WHY("generation.stop with schema, regex or choice: an answer that a text ends has not "
               "its shape"),
     "leave stop out"},
    {On::any, [](const Job& job) { return shapes_of(job) > 0 && job.produce != io::Produce::text; },
     [](const Job& job) {
       return fmt::format("produce: {} with schema, regex or choice: such turns have no answer",
                          name_of(job.produce));
     },
     "leave these out, or use produce: text"},
    {On::any, [](const Job& job) { return shapes_of(job) > 0 && !grammar::why_none().empty(); },
     [](const Job&) {
       return fmt::format("generation.schema, regex and choice: {}", grammar::why_none());
     },
     nullptr},

    // Types on GPUs.
    {On::gpus, [](const Job& job) { return is_integer(job.model.dtype); },
     [](const Job& job) {
       return fmt::format("model.dtype: {} is for CPUs in this version", name_of(*job.model.dtype));
     },
     "use dtype: fp8 or bf16, or backend: cpu"},
    {On::gpus, [](const Job& job) { return is_layout(job) && is_fp8(job.model.dtype); },
     PECIA_WHY("reproducible: layout with model.dtype: fp8 is not in this version: a rank rounds "
               "its part of a row by that part's own maximum"),
     "use dtype: bf16, or reproducible: run"},
    {On::gpus,
     [](const Job& job) {
       return job.model.compute == Precision::fp32 && job.model.dtype != Precision::fp32;
     },
     PECIA_WHY("model.compute: fp32 on GPUs multiplies weights of that type alone in this version"),
     "use model.dtype: fp32, or compute: auto"},
    {On::gpus,
     [](const Job& job) { return job.model.compute == Precision::bf16 && is_fp8(job.model.dtype); },
     PECIA_WHY("model.compute: bf16 does not multiply weights of fp8 in this version"),
     "use compute: auto, or model.dtype: bf16"},

    // Types on CPUs.
    {On::cpus, [](const Job& job) { return is_layout(job) && is_integer(job.model.dtype); },
     [](const Job& job) {
       return fmt::format("reproducible: layout with model.dtype: {} is not in this version",
                          name_of(*job.model.dtype));
     },
     "use dtype: bf16, or reproducible: run"},
    {On::cpus,
     [](const Job& job) {
       const int sp = job.parallel.sp.value_or(1), tp = job.parallel.tp.value_or(1);
       return job.model.dtype == Precision::int4 && (sp > 1 || tp > 1);
     },
     [](const Job& job) {
       return fmt::format(
           "model.dtype: int4 with parallel.sp {} and parallel.tp {} is not in this version: a "
           "group of 128 numbers is not cut",
           job.parallel.sp.value_or(1), job.parallel.tp.value_or(1));
     },
     "use cp and dp, or dtype: int8"},
    {On::cpus,
     [](const Job& job) {
       const Precision held = job.model.dtype.value_or(Precision::bf16);
       return job.model.compute == Precision::bf16 && held != Precision::bf16 && !is_integer(held);
     },
     PECIA_WHY("model.compute: bf16 multiplies weights of bf16, int8 and int4 alone on CPUs"),
     "use model.dtype: bf16, or compute: auto"},
    {On::cpus, [](const Job& job) { return is_fp8(job.model.dtype); },
     PECIA_WHY("model.dtype: fp8 is for GPUs in this version"),
     "use dtype: bf16, or backend: cuda"},

    {On::any,
     [](const Job& job) {
       return job.model.compute == Precision::fp8 && job.model.dtype != Precision::fp8;
     },
     PECIA_WHY("model.compute: fp8 multiplies weights of that type alone"),
     "use model.dtype: fp8, or compute: auto"},

    // Batches and reproducibility.
    {On::any, [](const Job& job) { return is_layout(job) && job.batch.objective.tbt_s; },
     PECIA_WHY(
         "batch.objective: {tbt: …} with reproducible: layout is not in this version: prompts "
         "are cut by time, and same bits need cuts at the same tokens"),
     "use objective: auto, or reproducible: run"},
    {On::any,
     [](const Job& job) {
       return job.parallel.scheduler == TeamScheduler::loongserve && !job.parallel.cp.elastic &&
              job.parallel.cp.degree;
     },
     PECIA_WHY("parallel.scheduler: loongserve deals requests to teams that change"),
     "use cp: elastic, or scheduler: auto"},
    {On::any,
     [](const Job& job) {
       return job.parallel.scheduler == TeamScheduler::loongserve &&
              job.batch.policy == Policy::chunked;
     },
     PECIA_WHY("parallel.scheduler: loongserve reads the prompts of a batch by themselves"),
     "use policy: prefill_first, or scheduler: greedy"},
    {On::any, [](const Job& job) { return is_apart(job) && (is_layout(job) || is_csa(job)); },
     [](const Job& job) {
       return fmt::format("parallel.phases: apart with {} is not in this version: {}",
                          is_csa(job) ? "attention.sparse: csa" : "reproducible: layout",
                          is_csa(job) ? "levels follow from places that all read"
                                      : "prompts are cut by what else runs");
     },
     "use phases: together"},
    {On::any,
     [](const Job& job) {
       return is_apart(job) && job.parallel.scheduler == TeamScheduler::loongserve;
     },
     PECIA_WHY("parallel.scheduler: loongserve deals prompts to instances that answer them"),
     "use scheduler: auto, or phases: together"},
    {On::any,
     [](const Job& job) {
       const auto& parallel = job.parallel;
       return is_apart(job) &&
              ((parallel.ring && *parallel.ring != parallel::AttentionExchange::pass_kv) ||
               (parallel.decode && *parallel.decode != parallel::DecodeMode::broadcast_q &&
                parallel.cp.degree.value_or(2) > 1));
     },
     PECIA_WHY("parallel.phases: apart reads prompts in a ring that passes keys on, and sends the "
               "queries of answers to those that hold keys"),
     "use ring: auto and decode: auto"},
    {On::any,
     [](const Job& job) {
       return job.parallel.answering && job.parallel.phases == Phases::together;
     },
     PECIA_WHY("parallel.answering says how many instances answer where others read"),
     "use phases: apart, or answering: auto"},
    {On::any, [](const Job& job) { return is_layout(job) && job.model.wire == Precision::bf16; },
     PECIA_WHY("model.wire: bf16 with reproducible: layout: where sums are rounded depends on the "
               "number of ranks"),
     "use wire: auto"},
    {On::any, [](const Job& job) { return is_layout(job) && job.batch.policy == Policy::chunked; },
     PECIA_WHY("batch.policy: chunked with reproducible: layout is not in this version: where a "
               "prompt is cut depends on what else is in the batch"),
     "use policy: prefill_first"},
    {On::any, [](const Job& job) { return is_layout(job) && job.parallel.cp.elastic; },
     PECIA_WHY("parallel.cp: elastic with reproducible: layout is not in this version: teams cut "
               "sequences by what else runs"),
     "use cp: auto, or reproducible: run"},

    // Stages.
    {On::any, [](const Job& job) { return job.parallel.pp > 1 && job.parallel.cp.elastic; },
     PECIA_WHY("parallel.pp above 1 with cp: elastic is not in this version: all stages run the "
               "same plans on the same instances"),
     "use cp: auto, or pp: 1"},
    {On::any, [](const Job& job) { return job.parallel.pp > 1 && is_apart(job); },
     PECIA_WHY("parallel.pp above 1 with phases: apart is not in this version: all stages run the "
               "same plans on the same instances"),
     "use phases: together, or pp: 1"},
    {On::any, [](const Job& job) { return job.parallel.pp > 1 && is_csa(job); },
     PECIA_WHY(
         "attention.sparse: csa with parallel.pp above 1 is not in this version: what a layer "
         "weighs is for the next one, which may be in another stage"),
     "use pp: 1, or sparse: off"},

    {On::any,
     [](const Job& job) {
       return job.parallel.pp > 1 && (job.batch.objective.objective == Objective::ttft ||
                                      job.batch.objective.tbt_s.has_value());
     },
     PECIA_WHY("parallel.pp above 1 with batch.objective: ttft or {tbt: …} is not in this version: "
               "passes under way are not waited for"),
     "use objective: throughput, or pp: 1"},

    // Sparse attention.
    {On::any,
     [](const Job& job) {
       return is_csa(job) && job.attention.objective != AttentionGoal{} && !is_tuned(job);
     },
     [](const Job& job) {
       return fmt::format(
           "attention.objective: {} needs a tuned file: use attention.drop: {{file: tuned.json}} "
           "with one that pecia tune wrote, or objective: off",
           in_words(attention_goal().write(job.attention.objective)));
     },
     nullptr},
    {On::any,
     [](const Job& job) {
       return is_csa(job) && job.attention.first_tokens &&
              job.attention.geometry == parallel::Geometry::nested;
     },
     [](const Job& job) {
       return fmt::format(
           "attention.first_tokens: {} with geometry: nested is not in this version: nested levels "
           "are as published, without tokens that all rows see",
           *job.attention.first_tokens);
     },
     "use geometry: disjoint, or first_tokens: auto"},
    {On::any,
     [](const Job& job) { return is_csa(job) && is_tuned(job) && job.attention.first_tokens; },
     [](const Job& job) {
       return fmt::format(
           "attention.drop: {{file: {}}} is of pecia tune, which measures with first_tokens: auto",
           job.attention.drop->file.string());
     },
     "leave that key out"},
    {On::any,
     [](const Job& job) { return is_csa(job) && job.attention.decode == SparseDecode::sparse; },
     PECIA_WHY("attention.decode: sparse is not in this version: output tokens attend to all keys"),
     "use decode: dense"},
    {On::any, [](const Job& job) { return is_csa(job) && job.parallel.cp.elastic; },
     PECIA_WHY("attention.sparse: csa with parallel.cp: elastic is not in this version: levels "
               "follow from the ranks' places, and teams change from pass to pass"),
     "use cp: auto, or sparse: off"},
    {On::any,
     [](const Job& job) { return is_csa(job) && job.parallel.ring == AttentionExchange::pass_q; },
     PECIA_WHY("attention.sparse: csa with parallel.ring: pass_q is not in this version: csa sends "
               "keys, and pass_q leaves them where they are"),
     "use ring: auto"},
    {On::any,
     [](const Job& job) {
       const auto decode = job.parallel.decode;
       return is_csa(job) && (decode == DecodeMode::sp || decode == DecodeMode::shift);
     },
     [](const Job& job) {
       return fmt::format(
           "attention.sparse: csa with parallel.decode: {0} is not in this version: csa keeps keys "
           "with their tokens, and {0} needs them by heads",
           name_of(*job.parallel.decode));
     },
     "use decode: auto"},
    {On::any, [](const Job& job) { return is_csa(job) && job.batch.policy == Policy::chunked; },
     PECIA_WHY("attention.sparse: csa with batch.policy: chunked is not in this version: which "
               "tokens count is seen from a prompt's last rows, before which its chunks are read"),
     "use policy: prefill_first"},
    {On::any, [](const Job& job) { return is_csa(job) && job.batch.objective.tbt_s; },
     PECIA_WHY("attention.sparse: csa with batch.objective: {tbt: …} is not in this version: which "
               "tokens count is seen from a prompt's last rows, before which its chunks are read"),
     "use objective: auto, or sparse: off"},
    {On::any, [](const Job& job) { return is_csa(job) && is_layout(job); },
     PECIA_WHY("attention.sparse: csa with reproducible: layout is not in this version: levels "
               "follow from the ranks' places, so each layout drops other tokens"),
     "use reproducible: run, or sparse: off"},
};

#undef PECIA_WHY

void refuse_first(const Job& job, On on) {
  for (const Conflict& conflict : conflicts) {
    if (conflict.on != on || !conflict.holds(job)) continue;
    if (conflict.nearest == nullptr) fail<Unsupported>("{}", conflict.why(job));
    fail<Unsupported>("{}; {}", conflict.why(job), conflict.nearest);
  }
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

}  // namespace

void refuse_on_gpus(const Job& job, int compute_capability) {
  refuse_first(job, On::gpus);
  constexpr int first_with_fp8 = 89;
  if (is_fp8(job.model.dtype) && compute_capability < first_with_fp8)
    fail<Unsupported>(
        "model.dtype: fp8 needs GPUs of compute capability 8.9 or newer, this one has {}.{}; use "
        "dtype: bf16",
        compute_capability / 10, compute_capability % 10);
}

void refuse_on_cpus(const Job& job) {
  refuse_first(job, On::cpus);
}

void refuse_unimplemented(const Job& job) {
  if (job.backend == BackendKind::cuda && !device::has_cuda())
    fail<Unsupported>(
        "backend: cuda: this pecia was built without CUDA; use backend: cpu, or build the preset "
        "cuda");
  if (job.backend == BackendKind::cuda) refuse_first(job, On::gpus);
  if (job.backend == BackendKind::cpu || !device::has_cuda()) refuse_first(job, On::cpus);
  refuse_first(job, On::any);
  if (!is_csa(job)) refuse_attention_keys_without_csa(job);
}

}  // namespace pecia::job
