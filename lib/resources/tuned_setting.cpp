// SPDX-License-Identifier: Apache-2.0
#include "lib/resources/tuned_setting.hpp"

#include "lib/core/build_info.hpp"
#include "lib/tune/resolve.hpp"
#include "lib/tune/tuned_file.hpp"

namespace pecia::resources {

LevelsHere levels_by_place(const std::vector<comm::RackServerGpu>& places) {
  return [servers = comm::server_of_rank(places), racks = comm::rack_of_rank(places)](int count) {
    return parallel::levels_of(servers, racks, count);
  };
}

bool is_tuned(const job::Job& job) {
  const job::Job::Attention& attention = job.attention;
  return attention.sparse == job::Sparse::csa && attention.drop && !attention.drop->file.empty();
}

void settle_tuned(job::Job& job, const model::ModelConfig& config, int64_t longest_tokens,
                  const LevelsHere& levels_here, Resources& resources) {
  if (!is_tuned(job)) return;
  job::Job::Attention& attention = job.attention;
  const std::filesystem::path file = attention.drop->file;
  tune::Wanted wanted;
  wanted.file = file.string();
  wanted.version = build_info().version;
  wanted.model_path = job.model.path.string(), wanted.config_sha256 = config.sha256;
  wanted.cp = resources.cp, wanted.tp = resources.tp;
  wanted.geometry = attention.geometry;
  wanted.levels = attention.levels;
  wanted.levels_here = levels_here;
  wanted.longest_tokens = longest_tokens;
  wanted.goal = {attention.objective.loss, attention.objective.ttft_s};
  if (attention.objective == job::AttentionGoal{}) wanted.goal.loss = 0;
  const tune::Resolved resolved = tune::resolve(tune::read_tuned(file), wanted);

  attention.drop = job::DropSetting{resolved.setting.drop, {}};
  attention.levels = resolved.setting.levels;
  attention.objective = {};
  if (resources.sparse) {
    resources.sparse->rule.drop = resolved.setting.drop;
    resources.sparse->levels = resolved.setting.levels;
  }
  std::string& why = resources.why;
  why += (why.empty() ? "" : "; ") + resolved.why;
}

}  // namespace pecia::resources
