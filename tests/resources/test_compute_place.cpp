// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/base/core/error.hpp"
#include "lib/base/device/cuda_device.hpp"
#include "lib/work/resources/compute_place.hpp"
#include "lib/work/resources/resources.hpp"
#include "tests/io/expect_error.hpp"

namespace pecia::resources {
namespace {

TEST(GpuOfRank, IsItsNumberOnTheHostOrTheOnlyOneItSees) {
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(gpu_of_rank(rank, 8), rank);
    EXPECT_EQ(gpu_of_rank(rank, 1), 0);
  }
  EXPECT_EQ(gpu_of_rank(5, 4), 1) << "which another rank has too, and that is refused";
}

TEST(SharedGpus, AreRefusedByTheNamesOfTwoRanks) {
  EXPECT_NO_THROW(refuse_shared_gpus(
      {{"a", "0000:1b:00", "7d1"}, {"a", "0000:43:00", "7d2"}, {"b", "0000:1b:00", "7d3"}}));
  test::expect_error<InputError>(
      [] {
        refuse_shared_gpus(
            {{"a", "0000:1b:00", "7d1"}, {"b", "0000:1b:00", "7d3"}, {"b", "0000:1b:00", "7d3"}});
      },
      {"ranks 1 and 2", "0000:1b:00 of host b", "--gpus-per-task=1", "allow_gpu_sharing: true"});
}

TEST(SharedGpus, AreNotInstancesOfOne) {
  EXPECT_NO_THROW(
      refuse_shared_gpus({{"a", "0000:1b:00", "instance 1"}, {"a", "0000:1b:00", "instance 2"}}));
}

TEST(ComputePlace, IsTheHostWithoutGpus) {
  const auto comm = comm::make_null_communicator();
  job::Job job;
  job.backend = job::BackendKind::cpu;
  EXPECT_FALSE(computes_on_gpus(job, *comm));
  job.backend.reset();
  EXPECT_EQ(computes_on_gpus(job, *comm), device::num_cuda_devices() > 0);
  const ComputePlace place = make_compute_place(job, false, {2, {}}, *comm);
  EXPECT_FALSE(place.on_gpu());
  EXPECT_EQ(place.stream->num_threads(), 2);
  EXPECT_EQ(tensor_group(job, *comm, place), nullptr);
}

TEST(OnGpus, WhatIsNotThereIsRefusedWithTheNearestSetting) {
  job::Job job;
  EXPECT_NO_THROW(job::refuse_on_gpus(job, 80));
  job.reproducible = parallel::Reproducible::layout;
  EXPECT_NO_THROW(job::refuse_on_gpus(job, 90));
  job.model.dtype = job::Precision::fp8;
  test::expect_error<Unsupported>(
      [&] { job::refuse_on_gpus(job, 90); },
      {"reproducible: layout", "model.dtype: fp8", "dtype: bf16", "reproducible: run"});
  job.model.dtype = job::Job().model.dtype;
  job.reproducible = parallel::Reproducible::run;
  job.model.compute = job::Precision::fp32;
  test::expect_error<Unsupported>([&] { job::refuse_on_gpus(job, 90); },
                                  {"model.compute: fp32", "model.dtype: fp32"});
  job.model.dtype = job::Precision::fp32;
  EXPECT_NO_THROW(job::refuse_on_gpus(job, 90));
}

TEST(OnCpus, ProductsAreOfBf16WhereTheyCanBe) {
  const auto comm = comm::make_null_communicator();
  const auto operand = [&](const job::Job& job) {
    return make_compute_place(job, false, {}, *comm).backend->operand_type(DType::bf16);
  };
  const DType best = kernels::cpu_has_bf16_products() ? DType::bf16 : DType::fp32;
  job::Job job;
  EXPECT_EQ(operand(job), best);
  job.reproducible = parallel::Reproducible::layout;
  EXPECT_EQ(operand(job), best);
  job.reproducible = parallel::Reproducible::run;
  job.model.compute = job::Precision::fp32;
  EXPECT_EQ(operand(job), DType::fp32);
  job.model.compute = job::Precision::bf16;
  if (best == DType::bf16)
    EXPECT_EQ(operand(job), DType::bf16);
  else
    test::expect_error<Unsupported>([&] { operand(job); },
                                    {"model.compute: bf16", "AVX512-BF16", "compute: fp32"});
}

TEST(Fp8Weights, AreForGpusThatMultiplyThem) {
  job::Job job;
  job.model.dtype = job::Precision::fp8;
  for (const auto compute : {std::optional<job::Precision>(), std::optional(job::Precision::fp8)}) {
    job.model.compute = compute;
    EXPECT_NO_THROW(job::refuse_on_gpus(job, 89));
    EXPECT_NO_THROW(job::refuse_on_gpus(job, 100));
    test::expect_error<Unsupported>([&] { job::refuse_on_gpus(job, 80); },
                                    {"fp8", "8.9 or newer", "this one has 8.0", "dtype: bf16"});
    test::expect_error<Unsupported>([&] { job::refuse_on_cpus(job); },
                                    {"fp8 is for GPUs", "dtype: bf16", "backend: cuda"});
  }
  const auto comm = comm::make_null_communicator();
  EXPECT_THROW(make_compute_place(job, false, {}, *comm), Error);
  job.model.compute = job::Precision::bf16;
  test::expect_error<Unsupported>([&] { job::refuse_on_gpus(job, 90); },
                                  {"compute: bf16", "compute: auto", "model.dtype: bf16"});
}

TEST(Fp8Weights, NeedWidthsThatTensorCoresTake) {
  model::ModelConfig config;
  config.hidden = 64, config.head_dim = 16, config.ffn = 96, config.layers = 1;
  config.pattern.resize(1);
  Resources resources;
  resources.tp = 2;
  EXPECT_NO_THROW(require_fp8_widths(config, resources));
  resources.sp = 2;  // parts of 24 in the shift configuration
  test::expect_error<InputError>([&] { require_fp8_widths(config, resources); },
                                 {"intermediate_size cut in 4 is 24", "dtype: bf16"});
  config.experts = {.count = 4, .per_token = 2, .ffn = 24};
  config.pattern[0].feed_forward = model::FeedForward::experts;
  EXPECT_NO_THROW(require_fp8_widths(config, resources)) << "experts have any width";
  resources.sp = 1;
  config.recurrent = {.key_heads = 2, .key_dim = 16, .heads = 4, .value_dim = 24};
  test::expect_error<InputError>([&] { require_fp8_widths(config, resources); },
                                 {"the value dimension of recurrent layers is 24"});
  config.recurrent.reset();
  config.head_dim = 24;
  test::expect_error<InputError>([&] { require_fp8_widths(config, resources); },
                                 {"head_dim is 24"});
  config.hidden = 72;
  test::expect_error<InputError>([&] { require_fp8_widths(config, resources); },
                                 {"hidden_size is 72"});
}

TEST(Room, IsNeededForWeightsAndActivationsElseTheDegreeIsNamedThatHasIt) {
  // Half of a matrix of 32 GiB in bf16, beside 4 GiB of activations. Nothing reads it.
  model::WeightViews weights;
  const int64_t rows = int64_t{1} << 13, columns = int64_t{1} << 20;
  weights.embedding = TensorView(static_cast<void*>(nullptr), DType::bf16, {rows, columns});
  weights.part = {2, 0};
  const int64_t gib = int64_t{1} << 30;
  const auto require_room = [&](int64_t free_bytes) {
    resources::require_room(weights, model::Quantize::nothing, free_bytes, true);
  };
  EXPECT_NO_THROW(require_room(20 * gib));
  test::expect_error<InputError>([&] { require_room(20 * gib - 1); },
                                 {"17179869184 bytes", "use parallel.tp 3 or more"});
  test::expect_error<InputError>([&] { require_room(12 * gib); }, {"use parallel.tp 4 or more"});
  test::expect_error<InputError>([&] { require_room(4 * gib); }, {"take a narrower model.dtype"});
  const int64_t on_a_host = activation_bytes(false) + 16 * gib;
  EXPECT_NO_THROW(resources::require_room(weights, model::Quantize::nothing, on_a_host, false));
  test::expect_error<InputError>(
      [&] { resources::require_room(weights, model::Quantize::nothing, on_a_host - 1, false); },
      {"its share of the host's memory has", "hosts that nobody else uses"});
}

}  // namespace
}  // namespace pecia::resources
