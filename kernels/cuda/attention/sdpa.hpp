// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <compare>
#include <memory>
#include <string>

#include "kernels/cuda/attention/attention_rectangles.hpp"
#include "lib/base/core/dtype.hpp"
#include "lib/base/device/device.hpp"

namespace pecia::kernels::cuda {

/// All that a library's choice of a kernel depends on.
struct SdpaShape {
  DType dtype;  ///< type of q, k, v and out: bf16 or fp16
  int64_t num_heads, num_kv_heads, head_dim;
  int64_t num_rows, num_keys;  ///< num_rows ≤ num_keys unless the mask is full
  int64_t kv_head_stride;      ///< elements from one KV head to the next
  Mask mask;
  int64_t window;  ///< window of Mask::band, else 0
  float scale;

  auto operator<=>(const SdpaShape&) const = default;
};

struct SdpaArgs {
  SdpaShape shape;
  const void* q;      ///< [num_rows, num_heads, head_dim], dense
  const void *k, *v;  ///< key s of head g is at element g · kv_head_stride + s · head_dim
  void* out;          ///< the same shape as q
  float* lse;         ///< [num_heads, num_rows]: natural log, of scaled scores
};

/// Attention of a rectangle by a library, in device memory. It reads no key outside the rectangle.
class Sdpa {
 public:
  virtual ~Sdpa() = default;

  /// Returns the name of the library, its version, which graphs it used so far, and what it first
  /// refused, if anything.
  virtual std::string name() const = 0;
  /// Tells whether run() may do this shape. The call takes a second for the first shape of its
  /// kind and milliseconds for others; with static graphs it takes up to a second for each shape
  /// that is taken. It takes no time for a shape that was asked for lately.
  virtual bool takes(const SdpaShape& shape) = 0;
  /// Pointers are aligned to 16 bytes. Returns false if the library could not start; then nothing
  /// was enqueued, and the shape is no longer taken.
  [[nodiscard]] virtual bool run(const SdpaArgs& args, device::Stream& stream) = 0;
};

/// Graphs of dynamic shape share compiled kernels; graphs of static shape are compiled for each
/// shape.
enum class SdpaGraphs {
  any,                 ///< dynamic; where the library refuses one, as static_where_worth
  static_where_worth,  ///< only shapes that are worth_a_static_graph
  static_for_each
};

/// Tells whether a shape gains more by the library than its compilation takes: a large rectangle, or
/// lengths that other prompts have, too. It goes by the shape alone, so that the same prompt is
/// computed by the same kernels, whatever came before it.
///
/// A compilation takes 0.1 to 0.5 s, once. For 8192 causal tokens our kernels take 2.1 ms more in a
/// layer of 32 heads of 128, which is 0.07 s in 32 layers; for 16384 tokens it is 0.27 s.
inline bool worth_a_static_graph(const SdpaShape& shape) {
  constexpr int64_t usual_lengths = 256;         // chunks of prompts mostly are multiples of it
  constexpr int64_t gainful = int64_t{1} << 40;  // 16384 · 16384 · 32 · 128
  if (shape.num_rows % usual_lengths == 0 && shape.num_keys % usual_lengths == 0) return true;
  return shape.num_rows * shape.num_keys >= gainful / (shape.num_heads * shape.head_dim);
}

/// A library, or why there is none.
struct FoundSdpa {
  std::unique_ptr<Sdpa> sdpa;
  std::string why_not;
};

/// Loads cuDNN and finds its attention for the GPU that is current.
FoundSdpa find_cudnn_sdpa(device::Device& device, SdpaGraphs graphs);

/// Finds cuDNN's attention for a GPU that is not present. cuDNN's JSON describes it. Only `takes`
/// works.
FoundSdpa find_cudnn_sdpa_without_gpu(const std::string& device_json, int compute_capability,
                                      SdpaGraphs graphs);

}  // namespace pecia::kernels::cuda
