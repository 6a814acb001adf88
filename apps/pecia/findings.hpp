// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Doctor's judgements: one pure function per fact. A fact that will hurt has a remedy.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/ranks/cluster/gpu_host.hpp"
#include "lib/ranks/cluster/launch.hpp"
#include "lib/ranks/cluster/machine.hpp"
#include "lib/ranks/comm/place.hpp"

namespace pecia::app {

struct Finding {
  std::string topic;
  bool ok = true;
  std::string text;
  std::string remedy;  ///< empty when ok

  bool operator==(const Finding&) const = default;
};

Finding ok(std::string topic, std::string text);
Finding warning(std::string topic, std::string text, std::string remedy);
std::string gib(int64_t bytes);  ///< "80.0 GiB"

/// The ranks of one host.
struct HostRanks {
  int ranks = 1;
  int cores = 1;  ///< cores that at least one of these ranks may use
};

/// The kinds of products that a CPU can have, and why this process lacks some.
struct ProductFacts {
  struct Kind {
    std::string name;
    std::string why_not;  ///< "": the process has it
  };
  std::vector<Kind> kinds;
  bool cpu_has_amx = false;  ///< used or not
  bool is_capped = false;    ///< PECIA_MAX_ISA is set
};

/// GPUs that a rank sees.
struct GpuFacts {
  struct Gpu {
    std::string name, driver;
    int64_t memory_bytes = 0, free_bytes = 0;
    std::string uuid = {};
    bool gpu_direct = false;  ///< network devices can reach its memory through DMA-BUF
  };
  bool built = false;  ///< this build can use GPUs
  std::vector<Gpu> gpus;
  std::string problem;  ///< why a GPU cannot be used
  cluster::GpuHostFacts host = {};
  std::string toolkit = {};  ///< CUDA that the program was built with, as "13.0"; "": none
  std::vector<std::pair<int, int>> apart = {};  ///< GPUs without access to another's memory
};

/// What sums of TP in one shot, through peer memory, need.
struct OneShotFacts {
  GpuFacts gpus;
  bool asked_for = false;  ///< PECIA_CUDA_ONE_SHOT is 1
  int ranks = 1;           ///< that have tried them together
  /// Why sums between ranks of this host do not work; "": they are right. Absent: not tried.
  std::optional<std::string> why_not = {};
};

/// What NCCL will connect servers by.
struct NcclFacts {
  bool used = false;  ///< the ranks have GPUs
  size_t servers = 1;
  std::vector<std::string> interfaces, rdma;  ///< of this host
  bool peer_memory = false;  ///< RDMA devices reach the memory of its GPUs (GPUDirect)
  /// NCCL_SOCKET_IFNAME, NCCL_IB_HCA and NCCL_IB_DISABLE.
  std::optional<std::string> socket_names = {}, adapters = {}, ib_disabled = {};
};

/// The places of the ranks, or the reason why a run is not possible there.
struct PlacesFacts {
  std::vector<comm::RackServerGpu> by_rank;
  std::string problem;
};

/// Judges which kinds of products there are. It warns where a CPU has AMX and runs do not use it.
Finding judge_product_kinds(const ProductFacts& facts);
Finding judge_gpus(const GpuFacts& facts, const HostRanks& host);
/// Judges the driver against the toolkit of the build.
Finding judge_driver(const GpuFacts& facts);
/// Judges instances of GPUs (MIG). `uuids_by_rank` has the GPUs that each rank of the host sees, and
/// `visible` is CUDA_VISIBLE_DEVICES.
Finding judge_instances(const std::vector<std::vector<std::string>>& uuids_by_rank,
                        const std::optional<std::string>& visible);
/// `disabled` is NCCL_P2P_DISABLE.
Finding judge_peers(const GpuFacts& facts, const std::optional<std::string>& disabled);
/// Judges whether sums through peer memory can be had here.
Finding judge_one_shot(const OneShotFacts& facts);
Finding judge_nccl_network(const NcclFacts& facts);
Finding judge_binding(const cluster::CpuFacts& cpu, const HostRanks& host);
Finding judge_thread_level(const std::string& provided);
Finding judge_launch(const cluster::LaunchFacts& launch, int world_size);
Finding judge_places(const PlacesFacts& facts);
/// `transports` is the result of comm::loaded_transports.
Finding judge_transports(const std::vector<std::string>& transports,
                         const std::vector<std::string>& rdma, size_t ranks, size_t servers);
/// `wanted` is OMP_NUM_THREADS.
Finding judge_threads(const std::optional<std::string>& wanted, const HostRanks& host);
Finding judge_numa(const cluster::CpuFacts& cpu, const HostRanks& host);
Finding judge_slurm(const cluster::LaunchFacts& launch, double now_unix_s);
Finding judge_locked_memory(const cluster::LimitFacts& limits);
Finding judge_open_files(const cluster::LimitFacts& limits);
Finding judge_processes(const cluster::LimitFacts& limits);
/// Judges the limits of file sizes and of the address space.
Finding judge_sizes(const cluster::LimitFacts& limits);
Finding judge_shared_memory(const cluster::FileSystemFacts& shm, const HostRanks& host);
Finding judge_memory(const cluster::MemoryFacts& memory);
Finding judge_huge_pages(const cluster::MemoryFacts& memory);
Finding judge_output(const cluster::FileSystemFacts& output);
Finding judge_writing(const cluster::WriteFacts& facts, const cluster::FileSystemFacts& output);
/// `locking` is HDF5_USE_FILE_LOCKING as the user has set it.
Finding judge_hdf5_locking(const std::optional<std::string>& locking,
                           const cluster::FileSystemFacts& output);

}  // namespace pecia::app
