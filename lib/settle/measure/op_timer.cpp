// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/measure/op_timer.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "lib/base/core/random.hpp"
#include "lib/files/disk/memory_file.hpp"
#include "lib/ranks/comm/collectives.hpp"
#include "lib/settle/measure/product_rates.hpp"

namespace pecia::measure {
namespace {

constexpr int64_t unit = int64_t{1} << 20;
constexpr double stretch_s = 0.003;
constexpr int64_t most_calls_of_step = 256;  // about as many as a pass has
constexpr int64_t most_rows_of_step = 256;   // as model::Model has it

/// Four times the caches, so that nothing is cached when its turn comes again.
int64_t more_than_cached(int64_t cache_bytes) {
  return std::max(16 * unit, (4 * cache_bytes + unit - 1) / unit * unit);
}

/// Goes round a piece of memory in steps of `bytes`.
class RotatingBuffer {
 public:
  RotatingBuffer(std::span<std::byte> memory, int64_t bytes)
      : memory_(memory), bytes_(bytes), count_(std::ssize(memory) / bytes) {
    PECIA_CHECK(count_ >= 1, "{} bytes of {}", bytes, memory.size());
  }
  std::byte* of(int64_t number) const { return memory_.data() + number % count_ * bytes_; }

 private:
  std::span<std::byte> memory_;
  int64_t bytes_, count_;
};

/// Random numbers of bf16 in ±[2⁻⁴, 2⁻³).
void fill(std::span<std::byte> memory) {
  constexpr uint64_t seed = 1;
  constexpr uint16_t exponent = 123 << 7;
  constexpr int64_t list_size = 65521;
  std::vector<uint16_t> list(list_size);
  for (int64_t i = 0; i < list_size; ++i)
    list[i] = exponent | (mix(seed, static_cast<uint64_t>(i)) & 0x807f);
  const int64_t step = list_size * size_of(DType::bf16);
  for (int64_t at = 0; at < std::ssize(memory); at += step)
    std::memcpy(memory.data() + at, list.data(), std::min(step, std::ssize(memory) - at));
}

/// Whether a run on this backend packs weights of bf16.
bool has_panels(const kernels::Backend& backend) {
  uint16_t number = 0;
  return backend.panel_bytes(TensorView(&number, DType::bf16, {1, 1})) > 0;
}

/// Matrices [width, depth] of bf16 side by side, each the first of `parts` parts of its rows, whose
/// numbers are taken for those of their own panels, too, while this object lives. Where panels need
/// padding, the matrices are read in place.
class TakenForPanels {
 public:
  TakenForPanels(kernels::Backend& backend, std::span<std::byte> memory, int64_t width,
                 int64_t depth, int64_t parts)
      : backend_(backend) {
    const int64_t bytes = width * depth * size_of(DType::bf16);
    for (int64_t at = 0; at + parts * bytes <= std::ssize(memory); at += parts * bytes) {
      const TensorView whole(memory.data() + at, DType::bf16, {width, parts * depth});
      const TensorView matrix = whole.slice_columns(0, depth);
      if (backend.panel_bytes(matrix) != bytes) continue;
      backend.use_panels(matrix, matrix.data());
      matrices_.push_back(matrix);
    }
  }
  TakenForPanels(const TakenForPanels&) = delete;
  TakenForPanels& operator=(const TakenForPanels&) = delete;
  ~TakenForPanels() {
    for (const TensorView& matrix : matrices_) backend_.use_panels(matrix, nullptr);
  }

 private:
  kernels::Backend& backend_;
  std::vector<TensorView> matrices_;
};

}  // namespace

WeightPages::WeightPages(int64_t bytes, bool packed, int sharing) {
  if (packed && sharing > 1) {
    shared_ = io::MemoryMap(io::MemoryFile(bytes).path(), bytes);
    bytes_ = shared_.bytes();
    return;
  }
  if (packed) {
    own_ = device::Buffer(bytes);
    bytes_ = {own_.as<std::byte>(), static_cast<size_t>(bytes)};
    return;
  }
  void* const data =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) fail<SystemError>("out of memory: {} bytes cannot be mapped", bytes);
  ::madvise(data, bytes, MADV_NOHUGEPAGE);  // fails where there are no huge pages
  bytes_ = {static_cast<std::byte*>(data), static_cast<size_t>(bytes)};
}

