// SPDX-License-Identifier: Apache-2.0
/// The kernel of sums in one shot, emulated: a process for each rank, with memory that all of them see
/// in place of the GPUs'.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

// The emulator comes before what it emulates.
#include "tests/kernels/emulator/all_devices.hpp"
//
#include "lib/base/core/random.hpp"
#include "lib/ranks/comm/one_shot_kernel.cuh"

namespace pecia::comm {
namespace {

using kernels::cuda::Bf16;
namespace emulator = test::emulator;

/// The number of the call before the first: numbers of calls go round in these tests.
constexpr uint32_t first_call = 0xfffffffe;

/// What ranks share, of which each has a block.
class SharedMemory {
 public:
  SharedMemory(int ranks, int64_t buffer_bytes)
      : ranks_(ranks), buffer_bytes_(buffer_bytes), bytes_(ranks * one_shot_bytes(buffer_bytes)) {
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    PECIA_CHECK(memory_ != MAP_FAILED, "{} bytes to share", bytes_);
    for (int rank = 0; rank < ranks; ++rank) {
      uint32_t* const told = params_of(rank, nullptr, nullptr).told[rank];
      std::fill_n(told, one_shot_told_bytes / sizeof(uint32_t), first_call);
    }
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() { munmap(memory_, bytes_); }

  OneShotParams params_of(int rank, uint32_t* own_calls, const uint32_t* aborted) const {
    OneShotParams params = {};
    for (int other = 0; other < ranks_; ++other) {
      auto* const block = static_cast<std::byte*>(memory_) + other * one_shot_bytes(buffer_bytes_);
      params.told[other] = reinterpret_cast<uint32_t*>(block);
      params.buffers[other] = block + one_shot_told_bytes;
    }
    params.own_calls = own_calls;
    params.aborted = aborted;
    params.buffer_bytes = buffer_bytes_;
    params.ranks = ranks_;
    params.rank = rank;
    return params;
  }

 private:
  int ranks_;
  int64_t buffer_bytes_;
  size_t bytes_;
  void* memory_;
};

template <typename T>
void sum_in_one_shot(const OneShotParams& params) {
  emulator::run({.x = one_shot_blocks, .threads = one_shot_threads},
                [&] { one_shot_kernel<T>(params); });
}

/// Each rank in a process of its own, which ends well if `body` returns true.
void expect_of_each_rank(int ranks, const std::function<bool(int rank)>& body) {
  std::vector<pid_t> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t process = fork();
    ASSERT_GE(process, 0);
    if (process == 0) {
      bool well = false;
      try {
        well = body(rank);
      } catch (const std::exception& error) {
        fmt::print(stderr, "rank {}: {}\n", rank, error.what());
      }
      _exit(well ? 0 : 1);
    }
    processes.push_back(process);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    int status = -1;
    waitpid(processes[rank], &status, 0);
    EXPECT_EQ(status, 0) << "rank " << rank;
  }
}

float value_of(int rank, int call, int64_t i) {
  return static_cast<float>(uniform(mix(mix(7, uint64_t(rank)), uint64_t(call)), i)) * 8 - 4;
}

/// A sum of these ranks, of `count` numbers that begin `skew` numbers after a chunk.
struct Sum {
  int64_t count;
  int skew;
};
constexpr Sum sums[] = {{1, 0}, {1, 1}, {8, 0}, {9, 3}, {4096, 0}, {4096, 1}, {3, 0}, {70001, 0}};

/// Whether all sums of a rank are those in the order of ranks, bit by bit, with a delay before each
/// call and no number written behind them.
template <typename T>
bool are_sums_in_order(const SharedMemory& shared, int ranks, int rank) {
  std::vector<uint32_t> own_calls(one_shot_blocks, first_call);
  const uint32_t aborted = 0;
  OneShotParams params = shared.params_of(rank, own_calls.data(), &aborted);
  int call = 0;
  for (int time = 0; time < 3; ++time)
    for (const auto& [count, skew] : sums) {
      ++call;
      std::vector<T> values(skew + count + 1, kernels::cuda::rounded_to<T>(99.0f));
      std::vector<T> expected = values;
      for (int64_t i = 0; i < count; ++i) {
        float sum = 0;
        for (int other = 0; other < ranks; ++other)
          sum += kernels::cuda::widen(kernels::cuda::rounded_to<T>(value_of(other, call, i)));
        expected[skew + i] = kernels::cuda::rounded_to<T>(sum);
        values[skew + i] = kernels::cuda::rounded_to<T>(value_of(rank, call, i));
      }
      params.values = values.data() + skew;
      params.count = count;
      usleep(static_cast<useconds_t>(3000 * uniform(mix(11, uint64_t(rank)), call)));
      sum_in_one_shot<T>(params);
      if (std::memcmp(values.data(), expected.data(), values.size() * sizeof(T)) != 0) {
        fmt::print(stderr, "rank {}, call {}: {} numbers are wrong\n", rank, call, count);
        return false;
      }
    }
  return true;
}

TEST(OneShot, AddsInTheOrderOfRanks) {
  for (const int ranks : {2, 3, 4, 8}) {
    const SharedMemory shared(ranks, 70016 * sizeof(float));
    expect_of_each_rank(ranks, [&](int rank) {
      return ranks % 2 == 0 ? are_sums_in_order<Bf16>(shared, ranks, rank)
                            : are_sums_in_order<float>(shared, ranks, rank);
    });
  }
}

/// One rank alone, which would wait without an end.
TEST(OneShot, EndsWhereALostRankDoesNotCome) {
  const SharedMemory shared(2, 64);
  std::vector<uint32_t> own_calls(one_shot_blocks, first_call);
  uint32_t aborted = 0;
  OneShotParams params = shared.params_of(1, own_calls.data(), &aborted);
  float value = 5;
  params.values = &value;
  params.count = 1;
  std::thread watch([&aborted] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::atomic_ref(aborted).store(1);
  });
  sum_in_one_shot<float>(params);
  watch.join();
  EXPECT_EQ(own_calls[0], first_call + 1);
}

}  // namespace
}  // namespace pecia::comm
