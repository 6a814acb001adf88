// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "lib/base/core/error.hpp"
#include "lib/work/cluster_files/cluster.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::cluster_files {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* small = R"(ranks_per_server: 2
servers_per_rack: 3
rank:
  name: box
  backend: cpu
  flops: {fp32: 1e11, bf16: 2.5e11}
  memory_gbs: 20
  memory_gib: 12
links:
  server: {gbs: 5, us: 1, shared: true}
  rack: {gbs: 1.5, us: 20, shared: false}
  system: {gbs: 1, us: 50, shared: false}
efficiency:
  gemm: {factor: 0.5, rows: [[1, 0.1], [100, 0.5]], depth: [[64, 1]]}
  attention: 0.4
  copy: 0.8
  send: {bytes: [[4096, 0.1], [1e6, 0.9]]}
  collective: 0.7
overhead: {op_us: 2, step_us: 100}
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string refusal(const std::string& text) {
  try {
    parse_cluster(text, "c.yaml");
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ClusterFile, IsReadAsItStands) {
  const Cluster cluster = parse_cluster(small, "c.yaml");
  EXPECT_EQ(cluster.ranks_per_server, 2);
  EXPECT_EQ(cluster.servers_per_rack, 3);
  EXPECT_EQ(cluster.rank,
            (RankPeaks{"box", false, {{DType::fp32, 1e11}, {DType::bf16, 2.5e11}}, 20, 12}));
  EXPECT_EQ(cluster.links[0], (Link{5, 1, true}));
  EXPECT_EQ(cluster.links[1], (Link{1.5, 20, false}));
  EXPECT_EQ(cluster.links[2], (Link{1, 50, false}));
  EXPECT_EQ(cluster.efficiency.attention, Efficiency{0.4});
  EXPECT_EQ(cluster.overhead, (Cluster::Overhead{2, 100}));
  // Half, of 0.3 half way between 1 and 100 rows.
  EXPECT_DOUBLE_EQ(cluster.efficiency.gemm.of({.rows = 10, .depth = 4096}), 0.15);
  EXPECT_DOUBLE_EQ(cluster.efficiency.gemm.of({.rows = 0.5, .depth = 1}), 0.05);
  EXPECT_DOUBLE_EQ(cluster.efficiency.send.of({.bytes = 1e9}), 0.9);
}

TEST(ClusterFile, IsWrittenSoThatItIsReadBack) {
  const Cluster cluster = parse_cluster(small, "c.yaml");
  EXPECT_EQ(parse_cluster(to_yaml(cluster), "written"), cluster);
  Cluster odd = cluster;
  odd.rank.name = "a \"quoted\" \\ name: x";
  odd.links[0].us = 0.1 + 0.2;
  EXPECT_EQ(parse_cluster(to_yaml(odd), "written"), odd);
}

TEST(ClusterFile, MayHaveSlicesAndRatesOfWaitingServers) {
  std::string text =
      replaced(small, "attention: 0.4",
               "attention: {rows_at_depth: [[16, [[1, 0.1], [4, 0.2]]], [64, [[1, "
               "0.3]]]]}\n  stream: {bytes: [[1024, 0.2]]}\n  pieces: 0.7\n  weights: 0.6\n"
               "  recurrence: 0.3\n  recurrence_chunks: 0.2");
  text = replaced(text, "step_us: 100}",
                  "step_us: 100, recurrent_row_us: 0.4, recurrent_chunk_us: 3}");
  text = replaced(text, "memory_gib: 12",
                  "memory_gib: 12\n  alone: 1.5\n  alone_flops: 1.25\n  program_gib: 0.25\n"
                  "  first_touch_gbs: 0.5");
  const Cluster cluster = parse_cluster(text, "c.yaml");
  EXPECT_EQ(cluster.rank.alone, 1.5);
  EXPECT_EQ(cluster.rank.alone_flops, 1.25);
  EXPECT_EQ(cluster.rank.program_gib, 0.25);
  EXPECT_EQ(cluster.rank.first_touch_gbs, 0.5);
  EXPECT_EQ(cluster.efficiency.pieces, Efficiency{0.7});
  EXPECT_EQ(cluster.efficiency.weights, Efficiency{0.6});
  EXPECT_EQ(cluster.efficiency.recurrence, Efficiency{0.3});
  EXPECT_EQ(cluster.efficiency.recurrence_chunks, Efficiency{0.2});
  EXPECT_EQ(cluster.overhead.recurrent_row_us, 0.4);
  EXPECT_EQ(cluster.overhead.recurrent_chunk_us, 3);
  ASSERT_EQ(cluster.efficiency.attention.slices.size(), 2u);
  EXPECT_DOUBLE_EQ(cluster.efficiency.attention.of({.rows = 2, .depth = 16}), 0.15);
  EXPECT_DOUBLE_EQ(cluster.efficiency.stream->of({.bytes = 5}), 0.2);
  EXPECT_EQ(parse_cluster(to_yaml(cluster), "written"), cluster);
  EXPECT_EQ(parse_cluster(small, "c.yaml").efficiency.stream, Efficiency{0.8}) << "as copy";

  EXPECT_THAT(refusal(replaced(text, "[64, [[", "[16, [[")), HasSubstr("rows_at_depth must be"));
  EXPECT_THAT(refusal(replaced(text, "[4, 0.2]", "[4, 1.1]")), HasSubstr("rows_at_depth is 1.1"));
  EXPECT_THAT(refusal(replaced(text, "alone: 1.5", "alone: 0.5")), HasSubstr("rank.alone is 0.5"));
  EXPECT_THAT(refusal(replaced(text, "alone_flops: 1.25", "alone_flops: 0")),
              HasSubstr("rank.alone_flops is 0"));
  EXPECT_THAT(refusal(replaced(text, "program_gib: 0.25", "program_gib: 12")),
              HasSubstr("rank.program_gib is 12; it must be a number of GiB, 0 or more, below"));
  EXPECT_THAT(refusal(replaced(text, "first_touch_gbs: 0.5", "first_touch_gbs: -1")),
              HasSubstr("rank.first_touch_gbs is -1; it must be a number of 1e9 B/s, or 0 where"));
}

TEST(ClusterFile, MayHaveTheLinkOfGpusToTheirHosts) {
  const std::string host = replaced(small, "memory_gib: 12", "memory_gib: 12\n  host_gbs: 450");
  const std::string text = replaced(host, "backend: cpu", "backend: cuda");
  const Cluster cluster = parse_cluster(text, "c.yaml");
  EXPECT_EQ(cluster.rank.host_gbs, 450);
  EXPECT_EQ(parse_cluster(to_yaml(cluster), "written"), cluster);
  EXPECT_THAT(refusal(host), HasSubstr("rank.host_gbs is of GPUs, and the ranks are CPUs"));
  EXPECT_THAT(refusal(replaced(text, "host_gbs: 450", "host_gbs: 0")),
              HasSubstr("rank.host_gbs is 0; it must be a number above 0"));
}

TEST(ClusterFile, MayDescribeCollectivesBetweenServers) {
  std::string text =
      replaced(small, "rack: {gbs: 1.5, us: 20, shared: false}",
               "rack: {gbs: 1.5, us: 20, shared: true, adapters: 2, exchange_us: 40}");
  text = replaced(text, "collective: 0.7", "collective: 0.7\n  one_peer: {bytes: [[100, 0.2]]}");
  text = replaced(text, "step_us: 100}",
                  "step_us: 100, exchange_us: 3, context_token_us: 5, layer_us: 7}");
  text = replaced(text, "memory_gib: 12", "memory_gib: 12\n  in_order: true");
  const Cluster cluster = parse_cluster(text, "c.yaml");
  EXPECT_EQ(cluster.links[1], (Link{1.5, 20, true, 2, 40}));
  EXPECT_EQ(cluster.overhead.context_token_us, 5);
  EXPECT_EQ(cluster.overhead.layer_us, 7);
  EXPECT_TRUE(cluster.rank.in_order);
  EXPECT_FALSE(parse_cluster(small, "c.yaml").rank.in_order);
  EXPECT_EQ(parse_cluster(to_yaml(cluster), "written"), cluster);
  using comm::LinkLevel;
  EXPECT_DOUBLE_EQ(cluster.latency_s(LinkLevel::rack, true), 20e-6);
  EXPECT_DOUBLE_EQ(cluster.latency_s(LinkLevel::rack, false), 60e-6);
  EXPECT_DOUBLE_EQ(cluster.latency_s(LinkLevel::system, false), 53e-6) << "as overhead says";
  EXPECT_DOUBLE_EQ(cluster.share_of_message(100, false, LinkLevel::rack, 1), 0.2);
  EXPECT_DOUBLE_EQ(cluster.share_of_message(100, false, LinkLevel::rack, 2), 0.7);
  EXPECT_DOUBLE_EQ(cluster.share_of_message(100, false, LinkLevel::server, 1), 0.7);
  EXPECT_DOUBLE_EQ(cluster.share_of_message(4096, true, LinkLevel::rack, 1), 0.1) << "as send";
  EXPECT_EQ(cluster.level_between(0, 1), LinkLevel::server);
  EXPECT_EQ(cluster.level_between(1, 2), LinkLevel::rack);
  EXPECT_EQ(cluster.level_between(5, 6), LinkLevel::system);

  EXPECT_THAT(refusal(replaced(text, "adapters: 2", "adapters: 0")),
              HasSubstr("links.rack.adapters is 0"));
  EXPECT_THAT(refusal(replaced(text, "adapters: 2", "adapters: 4")),
              HasSubstr("does not divide the 2 ranks of a server"));
  EXPECT_THAT(refusal(replaced(text, "shared: true, adapters", "shared: false, adapters")),
              HasSubstr("the link is not shared, so each rank has one of its own"));
  EXPECT_THAT(refusal(replaced(text, "exchange_us: 40", "exchange_us: -1")),
              HasSubstr("links.rack.exchange_us is -1"));
  EXPECT_THAT(refusal(replaced(small, "server: {gbs: 5,", "server: {adapters: 2, gbs: 5,")),
              HasSubstr("unknown key links.server.adapters"));
}

TEST(ClusterFile, MayHaveARuleOfKeysAndQueries) {
  const std::string text =
      std::string(small) +
      "ring_rule: {new_tokens: 0.25, miss_rate: 1.5, constant: -2, ranks: 4, heads: 32, "
      "kv_heads: 8, head_dim: 128, kv: bf16}\n";
  const Cluster cluster = parse_cluster(text, "c.yaml");
  const RingRule rule{{0.25, 1.5, -2}, 4, 32, 8, 128, DType::bf16};
  EXPECT_EQ(cluster.ring_rule, rule);
  EXPECT_EQ(parse_cluster(to_yaml(cluster), "written"), cluster);
  EXPECT_FALSE(parse_cluster(small, "c.yaml").ring_rule);
  for (const DType type : {DType::fp32, DType::fp16, DType::fp8}) {
    Cluster of_type = cluster;
    of_type.ring_rule->kv = type;
    EXPECT_EQ(parse_cluster(to_yaml(of_type), "written"), of_type) << name_of(type);
  }
  RingRule other = rule;
  other.rule = {};
  EXPECT_TRUE(rule.is_of(other)) << "its rings are the same";
  other.ranks = 8;
  EXPECT_FALSE(rule.is_of(other));

  EXPECT_THAT(refusal(replaced(text, "kv: bf16", "kv: int8")),
              HasSubstr("fp32, bf16, fp16 or fp8"));
  EXPECT_THAT(refusal(replaced(text, "ranks: 4", "ranks: 1")), HasSubstr("one rank has no ring"));
  EXPECT_THAT(refusal(replaced(text, "constant: -2", "constant: low")),
              HasSubstr("ring_rule.constant is low; it must be a number"));
  EXPECT_THAT(refusal(replaced(text, "heads: 32, ", "")), HasSubstr("ring_rule.heads is missing"));
}

TEST(ClusterFile, ThatIsWrongIsRefusedWithTheLineAndTheKey) {
  const auto changed = [](const char* from, const char* to) {
    return refusal(replaced(small, from, to));
  };
  EXPECT_THAT(changed("memory_gbs: 20", "memory_gps: 20"),
              AllOf(HasSubstr("c.yaml:7: unknown key rank.memory_gps"),
                    HasSubstr("did you mean rank.memory_gbs?")));
  EXPECT_THAT(changed("op_us: 2,", "op_us: 2, colour: red,"),
              HasSubstr("the keys here are op_us, step_us"));
  EXPECT_THAT(changed("gbs: 1.5", "gbs: 0"), HasSubstr("links.rack.gbs is 0; it must be a number"));
  EXPECT_THAT(changed("gbs: 1.5", "gbs: -3"), HasSubstr("links.rack.gbs is -3"));
  EXPECT_THAT(changed("gbs: 1.5", "gbs: .inf"), HasSubstr("links.rack.gbs is .inf"));
  EXPECT_THAT(changed("us: 20", "us: -1"), HasSubstr("links.rack.us is -1"));
  EXPECT_THAT(changed("  system: {gbs: 1, us: 50, shared: false}\n", ""),
              HasSubstr("links.system is missing"));
  EXPECT_THAT(changed("overhead: {op_us: 2, step_us: 100}\n", ""),
              HasSubstr("overhead is missing"));
  EXPECT_THAT(changed("fp32: 1e11, bf16: 2.5e11", ""), HasSubstr("rank.flops.fp32 is missing"));
  EXPECT_THAT(changed("fp32: 1e11", "fp64: 1e11"), HasSubstr("did you mean rank.flops.fp32?"));
  EXPECT_THAT(changed("shared: true", "shared: maybe"), HasSubstr("it must be true or false"));
  EXPECT_THAT(changed("backend: cpu", "backend: gpu"), HasSubstr("it must be cpu or cuda"));
  EXPECT_THAT(changed("ranks_per_server: 2", "ranks_per_server: 1.5"),
              HasSubstr("a whole number from 1"));
  EXPECT_THAT(changed("attention: 0.4", "attention: 1.4"), HasSubstr("at most 1"));
  EXPECT_THAT(changed("attention: 0.4", "attention: {bytes: [[1, 0.5]]}"),
              HasSubstr("unknown key efficiency.attention.bytes"));
  EXPECT_THAT(changed("[[4096, 0.1], [1e6, 0.9]]", "[[4096, 0.1], [4096, 0.9]]"),
              HasSubstr("ascending order"));
  EXPECT_THAT(changed("[[4096, 0.1], [1e6, 0.9]]", "[]"), HasSubstr("a list of [size, share]"));
  EXPECT_THAT(refusal(""), HasSubstr("must be a map"));
  EXPECT_THAT(refusal("[1, 2"), HasSubstr("not valid YAML"));
}

TEST(ClusterPresets, AreFilesThatAreRead) {
  EXPECT_THAT(cluster_presets(),
              testing::ElementsAre("h100-gtt", "h100-gti", "a100-p4d", "a100-80gb", "h100-nvswitch",
                                   "h200-nvswitch", "gh200", "a800-4x200"));
  for (const std::string& name : cluster_presets()) {
    const Cluster cluster = cluster_of(name);
    EXPECT_EQ(cluster.ranks_per_server, name == "gh200" ? 4 : 8) << name;
    EXPECT_TRUE(cluster.rank.gpu) << name;
    EXPECT_GT(cluster.links[0].gbs, cluster.links[1].gbs) << name;
    EXPECT_EQ(parse_cluster(to_yaml(cluster), name), cluster);
  }
  EXPECT_EQ(cluster_of("h100-gti").links[1].gbs, 12.5);  // 100 Gb/s
}

/// Figures that makers publish: 1e12 FLOP/s in bf16, 1e9 B/s of memory, of NVLink in each direction
/// between two GPUs, and of the network for each GPU.
TEST(ClusterPresets, HaveTheFiguresOfDataSheets) {
  const auto has = [](const char* name, double tflops, double memory, double nvlink,
                      double network) {
    const Cluster cluster = cluster_of(name);
    EXPECT_EQ(cluster.rank.flops.at(DType::bf16) / 1e12, tflops) << name;
    EXPECT_EQ(cluster.rank.memory_gbs, memory) << name;
    EXPECT_EQ(cluster.links[0].gbs, nvlink) << name;
    EXPECT_EQ(cluster.links[1].gbs, network) << name;
    EXPECT_FALSE(cluster.links[1].shared) << name;
  };
  has("a100-80gb", 312, 2039, 300, 25);
  has("gh200", 989, 4000, 150, 25);
  EXPECT_EQ(cluster_of("gh200").rank.host_gbs, 450) << "half of NVLink-C2C's 900 GB/s";
  EXPECT_EQ(cluster_of("a100-80gb").rank.host_gbs, std::nullopt);
}

TEST(ClusterPresets, ThatDoNotExistAreAnsweredWithThoseThatAreMeant) {
  const auto refusal = [](const char* name) -> std::string {
    try {
      cluster_of(name);
    } catch (const InputError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal("h100-gt"), HasSubstr("did you mean h100-gtt or h100-gti?"));
  EXPECT_THAT(refusal("h100"), HasSubstr("did you mean h100-gtt, h100-gti or h100-nvswitch?"));
  EXPECT_THAT(refusal("a100"), HasSubstr("did you mean a100-p4d or a100-80gb?"));
  EXPECT_THAT(refusal("H100-80GB"), HasSubstr("did you mean h100-nvswitch?"));
  EXPECT_THAT(refusal("GH200-96GB"), HasSubstr("did you mean gh200?"));
  EXPECT_THAT(refusal("laptop of mine"), HasSubstr("the presets are h100-gtt, h100-gti"));
  EXPECT_THAT(refusal("b200"), HasSubstr("the presets are")) << "spelled nearly as gh200";
}

TEST(ClusterFile, IsFoundByItsPath) {
  const test::TempFolder folder;
  const auto path = folder / "mine.yaml";
  std::ofstream(path) << small;
  EXPECT_EQ(cluster_of(path.string()), parse_cluster(small, "c.yaml"));
}

TEST(ClusterFile, ThatTheDocumentsShowIsRead) {
  std::ifstream file(PECIA_CONFIGS "/cluster-files.md");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const std::string opening = "```yaml\nranks_per_server", closing = "\n```";
  const size_t begin = text.find(opening);
  ASSERT_NE(begin, std::string::npos);
  const size_t end = text.find(closing, begin);
  const Cluster cluster =
      parse_cluster(text.substr(begin + 8, end - begin - 8), "cluster-files.md");
  EXPECT_EQ(cluster.rank, cluster_of("h100-gtt").rank);
  EXPECT_DOUBLE_EQ(cluster.efficiency.gemm.of({.rows = 16, .depth = 512}), 0.08);
}

TEST(Cluster, FillsServersAndRacksInTurn) {
  const Cluster cluster = parse_cluster(small, "c.yaml");
  const auto level = [&](int a, int b) { return link_level(cluster.place(a), cluster.place(b)); };
  EXPECT_EQ(level(0, 1), comm::LinkLevel::server);
  EXPECT_EQ(level(1, 2), comm::LinkLevel::rack);
  EXPECT_EQ(level(5, 6), comm::LinkLevel::system);
  EXPECT_EQ(cluster.places(7).size(), 7u);
}

}  // namespace
}  // namespace pecia::cluster_files