WeightPages::~WeightPages() {
  if (shared_.bytes().empty() && own_.bytes() == 0) ::munmap(bytes_.data(), bytes_.size());
}

OpTimer::OpTimer(comm::Communicator& world, const attention::Compute& compute, int64_t cache_bytes)
    : world_(world),
      host_(world.split_by_host()),
      on_gpu_(compute.device.info().is_gpu()),
      own_stream_(on_gpu_ ? compute.device.make_stream() : nullptr),
      compute_{compute.device, own_stream_ ? *own_stream_ : compute.stream, compute.backend,
               compute.recorder},
      cache_bytes_(cache_bytes),
      keys_(compute.buffer(more_than_cached(cache_bytes))) {
  if (on_gpu_) {
    compute.stream.synchronize();  // what it holds is not measured
    const int64_t columns = 1024, rows = keys_.bytes() / (columns * size_of(DType::bf16));
    weights_on_device_ = compute.buffer(keys_.bytes());
    for (device::Buffer* const buffer : {&keys_, &weights_on_device_})
      fill_random(compute_, buffer->tensor(DType::bf16, {rows, columns}));
    weights_ = {weights_on_device_.as<std::byte>(),
                static_cast<size_t>(weights_on_device_.bytes())};
    return;
  }
  pages_.emplace(more_than_cached(cache_bytes), has_panels(compute.backend), host_->size());
  weights_ = pages_->bytes();
  fill(weights_);
  compute_.device.zero(keys_.data(), keys_.bytes(), compute_.stream);
  compute_.stream.synchronize();
}

void OpTimer::give(const Call& call, int64_t calls) const {
  if (!on_gpu_) {
    for (int64_t i = 0; i < calls; ++i) call.give(next_++);
    return;
  }
  std::optional<kernels::Step> step;
  if (call.in_step) step.emplace(compute_.backend, compute_.stream);
  for (int64_t i = 0; i < calls; ++i) call.give(i);
  if (step) step->end();
}

double OpTimer::stretch(const Call& call, int64_t calls, int ranks, double& own_best) const {
  using Clock = std::chrono::steady_clock;
  const auto ns = [](Clock::time_point at) { return int64_t{at.time_since_epoch().count()}; };
  static_assert(std::is_same_v<Clock::period, std::nano>);
  const bool works = world_.rank() < ranks;
  world_.barrier();
  const Clock::time_point begin = Clock::now();
  if (works) give(call, calls);
  compute_.stream.synchronize();
  const Clock::time_point end = Clock::now();
  own_best = std::min(
      own_best, std::chrono::duration<double>(end - begin).count() / static_cast<double>(calls));
  // Where ranks share cores, some begin when others have ended. Those of a host have one clock.
  const int64_t first_ns = -host_->all_reduce_max(-ns(begin));
  const int64_t host_ns = host_->all_reduce_max(ns(end)) - first_ns;
  return 1e-9 * static_cast<double>(world_.all_reduce_max(host_ns)) / static_cast<double>(calls);
}

int64_t OpTimer::calls_of_stretch(const Call& call) const {
  double ignored = 0;
  stretch(call, 1, world_.size(), ignored);  // wakes threads and touches pages
  const double one_s = stretch(call, 1, world_.size(), ignored);
  const auto calls = 1 + static_cast<int64_t>(stretch_s / one_s);
  return on_gpu_ ? std::min(calls, most_calls_of_step) : calls;
}

double OpTimer::best_seconds(const Call& call) const {
  const int stretches = on_gpu_ ? 5 : 3;  // of the first ones on a GPU a graph is made
  const int64_t calls = calls_of_stretch(call);
  double own_best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < stretches; ++i) stretch(call, calls, world_.size(), own_best);
  return 1e-12 * static_cast<double>(world_.all_reduce_max(std::llround(1e12 * own_best)));
}

TensorView OpTimer::zeroed(device::Buffer& buffer, int64_t rows, int64_t columns) const {
  const TensorView tensor = buffer.tensor(DType::fp32, {rows, columns});
  compute_.device.zero(tensor.data(), tensor.elements() * size_of(DType::fp32), compute_.stream);
  return tensor;
}

