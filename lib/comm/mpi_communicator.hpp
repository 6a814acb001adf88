#pragma once
/// The communicator over MPI. Included where <mpi.h> is at home: lib/comm, and tests of it.

#include <mpi.h>

#include <memory>

#include "lib/comm/communicator.hpp"
#include "lib/core/error.hpp"

namespace pecia::comm {

/// Throws SystemError with MPI's own words when `code` is no success.
void check_mpi(int code, const char* call);

/// A communicator of its own (duplicated) over the ranks of `parent`. Collective.
std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm parent,
                                                    std::chrono::seconds wait_timeout);

}  // namespace pecia::comm
