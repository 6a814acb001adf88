#pragma once
/// NCCL as it is called, done by MPI when the streams of a separate device run. Memory that travels
/// must be registered until the transfer is done.

#include "lib/comm/nccl.hpp"

namespace pecia::test {

/// Of `host`'s ranks; sums have the order of HostCollectives.
std::unique_ptr<comm::Nccl> make_fake_nccl(std::unique_ptr<comm::Communicator> host);

}  // namespace pecia::test
