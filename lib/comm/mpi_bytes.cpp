// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/mpi_bytes.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "lib/core/error.hpp"

namespace pecia::comm {
namespace {

int int_count(size_t bytes, const char* operation) {
  if (bytes > static_cast<size_t>(std::numeric_limits<int>::max()))
    fail<InvalidArgument>("{} of {} bytes: more than an MPI count holds", operation, bytes);
  return static_cast<int>(bytes);
}

/// Where each rank's bytes begin in `all`, which gets the size of all of them.
std::vector<int> lay_out(const std::vector<int>& counts, std::vector<std::byte>& all,
                         const char* operation) {
  std::vector<int> offsets(counts.size());
  size_t total = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    offsets[i] = int_count(total, operation);
    total += counts[i];
  }
  all.resize(total);
  return offsets;
}

std::vector<std::vector<std::byte>> cut(const std::vector<std::byte>& all,
                                        const std::vector<int>& counts,
                                        const std::vector<int>& offsets) {
  std::vector<std::vector<std::byte>> parts(counts.size());
  for (size_t i = 0; i < counts.size(); ++i)
    parts[i].assign(all.begin() + offsets[i], all.begin() + offsets[i] + counts[i]);
  return parts;
}

void broadcast_pieces(const MpiRanks& ranks, std::span<std::byte> bytes, int root) {
  for (size_t offset = 0; offset < bytes.size(); offset += max_message_bytes) {
    auto transfer = ranks.start("broadcast", fmt::format("root {}", root));
    const int count = static_cast<int>(std::min(max_message_bytes, bytes.size() - offset));
    check_mpi(MPI_Ibcast(bytes.data() + offset, count, MPI_BYTE, root, ranks.comm,
                         transfer->add_collective()),
              "MPI_Ibcast");
    transfer->wait();
  }
}

}  // namespace

std::vector<std::vector<std::byte>> all_gather_bytes(const MpiRanks& ranks,
                                                     std::span<const std::byte> mine) {
  const int count = int_count(mine.size(), "all_gather");
  std::vector<int> counts(ranks.size);
  auto sizes = ranks.start("all_gather", "all ranks");
  check_mpi(MPI_Iallgather(&count, 1, MPI_INT, counts.data(), 1, MPI_INT, ranks.comm,
                           sizes->add_collective()),
            "MPI_Iallgather");
  sizes->wait();
  std::vector<std::byte> all;
  const auto offsets = lay_out(counts, all, "all_gather");
  auto data = ranks.start("all_gather", "all ranks");
  check_mpi(MPI_Iallgatherv(mine.data(), count, MPI_BYTE, all.data(), counts.data(), offsets.data(),
                            MPI_BYTE, ranks.comm, data->add_collective()),
            "MPI_Iallgatherv");
  data->wait();
  return cut(all, counts, offsets);
}

std::vector<std::vector<std::byte>> gather_bytes(const MpiRanks& ranks,
                                                 std::span<const std::byte> mine, int root) {
  const int count = int_count(mine.size(), "gather");
  std::vector<int> counts(ranks.rank == root ? ranks.size : 0);
  auto sizes = ranks.start("gather", fmt::format("root {}", root));
  check_mpi(MPI_Igather(&count, 1, MPI_INT, counts.data(), 1, MPI_INT, root, ranks.comm,
                        sizes->add_collective()),
            "MPI_Igather");
  sizes->wait();
  std::vector<std::byte> all;
  const auto offsets = lay_out(counts, all, "gather");
  auto data = ranks.start("gather", fmt::format("root {}", root));
  check_mpi(MPI_Igatherv(mine.data(), count, MPI_BYTE, all.data(), counts.data(), offsets.data(),
                         MPI_BYTE, root, ranks.comm, data->add_collective()),
            "MPI_Igatherv");
  data->wait();
  return cut(all, counts, offsets);
}

void broadcast_bytes(const MpiRanks& ranks, std::vector<std::byte>& bytes, int root) {
  // The size and the first kilobyte travel together, so the plan of a decode step is one message.
  struct Head {
    int64_t size;
    std::array<std::byte, 1016> first;
  } head{};
  const size_t inline_bytes = head.first.size();
  if (ranks.rank == root) {
    head.size = static_cast<int64_t>(bytes.size());
    if (!bytes.empty())
      std::memcpy(head.first.data(), bytes.data(), std::min(bytes.size(), inline_bytes));
  }
  broadcast_pieces(ranks, std::as_writable_bytes(std::span(&head, 1)), root);
  bytes.resize(head.size);
  if (!bytes.empty())
    std::memcpy(bytes.data(), head.first.data(), std::min(bytes.size(), inline_bytes));
  if (bytes.size() > inline_bytes)
    broadcast_pieces(ranks, std::span(bytes).subspan(inline_bytes), root);
}

}  // namespace pecia::comm
