// SPDX-License-Identifier: Apache-2.0
/// The bytes of weights that a plan counts, beside those that are held.

#include <gtest/gtest.h>

#include "lib/model/weights/weights.hpp"
#include "lib/work/job/job.hpp"
#include "lib/work/resources/footprint.hpp"

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
    return weight_footprint(job_of(settings), config, false).bytes;
  };
  const auto held = [&](const model::CodeUse& use, std::optional<DType> dtype = {}) {
    return model::Weights(config, io::Checkpoint(folder), dtype, {}, use).resident_bytes();
  };
  EXPECT_EQ(planned({"backend=cpu"}), held({}));
  EXPECT_EQ(weight_footprint(job_of({}), config, true).bytes, held({}));
  EXPECT_EQ(planned({"model.dtype=bf16"}), held({.kept = false}));
  EXPECT_LT(held({}), held({.kept = false}));
  // Four parts of 64 columns are half blocks.
  EXPECT_EQ(planned({"backend=cpu", "parallel.tp=4"}), held({.row_parts = 4}));
  EXPECT_GT(held({.row_parts = 4}), held({}));
  EXPECT_EQ(code_use(job_of({"model.dtype=bf16"}), config, 1, 1, false).kept, false);
  EXPECT_EQ(code_use(job_of({"model.dtype=int8"}), config, 1, 1, false).kept, true);
}

TEST(WeightFootprint, CountsSharedExpertsGatesAndBiasesOfTheChoice) {
  for (const char* name :
       {"glm4moe-groups", "minimaxm2-allheads", "afmoe-gates", "deepseek3-groups",
        "glm4moelite-direct", "mistral4-temperature", "llama4-chunks", "qwen2moe-shared-gate",
        "gemma4-keys-as-values", "gemma4-shared-keys", "gemma4-mixture"}) {
    const model::ModelConfig config = model::read_config(goldens / name);
    EXPECT_EQ(weight_footprint(job_of({"backend=cpu"}), config, false).bytes,
              model::Weights(config, io::Checkpoint(goldens / name), {}).resident_bytes())
        << name;
  }
}

/// In the words of the run that follows.
TEST(WeightFootprint, NamesTheTypesThatAreHeld) {
  const model::ModelConfig config = model::read_config(goldens / "gptoss-mxfp4");
  const auto held = [&](const model::CodeUse& use) {
    return types_text(
        model::Weights(config, io::Checkpoint(goldens / "gptoss-mxfp4"), {}, {}, use));
  };
  const auto planned = [&](const std::vector<std::string>& settings) {
    return weight_footprint(job_of(settings), config, false).types;
  };
  const std::string codes = planned({"backend=cpu"});
  EXPECT_TRUE(codes.ends_with(" with experts of mxfp4")) << codes;
  EXPECT_EQ(codes, held({}));
  EXPECT_EQ(planned({"backend=cpu", "parallel.tp=4"}), held({.row_parts = 4}));
  EXPECT_NE(planned({"backend=cpu", "parallel.tp=4"}), codes);
  EXPECT_EQ(planned({"model.dtype=bf16"}), "bf16");
  EXPECT_EQ(planned({"model.dtype=int8"}), "int8");
  model::ModelConfig gptq = model::read_config(goldens / "llama-gqa-fp32");
  gptq.quantization = {.form = model::StoredForm::gptq, .group = 32, .zeros = true};
  EXPECT_EQ(weight_footprint(job_of({}), gptq, false).types, "int4");
  gptq.quantization->reordered = true;
  EXPECT_EQ(weight_footprint(job_of({}), gptq, false).types, "fp32");
  gptq.quantization = {.form = model::StoredForm::nvfp4};
  for (const bool gpus : {false, true})
    EXPECT_EQ(weight_footprint(job_of({}), gptq, gpus).types, "nvfp4");
}

/// Where the backend is chosen by what the machine has (`backend: auto`), its GPUs decide.
TEST(WeightFootprint, CountsStoredFp8AsCodesOnGpusAlone) {
  model::ModelConfig config = model::read_config(goldens / "llama-gqa-fp32");
  const int64_t numbers = weight_footprint(job_of({}), config, true).bytes;
  config.quantization = {.form = model::StoredForm::fp8, .group = 0, .zeros = false};
  const WeightFootprint cpus = weight_footprint(job_of({}), config, false);
  const WeightFootprint gpus = weight_footprint(job_of({}), config, true);
  EXPECT_EQ(cpus.bytes, numbers);
  EXPECT_EQ(cpus.types, "fp32");
  EXPECT_EQ(gpus.bytes, numbers + bytes_by_codes(config, DType::fp32,
                                                 model::codes_kept(config, 1, false, 1, true)));
  EXPECT_LT(gpus.bytes, numbers);
  EXPECT_EQ(gpus.types, "fp8");
  EXPECT_EQ(weight_footprint(job_of({"model.dtype=bf16"}), config, true).types, "bf16");
}

TEST(WeightFootprint, OfADenseModelIsThatOfItsParameters) {
  const model::ModelConfig config = model::read_config(goldens / "llama-gqa-fp32");
  EXPECT_EQ(weight_footprint(job_of({}), config, false).bytes, config.parameters() * 4);
}

}  // namespace
}  // namespace pecia::resources
