// SPDX-License-Identifier: Apache-2.0
#include "lib/model/weights/device_weights.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <tuple>

#include "lib/base/core/codes.hpp"
#include "lib/model/weights/weight_upload.hpp"

namespace pecia::model {
namespace {

using device::Memory;

/// Calls f(tensor) for every view that is copied unchanged, and of_matrix(part, kind) for every
/// part of a matrix. Biases of matrices, and scales of matrices that are codes already, are copied
/// unchanged. Those of a layer come before and after all of its matrices, so that matrices of one
/// product may lie next to each other (joined), and so may their biases and scales.
void for_each_tensor(WeightViews& weights, const std::function<void(TensorView&)>& f,
                     const std::function<void(LinearWeight::Part&, MatrixKind)>& of_matrix) {
  f(weights.embedding), f(weights.second_embedding), f(weights.second_norm);
  for (LinearWeight::Part& part : weights.second_projection.parts) f(part.weight);
  for (LayerWeights& layer : weights.layers) {
    for (TensorView* norm : layer.norms()) f(*norm);
    f(layer.attention.sinks);
    for (TensorView* made : layer.made()) f(*made);
    layer.for_each_matrix([&](MatrixKind, LinearWeight& matrix) {
      for (LinearWeight::Part& part : matrix.parts) f(part.scales);
    });
    layer.for_each_matrix([&](MatrixKind kind, LinearWeight& matrix) {
      for (LinearWeight::Part& part : matrix.parts) of_matrix(part, kind);
    });
    layer.for_each_matrix([&](MatrixKind, LinearWeight& matrix) {
      for (LinearWeight::Part& part : matrix.parts) f(part.bias);
    });
  }
  f(weights.final_norm);
  for (LinearWeight::Part& part : weights.head.parts)
    of_matrix(part, MatrixKind::head), f(part.bias);
}

/// What type_of_matrix says, unless the part is codes already.
std::optional<DType> type_of_part(Quantize quantize, MatrixKind kind,
                                  const LinearWeight::Part& part) {
  return part.scales ? std::nullopt : type_of_matrix(quantize, kind);
}

/// Views of the same host elements that are stored in the same type have the same key.
using Key = std::tuple<const void*, int64_t, int64_t, int64_t, DType>;
Key key_of(const TensorView& tensor, DType type) {
  return {tensor.data(), tensor.rows(), tensor.row_elements(), tensor.row_stride(), type};
}

/// The place of each tensor, and the bytes of all together.
struct Layout {
  struct Place {
    TensorView tensor;    ///< view of host memory
    DType type;           ///< type of the copy
    int64_t offset = 0;   ///< offset of the copy or of the codes
    int64_t scales = -1;  ///< offset of the scales if the tensor is rounded
    MatrixKind kind{};    ///< kind of the matrix if the tensor is rounded
    bool rounded() const { return scales >= 0; }
  };

  Layout(const WeightViews& weights, Quantize quantize) {
    WeightViews views = weights;
    const auto copied = [&](const TensorView& tensor) {
      if (Place* place = add(tensor, tensor.dtype()))
        place->offset = take(tensor.elements(), tensor.dtype());
    };
    const auto of_matrix = [&](const LinearWeight::Part& part, MatrixKind kind) {
      const std::optional<DType> type = type_of_part(quantize, kind, part);
      if (!type) return copied(part.weight);
      Place* const place = add(part.weight, *type);
      if (place == nullptr) return;
      const int64_t rows = part.weight.rows(), columns = part.weight.size(1);
      place->offset = take(rows * row_elements(*type, columns), *type);
      place->scales = 0;  // below
      place->kind = kind;
      rounded_rows += rows;
    };
    for_each_tensor(views, copied, of_matrix);
    for (Place& place : places)
      if (place.rounded())
        place.scales =
            take(place.tensor.rows() * row_scales(place.type, place.tensor.size(1)), DType::fp32);
  }

  const Place& of(const TensorView& tensor, DType type) const {
    return places[index.at(key_of(tensor, type))];
  }

  std::vector<Place> places;
  std::map<Key, size_t> index;
  int64_t bytes = 0, longest_row = 0, rounded_rows = 0;

