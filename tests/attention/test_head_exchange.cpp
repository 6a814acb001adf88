// SPDX-License-Identifier: Apache-2.0
/// Heads for rows and back: every element is checked by what it stands for.

#include <gtest/gtest.h>
#include <mpi.h>

#include <set>

#include "lib/model/attention/head_exchange.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "tests/support/owned_compute.hpp"

namespace pecia::attention {
namespace {

using parallel::HeadRange;
using parallel::HeadShard;
using parallel::RowRange;

constexpr int64_t num_heads = 8, num_kv_heads = 2, head_dim = 3;

enum class What { query, key, value, output };

/// Of one element of row `row` and head `head` of the whole model. fp16 holds those of queries, and
/// bf16 does not.
float number(What what, int64_t row, int64_t head, int64_t dimension) {
  return static_cast<float>(2000 * static_cast<int64_t>(what) +
                            (row * num_heads + head) * head_dim + dimension);
}

void fill(const TensorView& tensor, What what, RowRange rows, HeadRange heads) {
  int64_t next = 0;
  for (int64_t row = rows.begin; row < rows.end; ++row)
    for (int64_t head = heads.begin; head < heads.end; ++head)
      for (int64_t d = 0; d < head_dim; ++d)
        store_from_float(tensor.data(), tensor.dtype(), next++, number(what, row, head, d));
}

/// The elements of rows and heads outside of `own_rows` and `own_heads` have travelled in `wire`.
void expect(const TensorView& tensor, What what, RowRange rows, HeadRange heads, DType wire,
            RowRange own_rows, HeadRange own_heads) {
  ASSERT_EQ(tensor.rows(), rows.size());
  ASSERT_EQ(tensor.size(1), heads.size());
  int64_t next = 0;
  for (int64_t row = rows.begin; row < rows.end; ++row)
    for (int64_t head = heads.begin; head < heads.end; ++head)
      for (int64_t d = 0; d < head_dim; ++d) {
        const float exact = number(what, row, head, d);
        const bool stayed = own_rows.begin <= row && row < own_rows.end &&
                            own_heads.begin <= head && head < own_heads.end;
        const float wanted =
            wire == DType::bf16 && !stayed ? bf16_to_float(float_to_bf16(exact)) : exact;
        ASSERT_EQ(load_as_float(tensor.data(), tensor.dtype(), next++), wanted)
            << "row " << row << ", head " << head;
      }
}

/// Ranks of a server, by which keys go; 1: they go directly.
using Case = std::tuple<DType, int>;
class HeadExchangeOf : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(WiresAndServers, HeadExchangeOf,
                         testing::Combine(testing::Values(DType::fp32, DType::bf16),
                                          testing::Values(1, 2, 3, 4)));

/// Bytes of keys and values that this rank sends to other servers and within its own, if each head
/// crosses to a server once.
std::pair<int64_t, int64_t> least_bytes(const ExchangePlan& plan, const std::vector<int>& servers,
                                        int rank, DType wire) {
  const auto bytes = [&](int of) {
    return 2 * plan.rows[of].size() * head_dim * static_cast<int64_t>(size_of(wire));
  };
  const auto ranks = static_cast<int>(servers.size());
  std::set<std::pair<int64_t, int>> crossings;
  int64_t inside = 0;
  for (int to = 0; to < ranks; ++to)
    for (int64_t head = plan.wanted[to].kv.begin; head < plan.wanted[to].kv.end; ++head) {
      if (servers[to] != servers[rank]) crossings.insert({head, servers[to]});
      if (servers[to] == servers[rank] && to != rank) inside += bytes(rank);
    }
  for (const int from : plan.routes.relayed_by(rank))
    for (int to = 0; to < ranks; ++to)
      if (plan.routes.last_hop(from, to) == rank) inside += bytes(from);
  return {std::ssize(crossings) * bytes(rank), inside};
}

TEST_P(HeadExchangeOf, GivesEveryRankAllRowsOfItsHeads) {
  const auto [wire, per_server] = GetParam();
  const auto world = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  const int ranks = world->size(), rank = world->rank();
  std::vector<int> servers;
  std::vector<comm::RackServerGpu> places;
  for (int other = 0; other < ranks; ++other) {
    servers.push_back(other / per_server);
    places.push_back({"rack", std::to_string(servers.back()), other});
  }
  world->set_places(places);
  test::CpuCompute compute;
  const attention::Compute place = compute;
  HeadExchange exchange(place, wire);
  for (const int64_t num_rows : {0, 1, 3, 29}) {
    const RowRange all{0, num_rows};
    ExchangePlan plan;
    plan.held = parallel::head_shard(num_heads, num_kv_heads, 1, 0);
    for (int other = 0; other < ranks; ++other) {
      plan.rows.push_back(parallel::row_part(all, ranks, other));
      plan.wanted.push_back(parallel::head_shard(num_heads, num_kv_heads, ranks, other));
    }
    std::vector<HeadRange> kv_heads;
    for (const HeadShard& of : plan.wanted) kv_heads.push_back(of.kv);
    plan.routes = parallel::KvRoutes::by_servers(kv_heads, servers);
    EXPECT_EQ(plan.routes.are_direct(), per_server == 1 || ranks < 4 || ranks <= per_server);
    const auto [across, inside] = least_bytes(plan, servers, rank, wire);
    const RowRange own = plan.rows[rank];
    const HeadShard held = plan.held, wanted = plan.wanted[rank];
    exchange.begin_pass(*world, plan);
    device::Buffer k_memory = place.buffer(), v_memory = place.buffer(), q_memory = place.buffer(),
                   out_memory = place.buffer(), attended_memory = place.buffer();
    const auto tensor = [](device::Buffer& memory, int64_t rows, HeadRange heads,
                           DType dtype = DType::fp32) {
      return memory.tensor(dtype, {rows, heads.size(), head_dim});
    };
    for (const DType query_type : {DType::fp32, DType::fp16}) {  // of two layers
      const TensorView k = tensor(k_memory, own.size(), held.kv);
      const TensorView v = tensor(v_memory, own.size(), held.kv);
      const TensorView q = tensor(q_memory, own.size(), held.q, query_type);
      const TensorView out = tensor(out_memory, own.size(), held.q);
      const TensorView attended = tensor(attended_memory, num_rows, wanted.q);
      fill(k, What::key, own, held.kv);
      fill(v, What::value, own, held.kv);
      fill(q, What::query, own, held.q);
      std::vector<comm::Traffic> sent{world->traffic()};
      exchange.start_keys(k, v);
      sent.push_back(world->traffic());
      const TensorView queries = exchange.start_queries(q);
      sent.push_back(world->traffic());
      const HeadExchange::Keys keys = exchange.wait_keys();
      sent.push_back(world->traffic());
      const auto of_keys = [&](comm::LinkLevel level) {
        const auto until = [&](int moment) {
          return sent[moment].bytes_by_level[static_cast<size_t>(level)];
        };
        return until(1) - until(0) + until(3) - until(2);
      };
      EXPECT_EQ(of_keys(comm::LinkLevel::rack), across);
      EXPECT_EQ(of_keys(comm::LinkLevel::server), inside);
      expect(keys.k, What::key, all, wanted.kv, wire, own, wanted.kv);
      expect(keys.v, What::value, all, wanted.kv, wire, own, wanted.kv);
      fill(attended, What::output, all, wanted.q);
      for (int distance = 1; distance < ranks; ++distance) {
        exchange.wait_queries(distance);
        exchange.start_outputs(distance, attended);
      }
      EXPECT_EQ(queries.dtype(), query_type);
      const DType queries_wire = query_type == DType::fp32 ? wire : query_type;
      expect(queries, What::query, all, wanted.q, queries_wire, own, wanted.q);
      exchange.wait_outputs(attended, out);
      expect(out, What::output, own, held.q, wire, own, wanted.q);
    }
  }
}

}  // namespace
}  // namespace pecia::attention
