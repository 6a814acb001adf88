// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One path of attention by itself: passes of a team of all ranks, without what chooses paths.

#include <mpi.h>

#include <functional>

#include "lib/model/attention/attention_path.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "tests/attention/softmax.hpp"
#include "tests/support/owned_compute.hpp"

namespace pecia::attention {

inline std::unique_ptr<comm::Communicator> world() {
  return comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
}

class OnePath {
 public:
  using Make = std::function<std::unique_ptr<AttentionPath>(const Compute&, KvCache&,
                                                            AttentionSteps&, comm::Communicator&)>;
  /// A cache of one layer with this window. `virtual_ranks`: of each rank, if any is played.
  explicit OnePath(const Make& make, kernels::Window window = {}, int virtual_ranks = 0,
                   std::unique_ptr<comm::Communicator> ring = world())
      : window_(window),
        comm_(std::move(ring)),
        steps_(compute_, cache_, heads, {window},
               virtual_ranks > 0 ? kernels::RowInvariant::yes : kernels::RowInvariant::no),
        ledger_(cache_, comm_->size(), comm_->rank(), std::max(1, virtual_ranks)),
        softmax_(window, DType::fp32),
        path_(make(compute_, cache_, steps_, *comm_)) {}

  int size() const { return comm_->size(); }
  int rank() const { return comm_->rank(); }
  const PassRows& rows() const { return rows_; }
  AttentionPath& path() { return *path_; }
  /// AttentionPath::bytes_without_window of the last pass.
  int64_t bytes_without_window() const {
    return path_->bytes_without_window(rows_, cache_.shape());
  }

  void add(int64_t sequence, int64_t reserved, std::optional<int64_t> parent = {}) {
    ledger_.add(sequence, std::vector<int64_t>(size(), reserved), parent);
    softmax_.add(sequence, parent);
  }
  /// Runs a pass and checks all its rows. Returns the bytes that this rank sent.
  int64_t pass(const std::vector<PassSequence>& pass, AttentionExchange ring) {
    rows_ = PassRows(ledger_, {{parallel::team_of_all(size(), ring), pass}});
    steps_.begin_pass(*comm_);
    path_->begin_pass(rows_, std::vector<kernels::Window>{window_});
    Vectors of(pass, rows_.team(), rank());
    if (rows_.count() > 0) steps_.store(0, of.k(), of.v(), rows_.slots());
    const int64_t before = comm_->traffic().bytes;
    path_->run(0, {of.q(), of.k(), of.v()}, steps_.results(of.out()));
    softmax_.check(ledger_.map(), of);
    return comm_->traffic().bytes - before;
  }
  /// A prompt, a chunk after it, and steps of decoding, each of two sequences.
  void passes(AttentionExchange ring) {
    add(1, 200), add(2, 200);
    pass({{1, 0, 90}, {2, 0, 2 * size() + 1}}, ring);
    pass({{1, 90, 7}, {2, 2 * size() + 1, 30}}, ring);
    for (int step = 0; step < 3; ++step)
      pass({{1, 97 + step, 1, step % size()}, {2, 2 * size() + 31 + step, 1, (step + 1) % size()}},
           ring);
  }

 private:
  kernels::Window window_;
  std::unique_ptr<comm::Communicator> comm_;
  test::CpuCompute compute_{1, kernels::make_reference_backend()};
  KvCache cache_{{1, kv_heads, head_dim, DType::fp32}, capacity, *compute_.device};
  AttentionSteps steps_;
  KvLedger ledger_;
  Softmax softmax_;
  PassRows rows_;
  std::unique_ptr<AttentionPath> path_;
};

}  // namespace pecia::attention