 private:
  /// Returns null for a tensor that is absent or already has a place.
  Place* add(const TensorView& tensor, DType type) {
    if (!tensor || !index.emplace(key_of(tensor, type), places.size()).second) return nullptr;
    longest_row = std::max(longest_row, tensor.row_elements() * size_of(tensor.dtype()));
    return &places.emplace_back(Place{tensor, type});
  }
  int64_t take(int64_t elements, DType dtype) {
    constexpr int64_t alignment = 256;
    const int64_t offset = bytes;
    bytes += (elements * size_of(dtype) + alignment - 1) / alignment * alignment;
    return offset;
  }
};

}  // namespace

std::optional<DType> type_of_matrix(Quantize quantize, MatrixKind kind) {
  const bool of_heads =
      kind == MatrixKind::key_up || kind == MatrixKind::value_up || kind == MatrixKind::head_keys;
  const bool of_second = kind == MatrixKind::second_gate || kind == MatrixKind::second_up;
  const bool of_decay = kind == MatrixKind::recurrent_a || kind == MatrixKind::recurrent_b;
  if (kind == MatrixKind::router || kind == MatrixKind::shared_row_gate || of_heads || of_second ||
      of_decay)
    return {};
  switch (quantize) {
    case Quantize::nothing:
      break;
    case Quantize::fp8:
      return kind == MatrixKind::head ? std::nullopt : std::optional(DType::fp8);
    case Quantize::fp8_ffn: {
      const CutUnit unit = role_of(kind).unit;
      const bool feeds =
          unit == CutUnit::ffn || unit == CutUnit::expert_ffn || unit == CutUnit::shared_ffn;
      return feeds ? std::optional(DType::fp8) : std::nullopt;
    }
    case Quantize::int8:
      return DType::int8;
    case Quantize::int4: {
      const bool suffers = kind == MatrixKind::k || kind == MatrixKind::kv_down ||
                           kind == MatrixKind::v || kind == MatrixKind::down ||
                           kind == MatrixKind::recurrent_k || kind == MatrixKind::recurrent_v ||
                           kind == MatrixKind::expert_down || kind == MatrixKind::shared_down ||
                           kind == MatrixKind::head;
      return suffers ? DType::int8 : DType::int4;
    }
  }
  return {};
}

DType resident_type(const ModelConfig& config, MatrixKind kind, DType stored, Quantize quantize,
                    const CodeUse& codes) {
  if (const auto kept = resident_code(config, kind, codes)) return *kept;
  return type_of_matrix(quantize, kind).value_or(stored);
}

int64_t DeviceWeights::bytes_of(const WeightViews& weights, Quantize quantize) {
  return Layout(weights, quantize).bytes;
}

DeviceWeights::DeviceWeights(const WeightViews& host, device::Device& device,
                             device::Stream& stream, kernels::Backend& backend, Quantize quantize)
    : WeightViews(host), memory_(device, Memory::device), quantized_(quantize) {
  const Layout layout(host, quantize);
  memory_.reserve(layout.bytes);
  const auto at = [&](int64_t offset) { return memory_.as<std::byte>() + offset; };
  const auto codes_of = [&](const Layout::Place& place) {
    return TensorView(at(place.offset), place.type,
                      {place.tensor.rows(), row_elements(place.type, place.tensor.size(1))});
  };
  const auto scales_of = [&](const Layout::Place& place) {
    const int64_t rows = place.tensor.rows();
    if (place.type != DType::int4) return TensorView(at(place.scales), DType::fp32, {rows});
    return TensorView(at(place.scales), DType::fp32,
                      {rows, row_scales(place.type, place.tensor.size(1))});
  };

  const auto begin = std::chrono::steady_clock::now();
  WeightUpload upload(device, stream, layout.longest_row);
  device::Buffer sums(device, Memory::device), host_sums(device, Memory::pinned);
  const TensorView square_sums = sums.tensor(DType::fp32, {layout.rounded_rows, 2});
  int64_t row = 0;  // counts rounded rows
  for (const Layout::Place& place : layout.places) {
    if (!place.rounded()) {
      upload.copy(place.tensor, at(place.offset));
      continue;
    }
    const int64_t rows = place.tensor.rows();
    upload.quantize(place.tensor,
                    {{}, codes_of(place), scales_of(place), square_sums.slice_rows(row, rows)},
                    backend);
    row += rows;
  }
  const TensorView on_host = host_sums.tensor(DType::fp32, {layout.rounded_rows, 2});
  device.copy(on_host.data(), square_sums.data(), host_sums.bytes(), stream);
  stream.synchronize();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  seconds_ = elapsed.count();

  const float* next = on_host.as<float>();
  for (const Layout::Place& place : layout.places) {
    if (!place.rounded()) continue;
    for (int64_t i = 0; i < place.tensor.rows(); ++i) {
      SquareSums& of_kind = rounding_[static_cast<size_t>(place.kind)];
      of_kind.difference += *next++;
      of_kind.original += *next++;
    }
  }

  const auto copied = [&](TensorView& tensor) {
    if (!tensor) return;
    void* const data = at(layout.of(tensor, tensor.dtype()).offset);
    tensor = tensor.rank() == 1
                 ? TensorView(data, tensor.dtype(), {tensor.size(0)})
                 : TensorView(data, tensor.dtype(), {tensor.size(0), tensor.size(1)});
  };
  const auto of_matrix = [&](LinearWeight::Part& matrix, MatrixKind kind) {
    const std::optional<DType> type = type_of_part(quantize, kind, matrix);
    if (!type) return copied(matrix.weight);
    const Layout::Place& place = layout.of(matrix.weight, *type);
    matrix.weight = codes_of(place);
    matrix.scales = scales_of(place);
  };
  for_each_tensor(*this, copied, of_matrix);
}

}  // namespace pecia::model
