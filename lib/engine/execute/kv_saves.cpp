// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/execute/kv_saves.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

#include "lib/base/core/escaped.hpp"
#include "lib/base/core/files.hpp"
#include "lib/base/core/fp8_vector.hpp"
#include "lib/base/report/format.hpp"
#include "lib/files/disk/sha256.hpp"
#include "lib/model/attention/recent_slots.hpp"
#include "lib/model/layers/recurrent_mixer.hpp"

namespace pecia::execute {
namespace {

namespace fs = std::filesystem;

constexpr int64_t no_pass = -1;

std::string sha256_of(std::span<const int32_t> tokens) {
  io::Sha256 hash;
  hash.update(std::as_bytes(tokens));
  return hash.hex();
}

/// The first tokens of the request, as far as they are known before it runs.
std::vector<int32_t> known_tokens(const batch::Request& request) {
  std::vector<int32_t> known;
  const auto add = [&](const std::vector<int32_t>& tokens) {
    known.insert(known.end(), tokens.begin(), tokens.end());
  };
  for (const batch::Turn& turn : request.turns) {
    add(turn.tokens);
    if (request.followup == io::Followup::fork) break;
    add(turn.answer.tokens);
    if (!turn.finished) break;
  }
  return known;
}

/// A number by which the files of a save are recognised.
int64_t stamp_of(const std::string& text) {
  io::Sha256 hash;
  hash.update(text);
  int64_t stamp = 0;
  const std::string digits = hash.hex().substr(0, 15);
  std::from_chars(digits.data(), digits.data() + digits.size(), stamp, 16);
  return stamp;
}

/// "00000012-book_1": the row, and the id in characters that every file system accepts.
std::string folder_name(int64_t row, const std::string& request_id) {
  constexpr size_t longest = 64;
  std::string name = request_id.substr(0, longest);
  for (char& c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.';
    if (!plain) c = '_';
  }
  return fmt::format("{:08}-{}", row, name);
}

/// The folder's entries, as far as they can be listed.
std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error))
    found.push_back(entry->path());
  return found;
}

bool settled(const io::ResultsFile& results, int64_t row) {
  const auto& turns = results.layout().turns;
  for (int64_t of = row; of < results.num_turns(); ++of) {
    if (turns[of].shard != turns[row].shard || turns[of].request != turns[row].request) break;
    const io::TurnState state = results.state(of);
    if (state != io::TurnState::done && state != io::TurnState::failed) return false;
  }
  return true;
}

}  // namespace

int64_t KvBytes::of_others() const {
  return (layers - window_layers) * sides * kv_heads * vector_bytes(dtype, head_dim);
}

int64_t KvBytes::of_windows() const {
  const auto [count, dim] = window_heads.count > 0 ? window_heads : io::KvHeads{kv_heads, head_dim};
  return window_layers * sides * count * vector_bytes(dtype, dim);
}

int64_t KvBytes::all(int64_t tokens) const {
  const int64_t kept = recent_tokens > 0 ? std::min(tokens, recent_tokens) : tokens;
  return of_others() * tokens + of_windows() * kept + state_of_all;
}

double KvBytes::share(int64_t tokens) const {
  if (recent_tokens == 0 || tokens <= recent_tokens) return 1;
  const double windows =
      static_cast<double>(of_windows()) / static_cast<double>(of_windows() + of_others());
  return 1 - windows * (1 - static_cast<double>(recent_tokens) / static_cast<double>(tokens));
}

std::optional<int64_t> shortest_worth_keeping(double linear_s, double quadratic_s,
                                              const KvBytes& bytes, const KvRates& rates) {
  // linear · n + quadratic · n² > keeping · n + state
  const double state_s = keeping_s(bytes, 0, rates);
  const double excess_s = keeping_s(bytes, 1, rates) - state_s - linear_s;
  if (excess_s <= 0 && state_s == 0) return 1;
  const double root = std::sqrt(excess_s * excess_s + 4 * quadratic_s * state_s);
  const double tokens =
      excess_s > 0 ? (excess_s + root) / (2 * quadratic_s) : 2 * state_s / (root - excess_s);
  if (!(tokens < 1e15)) return {};
  return static_cast<int64_t>(std::ceil(tokens));
}

