// SPDX-License-Identifier: Apache-2.0
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <future>
#include <system_error>
#include <thread>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/base/device/buffer.hpp"
#include "lib/base/device/cuda/cuda_stream.hpp"
#include "lib/ranks/comm/nccl.hpp"
#include "lib/ranks/comm/one_shot_cuda.hpp"

namespace pecia::comm {
namespace {

using device::native;

[[noreturn]] void throw_nccl_error(ncclResult_t result, const char* call, ncclComm_t comm) {
  const char* const last = ncclGetLastError(comm);
  fail<SystemError>("{} failed: {}{}{}; NCCL_DEBUG=INFO in the environment tells more", call,
                    ncclGetErrorString(result), last != nullptr && *last != '\0' ? ": " : "",
                    last != nullptr ? last : "");
}

void check_nccl(ncclResult_t result, const char* call, ncclComm_t comm = nullptr) {
  if (result != ncclSuccess) throw_nccl_error(result, call, comm);
}

ncclDataType_t type_of(const Addends& values) {
  return values.dtype() == DType::bf16 ? ncclBfloat16 : ncclFloat;
}

/// Of blocking communicators: with others each group of calls makes a thread to enqueue its work,
/// which takes longer than most transfers of a decode step.
ncclConfig_t blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  return config;
}

class NcclGroup : public Nccl {
 public:
  /// `registers`: memory of transfers is registered, on all ranks of the group.
  explicit NcclGroup(ncclComm_t comm, bool registers = false) : comm_(comm), registers_(registers) {
    check_nccl(ncclCommUserRank(comm_, &rank_), "ncclCommUserRank", comm_);
    check_nccl(ncclCommCount(comm_, &size_), "ncclCommCount", comm_);
  }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;
  ~NcclGroup() override { end(); }

  void start_group() override { check_nccl(ncclGroupStart(), "ncclGroupStart"); }
  void end_group() override { check_nccl(ncclGroupEnd(), "ncclGroupEnd", comm_); }

  void send(std::span<const std::byte> bytes, int to, device::Stream& stream) override {
    check_nccl(ncclSend(bytes.data(), bytes.size(), ncclInt8, to, comm_, native(stream)),
               "ncclSend", comm_);
  }
  void receive(std::span<std::byte> bytes, int from, device::Stream& stream) override {
    check_nccl(ncclRecv(bytes.data(), bytes.size(), ncclInt8, from, comm_, native(stream)),
               "ncclRecv", comm_);
  }
  void broadcast(std::span<std::byte> bytes, int root, device::Stream& stream) override {
    check_nccl(ncclBroadcast(bytes.data(), bytes.data(), bytes.size(), ncclInt8, root, comm_,
                             native(stream)),
               "ncclBroadcast", comm_);
  }
  void reduce(const Addends& values, const Addends& sum, int root,
              device::Stream& stream) override {
    check_nccl(ncclReduce(values.data(), sum.data(), static_cast<size_t>(values.count()),
                          type_of(values), ncclSum, root, comm_, native(stream)),
               "ncclReduce", comm_);
  }
  void all_reduce(const Addends& values, device::Stream& stream) override {
    check_nccl(ncclAllReduce(values.data(), values.data(), static_cast<size_t>(values.count()),
                             type_of(values), ncclSum, comm_, native(stream)),
               "ncclAllReduce", comm_);
  }

  void all_gather(std::span<std::byte> all, device::Stream& stream) override {
    const size_t own = all.size() / static_cast<size_t>(size_);
    check_nccl(ncclAllGather(all.data() + own * static_cast<size_t>(rank_), all.data(), own,
                             ncclInt8, comm_, native(stream)),
               "ncclAllGather", comm_);
  }
  void reduce_scatter(const Addends& values, const Addends& mine, device::Stream& stream) override {
    check_nccl(ncclReduceScatter(values.data(), mine.data(), static_cast<size_t>(mine.count()),
                                 type_of(values), ncclSum, comm_, native(stream)),
               "ncclReduceScatter", comm_);
  }

  bool registers() const override { return registers_; }
  std::unique_ptr<Registration> register_block(std::span<std::byte> block) override {
    void* handle = nullptr;
    check_nccl(ncclCommRegister(comm_, block.data(), block.size(), &handle), "ncclCommRegister",
               comm_);
    return std::make_unique<OfBlock>(*this, handle);
  }
  /// Collective over `host`, which has the group's ranks: tries to register a block on each rank.
  /// If NCCL takes them all, memory is registered from now on. NCCL takes none when
  /// NCCL_LOCAL_REGISTER=0 is in the environment.
  void try_to_register(Communicator& host, device::Device& device) {
    const device::Buffer block(device, device::Memory::device, int64_t{2} << 20);
    void* handle = nullptr;
    const ncclResult_t result =
        ncclCommRegister(comm_, block.data(), static_cast<size_t>(block.bytes()), &handle);
    const bool taken = result == ncclSuccess && handle != nullptr;
    if (taken) check_nccl(ncclCommDeregister(comm_, handle), "ncclCommDeregister", comm_);
    registers_ = host.all_reduce_max(taken ? 0 : 1) == 0;
  }
  std::string name() const override {
    return fmt::format("NCCL {}, memory of transfers {}registered", nccl_version(),
                       registers_ ? "" : "not ");
  }

