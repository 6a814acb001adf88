// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/comm/mpi_bytes.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "lib/base/core/error.hpp"

namespace pecia::comm {
namespace {

/// The bytes that each rank has for all or for a root. Every rank gets all sizes.
std::vector<int64_t> sizes_of(const MpiRanks& ranks, size_t mine, const char* operation) {
  const auto size = static_cast<int64_t>(mine);
  std::vector<int64_t> sizes(ranks.size);
  auto transfer = ranks.start(operation, "all ranks");
  check_mpi(MPI_Iallgather(&size, 1, MPI_INT64_T, sizes.data(), 1, MPI_INT64_T, ranks.comm,
                           transfer->add_collective()),
            "MPI_Iallgather");
  transfer->wait();
  return sizes;
}

/// One of MPI's gathers: `count` bytes from `mine`, and into `all` `counts` bytes of each rank.
using Gather = std::function<int(const std::byte* mine, int count, std::byte* all,
                                 const int* counts, const int* offsets, MPI_Request* request)>;

/// Gathers the ranks' bytes in rounds, each of which is one message at most. `keeps`: this rank
/// gets them; others get nothing.
std::vector<std::vector<std::byte>> gather_in_rounds(const MpiRanks& ranks,
                                                     std::span<const std::byte> mine, bool keeps,
                                                     const char* operation,
                                                     const std::string& peers,
                                                     const Gather& gather) {
  const std::vector<int64_t> sizes = sizes_of(ranks, mine.size(), operation);
  const int64_t most = std::max<int64_t>(1, static_cast<int64_t>(ranks.most_bytes) / ranks.size);
  std::vector<std::vector<std::byte>> parts(keeps ? ranks.size : 0);
  for (int64_t done = 0; done < std::ranges::max(sizes); done += most) {
    std::vector<int> counts, offsets;
    int total = 0;
    for (const int64_t size : sizes) {
      counts.push_back(static_cast<int>(std::clamp<int64_t>(size - done, 0, most)));
      offsets.push_back(total);
      total += counts.back();
    }
    std::vector<std::byte> all(keeps ? total : 0);
    auto transfer = ranks.start(operation, peers);
    const int count = counts[ranks.rank];
    check_mpi(gather(count == 0 ? nullptr : mine.data() + done, count, all.data(), counts.data(),
                     offsets.data(), transfer->add_collective()),
              operation);
    transfer->wait();
    for (size_t i = 0; i < parts.size(); ++i)
      parts[i].insert(parts[i].end(), all.begin() + offsets[i],
                      all.begin() + offsets[i] + counts[i]);
  }
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
  return gather_in_rounds(ranks, mine, true, "all_gather", "all ranks",
                          [&](const std::byte* from, int count, std::byte* all, const int* counts,
                              const int* offsets, MPI_Request* request) {
                            return MPI_Iallgatherv(from, count, MPI_BYTE, all, counts, offsets,
                                                   MPI_BYTE, ranks.comm, request);
                          });
}

std::vector<std::vector<std::byte>> gather_bytes(const MpiRanks& ranks,
                                                 std::span<const std::byte> mine, int root) {
  return gather_in_rounds(ranks, mine, ranks.rank == root, "gather", fmt::format("root {}", root),
                          [&](const std::byte* from, int count, std::byte* all, const int* counts,
                              const int* offsets, MPI_Request* request) {
                            return MPI_Igatherv(from, count, MPI_BYTE, all, counts, offsets,
                                                MPI_BYTE, root, ranks.comm, request);
                          });
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
