// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>

#include "lib/base/core/error.hpp"
#include "lib/work/cluster_files/gpu_servers.hpp"

namespace pecia::cluster_files {
namespace {

using testing::HasSubstr;

TEST(GpuServers, HaveThePeaksOfTheirGpu) {
  for (const std::string& name : known_gpus()) {
    const GpuServers servers = gpu_servers(name, {});
    EXPECT_EQ(parse_cluster(to_yaml(servers.cluster), name), servers.cluster);
    std::string gpu = servers.cluster.rank.name;
    for (char& c : gpu) c = static_cast<char>(std::tolower(c));
    EXPECT_EQ(gpu, name);
    EXPECT_EQ(gpu_servers(servers.cluster.rank.name, {}).cluster, servers.cluster) << "in any case";
  }
}

TEST(GpuServers, HaveAsManyGpusAsIsAskedAndANetworkThatIsSaid) {
  const GpuServers four = gpu_servers("h100-80gb", 4);
  EXPECT_EQ(four.name, "servers of 4 × h100-80gb");
  EXPECT_EQ(four.cluster.ranks_per_server, 4);
  EXPECT_EQ(four.cluster.rank, cluster_of("h100-nvswitch").rank);
  EXPECT_EQ(four.assumed,
            "4 GPUs in a server, 450 GB/s between two of them, and 50 GB/s for each GPU between "
            "servers (400 Gb/s)");
  const GpuServers p4d = gpu_servers("a100-40gb", {});
  EXPECT_EQ(p4d.cluster.ranks_per_server, 8);
  EXPECT_THAT(p4d.assumed, HasSubstr("8 GPUs in a server, as its board has"));
  EXPECT_FALSE(p4d.cluster.links[1].shared) << "each GPU has an adapter";
  EXPECT_EQ(p4d.cluster.links[2].gbs, 25);
  EXPECT_EQ(gpu_servers("gh200", {}).cluster, cluster_of("gh200")) << "enough of a name";
}

TEST(GpuServers, ThatAreNotKnownAreAnsweredWithThoseThatAre) {
  const auto refusal = [](const char* name, std::optional<int> count = {}) -> std::string {
    try {
      gpu_servers(name, count);
    } catch (const InputError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal("h100"), HasSubstr("did you mean h100-80gb or h100-96gb?"));
  EXPECT_THAT(refusal("NVIDIA A100 80GB PCIe"), HasSubstr("did you mean a100-80gb?"));
  EXPECT_THAT(refusal("v100"), HasSubstr("the known ones are a100-40gb, a100-80gb"));
  EXPECT_THAT(refusal(""), HasSubstr("the known ones are a100-40gb, a100-80gb"));
  EXPECT_THAT(refusal("h100-80gb", 9), HasSubstr("connects 1 to 8 GPUs"));
  EXPECT_THAT(refusal("gh200", 5), HasSubstr("connects 1 to 4 GPUs"));
  EXPECT_THAT(refusal("gh200", 0), HasSubstr("connects 1 to 4 GPUs"));
}

}  // namespace
}  // namespace pecia::cluster_files
