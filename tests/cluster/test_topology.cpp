// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "lib/base/core/error.hpp"
#include "lib/ranks/cluster/machine.hpp"
#include "lib/ranks/cluster/topology.hpp"

namespace pecia::cluster {
namespace {

std::string refusal_of_file(const std::string& text) {
  try {
    parse_topology_file(text, "sites.txt");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(TopologyFile, GivesEachHostItsRackAndServer) {
  const auto hosts = parse_topology_file(
      "# host rack server\n\nn1 a\nn2  b  box7   # two words or three\n", "sites.txt");
  EXPECT_EQ(hosts.size(), 2u);
  EXPECT_EQ(hosts.at("n1"), (RackServer{"a", "n1"}));
  EXPECT_EQ(hosts.at("n2"), (RackServer{"b", "box7"}));
}

TEST(TopologyFile, IsRefusedWithItsLine) {
  EXPECT_EQ(refusal_of_file("n1 a\nn2\n"),
            "sites.txt:2: host n2 has no rack; a line is HOST RACK [SERVER]");
  EXPECT_EQ(refusal_of_file("n1 a b c"),
            "sites.txt:1: 'c' is too much; a line is HOST RACK [SERVER]");
  EXPECT_EQ(refusal_of_file("n1 a\nn1 b"), "sites.txt:2: host n1 is given twice; keep one line");
}

TEST(SlurmAddress, SplitsSwitchesFromTheNode) {
  EXPECT_EQ(parse_slurm_address("spine.rack1.n1", "switch.switch.node"),
            (RackServer{"spine.rack1", "n1"}));
  EXPECT_EQ(parse_slurm_address("n1", "node"), (RackServer{"", "n1"}));
  EXPECT_EQ(parse_slurm_address("block3.n1", "block.node"), (RackServer{"block3", "n1"}));
}

TEST(SlurmAddress, IsAbsentWhenItDoesNotFitItsPattern) {
  EXPECT_EQ(parse_slurm_address("rack1.n1", "switch.switch.node"), std::nullopt);
  EXPECT_EQ(parse_slurm_address("rack1.n1", "switch.switch"), std::nullopt);
  EXPECT_EQ(parse_slurm_address(".n1", "switch.node"), std::nullopt);
  EXPECT_EQ(parse_slurm_address("", ""), std::nullopt);
}

TEST(Locate, PrefersTheFileThenSlurmThenTheHost) {
  std::string path = (std::filesystem::temp_directory_path() / "pecia-topology-XXXXXX").string();
  const int descriptor = mkstemp(path.data());
  ASSERT_GE(descriptor, 0);
  close(descriptor);
  std::ofstream(path) << "n1 rack9 box\n";

  PlaceFacts facts{"n1", 3, path, "spine.rack1.n1", "switch.switch.node"};
  EXPECT_EQ(locate(facts), (comm::RackServerGpu{"rack9", "box", 3}));
  facts.host = "n2";
  EXPECT_THROW(locate(facts), InputError);
  facts.topology_file.reset();
  EXPECT_EQ(locate(facts), (comm::RackServerGpu{"spine.rack1", "n1", 3}));
  facts.slurm_pattern = "switch.node";
  EXPECT_EQ(locate(facts), (comm::RackServerGpu{"", "n2", 3}));
  facts.topology_file = path + ".absent";
  EXPECT_THROW(locate(facts), InputError);
  std::filesystem::remove(path);
}

TEST(PlaceFacts, TakeTheJobsFileBeforeTheEnvironments) {
  ASSERT_EQ(setenv("PECIA_TOPOLOGY_FILE", "of-the-environment", 1), 0);
  EXPECT_EQ(place_facts(2).topology_file, "of-the-environment");
  EXPECT_EQ(place_facts(2, "of-the-job").topology_file, "of-the-job");
  ASSERT_EQ(unsetenv("PECIA_TOPOLOGY_FILE"), 0);
  EXPECT_EQ(place_facts(2).topology_file, std::nullopt);
  EXPECT_EQ(place_facts(2).local_rank, 2);
}

std::string unsound(const std::vector<comm::RackServerGpu>& places) {
  try {
    require_sound(places);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(RequireSound, TakesEqualServersInUnevenRacks) {
  EXPECT_EQ(unsound({{"a", "n1", 0}, {"b", "n2", 0}, {"b", "n3", 0}}), "");
  EXPECT_EQ(unsound({{"", "n1", 0}, {"", "n1", 1}}), "");
  EXPECT_EQ(unsound({}), "");
}

TEST(RequireSound, NamesTwoRanksAtOnePlace) {
  EXPECT_EQ(unsound({{"a", "n1", 0}, {"a", "n2", 0}, {"a", "n1", 0}}),
            "ranks 0 and 2 are both at a:n1:0; give each server a name of its own in the topology "
            "file");
}

TEST(RequireSound, NamesARankWithoutARack) {
  EXPECT_EQ(
      unsound({{"a", "n1", 0}, {"", "n2", 0}}),
      "rank 1 (server n2) has no rack, while rank 0 is in a; start all ranks in the same way, "
      "or name every host in a topology file");
}

TEST(RequireSound, NamesUnevenServers) {
  EXPECT_EQ(
      unsound({{"a", "n1", 0}, {"a", "n2", 0}, {"a", "n1", 1}, {"b", "n3", 0}, {"b", "n3", 1}}),
      "servers have different numbers of ranks: 2 on each of 2, but 1 on a:n2 (rank 1); start "
      "as many on each (srun --ntasks-per-node=N, mpirun --map-by ppr:N:node)");
  EXPECT_NE(unsound({{"", "n1", 0}, {"", "n1", 1}, {"", "n2", 0}, {"", "n1", 2}})
                .find("3 on each of 1, but 1 on -:n2 (rank 2);"),
            std::string::npos);
}

TEST(RequireSound, NamesAFewOfManyUnevenServers) {
  std::vector<comm::RackServerGpu> places;
  for (int server = 0; server < 20; ++server)
    for (int device = 0; device < (server < 12 ? 2 : 3); ++device)
      places.push_back({"", fmt::format("n{}", server), device});
  EXPECT_NE(unsound(places).find("2 on each of 12, but 3 on -:n12 (ranks 24, 25, 26), "),
            std::string::npos);
  EXPECT_NE(unsound(places).find("(ranks 33, 34, 35), and 4 more servers; "), std::string::npos);
}

TEST(GatherPlaces, OfOneRankIsItsOwn) {
  const auto world = comm::make_null_communicator();
  const comm::RackServerGpu mine{"", "n1", 0};
  EXPECT_EQ(gather_places(*world, mine), std::vector{mine});
}

TEST(Machine, HasAtLeastOneCoreAndSomeMemory) {
  const CpuFacts cpu = cpu_facts();
  EXPECT_GE(cpu.cores.size(), 1u);
  EXPECT_LE(static_cast<int>(cpu.cores.size()), cpu.cores_of_machine);
  EXPECT_GE(cpu.hardware_threads, static_cast<int>(cpu.cores.size()));
  EXPECT_GE(cpu.numa_nodes, 1);
  const MemoryFacts memory = memory_facts();
  EXPECT_GT(memory.available_bytes, 0);
  EXPECT_LE(memory.available_bytes, memory.total_bytes);
  EXPECT_FALSE(host_name().empty());
}

TEST(Machine, LooksAtTheNearestFolderThatExists) {
  const auto folder = std::filesystem::canonical(std::filesystem::temp_directory_path());
  const FileSystemFacts facts = file_system_facts(folder / "pecia-not" / "made-yet");
  EXPECT_EQ(facts.path, folder);
  EXPECT_NE(facts.type, "?");
  EXPECT_LE(facts.free_bytes, facts.total_bytes);
  EXPECT_EQ(file_system_facts("/proc").type, "proc");
}

}  // namespace
}  // namespace pecia::cluster
