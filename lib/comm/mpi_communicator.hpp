// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The communicator over MPI. Included where <mpi.h> is at home: lib/comm, and tests of it.

#include <mpi.h>

#include <memory>

#include "lib/comm/collective_check.hpp"
#include "lib/comm/communicator.hpp"
#include "lib/core/activity.hpp"
#include "lib/core/error.hpp"

namespace pecia::comm {

/// Throws SystemError with MPI's own words when `code` is no success.
void check_mpi(int code, const char* call);

/// A communicator of its own (duplicated) over the ranks of `parent`. It and those that come from
/// it show in `activity` what they do. Collective.
std::unique_ptr<Communicator> make_mpi_communicator(
    MPI_Comm parent, std::chrono::seconds wait_timeout,
    std::shared_ptr<Activity> activity = std::make_shared<Activity>(),
    CollectiveChecks checks = checks_of_build());

}  // namespace pecia::comm
