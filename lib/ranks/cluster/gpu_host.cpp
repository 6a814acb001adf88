// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/cluster/gpu_host.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>

namespace pecia::cluster {
namespace {

/// What nvidia-smi prints; nothing if it fails, as without a driver.
std::string nvidia_smi(const std::string& arguments) {
  const std::string command = "timeout 10 nvidia-smi " + arguments + " 2>/dev/null";
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "";
  std::string text;
  std::array<char, 4096> part;
  for (size_t count; (count = fread(part.data(), 1, part.size(), pipe)) > 0;)
    text.append(part.data(), count);
  return pclose(pipe) == 0 ? text : "";
}

/// The words between `begin` and `end` in a line; "" if it lacks them.
std::string between(const std::string& line, const std::string& begin, const std::string& end) {
  const size_t at = line.find(begin);
  if (at == std::string::npos) return "";
  const size_t from = at + begin.size(), to = line.find(end, from);
  return to == std::string::npos ? "" : line.substr(from, to - from);
}

}  // namespace

/// GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-5d0b…)
///   MIG 3g.40gb     Device  0: (UUID: MIG-7a1c…)
GpuHostFacts read_gpu_list(const std::string& text) {
  GpuHostFacts facts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("GPU ")) facts.gpus.push_back(between(line, ": ", " (UUID"));
    const std::string uuid = between(line, "UUID: ", ")");
    if (uuid.starts_with("MIG-")) facts.instances.push_back(uuid);
  }
  return facts;
}

GpuHostFacts gpu_host_facts() {
  GpuHostFacts facts = read_gpu_list(nvidia_smi("-L"));
  if (facts.gpus.empty()) return facts;
  std::istringstream releases(nvidia_smi("--query-gpu=driver_version --format=csv,noheader"));
  std::getline(releases, facts.driver);  // one line for each GPU
  return facts;
}

bool has_peer_memory_module(const std::filesystem::path& sys) {
  std::error_code absent;
  return std::ranges::any_of(std::array{"nvidia_peermem", "nv_peer_mem"}, [&](const char* name) {
    return std::filesystem::exists(sys / "module" / name, absent);
  });
}

std::vector<std::string> network_interfaces(const std::filesystem::path& sys) {
  std::vector<std::string> names;
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(sys / "class/net", absent)) {
    const std::string name = entry.path().filename().string();
    std::string state;
    std::ifstream(entry.path() / "operstate") >> state;
    if (name != "lo" && state != "down") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace pecia::cluster
