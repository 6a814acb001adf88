#pragma once
/// The forward pass: rows of any sequences through all layers, attention by the ring.

#include <span>
#include <vector>

#include "kernels/api/backend.hpp"
#include "lib/context/ring_attention.hpp"
#include "lib/model/config.hpp"
#include "lib/model/rotary.hpp"
#include "lib/model/weights.hpp"
#include "lib/report/spans.hpp"

namespace pecia::model {

/// This rank's rows of a pass, in the order of RingAttention::positions().
struct Rows {
  std::vector<int32_t> tokens;
  std::vector<int64_t> rope_lengths;  ///< see Rotary::tables
  std::vector<int64_t> output_rows;   ///< rows whose next-token logits are wanted
};

class Model {
 public:
  /// All references outlive this object.
  Model(const ModelConfig& config, const Weights& weights, kernels::Backend& backend,
        device::Stream& stream, report::Recorder& recorder);

  /// Runs the layers of the pass that `attention` has begun. Returns the final norm's output of the
  /// output rows, [output_rows, hidden] fp32, valid until the next call. Collective over the ring.
  TensorView forward(const Rows& rows, context::RingAttention& attention);

  /// out[r, :] = logits of hidden[r, :]; out [rows, vocab] fp32.
  void logits(const TensorView& hidden, const TensorView& out);

  /// Bytes of activations that forward needs for each row.
  static int64_t activation_bytes_per_row(const ModelConfig& config);

 private:
  void layer(int64_t index, const TensorView& hidden, context::RingAttention& attention);
  void linear(const char* name, const TensorView& x, const LinearWeight& weight,
              const TensorView& y, kernels::Accumulate accumulate = kernels::Accumulate::no);
  void norm(const TensorView& x, const TensorView& weight, const TensorView& out);

  const ModelConfig& config_;
  const Weights& weights_;
  kernels::Backend& backend_;
  device::Stream& stream_;
  report::Recorder& recorder_;
  Rotary rotary_;
  device::Buffer hidden_, normed_, q_, k_, v_, mixed_, gate_, up_, cos_, sin_, output_;
};

}  // namespace pecia::model
