// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The ops a model needs, behind one interface: chosen at run time, the same with and without CUDA.
///
/// Each op's header says formula, shapes, dtypes and the empty case. An op throws InvalidArgument
/// on shapes that contradict its header, before it writes anything. Work is enqueued on the stream;
/// on the CPU it is done on return.

#include <memory>
#include <string>
#include <string_view>

#include "kernels/api/add.hpp"
#include "kernels/api/attention.hpp"
#include "kernels/api/column_sums.hpp"
#include "kernels/api/embedding.hpp"
#include "kernels/api/gated_activation.hpp"
#include "kernels/api/kv_store.hpp"
#include "kernels/api/linear.hpp"
#include "kernels/api/merge.hpp"
#include "kernels/api/quantize_rows.hpp"
#include "kernels/api/rms_norm.hpp"
#include "kernels/api/rope.hpp"
#include "kernels/api/sampling.hpp"
#include "kernels/api/shortlist.hpp"
#include "lib/device/device.hpp"

namespace pecia::kernels {

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;
  /// The library to which large pieces of prefill attention are left, as "cuDNN 9.19.0"; "none: "
  /// and why, where there could be one; "" where the backend has no use for one.
  virtual std::string attention_library() const { return ""; }

  /// The dtype in which producers should write x to avoid a copy, for products with weights of a
  /// type: fp32, or a narrower one that x is rounded to in any case.
  virtual DType operand_type(DType) const { return DType::fp32; }

  virtual void embedding(const EmbeddingArgs& args, device::Stream& stream) = 0;
  virtual void linear(const LinearArgs& args, device::Stream& stream) = 0;
  virtual void quantize_rows(const QuantizeRowsArgs& args, device::Stream& stream) = 0;
  virtual void add(const AddArgs& args, device::Stream& stream) = 0;
  virtual void rms_norm(const RmsNormArgs& args, device::Stream& stream) = 0;
  virtual void rope(const RopeArgs& args, device::Stream& stream) = 0;
  virtual void kv_store(const KvStoreArgs& args, device::Stream& stream) = 0;
  virtual void attention(const AttentionArgs& args, device::Stream& stream) = 0;
  virtual void column_sums(const ColumnSumsArgs& args, device::Stream& stream) = 0;
  virtual void merge(const MergeArgs& args, device::Stream& stream) = 0;
  virtual void gated_activation(const GatedActivationArgs& args, device::Stream& stream) = 0;
  virtual void sample(const SamplingArgs& args, device::Stream& stream) = 0;
  virtual void log_probs(const LogProbsArgs& args, device::Stream& stream) = 0;
  virtual void shortlist(const ShortlistArgs& args, device::Stream& stream) = 0;

 private:
  friend class Step;
  virtual void begin_step(device::Stream& stream) { stream.begin_step(); }
  virtual void end_step(device::Stream& stream) { stream.end_step(); }
  virtual void drop_step(device::Stream& stream) { stream.drop_step(); }
};

/// Ops that may be enqueued together, up to what needs them enqueued (device::Stream::begin_step):
/// for passes of few rows, whose launches would take longer than their kernels. Till the last one
/// has been given, whatever their spans name stays as it is, so that equal spans are equal arrays;
/// and pinned memory that they copy from is not written before the step is done.
class Step {
 public:
  Step(Backend& backend, device::Stream& stream) : backend_(backend), stream_(stream) {
    backend_.begin_step(stream_);
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  ~Step() {
    if (!ended_) backend_.drop_step(stream_);
  }

  void end() {
    backend_.end_step(stream_);
    ended_ = true;
  }

 private:
  Backend& backend_;
  device::Stream& stream_;
  bool ended_ = false;
};

/// Plain loops with wide accumulators: the oracle of every test. One thread.
std::unique_ptr<Backend> make_reference_backend();

/// In which type the CPU multiplies weights of bf16 with rows: widened, or the rows rounded to bf16
/// once, which is twice as fast where the CPU does it itself. Sums are of fp32; weights of other
/// types, and RowInvariant products, are multiplied in fp32.
enum class Products { fp32, bf16 };

/// Whether pecia::isa() has Products::bf16.
bool cpu_has_bf16_products();

/// Vectorised, threaded; instructions by pecia::isa(). Throws Unsupported for products it lacks.
std::unique_ptr<Backend> make_cpu_backend(Products products = Products::fp32);

/// Whether this build has the CUDA backend.
bool has_cuda();

/// GPUs that the process sees; 0 where there is no driver, and without has_cuda.
int num_cuda_devices();

/// GPU `index` of those the process sees. Throws Unsupported in a build without CUDA, where no
/// driver or GPU is found, and for a GPU that this build has no code for; InputError for an index
/// of none.
std::unique_ptr<device::Device> make_cuda_device(int index);

/// What computes large pieces of prefill attention: a library where one is found, or own kernels.
enum class AttentionBy { library, own_kernels };

/// Of a device made by make_cuda_device, which outlives it. Tensors are the device's memory,
/// streams are made by it. Takes one stream at a time, and calls from the thread that made the
/// device.
std::unique_ptr<Backend> make_cuda_backend(device::Device& device,
                                           AttentionBy attention = AttentionBy::library);

}  // namespace pecia::kernels
