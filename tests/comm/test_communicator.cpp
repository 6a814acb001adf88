// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <functional>
#include <set>

#include "lib/ranks/comm/collectives.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"

namespace pecia::comm {
namespace {

using namespace std::chrono_literals;

std::unique_ptr<Communicator> world() {
  return make_mpi_communicator(MPI_COMM_WORLD, 60s);
}

/// Byte `index` of what rank `from` sends to rank `to`.
std::byte payload(int from, int to, size_t index) {
  return static_cast<std::byte>((from * 31 + to * 17 + index * 7 + index / 251) & 0xff);
}
std::vector<std::byte> message(int from, int to, size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = payload(from, to, i);
  return bytes;
}

TEST(SendReceive, GoesRoundTheRingAtEverySize) {
  const auto comm = world();
  const int size = comm->size(), rank = comm->rank();
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4095}, size_t{70000}, size_t{3} << 20}) {
    const auto sent = message(rank, right, bytes);
    std::vector<std::byte> received(bytes);
    const auto transfer = comm->start_send_receive(sent, right, received, left);
    transfer->wait();
    EXPECT_EQ(received, message(left, rank, bytes));
    EXPECT_TRUE(transfer->test());
  }
}

TEST(SendReceive, CountsWhatWentToOthers) {
  const auto comm = world();
  const int size = comm->size(), right = (comm->rank() + 1) % size;
  std::vector<std::byte> sent(100), received(100);
  comm->start_send_receive(sent, right, received, (comm->rank() + size - 1) % size)->wait();
  EXPECT_EQ(comm->traffic().bytes, size == 1 ? 0 : 100);
  EXPECT_EQ(comm->traffic().messages, size == 1 ? 0 : 1);
}

TEST(AllToAll, DeliversUnequalAndEmptyBlocks) {
  const auto comm = world();
  const int size = comm->size(), rank = comm->rank();
  const auto bytes = [](int from, int to) {
    return static_cast<size_t>((from * to) % 3 * 1000 + from % 2);
  };
  std::vector<std::vector<std::byte>> send, receive;
  Blocks blocks;
  for (int other = 0; other < size; ++other) {
    send.push_back(message(rank, other, bytes(rank, other)));
    receive.emplace_back(bytes(other, rank));
  }
  for (int other = 0; other < size; ++other) {
    blocks.send.emplace_back(send[other]);
    blocks.receive.emplace_back(receive[other]);
  }
  comm->start_all_to_all(blocks)->wait();
  for (int other = 0; other < size; ++other)
    EXPECT_EQ(receive[other], message(other, rank, bytes(other, rank))) << "from " << other;
}

TEST(Collectives, GatherAnySizes) {
  const auto comm = world();
  const auto bytes = [](int rank) { return static_cast<size_t>(rank % 3 * 500); };
  const auto mine = message(comm->rank(), 0, bytes(comm->rank()));
  const auto everywhere = comm->all_gather(mine);
  const int root = comm->size() - 1;
  const auto at_root = comm->gather(mine, root);
  ASSERT_EQ(everywhere.size(), static_cast<size_t>(comm->size()));
  for (int other = 0; other < comm->size(); ++other)
    EXPECT_EQ(everywhere[other], message(other, 0, bytes(other)));
  if (comm->rank() == root)
    EXPECT_EQ(at_root, everywhere);
  else
    EXPECT_TRUE(at_root.empty());
}

TEST(Collectives, BroadcastReplacesSizeAndContents) {
  const auto comm = world();
  for (const size_t size : {size_t{0}, size_t{1}, size_t{1016}, size_t{1017}, size_t{2} << 20}) {
    std::vector<std::byte> bytes = message(comm->rank(), 0, 5 + comm->rank());
    const int root = comm->size() / 2;
    if (comm->rank() == root) bytes = message(root, 1, size);
    comm->broadcast(bytes, root);
    EXPECT_EQ(bytes, message(root, 1, size));
  }
}

TEST(Collectives, ReduceMaxAndSum) {
  const auto comm = world();
  EXPECT_EQ(comm->all_reduce_max(comm->rank() * 10), (comm->size() - 1) * 10);
  EXPECT_EQ(comm->all_reduce_sum(comm->rank() + 0.5),
            comm->size() * (comm->size() - 1) / 2.0 + comm->size() * 0.5);
}

TEST(Split, OrdersByKeyInsideAColor) {
  const auto comm = world();
  const auto part = comm->split(comm->rank() % 2, -comm->rank());
  const int same_color = (comm->size() + (comm->rank() % 2 == 0 ? 1 : 0)) / 2;
  EXPECT_EQ(part->size(), same_color);
  EXPECT_EQ(part->rank(), same_color - 1 - comm->rank() / 2);
  EXPECT_EQ(comm->split_by_host()->size(), comm->size());
}