KvBytes kv_bytes(const model::ModelConfig& config, const resources::Resources& resources) {
  const model::KvHeads heads = config.widest_heads();
  KvBytes bytes{config.num_layers(model::MixerKind::attention) - config.sharing_layers,
                heads.count,
                heads.dim,
                resources.kv_dtype,
                resources::kv_bytes_of_rank(config, resources),
                resources.shares()};
  if (config.values_in_keys() > 0) bytes.sides = 1;
  if (config.recurrent) {
    bytes.states = model::RecurrentMixer::saved_states(config);
    bytes.state_of_rank = config.state_bytes(int64_t{resources.sp} * resources.tp);
    bytes.state_of_all = config.state_bytes();
  }
  const bool recent = resources.kv_recent_tokens > 0;
  if (!recent && !config.full_heads) return bytes;
  bytes.window_layers = config.layers_with_window();
  if (config.full_heads) bytes.window_heads = {config.num_kv_heads, config.head_dim};
  if (!recent) return bytes;
  bytes.recent = {.window = config.widest_window(), .margin = attention::RecentSlots::margin};
  bytes.recent_tokens = bytes.recent.window.tokens + bytes.recent.margin;
  return bytes;
}

std::string keeping_line(const model::ModelConfig& config, const batch::Inputs& inputs,
                         const resources::Resources& resources, double flops) {
  const KvBytes bytes = kv_bytes(config, resources);
  const double attention = config.prompt_flops_per_pair() / 2;
  const auto shortest =
      shortest_worth_keeping(config.flops_per_token() / flops, attention / flops, bytes, {});
  if (!shortest) return "";
  const int64_t tokens = std::max(*shortest, resources.max_batch_tokens);
  int64_t prompts = 0;
  for (const batch::InputRequest& request : inputs.requests()) {
    int64_t length = 0;
    for (const io::PromptTurn& turn : inputs.prompt(request).turns) length += turn.num_tokens();
    prompts += length > tokens ? 1 : 0;
  }
  if (prompts == 0) return "";
  return fmt::format(
      "kv.save: if it has to stop, the run would keep prompts of which more than about {} tokens "
      "({}) have been read, if each rank writes and reads {} MB/s",
      report::format_count(static_cast<double>(tokens)), report::format_bytes(bytes.all(tokens)),
      KvRates::assumed / 1e6);
}

KvSaves::KvSaves(Settings settings, const io::ResultsFile& results)
    : settings_(std::move(settings)), results_(results) {}

fs::path KvSaves::folder_of(int64_t row) const {
  return settings_.folder / folder_name(row, results_.layout().turns.at(row).request_id);
}

void KvSaves::find(batch::Request& request) {
  const int64_t row = batch::kept_row(request);
  const fs::path folder = folder_of(row);
  const auto reread = [&](const std::string& why) {
    settings_.warn(fmt::format("{}: {}; the prompt is read again", folder.string(), why));
  };
  try {
    auto save = io::read_kv_save(folder);
    if (!save) return;
    const std::vector<int32_t> known = known_tokens(request);
    if (save->identity != settings_.identity) return reread("kept for another model or precision");
    if (save->tokens > std::ssize(known) ||
        sha256_of(std::span(known).first(save->tokens)) != save->tokens_sha256)
      return reread("kept for other tokens");
    if (save->states.any() && save->tokens == std::ssize(known) && !needs_no_last_output(request))
      return reread(fmt::format(
          "its states are those after {} tokens, and the last of these gives the answer",
          save->tokens));
    request.saved = {folder.string(), save->tokens, row, save->least};
    saves_.insert_or_assign(row, std::move(*save));
  } catch (const InputError& error) {
    reread(error.what());
  }
}

std::optional<schedule::Plan> KvSaves::next(const schedule::Scheduler& scheduler, double now,
                                            execute::ReplicaTotals& totals) {
  if (!end_s_) {
    end_s_ = now + settings_.seconds;
    left_ = scheduler.keepable();
    // The last one is kept first. It is one in the cache, since parked keys need room there, and of
    // these the one that took longest, in case time runs out.
    std::ranges::sort(*left_, {}, [](const schedule::KeepableKv& of) {
      return std::pair(of.reserved.empty(), of.computed_s);
    });
  }
  for (; !left_->empty(); left_->pop_back()) {
    const schedule::KeepableKv& kept = left_->back();
    const int64_t tokens = std::ssize(kept.tokens) - kept.begin;
    if (kept.computed_s <= keeping_s(settings_.bytes, tokens, rates_)) {
      ++totals.not_worth_keeping;
      continue;
    }
    const double write_s = settings_.bytes.each(tokens) / rates_.write;
    const auto words = [&](const std::string& why) {
      settings_.warn(fmt::format("the keys and values of {} are not kept: {}",
                                 results_.layout().turns.at(kept.row).request_id, why));
    };
    // The disk's speed is unknown until a file has been written, so the first write is always
    // tried.
    if (write_is_measured_ && now + write_s > *end_s_) {
      words(fmt::format("writing {} may take {}, {} of limits.grace are left",
                        report::format_bytes(settings_.bytes.all(tokens)),
                        report::format_duration(write_s),
                        report::format_duration(std::max(0.0, *end_s_ - now))));
      continue;
    }
    schedule::Plan plan;
    plan.number = no_pass;
    plan.shortened = scheduler.shortened();
    try {
      make(kept, plan);
    } catch (const SystemError& error) {
      words(error.what());
      continue;
    }
    plan.save.seconds = *end_s_ - now;
    plan.save.reserved = kept.reserved;
    left_->pop_back();
    if (!plan.save.reserved.empty())
      for (const schedule::KeepableKv& later : *left_) plan.save.later.push_back(later.sequence);
    return plan;
  }
  return {};
}

