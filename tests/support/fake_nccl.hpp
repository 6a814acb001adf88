// SPDX-License-Identifier: Apache-2.0
#pragma once
/// NCCL as it is called, done by MPI when the streams of a separate device run. Memory that travels
/// must be registered until the transfer is done, and all ranks must do an all-reduce by a graph of
/// the same capture, or none of them by a graph.

#include "lib/ranks/comm/nccl.hpp"

namespace pecia::test {

/// Whose order the sums of more than two ranks have: that of HostCollectives, or another one, as
/// NCCL's may be.
enum class SumsOf { host, nobody };

/// Of `host`'s ranks.
std::unique_ptr<comm::Nccl> make_fake_nccl(std::unique_ptr<comm::Communicator> host, SumsOf sums);

}  // namespace pecia::test
