// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "lib/base/core/error.hpp"
#include "lib/base/report/gzip.hpp"
#include "lib/base/report/trace.hpp"
#include "lib/simulation/replay.hpp"
#include "lib/work/cluster_files/op_time.hpp"
#include "tests/simulation/small_cluster.hpp"
#include "tests/simulation/small_grid.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::simulation {
namespace {

using testing::HasSubstr;

/// 1 FLOP/s, messages of 1e9 B/s after a second; nothing else takes time.
cluster_files::Cluster slow_cluster() {
  cluster_files::Cluster cluster;
  cluster.ranks_per_server = 8;
  cluster.rank = {"slow", false, {{DType::fp32, 1}}, 1e30, 1};
  cluster.links.fill({1, 1e6, false});
  return cluster;
}

Step op(double seconds) {
  return {"op",
          kernels::OpWork{.name = "linear", .dtype = DType::fp32, .rows = 1, .flops = seconds}};
}
Step send_receive(int to, int from, int64_t bytes) {
  return {"",
          comm::PhantomStart{
              .group = 1, .in_series = true, .sends = {{bytes, to}}, .receives = {{bytes, from}}}};
}
/// Step `step` of an operation in which two ranks exchange.
Step exchange(int step, int peer, int64_t bytes) {
  return {"", comm::PhantomStart{
                  .group = 2, .step = step, .sends = {{bytes, peer}}, .receives = {{bytes, peer}}}};
}
Step wait(int64_t starts_ago) {
  return {"wait", Wait{starts_ago}};
}
Program program(std::vector<Step> steps, int64_t times = 1) {
  return {{std::move(steps), times, -1}};
}

TEST(Replay, HidesATransferUnderOps) {
  // Two ranks send 2e9 bytes to each other: 3 s from when both have started.
  const auto of = [](double before, double under) {
    return [=](int peer) {
      return program(
          {op(before), send_receive(peer, peer, 2'000'000'000), op(under), wait(1), op(1)});
    };
  };
  const ReplayResult hidden = replay({of(0, 4)(1), of(0, 4)(0)}, slow_cluster());
  EXPECT_DOUBLE_EQ(hidden.seconds, 5);
  EXPECT_DOUBLE_EQ(hidden.ranks[0].exposed_comm_s, 0);
  const ReplayResult exposed = replay({of(0, 1)(1), of(0, 1)(0)}, slow_cluster());
  EXPECT_DOUBLE_EQ(exposed.seconds, 4);
  EXPECT_DOUBLE_EQ(exposed.ranks[1].exposed_comm_s, 2);
  // Rank 1 comes 5 s late: rank 0 waits from 1 to 8.
  const ReplayResult late = replay({of(0, 1)(1), of(5, 1)(0)}, slow_cluster());
  EXPECT_DOUBLE_EQ(late.ranks[0].exposed_comm_s, 7);
  EXPECT_DOUBLE_EQ(late.ranks[0].end_s, 9);
  EXPECT_DOUBLE_EQ(late.ranks[1].exposed_comm_s, 2);
  EXPECT_EQ(&late.busiest(), &late.ranks[1]);
  EXPECT_EQ(late.messages, 2);
}

TEST(Replay, StartsAStepOfAnOperationWhenTheOneBeforeIsDone) {
  // Two steps of 1e9 bytes take 2 s each, while the ranks compute for 1 s.
  const auto of = [](int peer) {
    return program(
        {exchange(0, peer, 1'000'000'000), exchange(1, peer, 1'000'000'000), op(1), wait(1)});
  };
  EXPECT_DOUBLE_EQ(replay({of(1), of(0)}, slow_cluster()).seconds, 4);
  // Two operations at once share the ports: 1 s, and 2 s for two messages; twice.
  const auto two = [](int peer) {
    return program(
        {exchange(0, peer, 1'000'000'000), exchange(0, peer, 1'000'000'000), wait(2), wait(1)});
  };
  EXPECT_DOUBLE_EQ(replay({two(1), two(0)}, slow_cluster()).seconds, 3);
}

TEST(Replay, RepeatsSections) {
  const auto of = [](int peer) {
    return program({send_receive(peer, peer, 1'000'000'000), op(1), wait(1)}, 5);
  };
  const ReplayResult time = replay({of(1), of(0)}, slow_cluster());
  EXPECT_DOUBLE_EQ(time.seconds, 10);
  EXPECT_DOUBLE_EQ(time.ranks[0].exposed_comm_s, 5);
  EXPECT_EQ(time.messages, 10);
}

TEST(Replay, AddsTheOverheadOfOpsAndOfThePass) {
  cluster_files::Cluster cluster = slow_cluster();
  cluster.overhead = {.op_us = 1e6, .step_us = 3e6};
  EXPECT_DOUBLE_EQ(replay({program({op(1), op(2)})}, cluster).seconds, 8);
}

TEST(Replay, AddsTheOverheadOfStepsOfCollectives) {
  cluster_files::Cluster cluster = slow_cluster();
  const auto exchanges = [](int peer) {
    return program({exchange(0, peer, 1'000'000'000), exchange(1, peer, 1'000'000'000), wait(1)});
  };
  const auto sends = [](int peer) {
    return program({send_receive(peer, peer, 1'000'000'000), wait(1)});
  };
  const double before = replay({exchanges(1), exchanges(0)}, cluster).seconds;
  const double message = replay({sends(1), sends(0)}, cluster).seconds;
  cluster.overhead.exchange_us = 3e6;
  EXPECT_DOUBLE_EQ(replay({exchanges(1), exchanges(0)}, cluster).seconds, before + 2 * 3);
  EXPECT_DOUBLE_EQ(replay({sends(1), sends(0)}, cluster).seconds, message);
}

TEST(Replay, AddsTheOverheadOfALinksExchangesWhereItHasOne) {
  cluster_files::Cluster cluster = slow_cluster();
  cluster.ranks_per_server = 1, cluster.servers_per_rack = 8;
  const auto exchanges = [](int peer) {
    return program({exchange(0, peer, 1'000'000'000), wait(1)});
  };
  const double before = replay({exchanges(1), exchanges(0)}, cluster).seconds;
  cluster.overhead.exchange_us = 1e6;
  EXPECT_DOUBLE_EQ(replay({exchanges(1), exchanges(0)}, cluster).seconds, before + 1);
  cluster.links[1].exchange_us = 3e6;  // between servers
  EXPECT_DOUBLE_EQ(replay({exchanges(1), exchanges(0)}, cluster).seconds, before + 3);
  cluster.ranks_per_server = 2;
  EXPECT_DOUBLE_EQ(replay({exchanges(1), exchanges(0)}, cluster).seconds, before + 1);
}

/// Three ranks in servers of their own. Rank 0 sends to one or to both of the others.
TEST(Replay, GivesAMessageToOnePeerAloneItsShare) {
  cluster_files::Cluster cluster = slow_cluster();
  cluster.ranks_per_server = 1, cluster.servers_per_rack = 8;
  const auto seconds = [&](bool both) {
    const auto to = [](int peer) { return comm::PhantomMessage{1'000'000'000, peer}; };
    const auto other = [&](int rank) {
      comm::PhantomStart start{.group = 2};
      if (rank == 1 || both) start.receives = {to(0)};
      return program({{"", start}, wait(1)});
    };
    comm::PhantomStart start{.group = 2, .sends = {to(1)}};
    if (both) start.sends.push_back(to(2));
    return replay({program({{"", start}, wait(1)}), other(1), other(2)}, cluster).seconds;
  };
  EXPECT_DOUBLE_EQ(seconds(false), 1 + 1);
  EXPECT_DOUBLE_EQ(seconds(true), 1 + 2);
  cluster.efficiency.one_peer = cluster_files::Efficiency{0.5};
  EXPECT_DOUBLE_EQ(seconds(false), 1 + 2);
  EXPECT_DOUBLE_EQ(seconds(true), 1 + 2);
  cluster.ranks_per_server = 8;  // within a server collectives have their own share
  EXPECT_DOUBLE_EQ(seconds(false), 1 + 1);
}

/// An exchange of 2 s under an op of 3 s, or before it; messages of a series always move beside ops.
TEST(Replay, PlaysCollectivesInOrderWithOpsWhereTheClusterSaysSo) {
  cluster_files::Cluster cluster = slow_cluster();
  const auto seconds = [&](auto message) {
    const auto of = [&](int peer) { return program({message(peer), op(3), wait(1), op(1)}, 3); };
    return replay({of(1), of(0)}, cluster).seconds;
  };
  const auto exchanges = [](int peer) { return exchange(0, peer, 1'000'000'000); };
  const auto sends = [](int peer) { return send_receive(peer, peer, 1'000'000'000); };
  EXPECT_DOUBLE_EQ(seconds(exchanges), 3 * 4);
  cluster.rank.in_order = true;
  EXPECT_DOUBLE_EQ(seconds(exchanges), 3 * 6);
  EXPECT_DOUBLE_EQ(seconds(sends), 3 * 4);
}

TEST(Replay, ReadsFasterWhileOthersOfTheServerWait) {
  // Rank 0 reads for 6 s, or for 2 s alone, and then sends; rank 1 waits for it. The third rank of
  // the server belongs to another replica, which works.
  cluster_files::Cluster cluster = slow_cluster();
  cluster.ranks_per_server = 3;
  cluster.rank.alone = 5;
  cluster.rank.memory_gbs = 1;
  const Step reads{
      "op",
      kernels::OpWork{.name = "add", .dtype = DType::fp32, .rows = 1, .bytes_read = 6'000'000'000}};
  const std::vector<Program> programs{program({reads, send_receive(1, 1, 1), wait(1), reads}),
                                      program({send_receive(0, 0, 1), wait(1), reads})};
  const ReplayResult time = replay(programs, cluster);
  EXPECT_NEAR(time.ranks[1].exposed_comm_s, 2 + 1, 1e-6);
  EXPECT_NEAR(time.seconds, 2 + 1 + 6, 1e-6) << "later both read";
}

TEST(Replay, ComputesFasterWhileOthersOfTheServerWait) {
  cluster_files::Cluster cluster = slow_cluster();
  cluster.ranks_per_server = 2;
  cluster.rank.alone_flops = 2;
  const std::vector<Program> programs{program({op(6), send_receive(1, 1, 1), wait(1), op(6)}),
                                      program({send_receive(0, 0, 1), wait(1), op(6)})};
  const ReplayResult time = replay(programs, cluster);
  EXPECT_NEAR(time.ranks[1].exposed_comm_s, 3 + 1, 1e-6);
  EXPECT_NEAR(time.seconds, 3 + 1 + 6, 1e-6) << "later both compute";
}

TEST(Replay, ReadsFasterWhileOthersHaveNoRowsUntilTheyWaitInALaterLayer) {
  // Decode of one sequence over CP: rank 1 has no rows of the layers' products, and waits next in
  // the second or third layer, or not at all any more.
  cluster_files::Cluster cluster = slow_cluster();
  cluster.ranks_per_server = 2;
  cluster.rank.alone_flops = 2;
  const Step nothing{"op", kernels::OpWork{.name = "linear", .dtype = DType::fp32}};
  const std::vector<Step> computes{send_receive(1, 1, 1), wait(1), op(6)};
  const std::vector<Step> waits{send_receive(0, 0, 1), wait(1), nothing};
  for (const int64_t layers : {1, 2, 3}) {
    const Program first{{computes, layers, 0}, {{op(6)}, 1, -1}, {computes, 1, -1}};
    const Program second{{waits, layers, 0}, {{nothing}, 1, -1}, {waits, 1, -1}};
    const double seconds = replay({first, second}, cluster).seconds;
    EXPECT_NEAR(seconds, static_cast<double>(layers + 1) * (1 + 3) + 3, 1e-6);
  }
}

TEST(Replay, SaysWhoWaitsInVainAndForWhat) {
  const auto why = [](const std::vector<Program>& programs) -> std::string {
    try {
      replay(programs, slow_cluster());
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "nothing";
  };
  EXPECT_THAT(why({program({send_receive(1, 1, 8), wait(1)}), program({op(1)})}),
              HasSubstr("rank 0 waits in wait of layer -1 for messages that nobody sends"));
  EXPECT_THAT(
      why({program({send_receive(1, 1, 8), wait(1)}), program({send_receive(0, 0, 9), wait(1)})}),
      HasSubstr("from rank 1 to rank 0 has 9 bytes on one side and 8 on the other"));
}

TEST(Replay, OfRecordedProgramsMatchesAllMessages) {
  const model::ModelConfig config = small_model(6);
  for (const Grid& grid : grids()) {
    const schedule::Plan plans[] = {grid.passes().feed(0, 2, 48),
                                    grid.passes().step(0, 5, 40, true)};
    for (const schedule::Plan& plan : plans) {
      const auto recorded = programs(config, grid, plan, Layers::folded);
      const ReplayResult time = replay(recorded, small_cluster());
      int64_t messages = 0;
      for (int rank = 0; rank < grid.ranks(); ++rank) {
        execute::PhantomRank phantom(config, grid.settings(rank));
        phantom.execute(plan);
        messages += phantom.traffic().messages;
        const RankTimes& times = time.ranks[rank];
        EXPECT_NEAR(times.gemm_s + times.attention_s + times.other_s + times.exposed_comm_s,
                    times.end_s, 1e-12);
      }
      EXPECT_EQ(time.messages, messages) << grid.name;
      // The same programs take the same time, and so do all layers one by one.
      EXPECT_EQ(replay(recorded, small_cluster()).seconds, time.seconds) << grid.name;
      EXPECT_NEAR(replay(programs(config, grid, plan, Layers::each), small_cluster()).seconds,
                  time.seconds, 1e-6 * time.seconds)
          << grid.name;
    }
  }
}

/// What is skipped is compared with all layers played, on up to 64 ranks.
TEST(Replay, SkipsLayersThatTakeTheSameTime) {
  using parallel::AttentionExchange;
  const model::ModelConfig config = small_model(60);
  std::vector<Grid> all = grids();
  all.push_back({"pass_kv and tp over racks", 8, 1, 2});
  all.push_back({"pass_q and tp over racks", 8, 1, 2, AttentionExchange::pass_q});
  all.push_back({"usp over racks", 4, 4});
  all.push_back({"64 ranks", 16, 1, 4});
  for (const bool shared : {false, true}) {
    cluster_files::Cluster cluster = small_cluster();
    cluster.servers_per_rack = 2;
    for (cluster_files::Link& link : cluster.links) link.shared = shared;
    int64_t messages = 0, played = 0;
    for (const Grid& grid : all)
      for (const schedule::Plan& plan :
           {grid.passes().feed(0, 1, 500, 300), grid.passes().step(0, 5, 40, true)}) {
        const auto recorded = programs(config, grid, plan, Layers::folded);
        const ReplayResult whole = replay(recorded, cluster, [](const Moment&) {});
        const ReplayResult time = replay(recorded, cluster);
        SCOPED_TRACE(fmt::format("{}, {} items, shared {}", grid.name, plan.items.size(), shared));
        EXPECT_EQ(whole.played, whole.messages);
        EXPECT_EQ(time.messages, whole.messages);
        EXPECT_NEAR(time.seconds, whole.seconds, 1e-6 * whole.seconds);
        const double near = 1e-5 * whole.seconds;
        for (int rank = 0; rank < grid.ranks(); ++rank) {
          const RankTimes &one = time.ranks[rank], &other = whole.ranks[rank];
          EXPECT_NEAR(one.gemm_s, other.gemm_s, near);
          EXPECT_NEAR(one.attention_s, other.attention_s, near);
          EXPECT_NEAR(one.other_s, other.other_s, near);
          EXPECT_NEAR(one.exposed_comm_s, other.exposed_comm_s, near);
          EXPECT_NEAR(one.end_s, other.end_s, near);
        }
        messages += time.messages, played += time.played;
      }
    EXPECT_LT(played, messages / 2);
  }
}

TEST(Replay, OfOneRankIsTheSumOfItsOps) {
  const model::ModelConfig config = small_model(6);
  const Grid alone{"alone"};
  const auto recorded = programs(config, alone, alone.passes().feed(0, 1, 100), Layers::each);
  double seconds = 50e-6;
  for (const Section& section : recorded[0])
    for (const Step& step : section.steps) {
      if (const auto* one = std::get_if<kernels::OpWork>(&step.what))
        seconds += op_seconds(*one, small_cluster());
      if (const auto* copy = std::get_if<Copy>(&step.what))
        seconds += cluster_files::copy_seconds(static_cast<double>(copy->bytes), small_cluster());
    }
  EXPECT_NEAR(replay(recorded, small_cluster()).seconds, seconds, 1e-12);
}

/// All ring steps at once need each port once, so a ring's step takes as long as one message.
TEST(Replay, OfARingHidesTransfersWhereAttentionTakesLonger) {
  const model::ModelConfig config = small_model(6);
  const Grid grid{"pass_kv", 4};
  const auto recorded = programs(config, grid, grid.passes().feed(0, 1, 1024), Layers::folded);
  cluster_files::Cluster cluster = small_cluster();
  cluster.links.fill({1e6, 0, false});
  const ReplayResult free = replay(recorded, cluster);
  EXPECT_LT(free.busiest().exposed_comm_s, 1e-6);
  cluster.links.fill({1e-3, 0, false});
  const ReplayResult bound = replay(recorded, cluster);
  // 3 messages a layer: 256 tokens of 4 KV heads, keys and values in fp32, at 0.9 of 1e6 B/s.
  const double sent = 6 * 3 * (256 * 4 * 8 * 2 * 4) / 0.9e6;
  EXPECT_NEAR(bound.seconds, sent + free.seconds, free.seconds);
  EXPECT_GT(bound.seconds, sent);
}

/// Two KV heads on two servers of 4 ranks: a rank sends 1 copy of its keys and values to the other
/// server in place of 4. Links between servers are all that takes time.
TEST(Replay, OfKeysByRelaysTakesWhatCrossesLess) {
  model::ModelConfig config = small_model(6);
  config.num_kv_heads = 2;
  const Grid grid{"ulysses", 1, 8};
  cluster_files::Cluster cluster = small_cluster();
  cluster.ranks_per_server = 4;
  cluster.links.fill({1e-3, 0, false});
  cluster.links.front() = {1e6, 0, false};
  const auto seconds = [&](const parallel::LinkCosts& costs) {
    std::vector<Program> all;
    for (int rank = 0; rank < grid.ranks(); ++rank) {
      execute::PhantomSettings settings = grid.settings(rank);
      settings.replica.places = cluster.places(grid.ranks());
      settings.replica.link_costs = costs;
      all.push_back(record(config, {settings, {}, grid.passes().feed(0, 1, 1024)}, Layers::folded));
    }
    return replay(all, cluster).seconds;
  };
  const double direct = seconds({}), relayed = seconds({.across_s_per_byte = 1});
  const double saved =
      6 * 3 * (128 * 8 * 2 * 4) / 0.7e6;  // layers, copies, a copy; at 0.7 of 1e6 B/s
  EXPECT_NEAR(direct - relayed, saved, 0.05 * saved);
}

TEST(ForeseenTrace, HasTheNamesOfARunAndAllOfTheTime) {
  const model::ModelConfig config = small_model(6);
  const Grid grid{"pass_kv", 2};
  const auto recorded = programs(config, grid, grid.passes().feed(0, 1, 64), Layers::folded);
  const test::TempFolder folder;
  const ReplayResult time = write_trace(recorded, small_cluster(), "prefill", folder.path());
  report::GzipLines lines(folder / report::merged_trace_name);
  std::string text, line;
  while (lines.next(line)) text += line;
  const auto trace = nlohmann::json::parse(text);
  std::map<std::string, double> us;  // of rank 1, by name
  double all_us = 0;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X" || event.at("tid") != 1) continue;
    us[event.at("name")] += event.at("dur").get<double>();
    if (event.at("cat") != "phase") all_us += event.at("dur").get<double>();
  }
  EXPECT_TRUE(us.contains("prefill/layer 5/attention"));
  EXPECT_TRUE(us.contains("prefill/layer 0/ring_pass_kv"));
  EXPECT_NEAR(us.at("prefill"), 1e6 * time.ranks[1].end_s, 0.01);
  EXPECT_NEAR(all_us + 50, us.at("prefill"), 1);  // 50 µs for the pass
}

}  // namespace
}  // namespace pecia::simulation
