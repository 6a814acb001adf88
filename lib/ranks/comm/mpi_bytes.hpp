// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Collectives of bytes whose sizes only their owners know. Only lib/ranks/comm includes this header,
/// because it includes <mpi.h>.

#include <mpi.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lib/ranks/comm/mpi_transfer.hpp"

namespace pecia::comm {

/// The ranks of a communicator. `start` makes the transfer of one of MPI's collectives.
struct MpiRanks {
  MPI_Comm comm;
  int rank, size;
  std::function<std::unique_ptr<MpiTransfer>(const char* operation, std::string peers)> start;
  size_t most_bytes = max_message_bytes;  ///< of all ranks' parts of a message; at least `size`
};

/// What Communicator documents. Collective; every call waits for its transfers. Bytes that are more
/// than one message holds travel in several.
std::vector<std::vector<std::byte>> all_gather_bytes(const MpiRanks& ranks,
                                                     std::span<const std::byte> mine);
std::vector<std::vector<std::byte>> gather_bytes(const MpiRanks& ranks,
                                                 std::span<const std::byte> mine, int root);
void broadcast_bytes(const MpiRanks& ranks, std::vector<std::byte>& bytes, int root);

}  // namespace pecia::comm
