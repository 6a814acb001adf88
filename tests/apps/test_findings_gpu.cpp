// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "apps/pecia/findings.hpp"

namespace pecia::app {
namespace {

using testing::HasSubstr;

/// A warning has a remedy, and only a warning has one.
void expect_gpu_finding(const Finding& finding, bool ok, const std::string& words) {
  EXPECT_EQ(finding.ok, ok) << finding.topic << ": " << finding.text;
  EXPECT_EQ(finding.remedy.empty(), ok) << finding.topic;
  EXPECT_THAT(finding.text + " → " + finding.remedy, HasSubstr(words));
}

const GpuFacts::Gpu h200{"NVIDIA H200", "CUDA 13.0", int64_t{141} << 30, int64_t{140} << 30};

TEST(JudgeGpus, WarnsWhereTheyAreMissingOrTooFew) {
  const HostRanks two{2, 2};
  EXPECT_TRUE(judge_gpus({false, {}, ""}, two).ok);
  EXPECT_FALSE(judge_gpus({true, {}, ""}, two).ok);
  EXPECT_FALSE(judge_gpus({true, {}, "the driver is too old"}, two).ok);
  EXPECT_TRUE(judge_gpus({true, {h200}, ""}, two).ok) << "its own: a launcher shows it no other";
  expect_gpu_finding(judge_gpus({true, {h200, h200}, ""}, two), true,
                     "140.0 GiB free of 141.0 GiB; NVIDIA H200");
  EXPECT_FALSE(judge_gpus({true, {h200, h200}, ""}, {3, 3}).ok);
}

TEST(JudgeGpus, WarnsOfGpusThatTheBuildOrTheProcessDoesNotSee) {
  GpuFacts facts;
  facts.host.gpus = {"NVIDIA H200", "NVIDIA H200"};
  expect_gpu_finding(judge_gpus(facts, {1, 1}), false, "no CUDA, but nvidia-smi lists 2");
  facts.built = true;
  expect_gpu_finding(judge_gpus(facts, {1, 1}), false, "CUDA_VISIBLE_DEVICES");
}

TEST(JudgeDriver, WarnsOfAnOlderOneThanTheToolkitNeeds) {
  GpuFacts facts{true, {h200}, ""};
  const auto judged = [&](const char* toolkit, const char* release) {
    facts.toolkit = toolkit, facts.host.driver = release;
    return judge_driver(facts);
  };
  expect_gpu_finding(judged("13.0", "580.65.06"), true, "580.65.06, for up to CUDA 13.0");
  expect_gpu_finding(judged("13.1", "579.99"), false, "580 or newer");
  expect_gpu_finding(judged("12.9", "525.60.13"), true, "built with CUDA 12.9");
  expect_gpu_finding(judged("12.9", "470.82.01"), false, "525 or newer");
  expect_gpu_finding(judged("13.0", ""), true, "release ?");
  EXPECT_TRUE(judge_driver({}).ok);
}

TEST(JudgeInstances, WarnsWhereRanksShareOneOrNameSeveral) {
  expect_gpu_finding(judge_instances({{"GPU-1"}, {"GPU-1"}}, {}), true, "none");
  expect_gpu_finding(judge_instances({{"MIG-1"}, {"MIG-2"}}, "MIG-2"), true, "MIG-1, MIG-2");
  expect_gpu_finding(judge_instances({{"MIG-1"}, {"MIG-1"}}, "MIG-1"), false, "2 ranks");
  expect_gpu_finding(judge_instances({{"MIG-1"}}, "MIG-1,MIG-2"), false, "one instance");
}

TEST(JudgePeers, WarnsWherePairsHaveNoAccess) {
  GpuFacts facts{true, {h200, h200, h200}, ""};
  EXPECT_TRUE(judge_peers({true, {h200}, ""}, "1").ok);
  expect_gpu_finding(judge_peers(facts, {}), true, "reaches");
  expect_gpu_finding(judge_peers(facts, "0"), true, "reaches");
  expect_gpu_finding(judge_peers(facts, "1"), false, "NCCL_P2P_DISABLE=1");
  facts.apart = {{0, 2}, {2, 0}};
  expect_gpu_finding(judge_peers(facts, {}), false, "0 → 2, 2 → 0");
}

TEST(JudgeOneShot, SaysWhetherRanksAddThroughPeerMemory) {
  OneShotFacts facts{.gpus = {true, {h200, h200, h200}, ""}};
  const auto judged = [&](const auto& change) {
    OneShotFacts changed = facts;
    change(changed);
    return judge_one_shot(changed);
  };
  expect_gpu_finding(judge_one_shot(facts), true, "not tried: start a rank for each GPU");
  expect_gpu_finding(judged([](auto& f) { f.ranks = 3, f.why_not = ""; }), true,
                     "3 ranks add through peer memory here; PECIA_CUDA_ONE_SHOT=1 lets");
  expect_gpu_finding(judged([](auto& f) { f.why_not = "", f.asked_for = true; }), true,
                     "steps of TP do so");
}

TEST(JudgeOneShot, SaysWhyRanksDoNot) {
  OneShotFacts facts{.gpus = {true, {h200, h200, h200}, ""}};
  const auto expect = [&](const auto& change, const std::string& words) {
    OneShotFacts changed = facts;
    change(changed);
    expect_gpu_finding(judge_one_shot(changed), true, "sums of steps are NCCL's: " + words);
    changed.asked_for = true;
    expect_gpu_finding(judge_one_shot(changed), false, words);
    expect_gpu_finding(judge_one_shot(changed), false, "unset PECIA_CUDA_ONE_SHOT");
  };
  expect_gpu_finding(judge_one_shot({}), true, "not used");
  expect_gpu_finding(judge_one_shot({.asked_for = true}), false, "this rank sees no GPU");
  expect([](auto& f) { f.ranks = 2, f.why_not = "rank 1: invalid argument"; },
         "2 ranks do not add through peer memory: rank 1: invalid argument");
  expect([](auto& f) { f.gpus.gpus = {h200}, f.gpus.gpus[0].uuid = "MIG-1"; }, "instances");
  expect([](auto& f) { f.gpus.apart = {{0, 2}, {2, 0}}; }, "GPU 0 does not reach");
}

TEST(JudgeNcclNetwork, SaysWhatServersAreConnectedBy) {
  NcclFacts facts{.used = true,
                  .servers = 2,
                  .interfaces = {"docker0", "eth0", "ib0"},
                  .rdma = {"mlx5_0", "mlx5_1"},
                  .peer_memory = true};
  const auto judged = [&](const auto& change) {
    NcclFacts changed = facts;
    change(changed);
    return judge_nccl_network(changed);
  };
  expect_gpu_finding(judge_nccl_network(facts), true, "RDMA by mlx5_0, mlx5_1");
  expect_gpu_finding(judged([](auto& f) { f.adapters = "mlx5_1:1"; }), true, "RDMA by mlx5_1;");
  expect_gpu_finding(judged([](auto& f) { f.adapters = "^mlx5_1"; }), true, "RDMA by mlx5_0;");
  expect_gpu_finding(judged([](auto& f) { f.adapters = "=mlx5"; }), false, "mlx5_0, mlx5_1");
  expect_gpu_finding(judged([](auto& f) { f.peer_memory = false; }), false, "nvidia_peermem");
  expect_gpu_finding(judged([](auto& f) { f.ib_disabled = "1"; }), false, "unset it");
  expect_gpu_finding(judged([](auto& f) { f.ib_disabled = "1", f.servers = 1; }), true, "TCP");
  expect_gpu_finding(judged([](auto& f) { f.socket_names = "eno"; }), false, "docker0, eth0, ib0");
  expect_gpu_finding(judged([](auto& f) { f.socket_names = "^docker,lo"; }), true,
                     "interfaces: eth0, ib0");
  expect_gpu_finding(judged([](auto& f) { f.rdma.clear(); }), false, "NCCL_SOCKET_IFNAME");
  expect_gpu_finding(judged([](auto& f) { f.rdma.clear(), f.socket_names = "eth0"; }), true, "TCP");
  EXPECT_TRUE(judge_nccl_network({}).ok);
}

}  // namespace
}  // namespace pecia::app
