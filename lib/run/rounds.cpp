// SPDX-License-Identifier: Apache-2.0
#include "lib/run/rounds.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "lib/base/core/error.hpp"
#include "lib/base/core/json.hpp"
#include "lib/ranks/comm/agree.hpp"
#include "lib/ranks/comm/of_first.hpp"

namespace pecia::run {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t longest_line = 1 << 20;

/// What rank 0 has found; its values travel to all ranks.
enum class Found : int64_t { nothing, line, end };

}  // namespace

std::optional<std::string> LineReader::next(std::chrono::milliseconds longest) {
  size_t end = text_.find('\n');
  if (end == std::string::npos && !ended_) {
    pollfd readable{descriptor_, POLLIN, 0};
    const int ready = poll(&readable, 1, static_cast<int>(longest.count()));
    if (ready <= 0) return {};  // a signal ends the wait as well
    std::array<char, 4096> buffer{};
    const ssize_t count = read(descriptor_, buffer.data(), buffer.size());
    if (count < 0 && errno != EINTR)
      fail<SystemError>("standard input cannot be read: {}", std::strerror(errno));
    if (count > 0) text_.append(buffer.data(), static_cast<size_t>(count));
    ended_ = count == 0;
    end = text_.find('\n');
    if (std::min(end, text_.size()) > longest_line)
      fail<InputError>("standard input: a line above 1 MB is no round");
  }
  if (end == std::string::npos && (!ended_ || text_.empty())) return {};
  std::string line = text_.substr(0, end);
  text_.erase(0, end == std::string::npos ? end : end + 1);
  return line;
}

job::Job job_of_round(const job::Job& asked, const RunOptions& options, const std::string& line,
                      comm::Communicator& world) {
  job::Job job = asked;
  comm::together(world, [&] {
    const Json round = try_json<Json>(line, 2);
    if (!round.is_object() || round.size() != 2 || !round.contains("input") ||
        !round.contains("output"))
      fail<InputError>(
          "standard input: '{}' is no round; a line is {{\"input\": [\"prompts.h5\"], \"output\": "
          "\"folder\"}}",
          line.substr(0, 200));
    std::vector<std::string> overrides = options.overrides;
    for (const char* key : {"input", "output"})
      overrides.push_back(fmt::format("{}={}", key, json_text(round[key])));
    job::Job found = job::load_job(options.job_file, overrides);
    job.input = std::move(found.input);
    job.output = std::move(found.output);
  });
  comm::require_same(world, "inputs of the round", job::to_yaml(job));
  return job;
}

NextRound next_round(comm::Communicator& world, LineReader& lines,
                     const std::function<bool()>& stops) {
  constexpr std::chrono::milliseconds often(100);
  for (;;) {
    std::optional<std::string> line;
    comm::together(world, [&] {
      if (world.rank() == 0) line = lines.next(often);
    });
    const bool is_line = line && line->find_first_not_of(" \t\r") != std::string::npos;
    const auto mine = is_line ? Found::line : lines.ended() ? Found::end : Found::nothing;
    const auto found = static_cast<Found>(comm::of_first(world, static_cast<int64_t>(mine)));
    if (world.all_reduce_max(stops() ? 1 : 0) > 0) return {{}, true};
    if (found == Found::end) return {{}, false};
    if (found == Found::line) return {comm::of_first(world, line.value_or("")), false};
  }
}

void tell_end_of_round(const job::Job& job, int exit_code) {
  const Json line{{"output", job.output.string()}, {"exit_code", exit_code}};
  fmt::print("{}\n", json_text(line));
  std::fflush(stdout);
}

}  // namespace pecia::run