  std::unique_ptr<Nccl> split(int color, int key) override {
    ncclConfig_t config = blocking();
    ncclComm_t part = nullptr;
    check_nccl(ncclCommSplit(comm_, color, key, &part, &config), "ncclCommSplit", comm_);
    return std::make_unique<NcclGroup>(part, registers_);
  }

  FoundOneShot find_one_shot(Communicator& host, device::Device& device,
                             int64_t most_bytes) override {
    return find_one_shot_of_cuda(host, device, most_bytes);
  }

  std::string asynchronous_error() override {
    const ncclComm_t comm = comm_;
    if (comm == nullptr) return "";
    ncclResult_t state = ncclSuccess;
    check_nccl(ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError", comm);
    if (state == ncclSuccess || state == ncclInProgress) return "";
    return ncclGetErrorString(state);
  }

  void abort() noexcept override {
    if (const ncclComm_t comm = comm_.exchange(nullptr); comm != nullptr) ncclCommAbort(comm);
  }

 private:
  /// ncclCommDestroy takes some milliseconds, and waits for the other ranks. ncclCommAbort waits for
  /// nobody, but takes a second (2.30.7, on an H100). So a rank that ends by an error aborts, and so
  /// does one whose ncclCommDestroy does not return, since another rank did not come. Nothing is
  /// under way any more, so both are safe.
  void end() noexcept {
    const ncclComm_t comm = comm_.exchange(nullptr);
    if (comm == nullptr) return;
    if (std::uncaught_exceptions() > 0 || !destroyed_in_time(comm)) ncclCommAbort(comm);
  }
  static bool destroyed_in_time(ncclComm_t comm) noexcept {
    constexpr std::chrono::seconds most(5);
    try {
      std::promise<void> destroyed;
      const std::future<void> at_last = destroyed.get_future();
      std::thread([comm, destroyed = std::move(destroyed)]() mutable {
        ncclCommFinalize(comm);
        ncclCommDestroy(comm);
        destroyed.set_value();
      }).detach();
      return at_last.wait_for(most) == std::future_status::ready;
    } catch (const std::system_error&) {  // no thread
      return false;
    }
  }

  class OfBlock : public Registration {
   public:
    OfBlock(NcclGroup& group, void* handle) : group_(group), handle_(handle) {}
    OfBlock(const OfBlock&) = delete;
    OfBlock& operator=(const OfBlock&) = delete;
    /// An aborted group has no registrations any more.
    ~OfBlock() override {
      if (const ncclComm_t comm = group_.comm_; comm != nullptr) ncclCommDeregister(comm, handle_);
    }

   private:
    NcclGroup& group_;
    void* handle_;
  };

  std::atomic<ncclComm_t> comm_;  ///< null once it is aborted, which another thread may do
  bool registers_;
  int rank_ = 0, size_ = 0;
};

void require_same_version(Communicator& host) {
  int mine = 0;
  check_nccl(ncclGetVersion(&mine), "ncclGetVersion");
  const int64_t most = host.all_reduce_max(mine), least = -host.all_reduce_max(-int64_t{mine});
  if (most != least)
    fail<SystemError>(
        "the ranks have different versions of NCCL, {} to {} (this one: {}): load the same module "
        "on all hosts",
        least, most, mine);
}

}  // namespace

std::string nccl_version() {
  int code = 0;
  check_nccl(ncclGetVersion(&code), "ncclGetVersion");
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

std::unique_ptr<Nccl> make_nccl(Communicator& host, device::Device& device, CallWatch::Late late) {
  constexpr int root = 0;
  require_same_version(host);
  device.memory();  // makes this GPU current for this thread
  ncclUniqueId id;
  if (host.rank() == root) check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
  std::vector<std::byte> bytes(sizeof id);
  if (host.rank() == root) std::memcpy(bytes.data(), &id, sizeof id);
  host.broadcast(bytes, root);
  std::memcpy(&id, bytes.data(), sizeof id);
  ncclConfig_t config = blocking();
  ncclComm_t comm = nullptr;
  {
    const std::string peers = "all ranks";
    CallWatch watch(host.wait_timeout(), std::move(late));
    const CallWatch::Call call = watch.begin("making a communicator of NCCL", 1, peers);
    check_nccl(ncclCommInitRankConfig(&comm, host.size(), id, host.rank(), &config),
               "ncclCommInitRankConfig", comm);
  }
  auto group = std::make_unique<NcclGroup>(comm);
  group->try_to_register(host, device);
  return group;
}

}  // namespace pecia::comm
