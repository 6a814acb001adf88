// SPDX-License-Identifier: Apache-2.0
/// Times how many replicas write their results at once: all straight into one file, or each into its
/// own journal, from which one thread brings the rows into that file meanwhile. A replica is a thread
/// that does nothing but write rows, one at a time, each durable before the next begins. Rows of
/// different replicas lie between each other, as where replicas take requests from one list. The
/// second time ends when all rows are in the results and the journals are removed.

#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <exception>
#include <thread>

#include "apps/bench/commands.hpp"
#include "apps/bench/support/agreement.hpp"
#include "apps/bench/support/results.hpp"
#include "lib/run/gather_results.hpp"
#include "lib/work/batch/journals.hpp"

namespace pecia::bench {
namespace {

namespace fs = std::filesystem;

struct WritersOptions {
  std::vector<int64_t> writers = {1, 16, 64, 256};
  int64_t rows = 20, answer = 256;
  fs::path folder = ".";
};

io::ResultsLayout layout_of(int64_t rows, int64_t answer) {
  io::ResultsLayout layout;
  for (int64_t row = 0; row < rows; ++row)
    layout.turns.push_back({.request_id = std::to_string(row), .request = row, .slots = answer});
  layout.inputs = {"prompts.h5"};
  layout.vocab = 1 << 17;
  layout.identity = "{}";
  return layout;
}

io::TurnResult answer_of(int64_t row, int64_t tokens) {
  io::TurnResult result;
  for (int64_t i = 0; i < tokens; ++i) {
    result.tokens.push_back(static_cast<int32_t>(row + i));
    result.token_logprobs.push_back(-1e-3F * static_cast<float>(i));
  }
  result.prompt_tokens = 1000;
  result.finish_reason = io::FinishReason::length;
  result.mode = "ring/pass_kv+broadcast_q";
  return result;
}

/// A folder with results of all writers; it is removed with its content.
class Output {
 public:
  Output(const fs::path& in, int64_t rows, int64_t answer)
      : folder_(in / fmt::format(".pecia-bench-writers-{}", ::getpid())) {
    fs::create_directories(folder_);
    io::ResultsFile::create(results(), layout_of(rows, answer));
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  const fs::path& folder() const { return folder_; }
  fs::path results() const { return folder_ / "results.h5"; }

 private:
  fs::path folder_;
};

struct WriteTimes {
  double written_s = 0;  ///< until every writer's last row was durable
  double whole_s = 0;    ///< until the results had all rows
  std::vector<double> row_ms;
};

/// What a writer does with a row; called by its own thread.
using Write = std::function<void(const io::TurnUpdate&)>;

/// All writers begin at once; a row's time counts as soon as it is durable.
void write_all_rows(int64_t writers, const WritersOptions& options,
                    const std::function<Write(int64_t writer)>& begin_writer, WriteTimes& times) {
  std::vector<std::vector<double>> row_ms(writers);
  std::vector<std::exception_ptr> failures(writers);
  std::barrier start(writers + 1);
  std::vector<std::jthread> threads;
  for (int64_t writer = 0; writer < writers; ++writer)
    threads.emplace_back([&, writer] {
      const Write write = begin_writer(writer);
      start.arrive_and_wait();
      try {
        for (int64_t i = 0; i < options.rows; ++i) {
          const int64_t row = i * writers + writer;
          const io::TurnResult result = answer_of(row, options.answer);
          const Stopwatch watch;
          write({row, result, io::TurnState::done});
          row_ms[writer].push_back(1e3 * watch.seconds());
        }
      } catch (...) {
        failures[writer] = std::current_exception();
      }
    });
  const Stopwatch watch;
  start.arrive_and_wait();
  threads.clear();
  times.written_s = watch.seconds();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
  for (const auto& of_writer : row_ms)
    times.row_ms.insert(times.row_ms.end(), of_writer.begin(), of_writer.end());
  std::sort(times.row_ms.begin(), times.row_ms.end());
}

std::vector<io::ResultsFile> opened(const fs::path& results, int64_t times) {
  std::vector<io::ResultsFile> files;
  for (int64_t i = 0; i < times; ++i) files.emplace_back(results);
  return files;
}

WriteTimes into_one_file(const Output& output, int64_t writers, const WritersOptions& options) {
  WriteTimes times;
  std::vector<io::ResultsFile> files = opened(output.results(), writers);
  write_all_rows(
      writers, options,
      [&](int64_t writer) -> Write {
        return [&file = files[writer]](const io::TurnUpdate& row) {
          file.write_all(std::span(&row, 1));
        };
      },
      times);
  times.whole_s = times.written_s;
  return times;
}

WriteTimes by_journals(const Output& output, int64_t writers, const WritersOptions& options) {
  WriteTimes times;
  batch::make_journal_folder(output.folder());
  const std::vector<io::ResultsFile> files = opened(output.results(), writers);
  run::GatherResults gathering(output.folder());
  const Stopwatch watch;
  write_all_rows(
      writers, options,
      [&](int64_t writer) -> Write {
        return [journal = std::make_shared<io::JournalWriter>(
                    batch::journal_folder(output.folder()), writer, files[writer])](
                   const io::TurnUpdate& row) { journal->append(std::span(&row, 1)); };
      },
      times);
  gathering.finish();
  times.whole_s = watch.seconds();
  return times;
}

/// "" when the results have every row as it was written, and no journal is left.
std::string problem_of(const Output& output, const WritersOptions& options) {
  const io::ResultsFile results(output.results());
  for (int64_t row = 0; row < results.num_turns(); ++row)
    if (results.state(row) != io::TurnState::done ||
        results.read(row).tokens != answer_of(row, options.answer).tokens)
      return fmt::format("row {} of {} is not as it was written", row, results.num_turns());
  const fs::path journals = batch::journal_folder(output.folder());
  return fs::exists(journals) ? fmt::format("{} is left", journals.string()) : "";
}

void run_writers(const Session& session, const WritersOptions& options) {
  session.require_one_rank("it has a thread for each replica");
  Results results(session,
                  fmt::format("results of many replicas, rows of {} tokens, {} of each replica",
                              options.answer, options.rows),
                  {{"answer", options.answer}, {"rows", options.rows}});
  results.columns("replicas|          way|s of 1000 rows|s until whole|ms of a row|   p99|longest");
  for (const int64_t writers : options.writers)
    for (const auto& [name, way] :
         {std::pair("one file", &into_one_file), std::pair("journals", &by_journals)}) {
      const int64_t rows = writers * options.rows;
      std::vector<double> written, whole, median, p99, longest;
      for (int run = 0; run < session.options.runs; ++run) {
        const Output output(options.folder, rows, options.answer);
        const WriteTimes times = way(output, writers, options);
        if (session.options.check) check_together(session.world, problem_of(output, options));
        const double thousands = 1e-3 * static_cast<double>(rows);
        written.push_back(times.written_s / thousands);
        whole.push_back(times.whole_s / thousands);
        median.push_back(times.row_ms[times.row_ms.size() / 2]);
        p99.push_back(times.row_ms[times.row_ms.size() * 99 / 100]);
        longest.push_back(times.row_ms.back());
      }
      results.row("{}|{}|{:.3f}|{:.3f}|{:.2f}|{:.2f}|{:.2f}", writers, name, spread(written).median,
                  spread(whole).median, spread(median).median, spread(p99).median,
                  spread(longest).median);
      results.write(
          {{"replicas", writers},
           {"way", name},
           {"seconds_per_1000_rows",
            {{"durable", to_json(spread(written))}, {"in_results", to_json(spread(whole))}}},
           {"row_ms",
            {{"median", spread(median).median},
             {"p99", spread(p99).median},
             {"longest", spread(longest).median}}}});
    }
  if (session.options.check) results.line("checked: the results have every row as it was written");
}

}  // namespace

void add_writers(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<WritersOptions>();
  Command command(app, chosen, "writers",
                  "Times results that many replicas write at once, with no model",
                  [options](const Session& session) { run_writers(session, *options); });
  command.positive("--writers", &options->writers, "Replicas that write at once");
  command.positive("--rows", &options->rows, "Rows of each");
  command.positive("--answer", &options->answer, "Tokens of a row");
  command.add({.name = "--folder",
               .into = &options->folder,
               .help = "Where to write; a folder there is made and removed",
               .show_default = true});
}

}  // namespace pecia::bench
