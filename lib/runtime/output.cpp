#include "lib/runtime/output.hpp"

#include "lib/runtime/identity.hpp"

namespace pecia::runtime {
namespace {

std::filesystem::path made(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    fail<InputError>("output {} cannot be made: {}; choose another folder", folder.string(),
                     error.message());
  return folder;
}

void set_aside(const std::filesystem::path& results,
               const std::function<void(const std::string&)>& say) {
  for (int number = 1;; ++number) {
    const std::filesystem::path older =
        results.parent_path() / fmt::format("results.{}.h5", number);
    if (std::filesystem::exists(older)) continue;
    std::filesystem::rename(results, older);
    say(fmt::format("--fresh: the earlier results are now {}", older.string()));
    return;
  }
}

}  // namespace

Output::Output(const std::filesystem::path& folder, const io::ResultsLayout& layout, bool fresh,
               bool retry_failed, const std::function<void(const std::string&)>& say)
    : lock_(made(folder)), results_path_(folder / "results.h5") {
  if (fresh && std::filesystem::exists(results_path_)) set_aside(results_path_, say);
  if (!std::filesystem::exists(results_path_)) {
    io::ResultsFile::create(results_path_, layout);
    return;
  }
  continues_ = true;
  io::ResultsFile results(results_path_);
  require_same_identity(results.layout().identity, layout.identity, results_path_);
  if (!retry_failed) return;
  for (int64_t turn = 0; turn < results.num_turns(); ++turn)
    if (results.state(turn) == io::TurnState::failed) results.reopen(turn);
}

}  // namespace pecia::runtime
