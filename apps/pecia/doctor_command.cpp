// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "apps/command_line/options.hpp"
#include "apps/pecia/command.hpp"
#include "apps/pecia/findings.hpp"
#include "kernels/api/backend.hpp"
#include "lib/base/core/build_info.hpp"
#include "lib/base/core/error.hpp"
#include "lib/base/core/isa.hpp"
#include "lib/base/core/json.hpp"
#include "lib/base/device/cuda_device.hpp"
#include "lib/base/device/graph_stream.hpp"
#include "lib/files/grammar/grammars.hpp"
#include "lib/files/hdf5/hdf5.hpp"
#include "lib/ranks/cluster/topology.hpp"
#include "lib/ranks/comm/nccl.hpp"
#include "lib/ranks/comm/one_shot_trial.hpp"
#include "lib/ranks/comm/transports.hpp"
#include "lib/settle/measure/deviations.hpp"
#include "lib/settle/measure/product_choice.hpp"
#include "lib/work/resources/compute_place.hpp"

namespace pecia::app {
namespace {

struct DoctorOptions {
  std::string output = ".";
  bool json = false;
};

/// The version of OpenBLAS and the core for which it chose its kernels. The functions are looked
/// up, not linked, since another BLAS does not have them and a build may link no BLAS.
std::string blas_version() {
  using Text = char* (*)();
  const auto config = reinterpret_cast<Text>(dlsym(RTLD_DEFAULT, "openblas_get_config"));
  const auto core = reinterpret_cast<Text>(dlsym(RTLD_DEFAULT, "openblas_get_corename"));
  if (config == nullptr || core == nullptr)
    return dlsym(RTLD_DEFAULT, "sgemm_") == nullptr ? "none loaded: matrix products are pecia's own"
                                                    : "loaded, not OpenBLAS";
  return fmt::format("{} · core {}", config(), core());
}

Finding foresight_finding() {
  const auto path = measure::deviations_path();
  if (!path) return ok("foresight", "nothing is kept of past runs");
  const std::string text = measure::deviations_text(measure::read_deviations(*path));
  return ok("foresight", text.empty() ? "no run was foreseen yet" : text);
}

Finding isa_finding() {
  try {
    return {"isa", true, std::string(name_of(isa())), ""};
  } catch (const InputError& error) {
    return {"isa", false, error.what(),
            "run on an x86-64 CPU with AVX2, or on aarch64; unset PECIA_MAX_ISA"};
  }
}

Finding product_kinds_finding() {
  if (!isa_finding().ok) return ok("product kinds", "none, as this CPU cannot compute");
  ProductFacts facts{{}, cpu_has_amx(), isa_is_capped()};
  for (const kernels::MatmulKind kind : kernels::all_matmul_kinds)
    facts.kinds.push_back({std::string(name_of(kind)), kernels::why_no_products(kind)});
  return judge_product_kinds(facts);
}

/// What a run of as many ranks and threads would take, for weights of bf16. Collective.
Finding products_finding(comm::Communicator& world) {
  if (world.all_reduce_max(isa_finding().ok ? 0 : 1) > 0)
    return ok("products", "not measured, as not every rank's CPU can compute");
  try {
    const measure::ProductChoice choice =
        measure::choose_products(job::Job(), DType::bf16, resources::threads_of_rank(world), world);
    if (!choice.warning.empty())
      return {"products", false, choice.warning, "let XDG_CACHE_HOME name a folder of your own"};
    return ok(
        "products",
        fmt::format("{} with weights of bf16, {}{}", measure::products_text(choice.products),
                    choice.why,
                    choice.times.empty() ? "" : fmt::format(" ({})", times_text(choice.times))));
  } catch (const Error& error) {  // on all ranks together
    return {"products", false, error.what(), "use a CPU that the CPU backend has code for"};
  }
}

HostRanks host_ranks(comm::Communicator& world, const cluster::CpuFacts& cpu) {
  const auto host = world.split_by_host();
  std::set<int> cores;
  const auto all = host->all_gather(std::as_bytes(std::span(cpu.cores)));
  for (const auto& bytes : all) {
    const auto* numbers = reinterpret_cast<const int*>(bytes.data());
    cores.insert(numbers, numbers + bytes.size() / sizeof(int));
  }
  return {host->size(), static_cast<int>(cores.size())};
}

GpuFacts gpu_facts() {
  GpuFacts facts{device::has_cuda(), {}, ""};
  facts.host = cluster::gpu_host_facts();
  facts.toolkit = device::cuda_toolkit();
  try {
    const int count = device::num_cuda_devices();
    for (int index = 0; index < count; ++index) {
      const auto gpu = device::make_cuda_device(index);
      const device::MemoryInfo memory = gpu->memory();
      const device::CudaAccess access = device::cuda_access(index);
      facts.gpus.push_back({gpu->info().name, gpu->info().driver, memory.total_bytes,
                            memory.free_bytes, gpu->info().uuid, access.by_network});
      for (int other = 0; other < count; ++other)
        if (other != index && !access.peers[other]) facts.apart.emplace_back(index, other);
    }
  } catch (const Error& error) {
    facts.problem = error.what();
  }
  return facts;
}

/// The GPUs that each rank of the host sees. Collective.
std::vector<std::vector<std::string>> uuids_by_rank(comm::Communicator& world,
                                                    const GpuFacts& facts) {
  std::string mine;
  for (const GpuFacts::Gpu& gpu : facts.gpus) mine += gpu.uuid + '\n';
  std::vector<std::vector<std::string>> all;
  for (const auto& bytes : world.split_by_host()->all_gather(std::as_bytes(std::span(mine)))) {
    std::istringstream lines(
        std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    auto& uuids = all.emplace_back();
    for (std::string line; std::getline(lines, line);) uuids.push_back(line);
  }
  return all;
}

/// Tries sums through peer memory where each rank of the host has a GPU of its own. Collective.
OneShotFacts one_shot_facts(comm::Communicator& world, const GpuFacts& gpus,
                            const std::vector<std::vector<std::string>>& uuids) {
  OneShotFacts facts{.gpus = gpus,
                     .asked_for = device::is_switched_on(comm::one_shot_switch,
                                                         "sums through peer memory", false)};
  const auto host = world.split_by_host();
  std::set<std::string> taken;
  for (int rank = 0; rank < host->size(); ++rank) {
    const auto visible = static_cast<int>(uuids[rank].size());
    if (visible > 0) taken.insert(uuids[rank][resources::gpu_of_rank(rank, visible)]);
  }
  if (static_cast<int>(taken.size()) < host->size()) return facts;
  const auto group = host->split(host->rank() / comm::most_one_shot_ranks, host->rank());
  if (group->size() < 2) return facts;
  const auto gpu = device::make_cuda_device(
      resources::gpu_of_rank(host->rank(), static_cast<int>(gpus.gpus.size())));
  facts.ranks = group->size();
  facts.why_not = comm::try_one_shot(*group, *gpu);
  return facts;
}

NcclFacts nccl_facts(const GpuFacts& gpus, size_t servers) {
  const auto direct = [](const GpuFacts::Gpu& gpu) { return gpu.gpu_direct; };
  return {
      .used = !gpus.gpus.empty(),
      .servers = servers,
      .interfaces = cluster::network_interfaces(),
      .rdma = cluster::rdma_devices(),
      .peer_memory = cluster::has_peer_memory_module() || std::ranges::all_of(gpus.gpus, direct),
      .socket_names = cluster::variable("NCCL_SOCKET_IFNAME"),
      .adapters = cluster::variable("NCCL_IB_HCA"),
      .ib_disabled = cluster::variable("NCCL_IB_DISABLE")};
}

/// Collective. An error is returned in the facts on every rank alike.
PlacesFacts places_facts(comm::Communicator& world) {
  try {
    return {cluster::find_places(world), ""};
  } catch (const InputError& error) {
    return {{}, error.what()};
  }
}

size_t num_hosts(comm::Communicator& world) {
  const std::string mine = cluster::host_name();
  std::set<std::string> names;
  for (const auto& bytes : world.all_gather(std::as_bytes(std::span(mine))))
    names.emplace(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return names.size();
}

std::vector<Finding> examine(const DoctorOptions& options, Context& context) {
  context.mpi.start();  // also for a process alone: it is what is examined
  const BuildInfo& build = build_info();
  const cluster::CpuFacts cpu = cluster::cpu_facts();
  const HostRanks host = host_ranks(context.world, cpu);
  const cluster::LimitFacts limits = cluster::limit_facts();
  const cluster::MemoryFacts memory = cluster::memory_facts();
  const cluster::FileSystemFacts output = cluster::file_system_facts(options.output);
  const cluster::LaunchFacts launch = cluster::launch_facts();
  const PlacesFacts places = places_facts(context.world);
  const size_t hosts = num_hosts(context.world);
  const GpuFacts gpus = gpu_facts();
  const auto uuids = uuids_by_rank(context.world, gpus);
  return {
      ok("pecia", fmt::format("{} (commit {}, {})", build.version, build.commit, build.build_type)),
      ok("compiler", build.compiler),
      ok("options", build.options),
      ok("mpi", comm::MpiEnvironment::library_version()),
      ok("nccl", comm::nccl_version()),
      ok("hdf5", io::hdf5_version()),
      ok("blas", blas_version()),
      ok("hwloc", cluster::hwloc_version()),
      ok("shapes", grammar::why_none().empty() ? "answers can have one, by XGrammar"
                                               : std::string(grammar::why_none())),
      ok("cpu", cpu.model),
      isa_finding(),
      product_kinds_finding(),
      products_finding(context.world),
      foresight_finding(),
      judge_gpus(gpus, host),
      judge_driver(gpus),
      judge_instances(uuids, cluster::variable("CUDA_VISIBLE_DEVICES")),
      judge_peers(gpus, cluster::variable("NCCL_P2P_DISABLE")),
      judge_one_shot(one_shot_facts(context.world, gpus, uuids)),
      judge_nccl_network(nccl_facts(gpus, hosts)),
      judge_launch(launch, context.world.size()),
      judge_slurm(launch, static_cast<double>(std::time(nullptr))),
      judge_places(places),
      judge_thread_level(context.mpi.thread_level()),
      judge_transports(comm::loaded_transports(), cluster::rdma_devices(),
                       static_cast<size_t>(context.world.size()), hosts),
      judge_binding(cpu, host),
      judge_threads(cluster::variable("OMP_NUM_THREADS"), host),
      judge_numa(cpu, host),
      judge_memory(memory),
      judge_huge_pages(memory),
      judge_locked_memory(limits),
      judge_open_files(limits),
      judge_processes(limits),
      judge_sizes(limits),
      judge_shared_memory(cluster::file_system_facts("/dev/shm"), host),
      judge_output(output),
      judge_writing(cluster::try_writing(output.path), output),
      judge_hdf5_locking(cluster::variable("HDF5_USE_FILE_LOCKING"), output),
  };
}

/// Merges equal findings of several ranks into one, with the list of ranks.
nlohmann::ordered_json merged(const std::vector<nlohmann::ordered_json>& by_rank) {
  auto findings = nlohmann::ordered_json::array();
  for (size_t topic = 0; topic < by_rank.at(0).size(); ++topic) {
    const size_t begin = findings.size();
    for (size_t rank = 0; rank < by_rank.size(); ++rank) {
      auto finding = by_rank[rank].at(topic);
      size_t same = begin;
      for (; same < findings.size(); ++same) {
        auto known = findings[same];
        known.erase("ranks");
        if (known == finding) break;
      }
      if (same == findings.size()) findings.push_back(std::move(finding));
      findings[same]["ranks"].push_back(rank);
    }
  }
  return findings;
}

void print_findings(const nlohmann::ordered_json& findings, size_t num_ranks) {
  int warnings = 0;
  for (const auto& finding : findings) {
    const auto of_ranks = finding["ranks"].get<std::vector<int>>();
    const bool good = finding["ok"].get<bool>();
    warnings += !good;
    fmt::print("{}  {:<14} {}", good ? "ok  " : "warn", finding["topic"].get<std::string>(),
               finding["text"].get<std::string>());
    fmt::print("{}\n",
               of_ranks.size() < num_ranks ? fmt::format(" [ranks {}]", ranges(of_ranks)) : "");
    if (!good) fmt::print("{:>20} {}\n", "→", finding["remedy"].get<std::string>());
  }
  fmt::print("warnings: {}\n", warnings);
}

int doctor_command(const DoctorOptions& options, Context& context) {
  auto mine = nlohmann::ordered_json::array();
  for (const Finding& finding : examine(options, context))
    mine.push_back({{"topic", finding.topic},
                    {"ok", finding.ok},
                    {"text", finding.text},
                    {"remedy", finding.remedy}});
  const auto by_rank = gather_json(context.world, mine);
  if (!context.first()) return 0;
  const nlohmann::ordered_json findings = merged(by_rank);
  if (options.json)
    fmt::print(
        "{}\n",
        json_text(nlohmann::ordered_json{{"ranks", by_rank.size()}, {"findings", findings}}, 2));
  else
    print_findings(findings, by_rank.size());
  return 0;
}

}  // namespace

void add_doctor(CLI::App& app, Context& context) {
  const auto options = std::make_shared<DoctorOptions>();
  CLI::App& doctor = command_line::add_command(
      app, "doctor", "Looks for what will hurt a run here, and says what to do about it.",
      examples({
          "pecia doctor",
          "srun --mpi=pmix pecia doctor --output /scratch/runs    # on the nodes of a job",
      }),
      [options, &context] {
        context.chosen = [options, &context] { return doctor_command(*options, context); };
      });
  command_line::add_option(doctor, {.name = "--output",
                                    .into = &options->output,
                                    .help = "The folder that results will go to",
                                    .type = "DIR"});
  command_line::add_option(
      doctor, {.name = "--json", .into = &options->json, .help = "JSON instead of text"});
}

}  // namespace pecia::app