TensorView OpTimer::numbers(device::Buffer& buffer, DType dtype, int64_t rows,
                            int64_t columns) const {
  const TensorView tensor = buffer.tensor(dtype, {rows, columns});
  if (on_gpu_)
    fill_random(compute_, tensor);
  else
    compute_.device.zero(tensor.data(), tensor.elements() * size_of(dtype), compute_.stream);
  return tensor;
}

template <typename Measure>
auto OpTimer::with_product(int64_t rows, int64_t depth, int64_t width, const Measure& measure,
                           int64_t parts) const {
  auto buffers = compute_.buffers(2);
  const DType operands = compute_.backend.operand_type(DType::bf16);
  const TensorView x = numbers(buffers[0], operands, rows, depth);
  kernels::LinearArgs args{x, {}, {}, zeroed(buffers[1], rows, width)};
  const RotatingBuffer weights(weights_, width * parts * depth * size_of(DType::bf16));
  const TakenForPanels panels(compute_.backend, weights_, width, depth, parts);
  const auto give = [&](int64_t number) {
    args.weight =
        TensorView(weights.of(number), DType::bf16, {width, parts * depth}).slice_columns(0, depth);
    compute_.backend.linear(args, compute_.stream);
  };
  return measure(Call{give, rows <= most_rows_of_step});
}

double OpTimer::product(int64_t rows, int64_t depth, int64_t width) const {
  return with_product(rows, depth, width, [&](const Call& call) { return best_seconds(call); });
}

double OpTimer::product_of_slice(int64_t depth, int64_t width, int64_t parts) const {
  return with_product(
      1, depth, width, [&](const Call& call) { return best_seconds(call); }, parts);
}

double OpTimer::all_reduce() const {
  if (world_.size() == 1) return 0;
  constexpr int pairs = 50;
  const auto collectives =
      world_.make_collectives(std::vector<int>(world_.size(), 0), comm::SumOrder::any);
  std::vector<float> values(1024);
  return with_product(1, 512, 512, [&](const Call& product) {
    const auto add_up = [&](int64_t number) {
      product.give(number);
      compute_.stream.synchronize();
      collectives->start_all_reduce(values)->wait();
    };
    const Call both{add_up, false};
    const int64_t calls = calls_of_stretch(both);
    double ignored = 0;
    Stretches found;  // with the sum, and without it
    for (int pair = 0; pair < pairs; ++pair) {
      found.together_s.push_back(stretch(both, calls, world_.size(), ignored));
      found.alone_s.push_back(stretch(product, calls, world_.size(), ignored));
    }
    return std::max(0.0,
                    mean_of_middle_half(found.together_s) - mean_of_middle_half(found.alone_s));
  });
}

Stretches OpTimer::stretches(int64_t rows, int64_t depth, int64_t width, int pairs) const {
  return with_product(rows, depth, width, [&](const Call& call) {
    const int64_t calls = calls_of_stretch(call);
    double ignored = 0;
    Stretches found;
    for (int pair = 0; pair < pairs; ++pair) {
      found.together_s.push_back(stretch(call, calls, world_.size(), ignored));
      found.alone_s.push_back(stretch(call, calls, 1, ignored));
    }
    return found;
  });
}

double OpTimer::attention(const AttentionShape& shape, int64_t rows, int64_t cached) const {
  const int64_t keys = cached + rows;
  const int64_t bytes = keys * shape.num_kv_heads * shape.head_dim * size_of(shape.kv_dtype);
  const RotatingBuffer layers({keys_.as<std::byte>(), static_cast<size_t>(keys_.bytes())},
                              2 * bytes);
  auto buffers = compute_.buffers(3);
  const int64_t columns = shape.num_heads * shape.head_dim;
  const DType query_type = compute_.backend.query_type(shape.kv_dtype, shape.head_dim);
  const TensorView q = numbers(buffers[0], query_type, rows, columns);
  const TensorView out = zeroed(buffers[1], rows, columns);
  std::vector<int64_t> positions(rows);
  std::iota(positions.begin(), positions.end(), cached);
  const std::vector<kernels::AttentionItem> items = {{0, rows, 0, 1}};
  const std::vector<kernels::KeyRun> runs = {{0, keys * shape.head_dim, keys, 0}};
  kernels::AttentionArgs args{.q = q.reshape({rows, shape.num_heads, shape.head_dim}),
                              .query_positions = positions,
                              .items = items,
                              .runs = runs,
                              .keys = {},
                              .kv_dtype = shape.kv_dtype,
                              .num_kv_heads = shape.num_kv_heads,
                              .scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim)),
                              .window = 0,
                              .out = out.reshape({rows, shape.num_heads, shape.head_dim}),
                              .lse = zeroed(buffers[2], rows, shape.num_heads)};
  const auto attend = [&](int64_t number) {
    args.keys.k = layers.of(number);
    args.keys.v = static_cast<const std::byte*>(args.keys.k) + bytes;
    compute_.backend.attention(args, compute_.stream);
  };
  return best_seconds({attend, rows <= most_rows_of_step});
}

