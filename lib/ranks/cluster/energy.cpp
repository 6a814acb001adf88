// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/cluster/energy.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <chrono>
#include <fstream>

namespace pecia::cluster {
namespace {

namespace fs = std::filesystem;

constexpr auto between_readings = std::chrono::seconds(20);  // 65 kJ last 100 s at 650 W

template <typename T>
std::optional<T> number_in(const fs::path& file) {
  std::ifstream in(file);
  T value{};
  if (!(in >> value)) return {};
  return value;
}

std::string word_in(const fs::path& file) {
  std::ifstream in(file);
  std::string word;
  in >> word;
  return word;
}

}  // namespace

struct EnergyMeter::Counter {
  fs::path energy_uj;
  int64_t range_uj;
  int64_t last_uj;
  double joules = 0;
};

/// The part of NVML that counts a GPU's energy. The library is there where the driver is.
class EnergyMeter::Nvml {
 public:
  Nvml(const std::string& library, const std::string& uuid) {
    library_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) {
      why_not = fmt::format("{} cannot be loaded", library);
      return;
    }
    const auto init = function<int()>("nvmlInit_v2");
    const auto handle = function<int(const char*, void**)>("nvmlDeviceGetHandleByUUID");
    energy_ = function<int(void*, unsigned long long*)>("nvmlDeviceGetTotalEnergyConsumption");
    if (init == nullptr || handle == nullptr || energy_ == nullptr) {
      why_not = fmt::format("{} has no counter of energy", library);
    } else if (const int code = init(); code != 0) {
      why_not = fmt::format("nvmlInit_v2 gave {}", code);
    } else {
      shut_down_ = function<int()>("nvmlShutdown");
      if (const int found = handle(uuid.c_str(), &device_); found != 0)
        why_not = fmt::format("nvmlDeviceGetHandleByUUID of {} gave {}", uuid, found);
    }
  }
  ~Nvml() {
    if (shut_down_ != nullptr) shut_down_();
    if (library_ != nullptr) dlclose(library_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// Joules since the driver was loaded.
  std::optional<double> joules() {
    if (!why_not.empty()) return {};
    unsigned long long millijoules = 0;
    const int code = energy_(device_, &millijoules);
    if (code == 0) return 1e-3 * static_cast<double>(millijoules);
    why_not = fmt::format("nvmlDeviceGetTotalEnergyConsumption gave {}", code);
    return {};
  }

  std::string why_not;

 private:
  template <typename Function>
  Function* function(const char* name) {
    return reinterpret_cast<Function*>(dlsym(library_, name));
  }

  void* library_ = nullptr;
  void* device_ = nullptr;
  int (*shut_down_)() = nullptr;
  int (*energy_)(void*, unsigned long long*) = nullptr;
};

EnergyMeter::EnergyMeter(const Sources& sources) {
  if (sources.cpus) find_zones(sources.powercap);
  if (!sources.gpu_uuid.empty()) {
    nvml_ = std::make_unique<Nvml>(sources.nvml, sources.gpu_uuid);
    gpu_begin_ = nvml_->joules();
    why_no_gpu_ = nvml_->why_not;
  }
  if (counters_.empty()) return;
  reader_ = std::jthread([this](const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!wakes_.wait_for(lock, stop, between_readings, [&] { return stop.stop_requested(); }))
      add_up();
  });
}

EnergyMeter::~EnergyMeter() = default;

/// Packages, and memory beside them. Other zones are parts of a package, or the whole board.
void EnergyMeter::find_zones(const fs::path& powercap) {
  std::error_code error;
  bool found = false;
  for (const auto& entry : fs::directory_iterator(powercap, error)) {
    const std::string zone = entry.path().filename();
    const std::string name = word_in(entry.path() / "name");
    if (!zone.starts_with("intel-rapl:") || (!name.starts_with("package") && name != "dram"))
      continue;
    found = true;
    const fs::path energy = entry.path() / "energy_uj";
    const auto now = number_in<int64_t>(energy);
    const auto range = number_in<int64_t>(entry.path() / "max_energy_range_uj");
    if (now && range)
      counters_.push_back({energy, *range, *now});
    else
      why_no_cpus_ =
          fmt::format("{} cannot be read: most systems let root alone do so", energy.string());
  }
  if (!why_no_cpus_.empty()) counters_.clear();  // a part would look like the whole
  if (!found) why_no_cpus_ = fmt::format("{} has no counter of a processor", powercap.string());
}

/// Adds what the counters went on by. Needs the mutex.
void EnergyMeter::add_up() {
  for (Counter& counter : counters_) {
    const auto now = number_in<int64_t>(counter.energy_uj);
    if (!now) {
      why_no_cpus_ = fmt::format("{} could not be read any more", counter.energy_uj.string());
      continue;
    }
    const int64_t passed = *now - counter.last_uj;
    counter.joules += 1e-6 * static_cast<double>(passed < 0 ? passed + counter.range_uj : passed);
    counter.last_uj = *now;
  }
}

Energy EnergyMeter::used() {
  Energy energy;
  const std::lock_guard lock(mutex_);
  add_up();
  energy.why_no_cpus = why_no_cpus_;
  energy.why_no_gpu = why_no_gpu_;
  if (why_no_cpus_.empty() && !counters_.empty()) {
    energy.cpus = 0;
    for (const Counter& counter : counters_) *energy.cpus += counter.joules;
  }
  if (gpu_begin_) {
    if (const auto now = nvml_->joules())
      energy.gpu = *now - *gpu_begin_;
    else
      energy.why_no_gpu = nvml_->why_not;
  }
  return energy;
}

}  // namespace pecia::cluster
