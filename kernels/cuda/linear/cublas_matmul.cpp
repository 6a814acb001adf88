// SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "kernels/cuda/linear/matmul.hpp"
#include "lib/base/core/error.hpp"
#include "lib/base/device/buffer.hpp"
#include "lib/base/device/cuda/cuda_stream.hpp"

namespace pecia::kernels::cuda {
namespace {

void check(cublasStatus_t status, const char* call, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const std::string message =
      fmt::format("{} ({}, in {} at {}:{})", cublasLtGetStatusString(status),
                  cublasLtGetStatusName(status), call, __FILE__, line);
  if (status == CUBLAS_STATUS_EXECUTION_FAILED) throw DeviceLost(message);
  throw SystemError(message);
}
#define PECIA_CUBLAS_CHECK(call) check((call), #call, __LINE__)

cudaDataType_t type_of(DType dtype) {
  if (dtype == DType::fp8) return CUDA_R_8F_E4M3;
  if (dtype == DType::bf16) return CUDA_R_16BF;
  return dtype == DType::fp16 ? CUDA_R_16F : CUDA_R_32F;
}

/// Greatest power of two up to 256 that divides the address and, so that each row has it, the
/// stride and, of several matrices, their step.
uint32_t alignment_of(const TensorView& view, int64_t step) {
  const uint64_t both = reinterpret_cast<uint64_t>(view.data()) |
                        static_cast<uint64_t>(view.row_stride() * size_of(view.dtype())) |
                        static_cast<uint64_t>(step * size_of(view.dtype())) | 256;
  return static_cast<uint32_t>(both & (~both + 1));
}

/// cuBLASLt's descriptors, freed by their own functions.
template <typename T, cublasStatus_t (*Destroy)(T)>
class Handle {
 public:
  Handle() = default;
  ~Handle() {
    if (handle_ != nullptr) Destroy(handle_);
  }
  Handle(Handle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  T* address() { return &handle_; }
  T get() const { return handle_; }

 private:
  T handle_ = nullptr;
};
using Operation = Handle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Handle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Handle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

template <typename T>
void set(const Operation& operation, cublasLtMatmulDescAttributes_t attribute, T value) {
  PECIA_CUBLAS_CHECK(
      cublasLtMatmulDescSetAttribute(operation.get(), attribute, &value, sizeof value));
}
template <typename T>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  PECIA_CUBLAS_CHECK(
      cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value));
}

template <typename T>
void set(const Layout& layout, cublasLtMatrixLayoutAttribute_t attribute, T value) {
  PECIA_CUBLAS_CHECK(
      cublasLtMatrixLayoutSetAttribute(layout.get(), attribute, &value, sizeof value));
}

/// cuBLAS counts by columns: a row-major view is its transpose there.
Layout transpose_of(const TensorView& view, int64_t count, int64_t step) {
  Layout layout;
  const int64_t stride = std::max(view.row_stride(), view.size(1));
  PECIA_CUBLAS_CHECK(cublasLtMatrixLayoutCreate(layout.address(), type_of(view.dtype()),
                                                view.size(1), view.rows(), stride));
  if (count > 1) {
    set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(count));
    set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, step);
  }
  return layout;
}

struct Product {
  Operation operation;
  Layout weight, x, y;
  cublasLtMatmulAlgo_t algorithm;
};

/// All that the choice of an algorithm depends on.
using Key =
    std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, uint32_t, uint32_t, uint32_t,
               DType, DType, bool, bool, bool, int64_t, int64_t, int64_t, int64_t>;

/// Older libraries, also beside a program that was built with a newer one, know no scales of rows.
constexpr size_t first_version_with_row_scales = 120900;

/// Says that each row of both operands has a scale of its own.
void set_scales_of_rows([[maybe_unused]] const Operation& operation) {
#if CUBLAS_VERSION >= 120900
  for (const auto mode : {CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_DESC_B_SCALE_MODE})
    set(operation, mode, int32_t{CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F});
#else
  PECIA_CHECK(false, "scales of rows, in a build with cuBLAS {}", CUBLAS_VERSION);
#endif
}

class CublasMatmul : public Matmul {
 public:
  explicit CublasMatmul(device::Device& device)
      : scales_rows_(device.info().compute_capability == 90 &&
                     CUBLAS_VERSION >= first_version_with_row_scales &&
                     cublasLtGetVersion() >= first_version_with_row_scales),
        workspace_(device, device::Memory::device, workspace_bytes) {
    PECIA_CUBLAS_CHECK(cublasLtCreate(&handle_));
  }
  ~CublasMatmul() override { cublasLtDestroy(handle_); }

  bool takes(const MatmulArgs& args) override {
    if (args.x_scales != nullptr && !scales_rows_) return false;
    return product_for(args) != nullptr;
  }

  void run(const MatmulArgs& args, device::Stream& stream) override {
    auto product = product_for(args);
    if (product == nullptr)
      fail<Unsupported>(
          "cuBLASLt has no algorithm for {} rows × [{}, {}] of {}{} into {} with row strides "
          "{}, {} and {}",
          args.x.rows(), args.weight.rows(), args.x.size(1), name_of(args.weight.dtype()),
          args.x_scales != nullptr ? " with scales" : "", name_of(args.y.dtype()),
          args.x.row_stride(), args.weight.row_stride(), args.y.row_stride());
    device::CudaStream& on = cuda_stream(stream);
    on.submit(
        [this, product = std::move(product), args, &on] { enqueue(*product, args, on.get()); },
        work_of(args));
  }

