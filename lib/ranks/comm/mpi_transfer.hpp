// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Messages and collectives of MPI under way. Only lib/ranks/comm includes this header, because it
/// includes <mpi.h>.

#include <mpi.h>

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lib/ranks/comm/collective_check.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/ranks/comm/series.hpp"

namespace pecia::comm {

constexpr size_t max_message_bytes = size_t{1} << 30;  // MPI counts are ints

/// Throws SystemError with MPI's own message unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call);

/// Decides when to poll MPI next, for all communicators that come from one. Where ranks share cores
/// and yield to each other, a poll may cost the rank its core for some milliseconds.
class MpiPolls {
 public:
  void start() { ++under_way_; }
  void finish() { --under_way_; }

  /// Whether a poll is due: 20 µs after the last one while a transfer is under way; else after
  /// 200 µs, because other ranks may need progress from this one.
  bool due() const {
    const std::chrono::microseconds pause(under_way_ > 0 ? 20 : 200);
    return Clock::now() - last_ >= pause;
  }
  void done() { last_ = Clock::now(); }

 private:
  using Clock = std::chrono::steady_clock;
  int64_t under_way_ = 0;
  Clock::time_point last_;
};

/// State shared by all communicators that come from one.
struct MpiCommon {
  std::chrono::seconds timeout;
  std::shared_ptr<Activity> activity;
  CollectiveChecks checks;
  MpiPolls polls = {};
};

class MpiTransfer : public Transfer {
 public:
  /// Describes the transfer in the error of a wait that fails.
  struct Label {
    const char* operation;
    int64_t number;
    std::string peers;
    NumberedSeries& series;  ///< the series of the communicator
  };

  MpiTransfer(Label label, std::chrono::seconds timeout, std::shared_ptr<MpiCommon> common);
  MpiTransfer(const MpiTransfer&) = delete;
  MpiTransfer& operator=(const MpiTransfer&) = delete;
  ~MpiTransfer() override;

  void send(std::span<const std::byte> bytes, int to, int tag, MPI_Comm comm);
  void receive(std::span<std::byte> bytes, int from, int tag, MPI_Comm comm);
  /// The request for one of MPI's collectives.
  MPI_Request* add_collective();

  bool test() override;
  void wait() override;

 private:
  MPI_Request* add() { return &requests_.emplace_back(MPI_REQUEST_NULL); }
  std::string described() const;

  Label label_;
  std::chrono::seconds timeout_;
  std::shared_ptr<MpiCommon> common_;
  std::vector<MPI_Request> requests_;
  bool collective_ = false;
};

}  // namespace pecia::comm