TEST(SharedCounter, GivesEveryNumberOnce) {
  const auto comm = world();
  const auto counter = comm->make_counter();
  std::vector<int64_t> mine(20 + comm->rank());
  for (int64_t& number : mine) number = counter->next();
  std::set<int64_t> all;
  size_t count = 0;
  for (const auto& bytes : comm->all_gather(std::as_bytes(std::span(mine)))) {
    const auto* numbers = reinterpret_cast<const int64_t*>(bytes.data());
    all.insert(numbers, numbers + bytes.size() / sizeof(int64_t));
    count += bytes.size() / sizeof(int64_t);
  }
  EXPECT_EQ(all.size(), count);
  EXPECT_EQ(*all.rbegin(), static_cast<int64_t>(count) - 1);
}

TEST(SharedCounter, AddsUpWhatRanksAdd) {
  const auto comm = world();
  const auto sum = comm->make_counter(), other = comm->make_counter();
  for (int i = 0; i < 10; ++i) sum->add(100 + comm->rank());
  comm->barrier();
  const int64_t size = comm->size();
  EXPECT_EQ(sum->value(), 10 * (100 * size + size * (size - 1) / 2));
  EXPECT_EQ(other->value(), 0);
}

TEST(SharedCounters, CountEachByItself) {
  const auto comm = world();
  const auto counters = comm->make_counters(3);
  for (int i = 0; i <= comm->rank(); ++i) counters->add(2, 1);
  counters->add(0, 10);
  comm->barrier();
  const int64_t size = comm->size();
  EXPECT_EQ(counters->value(0), 10 * size);
  EXPECT_EQ(counters->value(1), 0);
  EXPECT_EQ(counters->value(2), size * (size + 1) / 2);
  EXPECT_THROW(counters->add(3, 1), Error);
  EXPECT_THROW(counters->add(-1, 1), Error);
}

