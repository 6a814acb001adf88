// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/run/run_summary.hpp"

namespace pecia::run {
namespace {

model::ModelConfig small_model() {
  model::ModelConfig config;
  config.vocab = 100, config.max_positions = 1000;
  config.hidden = 64, config.ffn = 128, config.layers = 3;
  config.num_heads = 4, config.num_kv_heads = 2, config.head_dim = 16;
  return config;
}

/// `settings` are keys of the job's section parallel, with values; `others` are full keys.
resources::Resources resolved(std::vector<std::string> settings, int num_ranks,
                              const std::vector<std::string>& others = {}) {
  for (std::string& setting : settings) setting.insert(0, "parallel.");
  settings.insert(settings.end(), others.begin(), others.end());
  const job::Job job =
      job::parse_job("model: {path: m}\ninput: [p.h5]\noutput: o\n", "job.yaml", settings);
  resources::Resources resources;
  resources::resolve_grid(job, small_model(), num_ranks, resources);
  return resources;
}

TEST(FirstLine, ShowsDegreesAboveOneAndTheMode) {
  job::Job job;
  job.model.path = "models/tiny";
  const auto config = small_model();
  std::string gpu;
  const auto line = [&](const resources::Resources& resources) {
    std::vector<comm::RackServerGpu> places;
    for (int rank = 0; rank < resources.dp * resources.degrees().ranks(); ++rank)
      places.push_back({"rack", "server", rank});
    const RunFacts facts{job, job, config, resources, 1 << 20, places, gpu, "neon_bf16"};
    return first_line(facts, 1, 10);
  };
  EXPECT_NE(line(resolved({}, 1)).find("on 1 host · single"), std::string::npos);
  EXPECT_NE(line(resolved({}, 1)).find("1 rank of 1 thread (neon_bf16) on 1"), std::string::npos);
  EXPECT_NE(line(resolved({"dp=2"}, 2)).find("on 1 host: DP 2 · single"), std::string::npos);
  const std::string grid = line(resolved({"dp=2", "tp=2"}, 12));
  EXPECT_NE(grid.find("on 1 host: DP 2 × CP 3 × TP 2 · prefill ring auto, decode pass_q\n"),
            std::string::npos)
      << grid;
  EXPECT_NE(grid.find("\n       auto: prefill ring: "), std::string::npos) << grid;
  EXPECT_NE(line(resolved({"sp=2"}, 2)).find(": SP 2 · prefill ulysses, decode shift\n"),
            std::string::npos);
  EXPECT_NE(
      line(resolved({"tp=2"}, 2, {"attention.sparse=csa", "attention.levels=1"}))
          .find(": TP 2 · prefill ulysses levels from 231 new tokens, sp_tp below, decode tp · "
                "csa: "),
      std::string::npos);
  const auto with_csa = resolved({"cp=1"}, 1, {"attention.sparse=csa"});
  EXPECT_NE(line(with_csa).find("single · csa: one rank reads each prompt, so nothing is dropped"),
            std::string::npos)
      << line(with_csa);
  gpu = "NVIDIA H200";
  EXPECT_NE(line(resolved({}, 1)).find("1 rank of 1 NVIDIA H200 on 1 host"), std::string::npos);
  EXPECT_EQ(line(resolved({}, 1)).find("tiny fp32 1.0 MiB · 1 request"), 0u)
      << line(resolved({}, 1));
}

}  // namespace
}  // namespace pecia::run
