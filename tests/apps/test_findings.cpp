#include <gtest/gtest.h>

#include "apps/pecia/findings.hpp"

namespace pecia::app {
namespace {

constexpr int64_t mib = int64_t{1} << 20;

comm::CpuFacts bound_to(std::vector<int> cores, int cores_of_machine) {
  comm::CpuFacts facts;
  facts.cores = std::move(cores);
  facts.cores_of_machine = cores_of_machine;
  return facts;
}

/// A warning without a remedy, or a remedy without a warning, helps nobody.
void expect_finding(const Finding& finding, bool ok) {
  EXPECT_EQ(finding.ok, ok) << finding.topic << ": " << finding.text;
  EXPECT_EQ(finding.remedy.empty(), ok) << finding.topic;
  EXPECT_FALSE(finding.text.empty()) << finding.topic;
}

TEST(JudgeGpus, WarnsWhereTheyAreMissingOrTooFew) {
  const GpuFacts::Gpu gpu{"NVIDIA H200", "CUDA 13.0", int64_t{141} << 30, int64_t{140} << 30};
  const HostRanks two{2, 2};
  EXPECT_TRUE(judge_gpus({false, {}, ""}, two).ok);
  EXPECT_FALSE(judge_gpus({true, {}, ""}, two).ok);
  EXPECT_FALSE(judge_gpus({true, {}, "the driver is too old"}, two).ok);
  EXPECT_TRUE(judge_gpus({true, {gpu}, ""}, two).ok) << "its own: a launcher shows it no other";
  const Finding both = judge_gpus({true, {gpu, gpu}, ""}, two);
  EXPECT_TRUE(both.ok);
  EXPECT_NE(both.text.find("140.0 GiB free of 141.0 GiB; NVIDIA H200"), std::string::npos)
      << both.text;
  EXPECT_FALSE(judge_gpus({true, {gpu, gpu}, ""}, {3, 3}).ok);
}

TEST(JudgeBinding, WarnsOfSharedAndOfIdleCores) {
  expect_finding(judge_binding(bound_to({0, 1}, 4), {2, 4}), true);
  expect_finding(judge_binding(bound_to({0}, 4), {2, 2}), false);
  expect_finding(judge_binding(bound_to({0}, 1), {2, 1}), false);
}

TEST(JudgeLaunch, WarnsOfCopies) {
  comm::LaunchFacts launch;
  expect_finding(judge_launch(launch, 1), true);
  launch.step_tasks = 4;
  expect_finding(judge_launch(launch, 1), false);
  expect_finding(judge_launch(launch, 4), true);
  launch.by_mpirun = true;
  expect_finding(judge_launch(launch, 1), true);
}

TEST(JudgeLockedMemory, MattersWithRdmaOnly) {
  expect_finding(judge_locked_memory({8 * mib, 1024, false}), true);
  expect_finding(judge_locked_memory({8 * mib, 1024, true}), false);
  expect_finding(judge_locked_memory({std::nullopt, 1024, true}), true);
}

TEST(JudgeOpenFiles, WantsAThousand) {
  expect_finding(judge_open_files({std::nullopt, 256, false}), false);
  expect_finding(judge_open_files({std::nullopt, 1024, false}), true);
}

TEST(JudgeSharedMemory, GrowsWithTheRanks) {
  const comm::FileSystemFacts docker{"/dev/shm", "tmpfs", false, true, 64 * mib, 64 * mib};
  expect_finding(judge_shared_memory(docker, {8, 8}), true);
  expect_finding(judge_shared_memory(docker, {9, 9}), false);
}

TEST(JudgeOutput, WarnsOfWhatCannotHoldResults) {
  comm::FileSystemFacts output{"/scratch", "lustre", true, true, 1 << 20, 2048 * mib};
  expect_finding(judge_output(output), true);
  output.type = "tmpfs";
  expect_finding(judge_output(output), false);
  output.type = "lustre";
  output.free_bytes = 10 * mib;
  expect_finding(judge_output(output), false);
  output.free_bytes = 2048 * mib;
  output.writable = false;
  expect_finding(judge_output(output), false);
}

TEST(JudgeHdf5Locking, WarnsOfLocksOnNetworkFileSystems) {
  const comm::FileSystemFacts local{"/", "ext4", false, true, 1, 1};
  const comm::FileSystemFacts shared{"/scratch", "lustre", true, true, 1, 1};
  expect_finding(judge_hdf5_locking(std::nullopt, shared), true);
  expect_finding(judge_hdf5_locking("TRUE", local), true);
  expect_finding(judge_hdf5_locking("FALSE", shared), true);
  expect_finding(judge_hdf5_locking("TRUE", shared), false);
}

TEST(JudgeTheRest, WarnsAtTheirLimits) {
  expect_finding(judge_thread_level("single"), false);
  expect_finding(judge_thread_level("funneled"), true);
  comm::MemoryFacts memory{2048 * mib, 2000 * mib, 2 * mib, 0, "madvise"};
  expect_finding(judge_memory(memory), true);
  expect_finding(judge_huge_pages(memory), true);
  memory.available_bytes = 100 * mib;
  memory.transparent_huge_pages = "never";
  expect_finding(judge_memory(memory), false);
  expect_finding(judge_huge_pages(memory), false);
}

}  // namespace
}  // namespace pecia::app
