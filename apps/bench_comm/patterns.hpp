// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What ranks say to each other in a run, each with a payload that can be verified.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/comm/communicator.hpp"

namespace pecia::bench {

class Pattern {
 public:
  virtual ~Pattern() = default;
  virtual std::string_view name() const = 0;
  /// Collective; returns when this rank has what it gets.
  virtual void run() = 0;
  /// Bytes that a rank sends, or of a broadcast that a rank gets.
  virtual int64_t bytes() const = 0;
  /// "" when the last run gave this rank what the others sent, else what is wrong.
  virtual std::string problem() const = 0;
};

/// Every byte of a payload is a function of who sent it and where in the message it stands.
std::byte payload_byte(int rank, int64_t index);
std::vector<std::byte> payload(int rank, int64_t bytes);
/// "" when `got` is what `rank` sends.
std::string payload_problem(std::span<const std::byte> got, int rank);

/// Send to the right neighbour and receive from the left, as a ring step does: `bytes` to each.
std::unique_ptr<Pattern> make_send_receive(comm::Communicator& world, int64_t bytes);
/// A block of bytes / ranks to every rank.
std::unique_ptr<Pattern> make_all_to_all(comm::Communicator& world, int64_t bytes);
/// `bytes` of rank 0 to every rank, as plans travel.
std::unique_ptr<Pattern> make_broadcast(comm::Communicator& world, int64_t bytes);
/// bytes / ranks of every rank to every rank.
std::unique_ptr<Pattern> make_all_gather(comm::Communicator& world, int64_t bytes);

}  // namespace pecia::bench
