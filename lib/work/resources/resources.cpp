// SPDX-License-Identifier: Apache-2.0
#include "lib/work/resources/resources.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "kernels/api/gpu_traits.hpp"
#include "lib/base/core/codes.hpp"
#include "lib/model/attention/latent_tiles.hpp"
#include "lib/model/attention/recent_slots.hpp"
#include "lib/model/config/stage.hpp"
#include "lib/model/layers/model.hpp"
#include "lib/ranks/cluster/machine.hpp"
#include "lib/ranks/parallel/virtual_ranks.hpp"
#include "lib/work/resources/layer_refusals.hpp"
#include "lib/work/resources/sequences_at_once.hpp"

namespace pecia::resources {

namespace {

/// Returns what the job wants of sparse attention. Without a share nothing is dropped.
std::optional<parallel::SparseSetting> sparse_setting(const job::Job::Attention& attention) {
  if (attention.sparse == job::Sparse::off) return {};
  const job::DropSetting drop = attention.drop.value_or(job::DropSetting{});
  parallel::SparseSetting setting{{attention.geometry, drop.share},
                                  attention.levels,
                                  attention.pipeline,
                                  attention.first_tokens};
  set_drops(drop, setting);
  return setting;
}

/// Half of the instances answer until it is known how many are best.
void resolve_phases(const job::Job::Parallel& parallel, Resources& resources) {
  const bool apart = parallel.phases == job::Phases::apart;
  resources.elastic = (parallel.cp.elastic || apart) && resources.cp > 1;
  resources.answering = apart ? parallel.answering.value_or(std::max(1, resources.cp / 2)) : 0;
  resources.fixed_parts = apart && !parallel.cp.elastic;
  if (apart && resources.answering >= resources.cp)
    fail<InputError>(
        "parallel.phases: apart lets {} of {} instances answer, and none is left to read: {}",
        resources.answering, resources.cp,
        resources.cp == 1 ? "use cp 2 or more, or phases: together" : "use answering: auto");
}

/// Sets the degrees so that they fill the ranks. The first of cp, dp, tp, sp and pp that is auto takes
/// what the given ones leave, and the others are 1.
void resolve_degrees(const job::Job::Parallel& parallel, int num_ranks, Resources& resources) {
  // Each factor may be a million; beyond the number of ranks the exact product does not matter.
  int64_t ranks = 1;
  int* filling = nullptr;
  const auto take = [&](const std::optional<int>& degree, int& into) {
    into = degree.value_or(1);
    if (!degree && filling == nullptr) filling = &into;
    if (__builtin_mul_overflow(ranks, int64_t{into}, &ranks)) ranks = INT64_MAX;
  };
  take(parallel.cp.degree, resources.cp), take(parallel.dp, resources.dp);
  take(parallel.tp, resources.tp), take(parallel.sp, resources.sp);
  take(parallel.pp, resources.pp);
  if (filling != nullptr) {
    *filling = static_cast<int>(std::max<int64_t>(1, num_ranks / ranks));
    ranks *= *filling;
  }
  if (ranks != num_ranks)
    fail<InputError>(
        "parallel.dp {}{} × cp {} × sp {} × tp {} is not the number of ranks, {}: use cp auto and "
        "dp, {}sp and tp whose product divides {}, or start {} ranks",
        resources.dp, resources.pp > 1 ? fmt::format(" × pp {}", resources.pp) : "", resources.cp,
        resources.sp, resources.tp, num_ranks, resources.pp > 1 ? "pp, " : "", num_ranks,
        ranks == INT64_MAX ? "that many" : std::to_string(ranks));
  resolve_phases(parallel, resources);
  resources.max_instances = parallel.elastic.max.value_or(resources.cp);
  resources.min_instances = parallel.elastic.min;
  if (resources.elastic &&
      std::max(resources.max_instances, resources.min_instances) > resources.cp)
    fail<InputError>("parallel.elastic asks for {} instances, a replica has {}: use max auto",
                     std::max(resources.max_instances, resources.min_instances), resources.cp);
}

/// Levels of TP send no tokens that micro-partitions could hide.
void settle_micro_head_parallel(Resources& resources) {
  std::optional<parallel::Micros>& micros = resources.sparse->micros;
  if (micros && *micros != parallel::Micros{1})
    fail<InputError>(
        "attention.pipeline: {} needs cp or sp above 1, but the grid is {}, where no tokens travel "
        "for levels: use pipeline auto",
        parallel::to_string(*micros), to_string(resources.degrees()));
  if (!micros) resources.reasons.add("levels in 1 part: no tokens travel for them");
  micros = {1};
}

}  // namespace

void set_drops(const job::DropSetting& drop, parallel::SparseSetting& setting) {
  setting.layer_drops = drop.layers;
  setting.rule.drop = drop.layers.empty() ? drop.share : parallel::mean_drop(drop.layers);
}

std::vector<comm::RackServerGpu> Resources::level_places(
    std::span<const comm::RackServerGpu> replica) const {
  std::vector<comm::RackServerGpu> places;
  const size_t step = cp > 1 ? static_cast<size_t>(sp) * tp : 1;
  PECIA_CHECK(std::ssize(replica) >= degrees().ranks(), "{} places for {} ranks", replica.size(),
              degrees().ranks());
  for (int part = 0; part < level_parts(); ++part)
    places.push_back(replica[static_cast<size_t>(part) * step]);
  return places;
}

bool may_be_apart(const job::Job& job, const model::ModelConfig& config,
                  const Resources& resources) {
  const job::Job::Parallel& parallel = job.parallel;
  if (resources.cp == 1 || resources.pp > 1 || resources.sparse ||
      parallel.scheduler == job::TeamScheduler::loongserve)
    return false;
  const parallel::Setting setting{.degrees = resources.degrees(),
                                  .prefill = parallel.prefill,
                                  .ring = parallel.ring,
                                  .decode = parallel.decode,
                                  .shift_threshold = parallel.shift_threshold,
                                  .reproducible = job.reproducible,
                                  .elastic = true};
  return !parallel::refusal(setting, shape_of(config)).has_value();
}

bool may_become_elastic(const job::Job& job, const model::ModelConfig& config,
                        const Resources& resources) {
  const job::Job::Parallel& parallel = job.parallel;
  if (parallel.cp.degree || resources.elastic || resources.cp == 1 || resources.pp > 1 ||
      resources.sparse)
    return false;
  if (parallel.prefill || parallel.ring || parallel.decode || parallel.shift_threshold)
    return false;
  const parallel::Setting setting{.degrees = resources.degrees(),
                                  .prefill = {},
                                  .ring = {},
                                  .decode = {},
                                  .shift_threshold = {},
                                  .reproducible = job.reproducible,
                                  .elastic = true};
  return !parallel::refusal(setting, shape_of(config)).has_value();
}

void resolve_grid(const job::Job& job, const model::ModelConfig& config, int num_ranks,
                  Resources& resources) {
  refuse_with_layers(job, config);
  resolve_degrees(job.parallel, num_ranks, resources);
  if (!job.parallel.pp && resources.pp > 1) {  // it was open where the job was checked
    job::Job settled = job;
    settled.parallel.pp = resources.pp;
    job::refuse_unimplemented(settled);
  }
  model::layers_of_stages(config, resources.pp);  // refuses stages that the layers do not allow
  resources.ep = job.parallel.ep.value_or(1);
  resources.sparse = sparse_setting(job.attention);
  std::optional<parallel::PrefillMode> prefill = job.parallel.prefill;
  if (resources.sparse) {
    resources.cp *= std::exchange(resources.sp, 1);
    const bool exchanges_heads =
        prefill == parallel::PrefillMode::ulysses || prefill == parallel::PrefillMode::usp;
    if (resources.cp > 1 && exchanges_heads) prefill.reset();  // the heads that levels exchange
  }
  // Passes in stages are not ordered by time.
  const bool replays = job.batch.arrivals == job::Arrivals::replay && resources.pp == 1;
  resources.objective = job.batch.objective.objective.value_or(
      replays ? job::Objective::ttft : job::Objective::throughput);
  const bool deals = resources.objective == job::Objective::ttft &&
                     job.batch.policy == job::Policy::prefill_first && resources.answering == 0;
  if (resources.elastic)
    resources.scheduler = job.parallel.scheduler.value_or(deals ? job::TeamScheduler::loongserve
                                                                : job::TeamScheduler::greedy);
  const parallel::Setting setting{resources.degrees(),
                                  prefill,
                                  job.parallel.ring,
                                  job.parallel.decode,
                                  job.parallel.shift_threshold,
                                  job.reproducible,
                                  resources.elastic,
                                  job.parallel.gather_threshold};
  const parallel::ModelShape shape = shape_of(config);
  if (const auto refused = parallel::refusal(setting, shape))
    fail<InputError>("{}", refused->text());
  // The choice depends on the tokens only with TP alone. There, the passes of auto are cut over all
  // ranks.
  const int64_t tokens =
      resolve_batch_tokens(job, config, static_cast<int>(setting.degrees.ranks()), resources.gpus);
  const auto choice = parallel::choose_modes(setting, shape, tokens);
  resources.prefill = choice.prefill;
  resources.ring = choice.ring;
  resources.decode = choice.decode;
  resources.shift_threshold = job.parallel.shift_threshold;
  resources.gather_threshold = choice.gather_threshold;
  resources.reasons = choice.reasons;
  if (resources.pp > 1 && job.batch.arrivals == job::Arrivals::replay &&
      !job.batch.objective.objective)
    resources.reasons.add("objective throughput: passes in stages do not go by time");
  if (resources.cp == 1 && resources.levels_from()) settle_micro_head_parallel(resources);
}

namespace {

/// What ranks of TP cut of an average layer's mixer; 0: q, k, v and o of heads that are alike.
int64_t cut_elements_of_mixers(const model::ModelConfig& config) {
  using enum model::MatrixKind;
  if (!config.latent && !config.full_heads && !config.recurrent && config.sharing_layers == 0)
    return 0;
  int64_t elements = 0;
  for (int64_t layer = 0; layer < config.layers; ++layer)
    for (const model::MatrixKind kind :
         {q, k, v, key_up, value_up, head_keys, o, recurrent_q, recurrent_k, recurrent_v,
          recurrent_z, recurrent_a, recurrent_b, recurrent_o})
      if (num_matrices(config, kind, layer) > 0)
        elements +=
            model::role_of(kind).out(config, layer) * model::role_of(kind).in(config, layer);
  return elements / std::max<int64_t>(1, config.layers);
}

}  // namespace

parallel::ModelShape shape_of(const model::ModelConfig& config) {
  using model::FeedForward;
  const int64_t of_experts =
      config.experts ? config.experts->count * config.experts->ffn + config.experts->shared_ffn : 0;
  int64_t all_ffn = config.num_layers(FeedForward::experts) * of_experts;
  for (int64_t layer = 0; layer < config.layers; ++layer)
    if (config.has_dense_ffn(layer)) all_ffn += config.ffn_of(layer);
  const int64_t mean_dim =
      config.full_heads ? std::llround(config.attention_flops_per_pair() /
                                       static_cast<double>(4 * config.num_heads * config.layers))
                        : (config.head_dim + config.value_dim()) / 2;
  return {.num_heads = config.num_heads,
          .num_kv_heads = config.num_kv_heads,
          .full_kv_heads = config.full_heads ? config.full_heads->count : 0,
          .ffn = config.common_ffn(),
          .hidden = config.hidden,
          .head_dim = mean_dim,
          .all_ffn = all_ffn / std::max<int64_t>(1, config.layers),
          .experts = config.num_layers(FeedForward::experts) > 0 ? config.experts->count : 0,
          .dense_ffn = config.ffn_of_all_tokens(),
          .ffn_matrices = config.matrices_of_ffn(),
          .attention_weights = cut_elements_of_mixers(config),
          .recurrent_heads = config.recurrent ? config.recurrent->heads : 0,
          .recurrent_key_heads = config.recurrent ? config.recurrent->key_heads : 0};
}

DType dtype_of(job::Precision precision) {
  switch (precision) {
    case job::Precision::fp32:
      return DType::fp32;
    case job::Precision::bf16:
      return DType::bf16;
    case job::Precision::fp16:
      return DType::fp16;
    case job::Precision::fp8:
    case job::Precision::fp8_ffn:
      return DType::fp8;
    case job::Precision::int8:
      return DType::int8;
    case job::Precision::int4:
      return DType::int4;
  }
  PECIA_CHECK(false, "precision {}", static_cast<int>(precision));
}

DType held_dtype(const job::Job& job, const model::ModelConfig& config) {
  return job.model.dtype ? dtype_of(*job.model.dtype) : config.stored_dtype.value_or(DType::fp32);
}

int64_t activation_bytes(bool gpus) {
  return gpus ? int64_t{4} << 30 : int64_t{128} << 20;
}

namespace {

/// Products of rows with experts wait for their sum, and experts that are codes may be widened.
int64_t gpu_bytes_of_experts(const job::Job& job, const model::ModelConfig& config) {
  if (!config.experts) return 0;
  const bool rounded = quantize_of(job) != model::Quantize::nothing;
  const bool codes = rounded || (config.quantization && !job.model.dtype);
  return kernels::gpu_expert_bytes + (codes ? kernels::gpu_widened_expert_bytes : 0);
}

/// With fewer rows for each expert of a mixture, reading and widening the experts' weights shows in the
/// time of their products.
int64_t tokens_that_fill_experts(const model::ModelConfig& config) {
  constexpr int64_t least_rows = 64;  // an average
  return config.experts ? least_rows * config.experts->count / config.experts->per_token : 0;
}

/// Each pass makes keys and values of all cached latents again. With more tokens that takes less than a
/// quarter of what attending them takes.
int64_t tokens_that_pay_for_keys(const model::ModelConfig& config) {
  if (!config.latent) return 0;
  const model::LatentConfig& latent = *config.latent;
  return 4 * latent.kv_rank * (latent.nope_dim + latent.value_dim) /
         (latent.query_dim() + latent.value_dim);
}

/// The fewest tokens of a pass on CPUs.
int64_t least_tokens(const model::ModelConfig& config) {
  const int64_t tokens =
      std::max(tokens_that_fill_experts(config), tokens_that_pay_for_keys(config));
  return std::clamp<int64_t>((tokens + 255) / 256 * 256, 256, 4096);
}

}  // namespace

int64_t resolve_batch_tokens(const job::Job& job, const model::ModelConfig& config, int row_ranks,
                             bool gpus) {
  if (job.batch.max_batch_tokens) return *job.batch.max_batch_tokens;
  const bool rounds_gates = gpus && job.reproducible != parallel::Reproducible::layout &&
                            kernels::gpu_operand_type(held_dtype(job, config)) == DType::bf16;
  int64_t row_bytes =
      model::Model::activation_bytes_per_row(config, rounds_gates ? DType::bf16 : DType::fp32);
  if (gpus)
    row_bytes += kernels::library_bytes_per_row(config.num_heads, config.widest_heads().dim);
  if (gpus && config.latent)  // of products of heads, rounded
    row_bytes += config.num_heads * size_of(DType::bf16) *
                 std::max(config.latent->query_dim(), config.latent->kv_rank);
  const bool widens_keys = gpus && job.kv.dtype == job::Precision::fp8;
  int64_t bytes = activation_bytes(gpus);
  if (widens_keys) bytes -= kernels::library_key_bytes;
  if (gpus) bytes -= gpu_bytes_of_experts(job, config);
  if (config.latent) bytes -= attention::most_expanded_bytes(gpus);
  const int64_t rows = bytes / row_bytes;
  const int ranks =
      job.reproducible == parallel::Reproducible::layout ? 1 : row_ranks;  // cuts show in the bits
  return std::clamp<int64_t>(rows / 256 * 256, gpus ? 256 : least_tokens(config),
                             gpus ? 16384 : 4096) *
         ranks;
}

model::Quantize quantize_of(const job::Job& job) {
  if (job.model.dtype == job::Precision::fp8) return model::Quantize::fp8;
  if (job.model.dtype == job::Precision::fp8_ffn) return model::Quantize::fp8_ffn;
  if (job.model.dtype == job::Precision::int8) return model::Quantize::int8;
  if (job.model.dtype == job::Precision::int4) return model::Quantize::int4;
  return model::Quantize::nothing;
}

model::CodeUse code_use(const job::Job& job, const model::ModelConfig& config, int cut_ranks,
                        int ep, bool gpus) {
  if (job.model.dtype && quantize_of(job) == model::Quantize::nothing) return {.kept = false};
  return model::codes_kept(config, cut_ranks, job.reproducible == parallel::Reproducible::layout,
                           ep, gpus);
}

model::CodeUse code_use(const job::Job& job, const model::ModelConfig& config,
                        const Resources& resources) {
  return code_use(job, config, resources.sp * resources.tp, resources.ep, resources.gpus);
}

void require_room(const model::WeightViews& weights, model::Quantize quantize, int64_t free_bytes,
                  bool gpu) {
  const int64_t needed = model::DeviceWeights::bytes_of(weights, quantize);
  const int64_t room = free_bytes - activation_bytes(gpu);
  if (needed <= room) return;
  const int64_t whole = needed * std::max(weights.part.count, weights.part.expert_ranks);
  fail<InputError>(
      "the weights of a rank are {} bytes, its {} {} free, of which {} are for activations: "
      "{}take a narrower model.dtype or {} that nobody else uses",
      needed, gpu ? "GPU has" : "share of the host's memory has", free_bytes, activation_bytes(gpu),
      room > 0 ? fmt::format("use parallel.tp {} or more or stages (parallel.pp), ",
                             (whole + room - 1) / room)
               : "",
      gpu ? "GPUs" : "hosts");
}

void require_fp8_widths(const model::ModelConfig& config, const Resources& resources) {
  constexpr int64_t unit = 16;  // cuBLASLt's
  const auto require = [&](int64_t width, const std::string& name) {
    if (width % unit != 0)
      fail<InputError>(
          "model.dtype: fp8 needs widths that {} divides, and {} is {}; use dtype: bf16, or other "
          "degrees of sp and tp",
          unit, name, width);
  };
  require(config.hidden, "hidden_size");
  require(config.head_dim, "head_dim");
  if (config.recurrent) {
    require(config.recurrent->key_dim, "the key dimension of recurrent layers");
    require(config.recurrent->value_dim, "the value dimension of recurrent layers");
  }
  if (config.num_layers(model::FeedForward::dense) == 0) return;  // experts have any width
  for (const int parts : {resources.tp, resources.sp * resources.tp})
    for (int part = 0; part < parts; ++part)
      require(model::unit_part(config, model::CutUnit::ffn, {parts, part}).size(),
              fmt::format("a part of intermediate_size cut in {}", parts));
}

int64_t free_host_bytes(comm::Communicator& world) {
  return cluster::memory_facts().available_bytes / world.split_by_host()->size();
}

namespace {

/// The most that some stage has of this.
int64_t most_of_stages(const model::ModelConfig& config, const Resources& resources,
                       const std::function<int64_t(const model::ModelConfig&)>& bytes) {
  if (resources.pp == 1 || config.stage.count > 1) return bytes(config);
  int64_t most = 0;
  for (int stage = 0; stage < resources.pp; ++stage)
    most = std::max(most, bytes(model::stage_of(config, resources.pp, stage)));
  return most;
}

}  // namespace

int64_t kv_bytes_of_rank(const model::ModelConfig& config, const Resources& resources) {
  return most_of_stages(config, resources, [&](const model::ModelConfig& stage) {
    return stage.kv_bytes_per_token(resources.kv_dtype, int64_t{resources.sp} * resources.tp);
  });
}

int64_t sequences_for(const BatchWork& work, const model::ModelConfig& config,
                      const Resources& resources) {
  constexpr int64_t most = 256;
  constexpr double weight_rows_cpu = 32, weight_rows_gpu = 300;
  const auto count = static_cast<double>(std::max<int64_t>(work.answers, 1));
  const AnswerCost cost{work.flops / config.flops_per_token() / count,
                        static_cast<double>(work.answer_tokens) / count};
  // Instances that work apart are like replicas.
  const int apart = resources.dp * (resources.elastic ? resources.cp : 1);
  const int64_t of_replica =
      std::max<int64_t>(1, (std::max(work.answers, work.requests) + apart - 1) / apart);
  const int64_t sequences =
      sequences_at_once(cost, resources.gpus ? weight_rows_gpu : weight_rows_cpu, of_replica,
                        std::min(most, of_replica));
  // Short prompts fill a pass together.
  const int64_t mean_prompt = work.prompt_tokens / std::max<int64_t>(1, work.requests) + 1;
  const int64_t together = std::clamp(resources.max_batch_tokens / mean_prompt, sequences, most);
  return resources.elastic ? together * resources.cp : together;
}

int64_t resolve_max_sequences(const job::Job& job, const model::ModelConfig& config,
                              const batch::Inputs* inputs, const Resources& resources) {
  if (job.batch.max_sequences) return *job.batch.max_sequences;
  if (inputs == nullptr) return 1;
  BatchWork all{.requests = static_cast<int64_t>(inputs->requests().size()),
                .prompt_tokens = inputs->prompt_tokens() - inputs->shared_tokens()};
  for (const batch::InputRequest& request : inputs->requests()) {
    all.flops += request.work;
    for (size_t turn = 0; turn < inputs->prompt(request).turns.size(); ++turn) {
      const int64_t tokens = inputs->answer_tokens(request, turn);
      all.answers += tokens > 0;
      all.answer_tokens += tokens;
    }
  }
  return sequences_for(all, config, resources);
}

int64_t most_slots(const job::Job& job, const batch::Inputs& inputs,
                   const batch::InputRequest& request, const Resources& resources) {
  const int shares = resources.shares();
  const int dealt_to =
      job.reproducible == parallel::Reproducible::layout ? parallel::layout_ranks : shares;
  return dealt_to / shares * inputs.max_slots(request, dealt_to, resources.max_batch_tokens);
}

namespace {

/// Of the layers with a window; the bytes are of a token on a rank that holds it.
struct WindowLayers {
  int64_t widest = 0;  ///< 0: there are none
  int64_t bytes = 0;   ///< of the stage that has most, as are:
  int64_t others = 0;  ///< those of the other layers
};

WindowLayers window_layers(const model::ModelConfig& config, const Resources& resources) {
  WindowLayers found;
  found.widest = config.widest_window().tokens;
  const int64_t ranks = int64_t{resources.sp} * resources.tp;
  const auto of_windows = [&](const model::ModelConfig& stage) {
    return stage.window_bytes_per_token(resources.kv_dtype, ranks);
  };
  found.bytes = most_of_stages(config, resources, of_windows);
  found.others = most_of_stages(config, resources, [&](const model::ModelConfig& stage) {
    return stage.kv_bytes_per_token(resources.kv_dtype, ranks) - of_windows(stage);
  });
  return found;
}

/// Tokens that teams move, that levels look for, or that virtual ranks hold may lie anywhere.
bool may_keep_recent_alone(const job::Job& job, const Resources& resources) {
  return job.kv.keep == job::KvKeeping::what_is_read && !resources.elastic && !resources.sparse &&
         job.reproducible != parallel::Reproducible::layout;
}

/// Stems of forks keep their tokens beside the sequences that run, and each of them has a branch
/// that runs. A rank has a share of a pass's rows, and of each sequence up to two more.
int64_t enough_recent_slots(int64_t window, const Resources& resources) {
  const int64_t sequences = 2 * resources.max_sequences;
  return attention::RecentSlots::enough(
      window + attention::RecentSlots::margin, sequences,
      resources.max_batch_tokens / resources.shares() + 2 * sequences);
}

}  // namespace

KvSlots kv_slots(const job::Job& job, const model::ModelConfig& config, const Resources& resources,
                 int64_t memory, int64_t wanted) {
  const int64_t per_token = kv_bytes_of_rank(config, resources);
  const int64_t room = memory / per_token;
  const KvSlots all{std::min(room, wanted), 0, room};
  const WindowLayers windows = window_layers(config, resources);
  if (windows.widest == 0 || !may_keep_recent_alone(job, resources)) return all;
  const int64_t recent = enough_recent_slots(windows.widest, resources);
  const int64_t others = windows.others;
  const int64_t wider = memory / windows.bytes < recent ? 0
                        : others == 0                   ? wanted
                                      : (memory - recent * windows.bytes) / others;
  const KvSlots alone{std::min(wider, wanted), recent, wider};
  const bool gains =
      alone.tokens > all.tokens || (alone.tokens == all.tokens && recent < all.tokens);
  return gains ? alone : all;
}

int64_t kv_memory_of_rank(const model::ModelConfig& config, const Resources& resources) {
  const int64_t per_token = kv_bytes_of_rank(config, resources);
  if (resources.kv_recent_tokens == 0) return resources.kv_tokens * per_token;
  return most_of_stages(config, resources, [&](const model::ModelConfig& stage) {
    const WindowLayers windows = window_layers(stage, resources);
    return resources.kv_tokens * windows.others + resources.kv_recent_tokens * windows.bytes;
  });
}

int64_t most_states(const job::Job& job, const model::ModelConfig& config,
                    const batch::Inputs* inputs, const Resources& resources) {
  if (!config.recurrent) return 0;
  const bool shares =
      inputs != nullptr &&
      (inputs->shared_tokens() > 0 ||
       std::ranges::any_of(inputs->requests(), [&](const batch::InputRequest& request) {
         return inputs->followup(request) == io::Followup::fork ||
                inputs->longest_continuation(request, 0) > 0;
       }));
  return (1 + (shares ? 1 : 0) + (job.generation.drafts ? 1 : 0)) * resources.max_sequences;
}

int64_t state_memory_of_rank(const model::ModelConfig& config, const Resources& resources) {
  return resources.states * most_of_stages(config, resources, [&](const model::ModelConfig& stage) {
           return stage.state_bytes(int64_t{resources.sp} * resources.tp);
         });
}

int64_t reserved_bytes(int64_t free_bytes, bool gpus) {
  const int64_t fifth = free_bytes / 5;
  return gpus ? std::min(fifth, int64_t{2} << 30) : fifth;
}

namespace {

int64_t kv_memory(const job::Job& job, const Resources& resources, int64_t free_bytes) {
  return job.kv.memory.value_or(free_bytes - reserved_bytes(free_bytes, resources.gpus));
}

/// As many sequences as auto has taken, but not so many that their states take more than half of the
/// memory for keys and states.
int64_t sequences_with_states(const job::Job& job, const model::ModelConfig& config,
                              const batch::Inputs* inputs, const Resources& resources,
                              int64_t free_bytes) {
  if (!config.recurrent || job.batch.max_sequences) return resources.max_sequences;
  Resources one = resources;
  one.max_sequences = 1;
  one.states = most_states(job, config, inputs, one);
  const int64_t each = state_memory_of_rank(config, one);
  const int64_t half = kv_memory(job, resources, free_bytes) / 2;
  return std::clamp<int64_t>(half / each, 1, resources.max_sequences);
}

}  // namespace

KvSlots resolve_kv_slots(const job::Job& job, const model::ModelConfig& config,
                         const batch::Inputs* inputs, const Resources& resources,
                         int64_t free_bytes) {
  const int64_t states = state_memory_of_rank(config, resources);
  const int64_t memory = kv_memory(job, resources, free_bytes) - states;
  // The slots that the largest requests of a full batch use together.
  int64_t most = 1;
  if (inputs != nullptr) {
    std::vector<int64_t> wanted;
    for (const batch::InputRequest& request : inputs->requests())
      wanted.push_back(most_slots(job, *inputs, request, resources));
    std::sort(wanted.begin(), wanted.end(), std::greater<>());
    for (size_t i = 0; i < wanted.size() && static_cast<int64_t>(i) < resources.max_sequences; ++i)
      if (__builtin_add_overflow(most, wanted[i], &most))
        most = std::numeric_limits<int64_t>::max();
  }
  const KvSlots slots = kv_slots(job, config, resources, memory, most);
  if (slots.tokens < 1)
    fail<InputError>(
        "kv.memory of {} bytes on a rank holds no token of {} bytes{}; raise it, or free memory",
        memory + states, kv_bytes_of_rank(config, resources),
        states > 0 ? fmt::format(" beside {} bytes for {} states of recurrent layers: lower "
                                 "batch.max_sequences",
                                 states, resources.states)
                   : "");
  return slots;
}

DType wire_of(const job::Job& job, DType operands) {
  if (job.reproducible == parallel::Reproducible::layout) return DType::fp32;
  if (job.model.wire) return dtype_of(*job.model.wire);
  return operands == DType::bf16 ? DType::bf16 : DType::fp32;
}

DType resolve_kv_dtype(const job::Job& job, DType matrices, DType embedding) {
  if (job.kv.dtype) return dtype_of(*job.kv.dtype);
  return is_code(matrices) ? embedding : matrices;
}

void Memory::write_to(Resources& resources) const {
  resources.kv_dtype = kv_dtype;
  resources.max_batch_tokens = max_batch_tokens;
  resources.max_sequences = max_sequences;
  resources.states = states;
  kv.write_to(resources);
}

Memory settle_memory(const job::Job& job, const model::ModelConfig& config,
                     const Resources& resources, const MemoryFacts& facts,
                     const batch::Inputs* inputs) {
  Resources settled = resources;
  settled.kv_dtype = resolve_kv_dtype(job, facts.matrices, facts.embedding);
  parallel::Degrees pass = resources.degrees();
  if (resources.elastic) pass.cp = 1;  // for each instance of a team
  settled.max_batch_tokens = resolve_batch_tokens(
      job, config, parallel::row_ranks(pass, resources.prefill), resources.gpus);
  settled.max_sequences = resolve_max_sequences(job, config, inputs, settled);
  settled.max_sequences = sequences_with_states(job, config, inputs, settled, facts.free_bytes);
  settled.states = most_states(job, config, inputs, settled);
  return {settled.kv_dtype, settled.max_batch_tokens, settled.max_sequences, settled.states,
          resolve_kv_slots(job, config, inputs, settled, facts.free_bytes)};
}

std::string mode_name(const Resources& resources, std::string_view ring) {
  if (resources.prefill == parallel::PrefillMode::single) return "single";
  const std::string_view taken = resources.cp == 1                      ? ""
                                 : resources.ring && !resources.elastic ? name_of(*resources.ring)
                                 : resources.elastic && ring == "auto"  ? "elastic"
                                                                        : ring;
  const bool levels = resources.levels_from() &&
                      (ring == "auto" || ring == name_of(parallel::AttentionExchange::levels));
  const std::string_view gathers_rows = name_of(parallel::PrefillMode::sp_tp);
  if (resources.gather_threshold && ring == gathers_rows)
    return fmt::format("{}+{}", gathers_rows, name_of(resources.decode));
  return fmt::format("{}{}{}+{}{}", name_of(resources.prefill),
                     resources.cp > 1 || levels ? "/" : "",
                     levels ? name_of(parallel::AttentionExchange::levels) : taken,
                     name_of(resources.decode), levels ? "+csa" : "");
}

}  // namespace pecia::resources