double OpTimer::recurrence(int64_t rows, int64_t heads, int64_t value_dim) const {
  auto buffers = compute_.buffers(5);
  const TensorView keys = zeroed(buffers[0], rows, heads * recurrent_key_dim);
  const TensorView values = zeroed(buffers[1], rows, heads * value_dim);
  const TensorView gates = zeroed(buffers[2], rows, heads);
  const TensorView states = zeroed(buffers[3], heads * recurrent_key_dim, value_dim);
  const TensorView out = zeroed(buffers[4], rows, heads * value_dim);
  const std::vector<kernels::StateRows> items = {{0, rows, 0}};
  const TensorView k = keys.reshape({rows, heads, recurrent_key_dim});
  kernels::RecurrenceArgs args{k,
                               k,
                               values.reshape({rows, heads, value_dim}),
                               gates,
                               gates,
                               true,
                               items,
                               states.reshape({1, heads, recurrent_key_dim, value_dim}),
                               out.reshape({rows, heads, value_dim})};
  args.row_invariant = kernels::RowInvariant::yes;  // one row after the other, on GPUs, too
  const auto give = [&](int64_t) { compute_.backend.recurrence(args, compute_.stream); };
  return best_seconds({give, rows <= most_rows_of_step});
}

double OpTimer::elementwise(int64_t bytes) const {
  constexpr int64_t most_columns = 1024;
  const int64_t elements = bytes / (3 * size_of(DType::fp32));
  const int64_t columns = std::min(elements, most_columns), rows = elements / columns;
  const auto pairs = static_cast<size_t>(1 + cache_bytes_ / bytes);
  auto buffers = compute_.buffers(2 * pairs);
  std::vector<kernels::GatedActivationArgs> calls;
  for (size_t i = 0; i < pairs; ++i) {
    const TensorView gate = zeroed(buffers[2 * i], rows, columns);
    calls.push_back({gate, zeroed(buffers[2 * i + 1], rows, columns), gate});
  }
  const auto give = [&](int64_t number) {
    compute_.backend.gated_activation(calls[static_cast<size_t>(number) % pairs], compute_.stream);
  };
  return best_seconds({give, rows <= most_rows_of_step});
}

kernels::GatedActivationArgs OpTimer::smallest(device::Buffer& gate, device::Buffer& up) const {
  const TensorView numbers = zeroed(gate, 1, 64);
  return {numbers, zeroed(up, 1, 64), numbers};
}

double OpTimer::smallest_in_step() const {
  auto buffers = compute_.buffers(2);
  const auto args = smallest(buffers[0], buffers[1]);
  const auto give = [&](int64_t) { compute_.backend.gated_activation(args, compute_.stream); };
  return best_seconds({give, true});
}

double OpTimer::smallest_and_wait() const {
  auto buffers = compute_.buffers(2);
  const auto args = smallest(buffers[0], buffers[1]);
  double least_s = std::numeric_limits<double>::infinity();
  constexpr int64_t times = 100;
  const auto give = [&](int64_t) { compute_.backend.gated_activation(args, compute_.stream); };
  for (int64_t i = 0; i < times; ++i) stretch({give, true}, 1, world_.size(), least_s);
  return 1e-12 * static_cast<double>(world_.all_reduce_max(std::llround(1e12 * least_s)));
}

}  // namespace pecia::measure
