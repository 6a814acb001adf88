// SPDX-License-Identifier: Apache-2.0
/// The bytes of weights that a plan counts, beside those that are held.

#include <gtest/gtest.h>

#include "lib/job/job.hpp"
#include "lib/model/weights.hpp"
#include "lib/resources/footprint.hpp"

namespace pecia::resources {
namespace {

const std::filesystem::path goldens = PECIA_GOLDENS;

job::Job job_of(const std::vector<std::string>& settings) {
  return job::parse_job("model: {path: m}\ninput: [p.h5]\noutput: o\n", "job.yaml", settings);
}

TEST(WeightFootprint, CountsExpertsAsTheyAreHeld) {
  const std::filesystem::path folder = goldens / "gptoss-mxfp4";
  const model::ModelConfig config = model::read_config(folder);
  const auto planned = [&](const std::vector<std::string>& settings) {
    return weight_footprint(job_of(settings), config).bytes;
  };
  const auto held = [&](const model::CodeUse& use, std::optional<DType> dtype = {}) {
    return model::Weights(config, io::Checkpoint(folder), dtype, {}, use).resident_bytes();
  };
  EXPECT_EQ(planned({"backend=cpu"}), held({}));
  EXPECT_EQ(planned({"backend=cuda"}), held({}));
  EXPECT_EQ(planned({"model.dtype=bf16"}), held({.kept = false}));
  EXPECT_LT(held({}), held({.kept = false}));
  // Four parts of 64 columns are half blocks.
  EXPECT_EQ(planned({"backend=cpu", "parallel.tp=4"}), held({.row_parts = 4}));
  EXPECT_GT(held({.row_parts = 4}), held({}));
  EXPECT_EQ(code_use(job_of({"model.dtype=bf16"}), config, 1, 1, false).kept, false);
  EXPECT_EQ(code_use(job_of({"model.dtype=int8"}), config, 1, 1, false).kept, true);
}

TEST(WeightFootprint, OfADenseModelIsThatOfItsParameters) {
  const model::ModelConfig config = model::read_config(goldens / "llama-gqa-fp32");
  EXPECT_EQ(weight_footprint(job_of({}), config).bytes, config.parameters() * 4);
}

}  // namespace
}  // namespace pecia::resources
