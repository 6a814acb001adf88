// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <mpi.h>

#include "lib/base/core/error.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/run/same_model.hpp"

namespace pecia::run {
namespace {

std::unique_ptr<comm::Communicator> make_world() {
  return comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
}

const model::Fingerprint usual = {{"c", "g", "t", "n", "w"}};

/// What this rank is told where it has this model, as on a host of its own; "" where all agree.
std::string told(comm::Communicator& world, const model::Fingerprint& mine) {
  try {
    require_same_model(world, fmt::format("node{}", world.rank()), mine, "/models/m");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(SameModel, LetsEqualModelsPass) {
  const auto world = make_world();
  EXPECT_EQ(told(*world, usual), "");
  EXPECT_EQ(told(*world, {{"c", "", "", "n", "w"}}), "");
}

TEST(SameModel, NamesRankHostAndPartOnAllRanks) {
  const auto world = make_world();
  for (int odd = 1; odd < world->size(); ++odd) {
    for (size_t part = 0; part < usual.parts.size(); ++part) {
      model::Fingerprint mine = usual;
      if (world->rank() == odd) mine.parts[part] = "other";
      EXPECT_EQ(told(*world, mine),
                fmt::format("the model in /models/m is not the same on all ranks; rank 0 on host "
                            "node0 has another than:\n       rank {} on host node{} differs in: "
                            "{}\n       Copy the model to these hosts again, or let model.path "
                            "name a folder that all hosts share.",
                            odd, odd, model::Fingerprint::part_names[part]));
    }
  }
}

TEST(SameModel, NamesSeveralRanksAndParts) {
  const auto world = make_world();
  if (world->size() == 1) return;
  const bool last = world->rank() == world->size() - 1;
  const std::string words =
      told(*world, world->rank() == 0 ? model::Fingerprint{{"c", "", "t", "n", "w"}}
                   : last             ? model::Fingerprint{{"c2", "g", "", "n", "w"}}
                                      : usual);
  const std::string end = fmt::format(
      "rank {} on host node{} differs in: config.json, generation_config.json (which rank 0 "
      "lacks), tokenizer.json (which it lacks)\n",
      world->size() - 1, world->size() - 1);
  EXPECT_NE(words.find(end), std::string::npos) << words;
  for (int rank = 1; rank + 1 < world->size(); ++rank)
    EXPECT_NE(words.find(fmt::format("rank {} on host node{} differs in: generation_config.json "
                                     "(which rank 0 lacks)\n",
                                     rank, rank)),
              std::string::npos)
        << words;
}

}  // namespace
}  // namespace pecia::run
