// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The messages that ranks exchange in a run, each with a payload that can be verified.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/ranks/comm/communicator.hpp"

namespace pecia::bench {

class Pattern {
 public:
  virtual ~Pattern() = default;
  virtual std::string_view name() const = 0;
  /// Collective; returns when this rank has received its part.
  virtual void run() = 0;
  /// Bytes that a rank sends, or for a broadcast the bytes that a rank receives.
  virtual int64_t bytes() const = 0;
  /// "" when the last run gave this rank what the others sent, else a description of the error.
  virtual std::string problem() const = 0;
};

/// Every byte of a payload is a function of its sender and its place in the message.
std::byte payload_byte(int rank, int64_t index);
std::vector<std::byte> payload(int rank, int64_t bytes);
/// "" when `got` is what `rank` sends.
std::string payload_problem(std::span<const std::byte> got, int rank);

/// Sends `bytes` to the right neighbour and receives as many from the left, as a ring step does.
std::unique_ptr<Pattern> make_send_receive(comm::Communicator& world, int64_t bytes);
/// Sends a block of bytes / ranks to every rank.
std::unique_ptr<Pattern> make_all_to_all(comm::Communicator& world, int64_t bytes);
/// Sends `bytes` of rank 0 to every rank, as plans travel.
std::unique_ptr<Pattern> make_broadcast(comm::Communicator& world, int64_t bytes);
/// Sends bytes / ranks of every rank to every rank.
std::unique_ptr<Pattern> make_all_gather(comm::Communicator& world, int64_t bytes);

}  // namespace pecia::bench
