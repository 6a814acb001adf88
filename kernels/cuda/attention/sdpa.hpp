// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <compare>
#include <memory>
#include <string>

#include "kernels/cuda/attention/attention_rectangles.hpp"
#include "lib/core/dtype.hpp"
#include "lib/device/device.hpp"

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
  /// kind and milliseconds for others; with static graphs it takes a second for each shape. It
  /// takes no time for a shape that was asked for lately.
  virtual bool takes(const SdpaShape& shape) = 0;
  /// Pointers are aligned to 16 bytes. Returns false if the library could not start; then nothing
  /// was enqueued, and the shape is no longer taken.
  [[nodiscard]] virtual bool run(const SdpaArgs& args, device::Stream& stream) = 0;
};

/// Graphs of dynamic shape share compiled kernels; graphs of static shape are compiled for each
/// shape. With `any` a shape gets a static graph where the library refuses a dynamic one.
enum class SdpaGraphs { any, static_alone };

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
