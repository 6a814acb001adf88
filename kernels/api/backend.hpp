// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The ops that a model needs, behind one interface. The backend is chosen at run time. The
/// interface is the same with and without CUDA.
///
/// Each op's header gives its formula, shapes, dtypes and the empty case. An op throws
/// InvalidArgument on shapes that contradict its header, before it writes anything. Work is
/// enqueued on the stream. On the CPU it is done when the call returns.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/api/add.hpp"
#include "kernels/api/attention.hpp"
#include "kernels/api/cast.hpp"
#include "kernels/api/causal_conv.hpp"
#include "kernels/api/column_sums.hpp"
#include "kernels/api/embedding.hpp"
#include "kernels/api/experts.hpp"
#include "kernels/api/gated_activation.hpp"
#include "kernels/api/gated_linear.hpp"
#include "kernels/api/head_linear.hpp"
#include "kernels/api/kept_order.hpp"
#include "kernels/api/kv_store.hpp"
#include "kernels/api/linear.hpp"
#include "kernels/api/mask_tokens.hpp"
#include "kernels/api/merge.hpp"
#include "kernels/api/merge_picked.hpp"
#include "kernels/api/panels.hpp"
#include "kernels/api/pick_rows.hpp"
#include "kernels/api/quantize_rows.hpp"
#include "kernels/api/recurrence.hpp"
#include "kernels/api/recurrence_gates.hpp"
#include "kernels/api/rms_norm.hpp"
#include "kernels/api/rope.hpp"
#include "kernels/api/rope_tables.hpp"
#include "kernels/api/rotate_and_store.hpp"
#include "kernels/api/route.hpp"
#include "kernels/api/row_need.hpp"
#include "kernels/api/sampling.hpp"
#include "kernels/api/shortlist.hpp"
#include "kernels/api/soft_cap.hpp"
#include "kernels/api/square_sums.hpp"
#include "kernels/api/sum_rows.hpp"
#include "kernels/api/xielu.hpp"
#include "lib/base/device/device.hpp"

namespace pecia::kernels {

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;
  /// Returns the name of the library that computes large pieces of prefill attention, such as
  /// "cuDNN 9.19.0". Returns "none: " and the reason if there could be a library, and "" if the
  /// backend has no use for one.
  virtual std::string attention_library() const { return ""; }
  /// Does the same for the library that multiplies many rows with experts.
  virtual std::string expert_library() const { return ""; }

  /// Tells whether `attention` takes AttentionArgs::merged.
  virtual bool merges_attention() const { return false; }

  /// Tells whether `attention` takes AttentionFrom::result.
  virtual bool continues_attention() const { return false; }

  /// Returns the dtype in which producers should write q to avoid a copy, for attention to keys of
  /// the given type. It is fp32, or a narrower type to which every such call rounds q in any case.
  virtual DType query_type(DType /*keys*/, int64_t /*head_dim*/) const { return DType::fp32; }

  /// Returns the dtype in which producers should write x to avoid a copy, for products with weights
  /// of the given type. It is fp32, or a narrower type to which x is rounded in any case.
  virtual DType operand_type(DType) const { return DType::fp32; }

  /// Tells whether `linear` writes y in bf16, for weights whose operand_type it is, and
  /// gated_activation reads it. It halves the bytes of passes whose products are long.
  virtual bool rounds_products() const { return false; }

  /// Tells whether launches cost so much that one op in place of several takes less time. Then there
  /// are rotate_and_store and AttentionArgs::out of narrow types.
  virtual bool gains_by_fewer_ops() const { return false; }

  /// Returns how many bytes the panels of a matrix take, or 0 if the backend reads it as it is. The
  /// bits of products do not depend on panels, except for one or two rows without RowInvariant.
  virtual int64_t panel_bytes(const TensorView&) const { return 0; }
  /// Writes panels, or a part of them. Throws Unsupported where panel_bytes is 0.
  virtual void make_panels(const PanelsArgs& args, device::Stream& stream);
  /// From now on products with views of the matrix read its panels, which are made, and both stay
  /// as they are. With null they read the matrix again. Throws Unsupported where panel_bytes is 0.
  virtual void use_panels(const TensorView& matrix, const void* panels);

