// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/tune/tuned_setting.hpp"

#include "lib/base/core/build_info.hpp"
#include "lib/simulation/tune/tuned_file.hpp"

namespace pecia::tune {
namespace {

void take(const Resolved& resolved, job::Job& job, resources::Resources& resources) {
  const Setting& setting = resolved.setting;
  job.attention.drop = resolved.layers.empty() ? job::DropSetting{setting.drop, {}}
                                               : job::DropSetting{0, {}, resolved.layers};
  job.attention.levels = setting.levels;
  job.attention.pipeline = setting.micros;
  job.attention.objective = {};
  if (resources.sparse) {
    resources::set_drops(*job.attention.drop, *resources.sparse);
    resources.sparse->levels = setting.levels;
    resources.sparse->micros = setting.micros;
  }
  resources.reasons.add(resolved.why);
}

}  // namespace

LevelsHere levels_by_place(const std::vector<comm::RackServerGpu>& places) {
  return [servers = comm::server_of_rank(places), racks = comm::rack_of_rank(places)](
             std::optional<int> count) { return parallel::levels_of(servers, racks, count); };
}

bool is_tuned(const job::Job& job) {
  const job::Job::Attention& attention = job.attention;
  return attention.sparse == job::Sparse::csa && attention.drop && !attention.drop->file.empty();
}

std::optional<TunedQuestion> settle_tuned(job::Job& job, const model::ModelConfig& config,
                                          int64_t longest_tokens, const LevelsHere& levels_here,
                                          resources::Resources& resources) {
  if (!is_tuned(job)) return {};
  const job::Job::Attention& attention = job.attention;
  const std::filesystem::path file = attention.drop->file;
  Wanted wanted;
  wanted.file = file.string();
  wanted.version = build_info().version;
  wanted.model_path = job.model.path.string(), wanted.config_sha256 = config.sha256;
  wanted.cp = resources.cp, wanted.tp = resources.tp;
  wanted.geometry = attention.geometry;
  wanted.levels = attention.levels;
  wanted.micros = attention.pipeline;
  wanted.levels_here = levels_here;
  wanted.longest_tokens = longest_tokens;
  wanted.goal = {attention.objective.loss, attention.objective.ttft_s,
                 attention.objective.retrieval};
  if (attention.objective == job::AttentionGoal{}) wanted.goal.loss = 0;
  TunedQuestion question{read_tuned(file), wanted};
  take(resolve(question.tuned, wanted), job, resources);
  return question;
}

bool settle_tuned_again(TunedQuestion question, const parallel::RingRates& rates, job::Job& job,
                        resources::Resources& resources) {
  if (question.tuned.time.is_of(rates)) return false;
  question.wanted.rates = rates;
  take(resolve(question.tuned, question.wanted), job, resources);
  return true;
}

}  // namespace pecia::tune