 private:
  void enqueue(const Product& product, const MatmulArgs& args, cudaStream_t stream) {
    if (args.bias != nullptr) set(product.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias);
    if (args.x_scales != nullptr) set_scales(product, args);
    const float one = 1, beta = args.accumulate == Accumulate::yes ? 1 : 0;
    PECIA_CUBLAS_CHECK(cublasLtMatmul(
        handle_, product.operation.get(), &one, args.weight.data(), product.weight.get(),
        args.x.data(), product.x.get(), &beta, args.y.data(), product.y.get(), args.y.data(),
        product.y.get(), &product.algorithm, workspace_.data(), workspace_bytes, stream));
  }

  static void set_scales(const Product& product, const MatmulArgs& args) {
    set(product.operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, args.weight_scales);
    set(product.operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, args.x_scales);
  }

  /// Null if there is no algorithm.
  std::shared_ptr<const Product> product_for(const MatmulArgs& args) {
    const bool has_bias = args.bias != nullptr, adds = args.accumulate == Accumulate::yes;
    const Key key = {args.x.rows(),
                     args.weight.rows(),
                     args.x.size(1),
                     args.x.row_stride(),
                     args.weight.row_stride(),
                     args.y.row_stride(),
                     alignment_of(args.x, args.x_step),
                     alignment_of(args.weight, args.weight_step),
                     alignment_of(args.y, args.y_step),
                     args.weight.dtype(),
                     args.y.dtype(),
                     has_bias,
                     adds,
                     args.x_scales != nullptr,
                     args.count,
                     args.x_step,
                     args.weight_step,
                     args.y_step};
    const auto known = products_.find(key);
    if (known != products_.end()) return known->second;
    if (products_.size() >= most_products) products_.clear();
    return products_.emplace(key, make_product(args)).first->second;
  }

  /// yᵀ[out × rows] = (weightᵀ[in × out])ᵀ · xᵀ[in × rows], by columns.
  std::shared_ptr<const Product> make_product(const MatmulArgs& args) {
    Product product;
    PECIA_CUBLAS_CHECK(
        cublasLtMatmulDescCreate(product.operation.address(), CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set(product.operation, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    if (args.bias != nullptr) {
      set(product.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(product.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias);
      set(product.operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F);
    }
    if (args.x_scales != nullptr) {
      set_scales_of_rows(product.operation);
      set_scales(product, args);  // with this mode the heuristic refuses pointers that are null
    }
    // Sums keep fewer bits, whose loss is a thirteenth of what rounding to fp8 loses at a depth of
    // 14336, and products take four fifths of the time (H100, apps/results/h100.md).
    if (args.weight.dtype() == DType::fp8)
      set(product.operation, CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1});
    product.weight = transpose_of(args.weight, args.count, args.weight_step);
    product.x = transpose_of(args.x, args.count, args.x_step);
    product.y = transpose_of(args.y, args.count, args.y_step);

    Preference preference;
    PECIA_CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(preference.address()));
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, size_t{workspace_bytes});
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        alignment_of(args.weight, args.weight_step));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(args.x, args.x_step));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(args.y, args.y_step));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(args.y, args.y_step));
    std::array<cublasLtMatmulHeuristicResult_t, 8> candidates;
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_, product.operation.get(), product.weight.get(), product.x.get(), product.y.get(),
        product.y.get(), preference.get(), static_cast<int>(candidates.size()), candidates.data(),
        &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return nullptr;
    PECIA_CUBLAS_CHECK(status);
    for (int i = 0; i < count; ++i) {
      if (!can_run(product, candidates[i])) continue;
      product.algorithm = candidates[i].algo;
      return std::make_shared<const Product>(std::move(product));
    }
    return nullptr;
  }

  /// What the heuristic names may still be refused when it is run, as products of fp8 with scales
  /// of rows are. This asks before.
  bool can_run(const Product& product, const cublasLtMatmulHeuristicResult_t& candidate) const {
    cublasLtMatmulHeuristicResult_t checked;
    return candidate.state == CUBLAS_STATUS_SUCCESS &&
           cublasLtMatmulAlgoCheck(handle_, product.operation.get(), product.weight.get(),
                                   product.x.get(), product.y.get(), product.y.get(),
                                   &candidate.algo, &checked) == CUBLAS_STATUS_SUCCESS &&
           checked.workspaceSize <= static_cast<size_t>(workspace_bytes);
  }

  static constexpr int64_t workspace_bytes = 32 << 20;  // what cuBLAS itself takes on Hopper
  static constexpr size_t most_products = 4096;
  cublasLtHandle_t handle_ = nullptr;
  bool scales_rows_;
  device::Buffer workspace_;
  std::map<Key, std::shared_ptr<const Product>> products_;
};

}  // namespace

std::unique_ptr<Matmul> make_cublas_matmul(device::Device& device) {
  return std::make_unique<CublasMatmul>(device);
}

}  // namespace pecia::kernels::cuda
