// SPDX-License-Identifier: Apache-2.0
#include "lib/work/batch/output.hpp"

#include "lib/base/core/error.hpp"
#include "lib/work/batch/journals.hpp"
#include "lib/work/batch/set_aside.hpp"

namespace pecia::batch {
namespace {

std::filesystem::path made(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    fail<InputError>("output {} cannot be made: {}; choose another folder", folder.string(),
                     error.message());
  return folder;
}

void reopen(const std::filesystem::path& path, const Continuation& next) {
  io::ResultsFile results(path);
  for (size_t row = 0; row < next.fates.size(); ++row)
    if (next.fates[row] == Continuation::Fate::opened) results.reopen(static_cast<int64_t>(row));
}

}  // namespace

Output::Output(const std::filesystem::path& folder, const io::ResultsLayout& layout, bool fresh,
               bool retry_failed, const std::function<void(const std::string&)>& say,
               const DependsOn& depends_on)
    : lock_(made(folder)), results_path_(folder / "results.h5") {
  if (fresh) replay_journals_before_fresh(folder, say);
  if (fresh && std::filesystem::exists(results_path_))
    say(fmt::format("--fresh: the earlier results are now {}", set_aside(results_path_).string()));
  if (!std::filesystem::exists(results_path_)) {
    io::ResultsFile::create(results_path_, layout);
    return;
  }
  continues_ = true;
  const io::ResultsFile results(results_path_);
  const Continuation next = continuation(results, layout, retry_failed, results_path_, depends_on);
  for (const std::string& remark : next.remarks) say(remark);
  warnings_ = next.warnings;
  remove_unfinished_carry_over(results_path_);
  if (next.same_file)
    reopen(results_path_, next);
  else
    carry_over(results, next, results_path_);
}

}  // namespace pecia::batch