/// Fills in the plan, and the description of the save as it will be.
void KvSaves::make(const schedule::KeepableKv& kept, schedule::Plan& plan) {
  plan.teams = {{{kept.instances.begin(), kept.instances.end()}}};
  const fs::path folder = folder_of(kept.row);
  const int64_t end = std::ssize(kept.tokens);
  const auto earlier = saves_.find(kept.row);
  const bool continues = kept.begin > 0 && earlier != saves_.end();
  PECIA_CHECK(kept.begin == 0 || continues, "row {} continues no save", kept.row);
  if (!results_.is_in_place()) fail<SystemError>("the results were moved or removed");
  if (!continues) io::remove_kv_save(folder);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    fail<SystemError>("{}: the folder cannot be made: {}", folder.string(), error.message());
  if (fs::is_symlink(folder, error))
    fail<SystemError>("{} is a symbolic link, and a run makes folders there", folder.string());
  const int64_t needed = settings_.bytes.all(end - kept.begin);
  const fs::space_info space = fs::space(folder, error);
  if (!error && static_cast<int64_t>(space.available) < needed)
    fail<SystemError>("{} needs {} bytes, {} are free", folder.string(), needed, space.available);

  const std::string& request_id = results_.layout().turns.at(kept.row).request_id;
  io::KvSave save = continues ? earlier->second : io::KvSave{};
  std::erase_if(save.parts, [](const io::KvPart& part) { return are_states(part.layers); });
  save.identity = settings_.identity;
  save.request_id = request_id;
  save.row = kept.row;
  save.tokens = end;
  save.tokens_sha256 = sha256_of(kept.tokens);
  save.layers = settings_.bytes.layers;
  save.kv_heads = settings_.bytes.kv_heads;
  save.head_dim = settings_.bytes.head_dim;
  save.dtype = settings_.bytes.dtype;
  save.sides = settings_.bytes.sides;
  if (const int64_t layers = settings_.bytes.window_layers; layers > 0) {
    save.window_layers = layers;
    save.window_heads = settings_.bytes.window_heads;
  }
  if (settings_.bytes.recent_tokens > 0) {
    save.recent_from = std::max<int64_t>(0, settings_.bytes.recent.first_kept(end));
    save.least = std::max<int64_t>(0, end - attention::RecentSlots::margin);
  }
  if (settings_.bytes.states.any()) {
    save.states = settings_.bytes.states;
    save.least = end;
  }
  plan.save = {kept.sequence,
               kept.begin,
               end,
               folder.string(),
               request_id,
               stamp_of(settings_.identity + save.tokens_sha256 + std::to_string(kept.begin)),
               0};
  under_way_ = std::move(save);
}

void KvSaves::commit(const schedule::Plan& plan, const std::vector<schedule::Outcome>& outcomes,
                     execute::ReplicaTotals& totals) {
  if (plan.saves())
    commit_save(plan, outcomes, totals);
  else
    commit_restore(plan, outcomes, totals);
}

