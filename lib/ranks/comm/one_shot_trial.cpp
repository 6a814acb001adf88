// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/comm/one_shot_trial.hpp"

#include <thread>
#include <vector>

#include "lib/base/core/error.hpp"
#include "lib/base/device/buffer.hpp"
#include "lib/base/device/event.hpp"

namespace pecia::comm {
namespace {

constexpr int64_t num_values = 5000;
constexpr int num_sums = 5;  // each of the two buffers more than once

/// Small whole numbers, whose sums are exact.
float value_of(int rank, int64_t index, int sum) {
  return static_cast<float>((rank + 1) * (index % 97 + sum));
}

bool is_reached(const device::Event& mark, std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!mark.done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/// Of this rank. Other ranks are waited for by `sums` alone, so a wrong number does not end the sums.
std::string add_and_compare(OneShot& sums, const Communicator& host, device::Device& device,
                            std::chrono::milliseconds patience) {
  const std::unique_ptr<device::Stream> stream = device.make_stream();
  const std::unique_ptr<device::Event> mark = device.make_event();
  device::Buffer buffer(device, device::Memory::device);
  const TensorView values = buffer.tensor(DType::fp32, {num_values});
  std::vector<float> mine(num_values);
  std::string first_wrong;
  for (int sum = 0; sum < num_sums; ++sum) {
    for (int64_t i = 0; i < num_values; ++i) mine[i] = value_of(host.rank(), i, sum);
    device.copy(values.data(), mine.data(), num_values * size_of(DType::fp32), *stream);
    sums.all_reduce(values, *stream);
    mark->record(*stream);
    if (!is_reached(*mark, patience)) {
      sums.abort();
      stream->synchronize();
      return fmt::format("other ranks did not come within {} s",
                         std::chrono::duration<double>(patience).count());
    }
    device.copy(mine.data(), values.data(), num_values * size_of(DType::fp32), *stream);
    stream->synchronize();
    for (int64_t i = 0; i < num_values; ++i) {
      float expected = 0;
      for (int rank = 0; rank < host.size(); ++rank) expected += value_of(rank, i, sum);
      if (!(mine[i] == expected) && first_wrong.empty())
        first_wrong =
            fmt::format("number {} of sum {} is {} in place of {}", i, sum, mine[i], expected);
    }
  }
  return first_wrong;
}

}  // namespace

std::string first_reason(Communicator& host, const std::string& mine) {
  const auto* const begin = reinterpret_cast<const std::byte*>(mine.data());
  const auto all = host.all_gather(std::span(begin, mine.size()));
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (!all[rank].empty())
      return fmt::format(
          "rank {}: {}", rank,
          std::string_view(reinterpret_cast<const char*>(all[rank].data()), all[rank].size()));
  return "";
}

std::string try_one_shot(OneShot& sums, Communicator& host, device::Device& device,
                         std::chrono::milliseconds patience) {
  std::string mine;
  try {
    mine = add_and_compare(sums, host, device, patience);
  } catch (const Error& error) {
    mine = error.what();
  }
  return first_reason(host, mine);
}

std::string try_one_shot(Communicator& host, device::Device& device) {
  const FoundOneShot found = map_one_shot(host, device, num_values * size_of(DType::fp32));
  if (found.sums == nullptr) return found.why_not;
  return try_one_shot(*found.sums, host, device, std::chrono::seconds(10));
}

}  // namespace pecia::comm