  virtual void embedding(const EmbeddingArgs& args, device::Stream& stream) = 0;
  virtual void linear(const LinearArgs& args, device::Stream& stream) = 0;
  /// By default one `linear` for each head.
  virtual void head_linear(const HeadLinearArgs& args, device::Stream& stream);
  virtual void quantize_rows(const QuantizeRowsArgs& args, device::Stream& stream) = 0;
  virtual void add(const AddArgs& args, device::Stream& stream) = 0;
  virtual void mask_tokens(const MaskTokensArgs& args, device::Stream& stream) = 0;
  virtual void cast(const CastArgs& args, device::Stream& stream) = 0;
  virtual void square_sums(const SquareSumsArgs& args, device::Stream& stream) = 0;
  virtual void sum_rows(const SumRowsArgs& args, device::Stream& stream) = 0;
  virtual void rms_norm(const RmsNormArgs& args, device::Stream& stream) = 0;
  virtual void rope(const RopeArgs& args, device::Stream& stream) = 0;
  virtual void rope_tables(const RopeTablesArgs& args, device::Stream& stream) = 0;
  virtual void kv_store(const KvStoreArgs& args, device::Stream& stream) = 0;
  /// Throws Unsupported without gains_by_fewer_ops().
  virtual void rotate_and_store(const RotateAndStoreArgs& args, device::Stream& stream);
  virtual void attention(const AttentionArgs& args, device::Stream& stream) = 0;
  virtual void column_sums(const ColumnSumsArgs& args, device::Stream& stream) = 0;
  virtual void merge(const MergeArgs& args, device::Stream& stream) = 0;
  virtual void merge_picked(const MergePickedArgs& args, device::Stream& stream) = 0;
  virtual void kept_order(const KeptOrderArgs& args, device::Stream& stream) = 0;
  virtual void pick_rows(const PickRowsArgs& args, device::Stream& stream) = 0;
  virtual void row_need(const RowNeedArgs& args, device::Stream& stream) = 0;
  virtual void gated_activation(const GatedActivationArgs& args, device::Stream& stream) = 0;
  virtual void xielu(const XieluArgs& args, device::Stream& stream) = 0;
  /// Throws Unsupported where the backend has no such op.
  virtual void soft_cap(const SoftCapArgs& args, device::Stream& stream);
  virtual void causal_conv(const CausalConvArgs& args, device::Stream& stream) = 0;
  virtual void recurrence_gates(const RecurrenceGatesArgs& args, device::Stream& stream) = 0;
  virtual void recurrence(const RecurrenceArgs& args, device::Stream& stream) = 0;
  /// How long recurrences with these heads take on the stream, by arithmetic. By default not known.
  virtual RecurrencePace recurrence_pace(int64_t /*key_dim*/, int64_t /*value_dim*/,
                                         const device::Stream& /*stream*/) const {
    return {};
  }
  /// Tells whether gated_linear takes these arguments, and gains by it.
  virtual bool takes_gated_linear(const GatedLinearArgs&) const { return false; }
  /// Throws Unsupported without takes_gated_linear(args).
  virtual void gated_linear(const GatedLinearArgs& args, device::Stream& stream);
  virtual void route(const RouteArgs& args, device::Stream& stream) = 0;
  virtual void experts(const ExpertsArgs& args, device::Stream& stream) = 0;
  virtual void sample(const SamplingArgs& args, device::Stream& stream) = 0;
  virtual void log_probs(const LogProbsArgs& args, device::Stream& stream) = 0;
  virtual void shortlist(const ShortlistArgs& args, device::Stream& stream) = 0;

