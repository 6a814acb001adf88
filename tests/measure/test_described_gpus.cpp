// SPDX-License-Identifier: Apache-2.0
/// GPUs whose memory the host cannot touch. Nothing is asserted about speed.

#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>

#include "kernels/api/gpu_traits.hpp"
#include "kernels/phantom/phantom.hpp"
#include "lib/base/device/phantom_device.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/ranks/comm/staged_communicator.hpp"
#include "lib/settle/measure/described_cluster.hpp"
#include "lib/settle/measure/op_rates.hpp"
#include "tests/kernels/emulator/backend.hpp"
#include "tests/support/separate_device.hpp"

namespace pecia::test {
namespace {

constexpr int64_t gpu_bytes = int64_t{2} << 30;

/// A CPU is to compute them.
measure::OpSizes small_sizes() {
  constexpr int64_t kib = 1 << 10;
  return {.cache_bytes = 256 * kib,
          .rows = {1, 8, 64},
          .depths = {64, 128},
          .widths = {64, 128, 256},
          .usual_rows = 64,
          .usual_depth = 128,
          .usual_width = 128,
          .attention = {2, 1, 16, DType::bf16},
          .attention_rows = {1, 16},
          .attention_depths = {64, 256},
          .stream = {1, 1, 16, DType::bf16},
          .stream_bytes = {16 * kib, 64 * kib},
          .weights_bytes = {16 * kib, 32 * kib},
          .copies_bytes = {12 * kib, 96 * kib}};
}

/// The peak's products would take a CPU minutes.
bool is_small(const kernels::LinearArgs& args) {
  return args.x.rows() <= 64;
}

struct Gpus : OwnedCompute {
  explicit Gpus(device::DeviceInfo info)
      : OwnedCompute(make_separate_device({std::move(info), gpu_bytes, {}}),
                     make_separate_backend(is_small)) {}
};

cluster_files::Cluster describe(comm::Communicator& world, Gpus& gpus) {
  const auto tensors =
      comm::make_staged_communicator(world.split(0, world.rank()), *gpus.device, *gpus.stream);
  std::vector<comm::RackServerGpu> places;
  for (int rank = 0; rank < world.size(); ++rank) places.push_back({"", "server", rank});
  return measure::describe_cluster(world, *tensors, places, gpus, small_sizes(), int64_t{8} << 30,
                                   1);
}

TEST(DescribedGpus, AreWhatEachRankHasForItself) {
  const auto world = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  Gpus gpus({"a GPU", 90, 1, "", ""});
  const cluster_files::Cluster cluster = describe(*world, gpus);

  EXPECT_EQ(cluster.rank.name, "a GPU");
  EXPECT_TRUE(cluster.rank.gpu);
  EXPECT_DOUBLE_EQ(cluster.rank.memory_gib, 2) << "a GPU's memory, not the host's";
  EXPECT_EQ(cluster.rank.first_touch_gbs, 0) << "it is not counted on GPUs";
  EXPECT_EQ(cluster.rank.alone, 1);
  EXPECT_EQ(cluster.rank.alone_flops, 1);
  const cluster_files::Cluster::Shares& shares = cluster.efficiency;
  for (const cluster_files::Efficiency* share : {&shares.gemm, &shares.attention, &shares.copy})
    EXPECT_EQ(share->factor, 1) << "ranks share nothing but links";
  EXPECT_FALSE(shares.pieces);
  ASSERT_TRUE(shares.stream && shares.weights);
  EXPECT_EQ(shares.gemm.curves.size(), 3u) << "rows, depth and width";
  EXPECT_EQ(shares.attention.slices.size(), 2u) << "rows at some depths";
  EXPECT_TRUE(cluster.rank.flops.contains(DType::fp8));
  EXPECT_GT(cluster.overhead.op_us, 0.0);
  EXPECT_GE(cluster.overhead.step_us, 0.0);
  EXPECT_EQ(cluster.links[0].us > 0, world->size() > 1);
  EXPECT_TRUE(world->size() > 1 || cluster.overhead.exchange_us == 0);
  EXPECT_EQ(gpus.device->memory().free_bytes, gpu_bytes) << "memory is left as it was";

  const std::string text = to_yaml(cluster);
  EXPECT_EQ(cluster_files::parse_cluster(text, "measured"), cluster) << text;
  for (const auto& part : world->all_gather(std::as_bytes(std::span(text))))
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(part.data()), part.size()), text)
        << "ranks have measured different machines";
}

TEST(DescribedGpus, HaveAPeakOfFp8WhereTensorCoresMultiplyIt) {
  const auto world = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  Gpus gpus({"an older GPU", 80, 1, "", ""});
  EXPECT_FALSE(describe(*world, gpus).rank.flops.contains(DType::fp8));
}

/// The CUDA backend's own code, with arrays that are staged and steps that are repeated.
TEST(DescribedGpus, OpsAreTimedByTheCudaBackend) {
  const auto world = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  OwnedCompute gpus(make_separate_device({{"a GPU", 90, 1, "", ""}, gpu_bytes, {}}), nullptr);
  gpus.backend = make_emulated_backend(*gpus.device);
  measure::OpRates rates(*world, gpus, small_sizes());
  EXPECT_GT(rates.smallest_op_in_step(), 0);
  EXPECT_GT(rates.op_and_wait(), 0);
  for (const measure::RatesBySize& of : rates.products()) EXPECT_GT(of.most(), 0);
  for (const cluster_files::Slice& slice : rates.attention())
    for (const auto& [rows, rate] : slice.rows.points) EXPECT_GT(rate, 0) << rows;
  for (const measure::RatesBySize& of : {rates.stream(), rates.weights(), rates.elementwise()})
    EXPECT_GT(of.most(), 0);
}

/// At the sizes that GPUs get, on a device that counts memory and does nothing.
TEST(DescribedGpus, TakeAtMostOneGib) {
  constexpr int64_t most_bytes = int64_t{1} << 30;
  const auto world = comm::make_null_communicator();
  auto owned = std::make_unique<device::PhantomDevice>(device::DeviceInfo{"a GPU", 90, 1, "", ""},
                                                       most_bytes);
  const device::PhantomDevice& device = *owned;
  OwnedCompute gpus(std::move(owned), kernels::make_phantom_backend({}, kernels::gpu_traits()));
  const auto tensors =
      comm::make_staged_communicator(world->split(0, 0), *gpus.device, *gpus.stream);
  const auto cluster = measure::describe_cluster(*world, *tensors, {{"", "server", 0}}, gpus,
                                                 measure::gpu_op_sizes(), most_bytes, 1);
  EXPECT_EQ(cluster.rank.memory_gib, 1);
  EXPECT_LE(device.peak_bytes(), most_bytes);
  EXPECT_EQ(device.used_bytes(), 0);
}

}  // namespace
}  // namespace pecia::test
