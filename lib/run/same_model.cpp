// SPDX-License-Identifier: Apache-2.0
#include "lib/run/same_model.hpp"

#include <vector>

#include "lib/base/core/archive.hpp"
#include "lib/base/core/counted.hpp"
#include "lib/base/core/error.hpp"

namespace pecia::run {
namespace {

constexpr int most_ranks_named = 8;

struct ModelOfRank {
  std::string host;
  model::Fingerprint model;

  template <typename A>
  void visit(A& archive) {
    archive(host);
    model.visit(archive);
  }
};

/// "config.json, tokenizer.json (which it lacks)": the parts that a rank has other than rank 0.
std::string differing_parts(const model::Fingerprint& rank0, const model::Fingerprint& other) {
  std::string text;
  for (size_t part = 0; part < rank0.parts.size(); ++part) {
    if (other.parts[part] == rank0.parts[part]) continue;
    text += (text.empty() ? "" : ", ") + std::string(model::Fingerprint::part_names[part]);
    if (other.parts[part].empty()) text += " (which it lacks)";
    if (rank0.parts[part].empty()) text += " (which rank 0 lacks)";
  }
  return text;
}

}  // namespace

void require_same_model(comm::Communicator& world, const std::string& host,
                        const model::Fingerprint& mine, const std::filesystem::path& folder) {
  std::vector<ModelOfRank> all;
  for (const auto& bytes : world.all_gather(to_bytes(ModelOfRank{host, mine})))
    all.push_back(from_bytes<ModelOfRank>(bytes));
  std::string lines;
  int others = 0;
  for (size_t rank = 1; rank < all.size(); ++rank) {
    const std::string what = differing_parts(all[0].model, all[rank].model);
    if (what.empty() || ++others > most_ranks_named) continue;
    lines += fmt::format("\n       rank {} on host {} differs in: {}", rank, all[rank].host, what);
  }
  if (others == 0) return;
  if (others > most_ranks_named)
    lines += fmt::format("\n       {} more", counted(others - most_ranks_named, "rank"));
  fail<InputError>(
      "the model in {} is not the same on all ranks; rank 0 on host {} has another than:{}\n       "
      "Copy the model to these hosts again, or let model.path name a folder that all hosts share.",
      folder.string(), all[0].host, lines);
}

}  // namespace pecia::run
