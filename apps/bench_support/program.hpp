// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The frame of every benchmark: MPI, command line, errors. A benchmark adds its options and its
/// body.

#include <filesystem>
#include <functional>
#include <string>

#include "lib/comm/communicator.hpp"

namespace CLI {
class App;
}

namespace pecia::bench {

/// Options that every benchmark has.
struct CommonOptions {
  int runs = 5;
  int threads = 0;             ///< of each rank; 0: as a run chooses them
  std::filesystem::path json;  ///< lines are appended; empty: none
  bool check = false;
};

/// What the body of a benchmark gets.
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

/// The exit code: 0, 2 for what the user gave, 1 for anything else, a failed --check included. An
/// error that one rank alone meets ends the job.
int run_benchmark(const Benchmark& benchmark, int argc, char** argv);

}  // namespace pecia::bench
