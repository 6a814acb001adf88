// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/comm/mpi_counters.hpp"

#include <algorithm>
#include <exception>

#include "lib/base/core/error.hpp"
#include "lib/ranks/comm/mpi_transfer.hpp"

namespace pecia::comm {
namespace {

class MpiSharedCounters : public SharedCounters {
 public:
  MpiSharedCounters(MPI_Comm comm, int64_t count) : count_(count) {
    int rank = 0;
    MPI_Comm_rank(comm, &rank);
    const MPI_Aint held = rank == 0 ? count : 0;
    check_mpi(MPI_Win_allocate(held * static_cast<MPI_Aint>(sizeof(int64_t)), sizeof(int64_t),
                               MPI_INFO_NULL, comm, &values_, &window_),
              "MPI_Win_allocate");
    check_mpi(MPI_Win_lock_all(0, window_), "MPI_Win_lock_all");
    std::fill_n(values_, held, int64_t{0});
    check_mpi(MPI_Win_sync(window_), "MPI_Win_sync");
    check_mpi(MPI_Barrier(comm), "MPI_Barrier");
  }
  MpiSharedCounters(const MpiSharedCounters&) = delete;
  MpiSharedCounters& operator=(const MpiSharedCounters&) = delete;
  ~MpiSharedCounters() override {
    // Freeing a window waits for all ranks. A rank that fails alone must not wait, so that it can
    // report its error.
    if (std::uncaught_exceptions() > exceptions_) return;
    MPI_Win_unlock_all(window_);
    MPI_Win_free(&window_);
  }
  int64_t add(int64_t index, int64_t amount) override {
    PECIA_CHECK(0 <= index && index < count_, "counter {} of {}", index, count_);
    int64_t before = 0;
    check_mpi(MPI_Fetch_and_op(&amount, &before, MPI_INT64_T, 0, index, MPI_SUM, window_),
              "MPI_Fetch_and_op");
    // This call also blocks without a limit, but it waits only for rank 0's memory, which MPI
    // serves there.
    check_mpi(MPI_Win_flush(0, window_), "MPI_Win_flush");
    return before;
  }

 private:
  const int exceptions_ = std::uncaught_exceptions();
  const int64_t count_;
  int64_t* values_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
};

}  // namespace

std::unique_ptr<SharedCounters> make_mpi_counters(MPI_Comm comm, int64_t count) {
  return std::make_unique<MpiSharedCounters>(comm, count);
}

}  // namespace pecia::comm
