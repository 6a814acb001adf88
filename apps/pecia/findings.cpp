// SPDX-License-Identifier: Apache-2.0
#include "apps/pecia/findings.hpp"

#include <fmt/format.h>

#include "lib/base/core/error.hpp"

namespace pecia::app {
namespace {

constexpr int64_t mib = int64_t{1} << 20;
constexpr int64_t enough_locked_bytes = 64 * mib;
constexpr int64_t enough_open_files = 1024;
constexpr int64_t shared_memory_per_rank_bytes = 8 * mib;  // Open MPI's vader: 4 MiB and its queues
constexpr int64_t enough_output_bytes = 1024 * mib;
constexpr int64_t enough_files = 1000;
constexpr int64_t enough_processes = 4096;

}  // namespace

std::string gib(int64_t bytes) {
  return fmt::format("{:.1f} GiB",
                     static_cast<double>(bytes) / (1024.0 * static_cast<double>(mib)));
}

Finding ok(std::string topic, std::string text) {
  return {std::move(topic), true, std::move(text), ""};
}

Finding warning(std::string topic, std::string text, std::string remedy) {
  return {std::move(topic), false, std::move(text), std::move(remedy)};
}

Finding judge_product_kinds(const ProductFacts& facts) {
  std::string text;
  bool misses_amx = false;
  for (const ProductFacts::Kind& kind : facts.kinds) {
    if (!text.empty()) text += "; ";
    text += kind.why_not.empty() ? kind.name : fmt::format("no {}: {}", kind.name, kind.why_not);
    misses_amx |= kind.name == "amx" && !kind.why_not.empty();
  }
  if (misses_amx && facts.cpu_has_amx && !facts.is_capped)
    return warning(
        "product kinds", text,
        "let processes ask for tiles (Linux 5.16 or newer, arch_prctl in containers), or "
        "report the wrong product; until then runs multiply by vectors");
  return ok("product kinds", text);
}

Finding judge_binding(const cluster::CpuFacts& cpu, const HostRanks& host) {
  const std::string text =
      fmt::format("{} of {} cores bound; on this host ranks: {}, cores they use: {}",
                  cpu.cores.size(), cpu.cores_of_machine, host.ranks, host.cores);
  if (host.cores < host.ranks)
    return warning("binding", text,
                   "ranks share cores: start fewer ranks per host, or with mpirun --bind-to none "
                   "where they are bound to the same core; if it must be, set "
                   "OMPI_MCA_mpi_yield_when_idle=1");
  if (host.cores < cpu.cores_of_machine)
    return warning("binding", text,
                   "cores stay idle: mpirun --bind-to none (or numa), srun --cpus-per-task=N");
  return ok("binding", text);
}

Finding judge_thread_level(const std::string& provided) {
  if (provided == "single")
    return warning("mpi threads", "single", "use an MPI built with thread support");
  return ok("mpi threads", provided);
}

Finding judge_launch(const cluster::LaunchFacts& launch, int world_size) {
  try {
    refuse_copies(launch, world_size);
  } catch (const InputError& error) {
    return warning("launch", fmt::format("rank 0 of {}", world_size), error.what());
  }
  return ok("launch", fmt::format("ranks: {}", world_size));
}

Finding judge_locked_memory(const cluster::LimitFacts& limits) {
  if (!limits.locked_memory_bytes) return ok("locked memory", "unlimited");
  const std::string text = fmt::format("at most {} KiB", *limits.locked_memory_bytes / 1024);
  if (!limits.rdma_devices) return ok("locked memory", text + ", and no RDMA network needs it");
  if (*limits.locked_memory_bytes >= enough_locked_bytes) return ok("locked memory", text);
  return warning("locked memory", text,
                 "the RDMA network needs it: ulimit -l unlimited, in Slurm "
                 "PropagateResourceLimitsExcept=MEMLOCK");
}

Finding judge_open_files(const cluster::LimitFacts& limits) {
  if (!limits.open_files) return ok("open files", "unlimited");
  const std::string text = fmt::format("at most {}", *limits.open_files);
  if (*limits.open_files >= enough_open_files) return ok("open files", text);
  return warning("open files", text, fmt::format("ulimit -n {}", enough_open_files));
}

Finding judge_processes(const cluster::LimitFacts& limits) {
  if (!limits.processes) return ok("processes", "unlimited");
  const std::string text =
      fmt::format("at most {} processes and threads of a user", *limits.processes);
  if (*limits.processes >= enough_processes) return ok("processes", text);
  return warning("processes", text, fmt::format("ulimit -u {}", enough_processes));
}

Finding judge_sizes(const cluster::LimitFacts& limits) {
  std::vector<std::string> limited, remedies;
  if (limits.file_bytes) {
    limited.push_back("files: " + gib(*limits.file_bytes));
    remedies.emplace_back("results.h5 is made at its full size at once: ulimit -f unlimited");
  }
  if (limits.address_space_bytes) {
    limited.push_back("address space: " + gib(*limits.address_space_bytes));
    remedies.emplace_back("weights are mapped as a whole: ulimit -v unlimited");
  }
  if (limited.empty()) return ok("sizes", "files and address space unlimited");
  return warning("sizes", fmt::format("at most {}", fmt::join(limited, ", ")),
                 fmt::format("{}", fmt::join(remedies, "; ")));
}

Finding judge_shared_memory(const cluster::FileSystemFacts& shm, const HostRanks& host) {
  const int64_t needed = host.ranks * shared_memory_per_rank_bytes;
  const std::string text = fmt::format("{} of {} MiB free in {}", shm.free_bytes / mib,
                                       shm.total_bytes / mib, shm.path.string());
  if (shm.writable && shm.free_bytes >= needed) return ok("shared memory", text);
  return warning("shared memory", text,
                 fmt::format("{} ranks need {} MiB: in a container --shm-size=1g, else "
                             "OMPI_MCA_btl_vader_backing_directory=/tmp",
                             host.ranks, needed / mib));
}

Finding judge_memory(const cluster::MemoryFacts& memory) {
  const std::string text =
      fmt::format("{} of {} available", gib(memory.available_bytes), gib(memory.total_bytes));
  if (memory.available_bytes >= enough_output_bytes) return ok("memory", text);
  return warning("memory", text, "ask for more (sbatch --mem) or end what holds it");
}

Finding judge_huge_pages(const cluster::MemoryFacts& memory) {
  const std::string text =
      fmt::format("transparent: {}; reserved: {} of {} KiB",
                  memory.transparent_huge_pages.empty() ? "unknown" : memory.transparent_huge_pages,
                  memory.huge_pages, memory.huge_page_bytes / 1024);
  if (memory.transparent_huge_pages != "never") return ok("huge pages", text);
  return warning("huge pages", text,
                 "an administrator can allow them: echo madvise > "
                 "/sys/kernel/mm/transparent_hugepage/enabled");
}

Finding judge_output(const cluster::FileSystemFacts& output) {
  const std::string text =
      fmt::format("{} is {}, {} free", output.path.string(), output.type, gib(output.free_bytes));
  if (!output.writable)
    return warning("output", text + ", not writable", "choose a folder that you may write to");
  if (output.free_bytes < enough_output_bytes)
    return warning("output", text, "choose a folder with more room");
  if (output.free_files.value_or(enough_files) < enough_files)
    return warning("output", fmt::format("{}, {} more files", text, *output.free_files),
                   "the file system is out of inodes: remove files, or choose another folder");
  if (output.type == "tmpfs" || output.type == "ramfs")
    return warning("output", text, "it is memory of one host: choose a folder on a disk");
  return ok("output", text);
}

Finding judge_writing(const cluster::WriteFacts& facts, const cluster::FileSystemFacts& output) {
  const std::string where = output.path.string();
  if (!facts.problem.empty())
    return warning("writing", fmt::format("a file in {}: {}", where, facts.problem),
                   "choose a folder that you may write to and that has room (quota -s)");
  if (!facts.no_locks.empty())
    return warning(
        "writing", fmt::format("files in {} cannot be locked: {}", where, facts.no_locks),
        "two runs are kept apart by the lock file alone: after a run on another host was "
        "killed, remove .lock in its folder; on Lustre mount with -o flock");
  if (!facts.sparse)
    return warning("writing", fmt::format("a file without data takes room in {}", where),
                   "results.h5 takes its full size from the start, pecia run says how much: choose "
                   "a file system with sparse files where that is too much");
  return ok("writing", "locks work, files are sparse");
}

Finding judge_hdf5_locking(const std::optional<std::string>& locking,
                           const cluster::FileSystemFacts& output) {
  if (!locking) return ok("hdf5 locking", "HDF5_USE_FILE_LOCKING unset");
  const std::string text = "HDF5_USE_FILE_LOCKING=" + *locking;
  if (*locking == "FALSE" || *locking == "0" || !output.network) return ok("hdf5 locking", text);
  return warning("hdf5 locking", text,
                 fmt::format("locks may fail on {}: unset HDF5_USE_FILE_LOCKING or make it FALSE",
                             output.type));
}

}  // namespace pecia::app
