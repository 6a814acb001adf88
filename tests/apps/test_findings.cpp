// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "apps/pecia/findings.hpp"

namespace pecia::app {
namespace {

constexpr int64_t mib = int64_t{1} << 20;

cluster::CpuFacts bound_to(std::vector<int> cores, int cores_of_machine) {
  cluster::CpuFacts facts;
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

TEST(JudgeBinding, WarnsOfSharedAndOfIdleCores) {
  expect_finding(judge_binding(bound_to({0, 1}, 4), {2, 4}), true);
  expect_finding(judge_binding(bound_to({0}, 4), {2, 2}), false);
  expect_finding(judge_binding(bound_to({0}, 1), {2, 1}), false);
}

TEST(JudgeProductKinds, SaysWhyOneIsMissingAndWarnsOfUnusedAmx) {
  const Finding all = judge_product_kinds({{{"fp32", ""}, {"bf16", ""}, {"amx", ""}}, true});
  expect_finding(all, true);
  EXPECT_EQ(all.text, "fp32; bf16; amx");
  const auto without = [](const char* why) {
    return ProductFacts{{{"fp32", ""}, {"amx", why}}, true, false};
  };
  const Finding refused = judge_product_kinds(without("the operating system refuses it"));
  expect_finding(refused, false);
  EXPECT_EQ(refused.text, "fp32; no amx: the operating system refuses it");
  expect_finding(judge_product_kinds(without("AMX of this CPU multiplies wrongly")), false);
  ProductFacts capped = without("PECIA_MAX_ISA rules it out"), older = without("it lacks it");
  capped.is_capped = true;
  older.cpu_has_amx = false;
  expect_finding(judge_product_kinds(capped), true);
  expect_finding(judge_product_kinds(older), true);
}

TEST(JudgeLaunch, WarnsOfCopies) {
  cluster::LaunchFacts launch;
  expect_finding(judge_launch(launch, 1), true);
  launch.step_tasks = 4;
  expect_finding(judge_launch(launch, 1), false);
  expect_finding(judge_launch(launch, 4), true);
  launch.by_mpirun = true;
  expect_finding(judge_launch(launch, 1), true);
}

TEST(JudgePlaces, WarnsOfUnknownRacksOfSeveralServers) {
  expect_finding(judge_places({{{"", "n1", 0}, {"", "n1", 1}}, ""}), true);
  expect_finding(judge_places({{{"", "n1", 0}, {"", "n2", 0}}, ""}), false);
  const Finding known = judge_places({{{"a", "n1", 0}, {"a", "n2", 0}, {"b", "n1", 0}}, ""});
  expect_finding(known, true);
  EXPECT_EQ(known.text, "servers: 3, racks: 2");
  const Finding refused = judge_places({{}, "ranks 0 and 1 are both at a:n1:0"});
  expect_finding(refused, false);
  EXPECT_EQ(refused.remedy, "ranks 0 and 1 are both at a:n1:0");
}

TEST(JudgeTransports, WarnsOfTcpBesideRdmaAndOfNoSharedMemory) {
  using Names = std::vector<std::string>;
  const Names tcp{"btl self", "btl tcp", "btl vader", "pml ob1"}, ucx{"pml ucx"}, mlx{"mlx5_0"};
  expect_finding(judge_transports({}, mlx, 4, 2), true);
  expect_finding(judge_transports(tcp, {}, 4, 2), true);
  expect_finding(judge_transports(tcp, mlx, 4, 1), true);
  expect_finding(judge_transports(tcp, mlx, 4, 2), false);
  expect_finding(judge_transports(ucx, mlx, 4, 2), true);
  const Names apart{"btl self", "btl tcp", "pml ob1"};
  expect_finding(judge_transports(apart, {}, 4, 2), false);
  expect_finding(judge_transports(apart, {}, 2, 2), true);
}

TEST(JudgeThreads, WarnsOfMoreThreadsThanCores) {
  expect_finding(judge_threads(std::nullopt, {4, 2}), true);
  expect_finding(judge_threads("2", {2, 4}), true);
  expect_finding(judge_threads("1", {4, 2}), true);  // what binding says already
  const Finding many = judge_threads("3", {2, 4});
  expect_finding(many, false);
  EXPECT_NE(many.remedy.find("make it 2"), std::string::npos) << many.remedy;
  expect_finding(judge_threads("2,4", {1, 4}), true);  // the first counts, as in a run
  for (const char* wrong : {"0", "-1", "two", "2x", ",", ""})
    expect_finding(judge_threads(wrong, {1, 4}), false);
}

TEST(JudgeNuma, WarnsOfRanksOnSeveralNodes) {
  cluster::CpuFacts cpu = bound_to({0, 1}, 2);
  cpu.numa_nodes = 1;
  expect_finding(judge_numa(cpu, {1, 2}), true);
  cpu.numa_nodes = 2;
  expect_finding(judge_numa(cpu, {1, 2}), false);
}

TEST(JudgeSlurm, WarnsOfAnEndThatIsNearOrUnknown) {
  cluster::LaunchFacts launch;
  expect_finding(judge_slurm(launch, 1000), true);
  launch.job_id = "77";
  launch.nodes = "4";
  expect_finding(judge_slurm(launch, 1000), false);
  launch.end_time = "4600";
  const Finding hour = judge_slurm(launch, 1000);
  expect_finding(hour, true);
  EXPECT_EQ(hour.text,
            "job 77, nodes: 4 (?), tasks: ?, cores of a task: ?, restarts: 0, 1 h 0 min left");
  expect_finding(judge_slurm(launch, 4001), false);
  expect_finding(judge_slurm(launch, 9999), false);
}

TEST(JudgeProcesses, WantsSomeThousands) {
  cluster::LimitFacts limits;
  expect_finding(judge_processes(limits), true);
  limits.processes = 4096;
  expect_finding(judge_processes(limits), true);
  limits.processes = 200;
  expect_finding(judge_processes(limits), false);
}

TEST(JudgeSizes, WarnsOfEachLimit) {
  cluster::LimitFacts limits;
  expect_finding(judge_sizes(limits), true);
  limits.file_bytes = 1024 * mib;
  expect_finding(judge_sizes(limits), false);
  limits.address_space_bytes = 4096 * mib;
  const Finding both = judge_sizes(limits);
  EXPECT_EQ(both.text, "at most files: 1.0 GiB, address space: 4.0 GiB");
  EXPECT_NE(both.remedy.find("ulimit -f"), std::string::npos);
  EXPECT_NE(both.remedy.find("ulimit -v"), std::string::npos);
}

TEST(JudgeWriting, WarnsOfWhatAFileCannotDo) {
  const cluster::FileSystemFacts output{"/scratch", "lustre", true, true, 1, 1, {}};
  expect_finding(judge_writing({"", "", true}, output), true);
  expect_finding(judge_writing({"", "", false}, output), false);
  expect_finding(judge_writing({"", "Function not implemented", true}, output), false);
  const Finding none = judge_writing({"Read-only file system", "", false}, output);
  expect_finding(none, false);
  EXPECT_NE(none.text.find("/scratch: Read-only file system"), std::string::npos);
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
  const cluster::FileSystemFacts docker{"/dev/shm", "tmpfs", false, true, 64 * mib, 64 * mib};
  expect_finding(judge_shared_memory(docker, {8, 8}), true);
  expect_finding(judge_shared_memory(docker, {9, 9}), false);
}

TEST(JudgeOutput, WarnsOfWhatCannotHoldResults) {
  cluster::FileSystemFacts output{"/scratch", "lustre", true, true, 1 << 20, 2048 * mib};
  expect_finding(judge_output(output), true);
  output.type = "tmpfs";
  expect_finding(judge_output(output), false);
  output.type = "lustre";
  output.free_bytes = 10 * mib;
  expect_finding(judge_output(output), false);
  output.free_bytes = 2048 * mib;
  output.free_files = 1000;
  expect_finding(judge_output(output), true);
  output.free_files = 999;
  expect_finding(judge_output(output), false);
  output.free_files.reset();
  output.writable = false;
  expect_finding(judge_output(output), false);
}

TEST(JudgeHdf5Locking, WarnsOfLocksOnNetworkFileSystems) {
  const cluster::FileSystemFacts local{"/", "ext4", false, true, 1, 1};
  const cluster::FileSystemFacts shared{"/scratch", "lustre", true, true, 1, 1};
  expect_finding(judge_hdf5_locking(std::nullopt, shared), true);
  expect_finding(judge_hdf5_locking("TRUE", local), true);
  expect_finding(judge_hdf5_locking("FALSE", shared), true);
  expect_finding(judge_hdf5_locking("TRUE", shared), false);
}

TEST(JudgeTheRest, WarnsAtTheirLimits) {
  expect_finding(judge_thread_level("single"), false);
  expect_finding(judge_thread_level("funneled"), true);
  cluster::MemoryFacts memory{2048 * mib, 2000 * mib, 2 * mib, 0, "madvise"};
  expect_finding(judge_memory(memory), true);
  expect_finding(judge_huge_pages(memory), true);
  memory.available_bytes = 100 * mib;
  memory.transparent_huge_pages = "never";
  expect_finding(judge_memory(memory), false);
  expect_finding(judge_huge_pages(memory), false);
}

}  // namespace
}  // namespace pecia::app
