#include "lib/model/device_weights.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <tuple>

namespace pecia::model {
namespace {

using device::Memory;

/// f(tensor) for every view there is.
void for_each_tensor(WeightViews& weights, const std::function<void(TensorView&)>& f) {
  const auto of_linear = [&](LinearWeight& weight) {
    for (LinearWeight::Part& part : weight.parts) f(part.weight), f(part.bias);
  };
  f(weights.embedding);
  for (LayerWeights& layer : weights.layers) {
    for (TensorView* norm : {&layer.attention_norm, &layer.ffn_norm, &layer.q_norm, &layer.k_norm})
      f(*norm);
    for (LinearWeight* weight :
         {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down})
      of_linear(*weight);
  }
  f(weights.final_norm);
  of_linear(weights.head);
}

/// The same elements of the host's memory have the same key.
using Key = std::tuple<const void*, int64_t, int64_t, int64_t>;
Key key_of(const TensorView& tensor) {
  return {tensor.data(), tensor.rows(), tensor.row_elements(), tensor.row_stride()};
}

int64_t row_bytes(const TensorView& tensor) {
  return tensor.row_elements() * size_of(tensor.dtype());
}

/// Bytes on their way to the device, one after the other.
class Conveyor {
 public:
  Conveyor(device::Device& device, device::Stream& stream, std::byte* to)
      : device_(device), stream_(stream), to_(to) {
    for (Piece& piece : pieces_) {
      piece.memory = device::Buffer(device, Memory::pinned, piece_bytes);
      piece.left = device.make_event();
    }
  }

  void put(const void* from, int64_t bytes) {
    const auto* next = static_cast<const std::byte*>(from);
    while (bytes > 0) {
      const int64_t taken = std::min(bytes, piece_bytes - filled_);
      std::memcpy(pieces_[filling_].memory.as<std::byte>() + filled_, next, taken);
      filled_ += taken, next += taken, bytes -= taken;
      if (filled_ == piece_bytes) send();
    }
  }
  /// Leaves room, whose contents are nothing.
  void skip(int64_t bytes) {
    send();
    to_ += bytes;
  }
  void send() {
    if (filled_ == 0) return;
    Piece& piece = pieces_[filling_];
    device_.copy(to_, piece.memory.data(), filled_, stream_);
    piece.left->record(stream_);
    to_ += filled_;
    filled_ = 0;
    filling_ = 1 - filling_;
    pieces_[filling_].left->synchronize();
  }

 private:
  static constexpr int64_t piece_bytes = int64_t{16} << 20;
  struct Piece {
    device::Buffer memory;
    std::unique_ptr<device::Event> left;  ///< by the copy
  };

  device::Device& device_;
  device::Stream& stream_;
  std::byte* to_;
  Piece pieces_[2];
  int filling_ = 0;
  int64_t filled_ = 0;
};

/// Where each tensor belongs, and how many bytes that takes.
struct Layout {
  explicit Layout(const WeightViews& weights) {
    constexpr int64_t alignment = 256;
    WeightViews views = weights;
    for_each_tensor(views, [&](const TensorView& tensor) {
      if (!tensor || !places.emplace(key_of(tensor), bytes).second) return;
      tensors.emplace_back(tensor, bytes);
      bytes += (tensor.rows() * row_bytes(tensor) + alignment - 1) / alignment * alignment;
    });
  }

  std::map<Key, int64_t> places;
  std::vector<std::pair<TensorView, int64_t>> tensors;  ///< and their offsets
  int64_t bytes = 0;
};

}  // namespace

int64_t DeviceWeights::bytes_of(const WeightViews& weights) {
  return Layout(weights).bytes;
}

DeviceWeights::DeviceWeights(const WeightViews& host, device::Device& device,
                             device::Stream& stream)
    : WeightViews(host), memory_(device, Memory::device) {
  const Layout layout(host);
  memory_.reserve(layout.bytes);

  const auto begin = std::chrono::steady_clock::now();
  Conveyor conveyor(device, stream, memory_.as<std::byte>());
  int64_t at = 0;
  for (const auto& [tensor, offset] : layout.tensors) {
    if (offset > at) conveyor.skip(offset - at);
    const int64_t width = row_bytes(tensor);
    if (tensor.dense())
      conveyor.put(tensor.data(), tensor.rows() * width);
    else
      for (int64_t row = 0; row < tensor.rows(); ++row) conveyor.put(tensor.row(row), width);
    at = offset + tensor.rows() * width;
  }
  conveyor.send();
  stream.synchronize();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  seconds_ = elapsed.count();

  for_each_tensor(*this, [&](TensorView& tensor) {
    if (!tensor) return;
    void* const data = memory_.as<std::byte>() + layout.places.at(key_of(tensor));
    tensor = tensor.rank() == 1
                 ? TensorView(data, tensor.dtype(), {tensor.size(0)})
                 : TensorView(data, tensor.dtype(), {tensor.size(0), tensor.size(1)});
  });
}

}  // namespace pecia::model