void KvSaves::commit_save(const schedule::Plan& plan,
                          const std::vector<schedule::Outcome>& outcomes,
                          execute::ReplicaTotals& totals) {
  io::KvSave save = std::move(under_way_.value());
  under_way_.reset();
  std::string error;
  double seconds = 0;
  int64_t most_bytes = 0, bytes = 0;
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    const schedule::KvOutcome& kv = outcomes[rank].kv;
    if (kv.done == 0 && error.empty()) error = fmt::format("rank {}: {}", rank, kv.error);
    seconds = std::max(seconds, kv.seconds);
    most_bytes = std::max(most_bytes, kv.bytes);
    bytes += kv.bytes;
    save.parts.insert(save.parts.end(), kv.parts.begin(), kv.parts.end());
  }
  save.bytes += bytes;
  if (error.empty()) {
    try {
      io::write_kv_save(plan.save.folder, save);
    } catch (const SystemError& failed) {
      error = failed.what();
    }
  }
  if (!error.empty()) {
    settings_.warn(
        fmt::format("the keys and values of {} are not kept: {}", escaped(save.request_id), error));
    const auto earlier = saves_.find(save.row);
    if (plan.save.begin > 0 && earlier != saves_.end())
      io::remove_unnamed_files(plan.save.folder, earlier->second);
    else
      io::remove_kv_save(plan.save.folder);
    return;
  }
  io::remove_unnamed_files(plan.save.folder, save);
  if (seconds > 0 && most_bytes > 0) {
    rates_.write = static_cast<double>(most_bytes) / seconds;
    write_is_measured_ = true;
  }
  ++totals.kept_requests;
  totals.kept_tokens += plan.save.end - plan.save.begin;
  totals.kept_bytes += bytes;
  totals.keep_s += seconds;
  saves_.insert_or_assign(save.row, std::move(save));
}

void KvSaves::commit_restore(const schedule::Plan& plan,
                             const std::vector<schedule::Outcome>& outcomes,
                             execute::ReplicaTotals& totals) {
  double seconds = 0;
  int64_t most_bytes = 0;
  std::string error;
  bool restored = true;
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    const schedule::KvOutcome& kv = outcomes[rank].kv;
    restored = restored && kv.done != 0;
    if (!kv.error.empty() && error.empty()) error = fmt::format("rank {}: {}", rank, kv.error);
    seconds = std::max(seconds, kv.seconds);
    most_bytes = std::max(most_bytes, kv.bytes);
  }
  const parallel::PassSequence& rows = plan.items.front().rows;
  if (!restored) {
    settings_.warn(
        fmt::format("{}; the prompt is read again from position {} on", error, rows.first));
    // A damaged save must not become the beginning of a later one.
    std::erase_if(saves_, [&](const auto& save) { return folder_of(save.first) == plan.restore; });
    return;
  }
  if (seconds > 0 && most_bytes > 0) rates_.read = static_cast<double>(most_bytes) / seconds;
  totals.restored_requests += rows.first == 0 ? 1 : 0;
  totals.restored_tokens += rows.count;
  totals.restore_s += seconds;
  if (settings_.flops) {
    const auto begin = static_cast<double>(rows.first),
               end = begin + static_cast<double>(rows.count);
    totals.restored_flops += settings_.flops(end) - settings_.flops(begin);
  }
}

void KvSaves::forget_settled() {
  for (auto save = saves_.begin(); save != saves_.end();) {
    const int64_t row = save->first;
    if (!settled(results_, row)) {
      ++save;
      continue;
    }
    io::remove_kv_save(folder_of(row));
    save = saves_.erase(save);
  }
}

void sweep_kv_saves(const fs::path& folder, const io::ResultsFile& results, bool fresh) {
  std::error_code unreachable;
  for (const fs::path& path : entries(folder)) {
    const std::string name = path.filename().string();
    int64_t row = -1;
    const auto number = std::from_chars(name.data(), name.data() + name.size(), row);
    if (number.ec != std::errc() || *number.ptr != '-') continue;  // not as folder_name makes it
    const bool known = row >= 0 && row < results.num_turns() &&
                       name == folder_name(row, results.layout().turns[row].request_id);
    const bool whole = fs::exists(path / io::kv_save_file, unreachable);
    if (fresh || !known || !whole || settled(results, row)) io::remove_kv_save(path);
  }
  if (!fs::is_symlink(folder, unreachable)) fs::remove(folder, unreachable);  // if it is empty
}

fs::path make_kv_folder(const fs::path& output, const fs::path& asked) {
  const fs::path own = output / "kv";
  refuse_foreign_link(own);
  std::error_code error;
  if (asked.empty() || fs::exists(own, error)) return own;
  io::Sha256 hash;
  hash.update(fs::weakly_canonical(output, error).string());
  const fs::path there =
      fs::absolute(asked, error) / fmt::format("{}-{:.8}", output.filename().string(), hash.hex());
  fs::create_directories(there, error);
  if (error)
    fail<InputError>("kv.save: {} cannot be made: {}; name another folder, or auto", there.string(),
                     error.message());
  fs::remove(own, error);  // a link to a folder that is gone
  fs::create_directory_symlink(there, own, error);
  if (error)
    fail<InputError>("{} cannot be made a link to {}: {}", own.string(), there.string(),
                     error.message());
  return own;
}

}  // namespace pecia::execute
