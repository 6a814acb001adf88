// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/comm/mpi_environment.hpp"

#include <mpi.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string_view>

#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/ranks/comm/mpi_transfer.hpp"
#include "lib/ranks/comm/wait.hpp"

namespace pecia::comm {

namespace {

bool is_started() {
  int started = 0;
  MPI_Initialized(&started);
  return started != 0;
}

/// Whether a launcher (mpirun, srun with PMI or PMIx, …) has started this process, by the variables
/// that launchers set; also true in shells that a launcher has started.
bool has_launcher() {
  for (const char* const* variable = environ; *variable != nullptr; ++variable)
    for (const char* const of_launcher :
         {"OMPI_COMM_WORLD_SIZE=", "PMI_", "PMI2_", "PMIX_", "MPI_LOCALRANKID=", "HYDRA_",
          "SLURM_STEP_ID=", "FLUX_TASK_RANK=", "PALS_", "ALPS_APP_PE=", "JSM_"})
      if (std::string_view(*variable).starts_with(of_launcher)) return true;
  return false;
}

}  // namespace

MpiEnvironment::MpiEnvironment() {
  if (has_launcher()) start();
}

void MpiEnvironment::start() {
  if (is_started()) return;
  // When ranks outnumber cores they must yield to each other (all-reduce of 4 ranks on 2 cores: 5
  // µs with yielding, 6 ms without). mpirun --oversubscribe sets this itself, srun does not. A
  // setting by the user has priority.
  ::setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  // Between hosts that only TCP connects, Open MPI 4.1 chooses its RDMA windows and then fails to
  // make one (MPI_ERR_WIN). Without them it takes other windows, which work there.
  ::setenv("OMPI_MCA_osc", "^rdma", 0);
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided_), "MPI_Init_thread");
  if (provided_ < MPI_THREAD_FUNNELED)
    fail<SystemError>("this MPI gives no MPI_THREAD_FUNNELED; use a build with thread support");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}

MpiEnvironment::~MpiEnvironment() {
  if (is_started()) MPI_Finalize();
}

std::unique_ptr<Communicator> MpiEnvironment::world(std::chrono::seconds wait_timeout,
                                                    std::shared_ptr<Activity> activity) {
  if (!is_started()) return make_null_communicator();
  return make_mpi_communicator(MPI_COMM_WORLD, wait_timeout, std::move(activity));
}

bool MpiEnvironment::all_leave(std::chrono::seconds limit) {
  if (!is_started()) return true;
  // No other code uses MPI_COMM_WORLD itself, so this barrier cannot mix with other operations.
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Ibarrier(MPI_COMM_WORLD, &request) != MPI_SUCCESS) return false;
  const auto test = [&] {
    int done = 0;
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    return done != 0;
  };
  try {
    wait_until(
        test, [] { return std::string("the end of all ranks"); }, [](bool) {}, limit);
  } catch (const SystemError&) {
    return false;
  }
  return true;
}

void MpiEnvironment::abort(int exit_code) {
  constexpr unsigned limit_s = 5;
  std::signal(SIGALRM, SIG_DFL);
  ::alarm(limit_s);
  if (is_started()) MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

std::string MpiEnvironment::library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string whole(text, length);
  return whole.substr(0, whole.find(','));
}

std::string MpiEnvironment::thread_level() const {
  PECIA_CHECK(is_started(), "MPI has not been started");
  if (provided_ == MPI_THREAD_MULTIPLE) return "multiple";
  if (provided_ == MPI_THREAD_SERIALIZED) return "serialized";
  return provided_ == MPI_THREAD_FUNNELED ? "funneled" : "single";
}

}  // namespace pecia::comm
