// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Messages of any length to and from one other rank, for which neither side waits.

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "lib/ranks/comm/communicator.hpp"

namespace pecia::comm {

/// One end of a connection between two ranks of `group`, which outlives it. Each end sends when it
/// likes, and messages arrive in the order sent. While the ends exist, the two ranks must not use
/// the group's start_send_receive with each other.
///
/// An end that has called `receive` expects a message. Before an end is destroyed, the other one
/// has to send a last message, and the end has to take it.
class Mailbox {
 public:
  Mailbox(Communicator& group, int other) : group_(group), other_(other) {}

  /// Begins to send a message.
  void send(std::vector<std::byte> message);
  /// Returns the next message once all of it has arrived. It is absent before that. Never blocks.
  std::optional<std::vector<std::byte>> receive();
  /// Waits until everything sent has left. Throws as a Transfer does.
  void flush();

 private:
  struct Sent {
    int64_t size;
    std::vector<std::byte> bytes;
    std::unique_ptr<Transfer> of_size, of_bytes;
  };

  void forget_sent();

  Communicator& group_;
  int other_;
  std::deque<std::unique_ptr<Sent>> sent_;
  // The message that is coming: its size first, and then its bytes.
  int64_t size_ = 0;
  std::vector<std::byte> bytes_;
  std::unique_ptr<Transfer> of_size_, of_bytes_;
};

}  // namespace pecia::comm
