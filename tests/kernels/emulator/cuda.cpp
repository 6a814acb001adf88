// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/emulator/cuda.hpp"

#include <exception>
#include <memory>
#include <vector>

#include "lib/base/core/error.hpp"
#include "tests/kernels/emulator/wgmma.hpp"

/// Leaves this stack, saving where it is, and goes on with another, in a tenth of the time of
/// swapcontext, which asks the kernel each time. What a call must preserve on x86-64 is on the
/// stacks.
extern "C" void pecia_emulator_switch(void** save_stack, void* other_stack);
asm(R"(
.text
.globl pecia_emulator_switch
.type pecia_emulator_switch, @function
pecia_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

namespace pecia::test::emulator {

Index thread_index, block_index, block_size, grid_size;

namespace {

constexpr size_t stack_bytes = 64 << 10;
constexpr size_t warp_memory_bytes = 4 << 10;
constexpr int warp_lanes = 32;

enum class State { runs, waits_for_warp, waits_for_block, ended };

struct Copy {
  void* to;
  const void* from;  ///< null: zeros
  size_t bytes;
};

struct Thread {
  std::unique_ptr<char[]> stack = std::make_unique<char[]>(stack_bytes);
  void* top;  ///< of the stack, while the thread does not run
  State state;
  std::vector<std::vector<Copy>> copies;                 ///< groups; the last is open
  std::vector<std::vector<std::function<void()>>> work;  ///< the same
};

struct alignas(128) WarpMemory {
  char bytes[warp_memory_bytes];
};

/// The block that runs; its threads' stacks are used again by the next.
struct Block {
  std::vector<Thread> threads;
  std::vector<WarpMemory> warps;
  std::vector<WarpMemory> shared;  ///< in pieces that are aligned
  const std::function<void()>* kernel = nullptr;
  std::exception_ptr error;
  void* host;  ///< stack of the program that runs the block
  int current = 0;

  void run(int num_threads, int64_t shared_bytes, const std::function<void()>& body);
  void wait(State state);
  void enter();

 private:
  void release();
  bool all_wait(size_t begin, size_t end, State state) const;
};

Block block;

void enter_thread() {
  block.enter();
}

/// A stack whose first switch enters enter_thread: six registers, then the address to return to,
/// which lies at a multiple of 16 as after a call.
void* new_stack(char* memory) {
  const auto end = reinterpret_cast<uintptr_t>(memory + stack_bytes) / 16 * 16;
  auto* const return_address = reinterpret_cast<void**>(end) - 2;
  *return_address = reinterpret_cast<void*>(&enter_thread);
  return return_address - 6;
}

void Block::enter() {
  try {
    (*kernel)();
  } catch (...) {
    if (!error) error = std::current_exception();
  }
  threads[current].state = State::ended;
  pecia_emulator_switch(&threads[current].top, host);
}

void Block::run(int num_threads, int64_t shared_bytes, const std::function<void()>& body) {
  PECIA_CHECK(num_threads > 0 && num_threads % warp_lanes == 0 && num_threads <= 1024,
              "a block of {} threads", num_threads);
  kernel = &body;
  error = nullptr;
  threads.resize(num_threads);
  warps.resize(num_threads / warp_lanes);
  shared.assign((shared_bytes + warp_memory_bytes - 1) / warp_memory_bytes + 1, {});
  std::memset(static_cast<void*>(shared.data()), 0xff, shared.size() * sizeof(WarpMemory));
  for (Thread& thread : threads) {
    thread.top = new_stack(thread.stack.get());
    thread.state = State::runs;
    thread.copies.assign(1, {});
    thread.work.assign(1, {});
  }
  for (;;) {
    bool ran = false;
    for (current = 0; current < num_threads; ++current) {
      if (threads[current].state != State::runs) continue;
      thread_index.x = current;
      ran = true;
      pecia_emulator_switch(&host, threads[current].top);
      if (error) std::rethrow_exception(error);
    }
    if (!ran) return;
    release();
  }
}

bool Block::all_wait(size_t begin, size_t end, State state) const {
  for (size_t i = begin; i < end; ++i)
    if (threads[i].state != state) return false;
  return true;
}

void Block::release() {
  const auto let_run = [this](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) threads[i].state = State::runs;
  };
  bool released = all_wait(0, threads.size(), State::ended);
  if (all_wait(0, threads.size(), State::waits_for_block)) {
    let_run(0, threads.size());
    released = true;
  }
  for (size_t begin = 0; begin < threads.size(); begin += warp_lanes)
    if (all_wait(begin, begin + warp_lanes, State::waits_for_warp)) {
      let_run(begin, begin + warp_lanes);
      released = true;
    }
  if (!released)
    fail<InvalidArgument>("block ({}, {}): threads wait at a barrier that others never reach",
                          block_index.x, block_index.y);
}

void Block::wait(State state) {
  threads[current].state = state;
  pecia_emulator_switch(&threads[current].top, host);
}

}  // namespace

void run(const kernels::cuda::Grid& grid, const std::function<void()>& kernel) {
  PECIA_CHECK(grid.x <= kernels::cuda::max_grid_x && grid.y <= kernels::cuda::max_grid_y,
              "a grid of {} × {} blocks", grid.x, grid.y);
  grid_size = {static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y)};
  block_size = {static_cast<unsigned>(grid.threads), 1};
  for (block_index.y = 0; block_index.y < grid.y; ++block_index.y)
    for (block_index.x = 0; block_index.x < grid.x; ++block_index.x)
      block.run(grid.threads, grid.shared_bytes, kernel);
}

unsigned char* dynamic_shared_memory() {
  return reinterpret_cast<unsigned char*>(block.shared.data());
}
constexpr uintptr_t shared_window = uintptr_t{1} << 18;  // what descriptors can name
uint32_t shared_address_of(const void* data) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(data) % shared_window);
}
const void* shared_memory_at(uint32_t address, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(dynamic_shared_memory());
  const uintptr_t offset = (address - begin) % shared_window;
  if (offset + bytes > block.shared.size() * sizeof(WarpMemory))
    fail<InvalidArgument>("an address {:x} outside of the block's shared memory", address);
  return dynamic_shared_memory() + offset;
}
void block_barrier() {
  block.wait(State::waits_for_block);
}
void warp_barrier() {
  block.wait(State::waits_for_warp);
}
void* warp_memory() {
  return block.warps[block.current / warp_lanes].bytes;
}
int lane() {
  return block.current % warp_lanes;
}

void copy_later(void* to, const void* from, size_t bytes) {
  block.threads[block.current].copies.back().push_back({to, from, bytes});
}
void end_copy_group() {
  block.threads[block.current].copies.emplace_back();
}
void finish_copies(int groups_left) {
  auto& groups = block.threads[block.current].copies;
  while (static_cast<int>(groups.size()) - 1 > groups_left) {
    for (const Copy& copy : groups.front()) {
      if (copy.from == nullptr)
        std::memset(copy.to, 0, copy.bytes);
      else
        std::memcpy(copy.to, copy.from, copy.bytes);
    }
    groups.erase(groups.begin());
  }
}

void work_later(std::function<void()> work) {
  block.threads[block.current].work.back().push_back(std::move(work));
}
void end_work_group() {
  block.threads[block.current].work.emplace_back();
}
void finish_work(int groups_left) {
  auto& groups = block.threads[block.current].work;
  while (static_cast<int>(groups.size()) - 1 > groups_left) {
    for (const auto& work : groups.front()) work();
    groups.erase(groups.begin());
  }
}

}  // namespace pecia::test::emulator
