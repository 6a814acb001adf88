// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The communicator over MPI. Only lib/ranks/comm and tests include this header, because it includes
/// <mpi.h>.

#include <mpi.h>

#include <memory>

#include "lib/base/core/activity.hpp"
#include "lib/base/core/error.hpp"
#include "lib/ranks/comm/collective_check.hpp"
#include "lib/ranks/comm/communicator.hpp"

namespace pecia::comm {

/// Collective: a new communicator (duplicated) over the ranks of `parent`. It and the communicators
/// made from it show their operations in `activity`.
std::unique_ptr<Communicator> make_mpi_communicator(
    MPI_Comm parent, std::chrono::seconds wait_timeout,
    std::shared_ptr<Activity> activity = std::make_shared<Activity>(),
    CollectiveChecks checks = checks_of_build());

}  // namespace pecia::comm
