#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "lib/comm/machine.hpp"
#include "lib/comm/topology.hpp"
#include "lib/core/error.hpp"

namespace pecia::comm {
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
  EXPECT_EQ(locate(facts), (RackServerGpu{"rack9", "box", 3}));
  facts.host = "n2";
  EXPECT_THROW(locate(facts), InputError);
  facts.topology_file.reset();
  EXPECT_EQ(locate(facts), (RackServerGpu{"spine.rack1", "n1", 3}));
  facts.slurm_pattern = "switch.node";
  EXPECT_EQ(locate(facts), (RackServerGpu{"", "n2", 3}));
  facts.topology_file = path + ".absent";
  EXPECT_THROW(locate(facts), InputError);
  std::filesystem::remove(path);
}

TEST(GatherPlaces, OfOneRankIsItsOwn) {
  const auto world = make_null_communicator();
  const RackServerGpu mine{"", "n1", 0};
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
}  // namespace pecia::comm