TEST(Wait, FailsNamingTheOperationWhenNothingArrives) {
  const auto comm = make_mpi_communicator(MPI_COMM_WORLD, 1s);
  if (comm->size() > 1 && comm->rank() == 0) {
    std::vector<std::byte> received(8);
    try {
      comm->start_send_receive({}, 1, received, 1)->wait();
      ADD_FAILURE() << "a message that nobody sent has arrived";
    } catch (const SystemError& error) {
      EXPECT_NE(std::string(error.what()).find("send_receive #1 with ranks 1 and 1"),
                std::string::npos)
          << error.what();
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(Wait, FailsNamingTheOperationWhenMoreArrivesThanWasExpected) {
  const auto comm = make_mpi_communicator(MPI_COMM_WORLD, 10s);
  std::vector<std::byte> bytes(16);
  if (comm->size() > 1 && comm->rank() == 1) comm->start_send_receive(bytes, 0, {}, 0)->wait();
  if (comm->size() > 1 && comm->rank() == 0) {
    try {
      comm->start_send_receive({}, 1, {bytes.data(), 8}, 1)->wait();
      ADD_FAILURE() << "16 bytes have arrived in 8";
    } catch (const SystemError& error) {
      EXPECT_NE(std::string(error.what()).find("send_receive #1 with ranks 1 and 1"),
                std::string::npos)
          << error.what();
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(Wait, ShowsWhatItWaitsForUntilItIsOver) {
  const auto activity = std::make_shared<Activity>();
  const auto comm = make_mpi_communicator(MPI_COMM_WORLD, 1s, activity);
  if (comm->size() > 1 && comm->rank() == 0) {
    std::vector<std::byte> received(8);
    EXPECT_THROW(comm->start_send_receive({}, 1, received, 1)->wait(), SystemError);
    EXPECT_STREQ(activity->wait.operation, "send_receive") << "given up, and still to be told";
    EXPECT_EQ(activity->wait.number, 1);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(Wait, TakesANewLimitEverywhere) {
  const auto comm = make_mpi_communicator(MPI_COMM_WORLD, 60s);
  const auto part = comm->split(0, 0);
  part->set_wait_timeout(7s);
  EXPECT_EQ(comm->wait_timeout(), 7s);
  EXPECT_EQ(comm->split(comm->rank(), 0)->wait_timeout(), 7s);
}

TEST(Groups, ShowTheSameNumbersOnAllTheirRanks) {
  const auto activity = std::make_shared<Activity>();
  const auto comm = make_mpi_communicator(MPI_COMM_WORLD, 60s, activity);
  const auto half = comm->split(comm->rank() % 2, 0), again = comm->split(comm->rank() % 2, 0);
  half->all_reduce_max(1);
  half->all_reduce_max(1);
  again->next_operation();
  std::vector<uint64_t> mine;
  for (const Activity::Series& one : activity->series) {
    mine.push_back(one.group);
    mine.push_back(static_cast<uint64_t>(one.number));
  }
  std::set<uint64_t> groups;
  int used = 0;
  for (size_t i = 0; i < mine.size(); i += 2)
    if (mine[i] != 0) groups.insert(mine[i]), ++used;
  EXPECT_EQ(used, 9) << "three series of three groups";
  EXPECT_EQ(groups.size(), 9u);
  const auto all = comm->all_gather(std::as_bytes(std::span(mine)));
  for (int rank = 0; rank < comm->size(); ++rank) {
    const auto* theirs = reinterpret_cast<const uint64_t*>(all[rank].data());
    const bool together = rank % 2 == comm->rank() % 2;
    for (size_t i = 0; i < mine.size(); i += 2) {
      if (i < 6 || together) {
        EXPECT_EQ(theirs[i], mine[i]) << "series " << i / 2 << " of rank " << rank;
        EXPECT_EQ(theirs[i + 1], mine[i + 1]);
      } else if (mine[i] != 0) {
        EXPECT_NE(theirs[i], mine[i]) << "a group of other ranks";
      }
    }
  }
}

std::unique_ptr<Communicator> checked_world() {
  return make_mpi_communicator(MPI_COMM_WORLD, 60s, std::make_shared<Activity>(),
                               CollectiveChecks::on);
}

/// What every rank throws in `step`, which differs between ranks; "" where there is only one.
std::string mismatch(const std::function<void(Communicator&)>& step) {
  const auto comm = checked_world();
  std::string words;
  try {
    step(*comm);
    EXPECT_EQ(comm->size(), 1) << "nobody has noticed";
  } catch (const InvalidArgument& error) {
    words = error.what();
  }
  MPI_Barrier(MPI_COMM_WORLD);
  return words;
}

TEST(CheckedCollectives, NameRanksInDifferentOperations) {
  const std::string words = mismatch([](Communicator& comm) {
    if (comm.rank() == comm.size() - 1 && comm.rank() > 0)
      comm.barrier();
    else
      comm.all_reduce_max(1);
  });
  const auto comm = world();
  if (comm->size() == 1) return;
  EXPECT_EQ(words, fmt::format("ranks of a group of {} are in different collectives: rank 0 in "
                               "all_reduce_max #1 of shape 0, rank {} in barrier #1 of shape 0",
                               comm->size(), comm->size() - 1));
}

TEST(CheckedCollectives, NameRanksWithDifferentRootsAndSizes) {
  const int size = world()->size();
  const std::string roots = mismatch([](Communicator& comm) {
    std::vector<std::byte> bytes(3);
    comm.broadcast(bytes, comm.rank() == 0 ? 0 : 1);
  });
  const std::string sizes = mismatch([](Communicator& comm) {
    std::vector<float> values(comm.rank() == 0 ? 10 : 16);
    const auto collectives = comm.make_collectives(std::vector(comm.size(), 0), SumOrder::any);
    collectives->start_all_reduce(values)->wait();
  });
  if (size == 1) return;
  EXPECT_NE(roots.find("rank 0 in broadcast #1 of shape 0, rank 1 in broadcast #1 of shape 1"),
            std::string::npos)
      << roots;
  EXPECT_NE(sizes.find("rank 0 in all_reduce #1 of shape 28, rank 1 in all_reduce #1 of shape 40"),
            std::string::npos)
      << sizes;
}

TEST(CheckedCollectives, NameARankThatIsOneAhead) {
  const std::string words = mismatch([](Communicator& comm) {
    comm.all_reduce_sum(1);
    if (comm.rank() != 0) comm.all_reduce_sum(2);
    const auto part = comm.split(0, 0);
  });
  if (world()->size() == 1) return;
  EXPECT_NE(words.find("rank 0 in split #2 of shape 0, rank 1 in all_reduce_sum #2 of shape 0"),
            std::string::npos)
      << words;
}

TEST(CheckedCollectives, LetEqualOnesPass) {
  const auto comm = checked_world();
  const int size = comm->size();
  EXPECT_EQ(comm->all_reduce_sum(2), 2 * size);
  std::vector<std::byte> bytes(comm->rank());  // their size is the root's to say
  comm->broadcast(bytes, size - 1);
  EXPECT_EQ(bytes.size(), static_cast<size_t>(size - 1));
  EXPECT_EQ(comm->all_gather(std::vector<std::byte>(comm->rank())).size(),
            static_cast<size_t>(size));
  EXPECT_EQ(comm->split(comm->rank() % 2, 0)->all_reduce_max(comm->rank() % 2), comm->rank() % 2);
  std::vector<float> values(5, 1.0f);
  comm->make_collectives(std::vector(size, 0), SumOrder::any)->start_all_reduce(values)->wait();
  EXPECT_EQ(values, std::vector<float>(5, static_cast<float>(size)));
}

TEST(NullCommunicator, IsTheIdentity) {
  const auto comm = make_null_communicator();
  const auto sent = message(0, 0, 10);
  std::vector<std::byte> received(10);
  comm->start_send_receive(sent, 0, received, 0)->wait();
  EXPECT_EQ(received, sent);
  EXPECT_EQ(comm->all_gather(sent).at(0), sent);
  EXPECT_EQ(comm->all_reduce_max(7), 7);
  const auto counter = comm->make_counter();
  EXPECT_EQ(counter->next(), 0);
  EXPECT_EQ(counter->add(5), 1);
  EXPECT_EQ(counter->value(), 6);
  EXPECT_EQ(comm->traffic().bytes, 0);
}

}  // namespace
}  // namespace pecia::comm
