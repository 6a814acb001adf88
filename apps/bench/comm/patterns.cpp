// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/comm/patterns.hpp"

#include <algorithm>

#include "lib/base/core/error.hpp"

namespace pecia::bench {
namespace {

using Bytes = std::vector<std::byte>;
using Floats = std::vector<float>;

/// Every byte of a payload is a function of its sender and its place in the message.
std::byte payload_byte(int rank, int64_t index) {
  return static_cast<std::byte>((index * 31 + (index >> 8) * 17 + rank * 101 + 1) & 0xff);
}

/// "" when got[i] is what rank i sends, `bytes` of them.
std::string problem_of_all(const std::vector<Bytes>& got, int ranks, int64_t bytes) {
  if (std::ssize(got) != ranks)
    return fmt::format("parts of {} ranks, expected {}", got.size(), ranks);
  std::string found;
  for (int rank = 0; rank < ranks && found.empty(); ++rank)
    found = std::ssize(got[rank]) == bytes
                ? payload_problem(got[rank], rank)
                : fmt::format("{} bytes of rank {}, expected {}", got[rank].size(), rank, bytes);
  return found;
}

/// Small whole numbers, whose sums are exact in any order.
float summand(int rank, int64_t index) {
  return static_cast<float>((index * 7 + rank * 13) % 61);
}

Floats summands(int rank, int64_t count) {
  Floats values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = summand(rank, i);
  return values;
}

/// "" when got[i] is the sum over ranks of their summand `first + i`.
std::string sum_problem(const Floats& got, int ranks, int64_t first) {
  for (size_t i = 0; i < got.size(); ++i) {
    const int64_t index = first + static_cast<int64_t>(i);
    float expected = 0;
    for (int rank = 0; rank < ranks; ++rank) expected += summand(rank, index);
    if (!(got[i] == expected))
      return fmt::format("the sum of values {} is {}, expected {}", index, got[i], expected);
  }
  return "";
}

/// What collectives of tensors have in common.
struct Tensors {
  Tensors(comm::Communicator& world, const std::vector<int>& servers, int64_t bytes)
      : collectives(world.make_collectives(servers, comm::SumOrder::any)),
        block(bytes / static_cast<int64_t>(sizeof(float)) / world.size()),
        sent_bytes(block_bytes() * (world.size() - 1)) {}

  int64_t block_bytes() const { return block * static_cast<int64_t>(sizeof(float)); }
  std::string name(const char* operation) const {
    return fmt::format("{}, {}", operation,
                       collectives->route() == comm::Route::flat ? "flat" : "by server");
  }

  std::shared_ptr<comm::Collectives> collectives;
  int64_t block;  ///< floats of each rank
  int64_t sent_bytes;
};

}  // namespace

Bytes payload(int rank, int64_t bytes) {
  Bytes message(bytes);
  for (int64_t i = 0; i < bytes; ++i) message[i] = payload_byte(rank, i);
  return message;
}

std::string payload_problem(std::span<const std::byte> got, int rank) {
  for (size_t i = 0; i < got.size(); ++i)
    if (const std::byte expected = payload_byte(rank, static_cast<int64_t>(i)); got[i] != expected)
      return fmt::format("byte {} of {} from rank {} is {}, expected {}", i, got.size(), rank,
                         static_cast<int>(got[i]), static_cast<int>(expected));
  return "";
}

Pattern send_receive(comm::Communicator& world, int64_t bytes) {
  const int ranks = world.size(), rank = world.rank();
  const int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
  const auto received = std::make_shared<Bytes>(bytes);
  return {"send_receive", bytes,
          [=, &world, sent = payload(rank, bytes)] {
            world.start_send_receive(sent, right, *received, left)->wait();
          },
          [=] { return payload_problem(*received, left); }};
}

Pattern all_to_all(comm::Communicator& world, int64_t bytes) {
  const int ranks = world.size();
  const int64_t block = bytes / ranks;
  const auto sent = std::make_shared<std::vector<Bytes>>(ranks, payload(world.rank(), block));
  const auto received = std::make_shared<std::vector<Bytes>>(ranks, Bytes(block));
  comm::Blocks blocks;
  blocks.send.assign(sent->begin(), sent->end());
  blocks.receive.assign(received->begin(), received->end());
  return {"all_to_all", block * (ranks - 1),
          [sent, received, blocks, &world] { world.start_all_to_all(blocks)->wait(); },
          [=] { return problem_of_all(*received, ranks, block); }};
}

Pattern broadcast(comm::Communicator& world, int64_t bytes) {
  constexpr int root = 0;
  const auto message =
      std::make_shared<Bytes>(world.rank() == root ? payload(root, bytes) : Bytes());
  return {"broadcast", bytes, [=, &world] { world.broadcast(*message, root); },
          [=] { return problem_of_all({*message}, 1, bytes); }};
}

Pattern all_gather(comm::Communicator& world, int64_t bytes) {
  const int ranks = world.size();
  const int64_t block = bytes / ranks;
  const auto all = std::make_shared<std::vector<Bytes>>();
  return {"all_gather", block * (ranks - 1),
          [=, &world, mine = payload(world.rank(), block)] { *all = world.all_gather(mine); },
          [=] { return problem_of_all(*all, ranks, block); }};
}

Pattern tensor_all_gather(comm::Communicator& world, const std::vector<int>& servers,
                          int64_t bytes) {
  const Tensors tensors(world, servers, bytes);
  const int64_t block = tensors.block_bytes();
  const auto parts = std::make_shared<std::vector<Bytes>>(world.size(), Bytes(block));
  (*parts)[world.rank()] = payload(world.rank(), block);
  const std::vector<std::span<std::byte>> blocks(parts->begin(), parts->end());
  return {tensors.name("all_gather"), tensors.sent_bytes,
          [parts, blocks, to = tensors.collectives] { to->start_all_gather(blocks)->wait(); },
          [=, ranks = world.size()] { return problem_of_all(*parts, ranks, block); }};
}

Pattern reduce_scatter(comm::Communicator& world, const std::vector<int>& servers, int64_t bytes) {
  const Tensors tensors(world, servers, bytes);
  const int ranks = world.size(), rank = world.rank();
  const auto partial = std::make_shared<Floats>(summands(rank, tensors.block * ranks));
  const auto mine = std::make_shared<Floats>(tensors.block);
  return {tensors.name("reduce_scatter"), tensors.sent_bytes,
          [=, counts = std::vector<int64_t>(ranks, tensors.block)] {
            tensors.collectives->start_reduce_scatter(*partial, counts, *mine)->wait();
          },
          [=] { return sum_problem(*mine, ranks, rank * tensors.block); }};
}

Pattern all_reduce(comm::Communicator& world, const std::vector<int>& servers, int64_t bytes) {
  const Tensors tensors(world, servers, bytes);
  const int ranks = world.size();
  const auto values = std::make_shared<Floats>(tensors.block * ranks);
  return {tensors.name("all_reduce"), 2 * tensors.sent_bytes,
          [=, mine = summands(world.rank(), tensors.block * ranks)] {
            std::ranges::copy(mine, values->begin());
            tensors.collectives->start_all_reduce(*values)->wait();
          },
          [=] { return sum_problem(*values, ranks, 0); }};
}

}  // namespace pecia::bench
