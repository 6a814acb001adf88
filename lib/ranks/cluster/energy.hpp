// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How much energy a host's processors and a GPU take, where counters can be read: RAPL as the
/// kernel shows it (Intel and AMD), and NVML. The counters are of the whole device, whoever uses it.

#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace pecia::cluster {

/// Joules since a meter began; absent where there is no counter or it cannot be read.
struct Energy {
  std::optional<double> cpus, gpu;
  std::string why_no_cpus, why_no_gpu;  ///< "" where it is there, or was not asked for
};

/// Counts from its construction on. RAPL's counters return to 0 every few minutes, so a thread reads
/// them more often.
class EnergyMeter {
 public:
  /// What is counted, and where the counters are.
  struct Sources {
    bool cpus = true;
    std::string gpu_uuid = {};  ///< "": no GPU
    std::filesystem::path powercap = "/sys/class/powercap";
    std::string nvml = "libnvidia-ml.so.1";
  };
  explicit EnergyMeter(const Sources& sources);
  ~EnergyMeter();
  EnergyMeter(const EnergyMeter&) = delete;
  EnergyMeter& operator=(const EnergyMeter&) = delete;

  Energy used();

 private:
  struct Counter;  ///< one of RAPL's zones
  class Nvml;

  void find_zones(const std::filesystem::path& powercap);
  void add_up();

  std::mutex mutex_;  ///< of the counters
  std::vector<Counter> counters_;
  std::unique_ptr<Nvml> nvml_;
  std::optional<double> gpu_begin_;
  std::string why_no_cpus_, why_no_gpu_;
  std::condition_variable_any wakes_;
  std::jthread reader_;  ///< last, so that it ends first
};

}  // namespace pecia::cluster