 private:
  friend class Step;
  virtual void begin_step(device::Stream& stream) { stream.begin_step(); }
  virtual void end_step(device::Stream& stream) { stream.end_step(); }
  virtual void drop_step(device::Stream& stream) { stream.drop_step(); }
};

/// Ops that may be enqueued together, up to a point that needs them enqueued
/// (device::Stream::begin_step). A step is for passes of few rows, whose launches would take longer
/// than their kernels. Until the last op has been given, the arrays that the ops' spans name must
/// stay as they are, so that equal spans are equal arrays. Pinned memory that the ops copy from
/// must not be written before the step is done.
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

/// Makes a backend of plain loops with wide accumulators, which is the oracle of every test. It
/// uses one thread.
std::unique_ptr<Backend> make_reference_backend();

/// How the CPU multiplies weights of bf16 with rows. With `fp32` the weights are widened. With
/// `bf16` the rows are rounded to bf16 once, and vectors of AVX512-BF16 multiply them. With `amx`
/// tiles of AMX multiply many rows in the same way, and vectors multiply few. Sums are fp32. Weights
/// of int8, int4, mxfp4 and nvfp4 are multiplied like weights of bf16. Weights of other types, and RowInvariant
/// products, are multiplied in fp32.
enum class MatmulKind { fp32, bf16, amx };

inline constexpr MatmulKind all_matmul_kinds[] = {MatmulKind::fp32, MatmulKind::bf16,
                                                  MatmulKind::amx};

/// Up to how many rows a product reads weights of 16 bits as they lie, in the matrix or in its
/// panels (PanelsArgs), and packs nothing of its own. Measured crossovers without panels: for fp32
/// 48 rows with AVX-512 and 24 to 32 with AVX2, at depths 576 and 4096; for bf16 64 rows at depth
/// 576, and 32 at 1536 (Zen 5).
constexpr int64_t usual_most_few(MatmulKind products) {
  return products == MatmulKind::fp32 ? 32 : 64;
}

/// Products by the number of rows. Other products have other bits, and so may packed weights.
struct CpuProducts {
  constexpr CpuProducts(MatmulKind all) : few(all), many(all) {}  // NOLINT: one kind for all rows
  constexpr CpuProducts(MatmulKind of_few, MatmulKind of_many, int64_t most)
      : few(of_few), many(of_many), most_few(most) {}
  bool operator==(const CpuProducts&) const = default;

  MatmulKind few;   ///< of few rows, up to most_few; amx has vectors there
  MatmulKind many;  ///< of more rows, and of RowInvariant::yes with any number of rows
  std::optional<int64_t> most_few = {};  ///< how many rows are few; absent: usual_most_few
};

std::string_view name_of(MatmulKind products);

/// Says why the CPU backend has no such products in this process, with pecia::isa(); "" if it has
/// them. The first call for `amx` multiplies a small product and compares it with plain C++.
std::string why_no_products(MatmulKind products);

/// Tells whether pecia::isa() has MatmulKind::bf16.
bool cpu_has_bf16_products();

/// Makes a vectorised backend with several threads. It uses the instructions of pecia::isa().
/// Throws Unsupported for products that these lack.
std::unique_ptr<Backend> make_cpu_backend(const CpuProducts& products = MatmulKind::fp32);

/// What computes large pieces of prefill attention: a library if one is found, the library by graphs
/// of static shape alone (a benchmark compares these), or our own kernels.
enum class AttentionBy { library, static_graphs, own_kernels };
/// What multiplies many rows with experts: a library if this build has one for the GPU, or our own
/// kernels.
enum class ExpertsBy { library, own_kernels };

/// Makes the backend of a device that make_cuda_device made and that outlives it. Tensors must be
/// in the device's memory, and the device must have made the streams. The backend takes one stream
/// at a time. Only the thread that made the device may call it.
std::unique_ptr<Backend> make_cuda_backend(device::Device& device,
                                           AttentionBy attention = AttentionBy::library,
                                           ExpertsBy experts = ExpertsBy::library);

}  // namespace pecia::kernels
