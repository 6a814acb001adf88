// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a host says about its GPUs and their network without CUDA: nvidia-smi, the kernel's modules
/// and its network interfaces. These are facts only; `pecia doctor` judges them.

#include <filesystem>
#include <string>
#include <vector>

namespace pecia::cluster {

struct GpuHostFacts {
  /// What `nvidia-smi -L` lists: the GPUs of the machine or of the job's share of it.
  std::vector<std::string> gpus;
  std::vector<std::string> instances;  ///< UUIDs of the instances (MIG) that it lists
  std::string driver;                  ///< release of the driver, as "580.65.06"; "" if not known
};

/// Asks the nvidia-smi on the PATH, for ten seconds at most. The facts are empty without one.
GpuHostFacts gpu_host_facts();

/// Reads the text of `nvidia-smi -L`.
GpuHostFacts read_gpu_list(const std::string& text);

/// Whether a kernel module lets network devices reach a GPU's memory.
bool has_peer_memory_module(const std::filesystem::path& sys = "/sys");

/// Names of the network interfaces that are up, sorted, without the loopback.
std::vector<std::string> network_interfaces(const std::filesystem::path& sys = "/sys");

}  // namespace pecia::cluster
