// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The frame of every benchmark: MPI, command line, errors. A benchmark adds its options and its
/// body.

#include <filesystem>
#include <functional>
#include <string>

#include "lib/ranks/comm/communicator.hpp"

namespace CLI {
class App;
}

namespace pecia::bench {

/// Options that every benchmark has.
struct CommonOptions {
  int runs = 5;
  int threads = 0;             ///< threads of each rank; 0: as a run chooses
  std::filesystem::path json;  ///< lines are appended to it; empty: none
  bool check = false;
};

/// The arguments of a benchmark's body.
struct Session {
  comm::Communicator& world;
  CommonOptions options;  ///< with `threads` resolved
  std::string name;
  std::string mpi;  ///< library and version
};

struct Benchmark {
  std::string name, description;
  std::function<void(CLI::App&)> add_options;
  std::function<void(const Session&)> run;  ///< collective
};

/// Returns the exit code: 0, 2 for a user's error, 1 for anything else, including a failed --check.
/// An error on one rank alone ends the job.
int run_benchmark(const Benchmark& benchmark, int argc, char** argv);

}  // namespace pecia::bench
