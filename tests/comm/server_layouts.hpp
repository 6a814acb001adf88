// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How tests spread ranks over servers, and block sizes that are ragged.

#include <cstdint>
#include <string>
#include <vector>

namespace pecia::test {

struct ServerLayout {
  std::string name;
  std::vector<int> (*labels)(int num_ranks);
};

/// Of any number of ranks: one server, one each, pairs {0,0,1,1,…}, interleaved {0,1,0,1,…},
/// unequal {0,1,1,1,2,…} under labels out of order.
const std::vector<ServerLayout>& server_layouts();

/// Block lengths by rank, `seed` different ones: none, one, odd and long ones.
std::vector<int64_t> ragged_counts(int num_ranks, int seed);

}  // namespace pecia::test
