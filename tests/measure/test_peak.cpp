// SPDX-License-Identifier: Apache-2.0
/// Peaks are measured by all ranks together, and ranks that share cores share the peak.

#include <gtest/gtest.h>
#include <mpi.h>
#include <time.h>

#include <algorithm>
#include <thread>

#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/settle/measure/kept_peak.hpp"
#include "lib/settle/measure/product_rates.hpp"
#include "lib/settle/measure/windows.hpp"
#include "lib/work/resources/threads.hpp"
#include "tests/support/owned_compute.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::test {
namespace {

double thread_cpu_s() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

class Peak : public testing::Test {
 protected:
  std::unique_ptr<comm::Communicator> world_ =
      comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
};

/// What a rank does in a window is CPU time here, of which a machine has only as much as cores.
TEST_F(Peak, WindowsCountWhatRanksThatShareCoresDoTogether) {
  CpuCompute compute(2);
  const auto rates = measure::rates_of_all(*world_, *compute.stream, {6, 0.05}, [](int) {
    const double begin = thread_cpu_s();
    while (thread_cpu_s() < begin + 50e-6) continue;
    return thread_cpu_s() - begin;
  });
  ASSERT_EQ(rates.size(), 6u);
  const auto cores = static_cast<double>(std::thread::hardware_concurrency());
  EXPECT_GT(*std::ranges::max_element(rates), 0);
  EXPECT_LE(*std::ranges::max_element(rates), cores * 1.05);
}

TEST_F(Peak, IsTheSameOnEveryRankAndSaysHowItWasMeasured) {
  CpuCompute compute(1);
  constexpr int64_t cache_bytes = 1 << 20;
  auto peak = measure::measure_peak(*world_, compute, DType::fp32, cache_bytes);
  EXPECT_EQ(peak.operands, "fp32");
  EXPECT_NE(peak.instructions, "");
  EXPECT_GE(peak.start.windows, 1) << "fewer on a crowded machine";
  EXPECT_EQ(peak.bandwidth_how, "reading 16.0 MiB per thread, on all threads of all ranks");
  measure::measure_peak_again(*world_, compute, DType::fp32, peak);
  ASSERT_TRUE(peak.end);
  for (const report::MeasuredRate& rate : {peak.start, *peak.end, peak.bandwidth}) {
    EXPECT_GE(rate.least, 0) << "others may have had the cores in a window";
    EXPECT_LE(rate.least, rate.median);
    EXPECT_LE(rate.median, rate.best);
    const auto rounded = static_cast<int64_t>(rate.best);
    EXPECT_EQ(world_->all_reduce_max(rounded), rounded);
    EXPECT_EQ(world_->all_reduce_max(-rounded), -rounded);
  }
  // A core computes from 1 GFLOP/s to 20 TFLOP/s and reads from 0.1 to 1000 GB/s.
  EXPECT_GT(peak.start.best, 1e9);
  EXPECT_LT(peak.start.best, 2e13 * world_->size());
  EXPECT_GT(peak.bandwidth.best, 1e8);
  EXPECT_LT(peak.bandwidth.best, 1e12 * world_->size());
}

TEST_F(Peak, NamesWhatItCouldNotMeasure) {
  CpuCompute compute(1);
  const auto peak = measure::measure_peak(*world_, compute, DType::fp32, 0);
  for (const auto& [instructions, why] : peak.not_measured) {
    EXPECT_NE(instructions, peak.instructions);
    EXPECT_NE(why, "");
  }
}

TEST_F(Peak, WindowsEndWhenTheirTimeIsOver) {
  CpuCompute compute(1);
  const auto rates = measure::rates_of_all(*world_, *compute.stream, {1000, 0.01, 0.03}, [](int) {
    std::this_thread::sleep_for(std::chrono::microseconds(10));
    return 1.0;
  });
  EXPECT_GE(rates.size(), 1u);
  EXPECT_LE(rates.size(), 4u);
}

TEST_F(Peak, TakesNoMoreMemoryThanIsFree) {
  CpuCompute compute(2);
  constexpr int64_t cache_bytes = int64_t{1} << 42;  // twice this is more than any machine has
  const auto peak = measure::measure_peak(*world_, compute, DType::fp32, cache_bytes);
  EXPECT_NE(peak.bandwidth_how.find("part of which their caches may hold"), std::string::npos);
  EXPECT_GT(peak.bandwidth.best, 1e8);
}

TEST_F(Peak, IsKeptForLaterRunsOfSuchRanks) {
  const TempFolder folder;
  setenv("XDG_CACHE_HOME", folder.path().c_str(), 1);
  CpuCompute one(1), two(2);
  auto first = measure::peak_of_ranks(*world_, one, DType::fp32, 0);
  EXPECT_FALSE(first.kept);
  measure::settle_peak(*world_, one, DType::fp32, first);
  ASSERT_TRUE(first.end);
  world_->barrier();
  const auto again = measure::peak_of_ranks(*world_, one, DType::fp32, 0);
  EXPECT_TRUE(again.kept);
  EXPECT_EQ(again.instructions, first.instructions);
  EXPECT_EQ(again.start.best, std::max(first.start.best, first.end->best));
  EXPECT_EQ(again.bandwidth.best, first.bandwidth.best);
  EXPECT_EQ(again.bandwidth_how, first.bandwidth_how);
  EXPECT_EQ(again.not_measured, first.not_measured);
  EXPECT_FALSE(measure::peak_of_ranks(*world_, two, DType::fp32, 0).kept) << "more threads";
  if (world_->rank() == 0)  // damage costs only a new measurement
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path()))
      if (entry.is_regular_file()) std::filesystem::resize_file(entry.path(), 20);
  EXPECT_FALSE(measure::peak_of_ranks(*world_, one, DType::fp32, 0).kept);
  unsetenv("XDG_CACHE_HOME");
}

TEST_F(Peak, OneProductIsEnoughOnASlowMachine) {
  CpuCompute compute(1);
  for (const double seconds : {0.01, 30.0}) {  // of a product; an emulated CPU takes so long
    int products = 0;
    const double flops = measure::measure_product_flops(
        compute, DType::fp32, [&](const std::function<void()>& work) {
          work();
          return ++products == 1 ? seconds : 6 * seconds;
        });
    EXPECT_EQ(products, seconds < 1 ? 2 : 1);
    EXPECT_DOUBLE_EQ(flops, 2.0 * 768 * 768 * 768 / seconds);
  }
}

TEST_F(Peak, CoresOfTheJobAreCountedOnce) {
  const resources::Threads threads = resources::threads_of_rank(*world_);
  EXPECT_GE(threads.cores_of_job, 1);
  EXPECT_LE(threads.cores_of_job, std::thread::hardware_concurrency());
  EXPECT_GT(threads.cache_bytes, 0);
}

}  // namespace
}  // namespace pecia::test
