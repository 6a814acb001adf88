// SPDX-License-Identifier: Apache-2.0
#include "lib/foresight/would_fit.hpp"

#include <fmt/format.h>

namespace pecia::foresight {
namespace {

struct Change {
  std::string words;
  job::Job job;
  KeptDegrees kept;
  int ranks;
};

std::vector<Change> changes(const job::Job& job, const KeptDegrees& kept, int ranks,
                            int64_t longest) {
  std::vector<Change> all;
  for (const int64_t tokens : {8192, 2048, 512}) {
    job::Job fewer = job;
    fewer.batch.max_batch_tokens = tokens;
    if (tokens < job.batch.max_batch_tokens.value_or(longest))
      all.push_back({fmt::format("--set batch.max_batch_tokens={}", tokens), fewer, kept, ranks});
  }
  if (kept.dp || kept.cp || kept.sp || kept.tp || kept.ep)
    all.push_back({"other degrees than the job gives", job, {}, ranks});
  job::Job narrow = job;
  narrow.kv.dtype = job::Precision::fp8;
  constexpr int most_times = 64;
  for (int times = 2; times <= most_times; times *= 2)
    all.push_back({fmt::format("--ranks {}", times * ranks), job, kept, times * ranks});
  if (job.kv.dtype != narrow.kv.dtype) {
    all.push_back({"--set kv.dtype=fp8", narrow, kept, ranks});
    for (int times = 2; times <= most_times; times *= 2)
      all.push_back({fmt::format("--set kv.dtype=fp8 --ranks {}", times * ranks), narrow, kept,
                     times * ranks});
  }
  return all;
}

}  // namespace

bool fits_somewhere(const PassSetting& setting, Batches& batches, const KeptDegrees& kept,
                    int ranks) {
  for (const job::Job::Parallel& parallel :
       layouts_of(ranks, setting.job, kept, resources::shape_of(setting.config))) {
    const auto resources = layout_resources(setting, parallel, ranks, batches);
    if (!rank_memory(setting, resources, batches.of(setting.job, resources)).why_not) return true;
  }
  return false;
}

std::optional<std::string> would_fit(const PassSetting& setting, Batches& batches,
                                     const SweepQuestion& question, int ranks) {
  for (const Change& change :
       changes(setting.job, question.kept, ranks, batches.alone().work().prompt_tokens)) {
    PassSetting changed{change.job, setting.config, setting.cluster, setting.weights,
                        setting.kv, setting.traits, setting.threads};
    if (change.job.kv.dtype) changed.kv = resources::dtype_of(*change.job.kv.dtype);
    if (fits_somewhere(changed, batches, change.kept, change.ranks)) return change.words;
  }
  return {};
}

}  // namespace pecia::foresight
