// SPDX-License-Identifier: Apache-2.0
/// Messages for which no rank waits: of any length, in order, in both directions at a time.

#include <gtest/gtest.h>
#include <mpi.h>
#include <sched.h>

#include <deque>

#include "lib/ranks/comm/mailbox.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"

namespace pecia::comm {
namespace {

using namespace std::chrono_literals;

/// Message `number` between a rank and rank 0; some are empty.
std::vector<std::byte> message(int rank, int number) {
  const size_t size = number % 5 == 0 ? 0 : static_cast<size_t>(number * number * 97 % 200'000);
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::byte>((static_cast<size_t>(rank * 31 + number) + i) % 251);
  return bytes;
}

TEST(Mailbox, DeliversEverythingInOrderWithoutWaiting) {
  const auto world = make_mpi_communicator(MPI_COMM_WORLD, 60s);
  constexpr int count = 60;
  std::deque<Mailbox> mail;
  if (world->rank() == 0)
    for (int rank = 1; rank < world->size(); ++rank) mail.emplace_back(*world, rank);
  else
    mail.emplace_back(*world, 0);
  std::vector<int> sent(mail.size()), received(mail.size());
  const auto done = [&] {
    for (size_t i = 0; i < mail.size(); ++i)
      if (sent[i] < count || received[i] < count) return false;
    return true;
  };
  while (!done()) {
    for (size_t i = 0; i < mail.size(); ++i) {
      const int other = world->rank() == 0 ? static_cast<int>(i) + 1 : world->rank();
      // Rank 0 sends ahead, and the others answer.
      if (sent[i] < count && (world->rank() == 0 || sent[i] < received[i]))
        mail[i].send(message(other, sent[i]++));
      if (received[i] == count) continue;
      if (const auto arrived = mail[i].receive()) {
        ASSERT_EQ(*arrived, message(other, received[i])) << "message " << received[i];
        ++received[i];
      }
    }
    ::sched_yield();
  }
  for (Mailbox& each : mail) each.flush();
}

TEST(Mailbox, HasNothingBeforeAMessageIsSent) {
  const auto world = make_mpi_communicator(MPI_COMM_WORLD, 60s);
  if (world->size() == 1) return;
  if (world->rank() > 1) return world->barrier();
  Mailbox mail(*world, 1 - world->rank());
  if (world->rank() == 0) {
    for (int i = 0; i < 100; ++i) EXPECT_FALSE(mail.receive());
    mail.send(message(1, 1));
  }
  std::optional<std::vector<std::byte>> arrived;
  while (!arrived) {
    arrived = mail.receive();
    if (arrived && world->rank() == 1) mail.send(message(1, 2));
    ::sched_yield();
  }
  EXPECT_EQ(*arrived, message(1, world->rank() == 0 ? 2 : 1));
  mail.flush();
  world->barrier();
}

}  // namespace
}  // namespace pecia::comm
