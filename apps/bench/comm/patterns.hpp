// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The messages that ranks exchange in a run, each with a payload that can be verified.

#include <functional>
#include <string>
#include <vector>

#include "lib/ranks/comm/collectives.hpp"
#include "lib/ranks/comm/communicator.hpp"

namespace pecia::bench {

struct Pattern {
  std::string name;
  /// Bytes that a rank sends, or for a broadcast the bytes that a rank receives.
  int64_t bytes;
  /// Collective; returns when this rank has received its part.
  std::function<void()> run;
  /// "" when the last run gave this rank what the others sent, else a description of the error.
  std::function<std::string()> problem;
};

std::vector<std::byte> payload(int rank, int64_t bytes);
/// "" when `got` is what `rank` sends.
std::string payload_problem(std::span<const std::byte> got, int rank);

/// Sends `bytes` to the right neighbour and receives as many from the left, as a ring step does.
Pattern send_receive(comm::Communicator& world, int64_t bytes);
/// Sends a block of bytes / ranks to every rank.
Pattern all_to_all(comm::Communicator& world, int64_t bytes);
/// Sends `bytes` of rank 0 to every rank, as plans travel.
Pattern broadcast(comm::Communicator& world, int64_t bytes);
/// Sends bytes / ranks of every rank to every rank.
Pattern all_gather(comm::Communicator& world, int64_t bytes);

/// Gathering and summing of tensors as the layers do it. Each handles `bytes` of fp32, cut into equal
/// blocks by rank. `servers` is as in Collectives.
Pattern tensor_all_gather(comm::Communicator& world, const std::vector<int>& servers,
                          int64_t bytes);
Pattern reduce_scatter(comm::Communicator& world, const std::vector<int>& servers, int64_t bytes);
/// Sums in place. Each run begins by copying the values in, and its time includes the copy.
Pattern all_reduce(comm::Communicator& world, const std::vector<int>& servers, int64_t bytes);

}  // namespace pecia::bench
