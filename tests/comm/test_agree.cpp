// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>

#include "lib/base/core/error.hpp"
#include "lib/ranks/comm/agree.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/ranks/comm/of_first.hpp"

namespace pecia::comm {
namespace {

std::unique_ptr<comm::Communicator> world() {
  return comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
}

/// Class and text of what together() throws when each rank does `step`.
template <typename Step>
std::string thrown(comm::Communicator& comm, const Step& step) {
  try {
    together(comm, [&] { step(comm.rank()); });
  } catch (const InputError& error) {
    return std::string("input: ") + error.what();
  } catch (const Error& error) {
    return std::string("error: ") + error.what();
  }
  return "nothing";
}

TEST(Together, RunsTheStepOnEveryRank) {
  const auto comm = world();
  int runs = 0;
  EXPECT_EQ(thrown(*comm, [&](int) { ++runs; }), "nothing");
  EXPECT_EQ(runs, 1);
}

TEST(Together, TellsEveryRankOfOneRanksInputError) {
  const auto comm = world();
  for (int bad = 0; bad < comm->size(); ++bad)
    EXPECT_EQ(thrown(*comm,
                     [&](int rank) {
                       if (rank == bad) fail<InputError>("file {} is broken", bad);
                     }),
              fmt::format("input: file {} is broken", bad));
}

TEST(Together, NamesTheRankOfAnotherError) {
  const auto comm = world();
  const int bad = comm->size() - 1;
  EXPECT_EQ(thrown(*comm,
                   [&](int rank) {
                     if (rank == bad) throw std::runtime_error("no memory");
                   }),
            fmt::format("error: rank {}: no memory", bad));
}

TEST(Together, TakesTheLowestRanksWhenSeveralFail) {
  const auto comm = world();
  const int lowest = comm->size() > 1 ? 1 : 0;
  EXPECT_EQ(thrown(*comm,
                   [&](int rank) {
                     if (rank >= lowest) fail<InputError>("rank {} says no", rank);
                   }),
            fmt::format("input: rank {} says no", lowest));
}

TEST(Together, KeepsUnsupportedAsWhatAUserGave) {
  const auto comm = world();
  EXPECT_EQ(thrown(*comm, [](int) { fail<Unsupported>("not here"); }), "input: not here");
}

TEST(RequireSame, LetsEqualTextsPass) {
  const auto comm = world();
  EXPECT_NO_THROW(require_same(*comm, "job files", "text"));
  EXPECT_NO_THROW(require_same(*comm, "job files", ""));
}

TEST(RequireSame, NamesTheFirstRankThatDiffers) {
  const auto comm = world();
  for (int odd = 0; odd < comm->size(); ++odd) {
    std::string message = "nothing";
    try {
      require_same(*comm, "job files", comm->rank() == odd ? "other" : "text");
    } catch (const InputError& error) {
      message = error.what();
    }
    if (comm->size() == 1) {
      EXPECT_EQ(message, "nothing");
      continue;
    }
    const std::string begin =
        fmt::format("ranks 0 and {} have different job files", odd == 0 ? 1 : odd);
    EXPECT_EQ(message.substr(0, begin.size()), begin);
  }
}

struct Named {
  std::string name;
  std::vector<int32_t> values;

  template <typename A>
  void visit(A& archive) {
    archive(name), archive(values);
  }
};

TEST(OfFirst, GivesTheValueOfRank0ToAll) {
  const auto comm = world();
  const int rank = comm->rank();
  EXPECT_EQ(of_first(*comm, 0.5 + rank), 0.5);
  EXPECT_EQ(of_first(*comm, rank == 0 ? std::string("a path") : std::string("")), "a path");
  EXPECT_EQ(of_first(*comm, rank == 0 ? std::string() : std::string("lost")), "");
  EXPECT_EQ(of_first(*comm, std::vector<int64_t>(3 - std::min(rank, 3), 7)),
            (std::vector<int64_t>{7, 7, 7}));
  const Named named = of_first(*comm, rank == 0 ? Named{"first", {1, 2}} : Named{});
  EXPECT_EQ(named.name, "first");
  EXPECT_EQ(named.values, (std::vector<int32_t>{1, 2}));
}

}  // namespace
}  // namespace pecia::comm
