// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How long ops take inside a pass of a model. A pass reads weights, keys and values that
/// it last read a pass ago, so they lie beyond the caches. Activations were written by the op
/// before.

#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "lib/base/device/buffer.hpp"
#include "lib/files/disk/memory_map.hpp"
#include "lib/model/attention/compute.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/settle/measure/calibration.hpp"
#include "lib/settle/measure/gain_alone.hpp"

namespace pecia::measure {

/// Memory as a run has its weights in: packed ones in memory that a host's ranks share, or in large
/// pages (model::SharedPanels), others in small pages, as those of a mapped checkpoint. (On an EPYC
/// one core read 20 GB/s from small pages and 33 GB/s from large ones.)
class WeightPages {
 public:
  /// `sharing`: ranks of the host that have the same weights. Throws SystemError when there is not
  /// enough memory.
  WeightPages(int64_t bytes, bool packed, int sharing);
  ~WeightPages();
  WeightPages(const WeightPages&) = delete;
  WeightPages& operator=(const WeightPages&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  io::MemoryMap shared_;
  device::Buffer own_;
  std::span<std::byte> bytes_;
};

/// Every call is collective over `world`: all ranks do the same at once, as in a run, and every rank
/// gets the same. Neighbours on the same machine may take a part of the cores at any moment, so an
/// op's seconds are the best of some stretches of a few milliseconds: those of the slowest rank, each
/// rank at its best. Most calls take about 15 ms.
///
/// On a GPU the ops of a stretch are enqueued on a stream of their own. Ops on few rows are a step
/// there (device::Stream::begin_step), as in passes, so that repeated ones go as a graph. A stretch ends when the
/// host knows that its last op has ended. Numbers are random, since zeros take less power.
class OpTimer {
 public:
  static constexpr int64_t recurrent_key_dim = 128;

  /// `cache_bytes`: of the caches of this rank's threads, or more than the GPU caches. Weights, keys
  /// and activations have four times as many each. `world` outlives this object.
  OpTimer(comm::Communicator& world, const attention::Compute& compute, int64_t cache_bytes);

  /// y [rows, width] = x [rows, depth] · weights [width, depth] of bf16, each time with other
  /// weights, which are packed where the backend has panels.
  double product(int64_t rows, int64_t depth, int64_t width) const;
  /// `rows` queries after `cached` tokens, each of which sees all before it, each time with other
  /// keys.
  double attention(const AttentionShape& shape, int64_t rows, int64_t cached) const;
  /// A gated delta rule over `rows` rows of one sequence: heads with keys of 128 elements, and values of
  /// `value_dim`.
  double recurrence(int64_t rows, int64_t heads, int64_t value_dim) const;
  /// The gated activation, on which passes spend most of the time that is neither for products nor
  /// for attention. It reads two tensors and writes one, `bytes` in all. Each time they are others,
  /// which were used as many bytes ago as the caches hold.
  double elementwise(int64_t bytes) const;
  /// y [1, width] = x · weights, of which this is a column slice of a matrix of `parts` times the
  /// depth, as a rank of tensor parallelism has it.
  double product_of_slice(int64_t depth, int64_t width, int64_t parts) const;
  /// Seconds that a sum over all ranks adds to a product of one row before it, in the mean of the
  /// middle half of some stretches; 0 for one rank. The sum has two exchanges of a few KiB.
  double all_reduce() const;
  /// Seconds of a product of `rows` rows with weights [width, depth] in the mean of each of `pairs`
  /// stretches, on all ranks until all are done, and on rank 0 while the other ranks wait, by turns.
  /// A product of one row waits for memory, which all programs of a host share; one of many rows
  /// computes. Ranks wait for each other often, as in a run. A pair takes about 6 ms.
  Stretches stretches(int64_t rows, int64_t depth, int64_t width, int pairs) const;
  /// Seconds of an op on few numbers, always the same ones.
  double smallest_in_step() const;
  /// The same, and of waiting for its end.
  double smallest_and_wait() const;

 private:
  struct Call {
    std::function<void(int64_t number)> give;  ///< an op whose operands depend on its number
    bool in_step;                              ///< on a GPU; passes with many rows are no steps
  };
  /// Seconds of one call at best, on the slowest rank.
  double best_seconds(const Call& call) const;
  /// Seconds of one of `calls` calls on the `ranks` first ranks until all are done; the others wait.
  /// `own_best` becomes the least of it and of this rank's own seconds.
  double stretch(const Call& call, int64_t calls, int ranks, double& own_best) const;
  /// As many calls as take about a stretch.
  int64_t calls_of_stretch(const Call& call) const;
  /// Hands a product with other weights each time to `measure`.
  template <typename Measure>
  auto with_product(int64_t rows, int64_t depth, int64_t width, const Measure& measure,
                    int64_t parts = 1) const;
  TensorView zeroed(device::Buffer& buffer, int64_t rows, int64_t columns) const;
  /// Zeros, or random numbers on a GPU.
  TensorView numbers(device::Buffer& buffer, DType dtype, int64_t rows, int64_t columns) const;
  void give(const Call& call, int64_t calls) const;
  kernels::GatedActivationArgs smallest(device::Buffer& gate, device::Buffer& up) const;

  comm::Communicator& world_;
  std::unique_ptr<comm::Communicator> host_;  ///< the ranks of this host
  bool on_gpu_;
  std::unique_ptr<device::Stream> own_stream_;  ///< null on a CPU
  attention::Compute compute_;
  int64_t cache_bytes_;
  std::optional<WeightPages> pages_;  ///< absent on a GPU
  device::Buffer keys_, weights_on_device_;
  std::span<std::byte> weights_;
  mutable int64_t next_ = 0;  ///< the number of the next op on a CPU
};

}  // namespace pecia::measure
