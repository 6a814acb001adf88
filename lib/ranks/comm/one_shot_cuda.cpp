// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/comm/one_shot_cuda.hpp"

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <vector>

#include "lib/base/core/error.hpp"
#include "lib/base/device/buffer.hpp"
#include "lib/base/device/cuda/cuda_check.hpp"
#include "lib/base/device/graph_stream.hpp"
#include "lib/ranks/comm/one_shot_trial.hpp"

namespace pecia::comm {
namespace {

/// Memory of every rank's GPU, as this process names it.
class SharedBlocks {
 public:
  SharedBlocks(Communicator& host, device::Device& device)
      : mine_(device, device::Memory::device), by_rank_(host.size()) {}
  SharedBlocks(const SharedBlocks&) = delete;
  SharedBlocks& operator=(const SharedBlocks&) = delete;
  ~SharedBlocks() {
    for (std::byte* const block : by_rank_)
      if (block != nullptr && block != mine_.data()) cudaIpcCloseMemHandle(block);
  }

  /// Collective. Returns why this rank cannot; "" where it can.
  std::string map(Communicator& host, int64_t bytes) {
    // Whole pages, so that nothing else of this process is mapped with them.
    constexpr int64_t page = int64_t{2} << 20;
    mine_.reserve((bytes + page - 1) / page * page);
    struct Offer {
      cudaIpcMemHandle_t handle;
      cudaError_t error;
    } offer = {};
    offer.error = cudaIpcGetMemHandle(&offer.handle, mine_.data());
    const auto all = host.all_gather(std::as_bytes(std::span(&offer, 1)));
    for (int rank = 0; rank < host.size(); ++rank) {
      Offer theirs;
      std::memcpy(&theirs, all[rank].data(), sizeof theirs);
      void* block = mine_.data();
      if (theirs.error == cudaSuccess && rank != host.rank())
        theirs.error = cudaIpcOpenMemHandle(&block, theirs.handle, cudaIpcMemLazyEnablePeerAccess);
      if (theirs.error != cudaSuccess) {
        cudaGetLastError();
        return fmt::format("the memory of rank {}'s GPU is not reached: {}", rank,
                           cudaGetErrorString(theirs.error));
      }
      by_rank_[rank] = static_cast<std::byte*>(block);
    }
    return "";
  }
  std::byte* of(int rank) const { return by_rank_[rank]; }
  std::byte* mine() const { return mine_.as<std::byte>(); }

 private:
  device::Buffer mine_;
  std::vector<std::byte*> by_rank_;
};

class CudaOneShot : public OneShot {
 public:
  CudaOneShot(Communicator& host, device::Device& device, int64_t most_bytes)
      : host_(host),
        device_(device),
        most_bytes_(most_bytes),
        blocks_(host, device),
        own_calls_(device, device::Memory::device, one_shot_blocks * sizeof(uint32_t)),
        aborted_(device, device::Memory::pinned, sizeof(uint32_t)) {
    *aborted_.as<uint32_t>() = 0;
  }
  CudaOneShot(const CudaOneShot&) = delete;
  CudaOneShot& operator=(const CudaOneShot&) = delete;
  /// No rank's memory is freed before all ranks' kernels have read it.
  ~CudaOneShot() override {
    if (std::uncaught_exceptions() > 0 || !is_mapped_) return;
    try {
      cudaDeviceSynchronize();
      host_.all_gather({});
    } catch (const Error&) {
      // A rank is lost, and the job ends.
    }
  }

  /// Collective, as SharedBlocks::map.
  std::string map() {
    const int64_t buffer_bytes = (most_bytes_ + 15) / 16 * 16;
    const std::string why_not =
        first_reason(host_, blocks_.map(host_, one_shot_bytes(buffer_bytes)));
    if (!why_not.empty()) return why_not;
    const std::unique_ptr<device::Stream> stream = device_.make_stream();
    device_.zero(blocks_.mine(), one_shot_told_bytes, *stream);
    device_.zero(own_calls_.data(), own_calls_.bytes(), *stream);
    stream->synchronize();
    params_ = {.buffers = {},
               .told = {},
               .own_calls = own_calls_.as<uint32_t>(),
               .aborted = aborted_.as<uint32_t>(),
               .buffer_bytes = buffer_bytes,
               .ranks = host_.size(),
               .rank = host_.rank(),
               .values = nullptr,
               .count = 0};
    for (int rank = 0; rank < host_.size(); ++rank) {
      params_.told[rank] = reinterpret_cast<uint32_t*>(blocks_.of(rank));
      params_.buffers[rank] = blocks_.of(rank) + one_shot_told_bytes;
    }
    host_.all_gather({});  // all numbers are zeros
    is_mapped_ = true;
    return "";
  }

  int64_t most_bytes() const override { return most_bytes_; }
  void all_reduce(const Addends& values, device::Stream& stream) override {
    PECIA_CHECK(takes(values), "{} bytes in one shot", values.bytes().size());
    OneShotParams params = params_;
    params.values = values.data();
    params.count = values.count();
    launch_one_shot(params, values.dtype(), stream);
  }

  std::string asynchronous_error() override { return ""; }
  void abort() noexcept override {
    std::atomic_ref(*aborted_.as<uint32_t>()).store(1, std::memory_order_release);
  }

 private:
  Communicator& host_;
  device::Device& device_;
  int64_t most_bytes_;
  bool is_mapped_ = false;
  SharedBlocks blocks_;
  device::Buffer own_calls_, aborted_;
  OneShotParams params_{};
};

}  // namespace

FoundOneShot map_one_shot(Communicator& host, device::Device& device, int64_t most_bytes) {
  if (host.size() > most_one_shot_ranks)
    return {nullptr, fmt::format("more than {} ranks", most_one_shot_ranks)};
  device.memory();  // makes this GPU current for this thread
  auto sums = std::make_unique<CudaOneShot>(host, device, most_bytes);
  const std::string why_not = sums->map();
  if (!why_not.empty()) return {nullptr, why_not};
  return {std::move(sums), ""};
}

FoundOneShot find_one_shot_of_cuda(Communicator& host, device::Device& device, int64_t most_bytes) {
  std::string why_not;
  // Off until a machine has shown that it is right and faster there.
  if (!device::is_switched_on(one_shot_switch, "sums through peer memory", false))
    why_not = fmt::format("{} is not 1", one_shot_switch);
  else if (most_bytes <= 0)
    why_not = "a ring takes less time";
  why_not = first_reason(host, why_not);
  if (!why_not.empty()) return {nullptr, why_not};
  return map_one_shot(host, device, most_bytes);
}

}  // namespace pecia::comm
