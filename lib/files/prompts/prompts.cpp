// SPDX-License-Identifier: Apache-2.0
#include "lib/files/prompts/prompts.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>
#include <unordered_map>

#include "lib/base/core/counted.hpp"
#include "lib/base/core/error.hpp"
#include "lib/base/core/escaped.hpp"
#include "lib/files/disk/fault_note.hpp"
#include "lib/files/hdf5/hdf5.hpp"
#include "lib/files/text/utf8.hpp"

namespace pecia::io {
namespace {

constexpr const char* prompts_schema = "pecia.prompts/1";
constexpr const char* remedy = "make the shard again, as with scripts/pecia-pack";
constexpr int32_t no_max_new_tokens = -1;
constexpr int64_t no_seed = std::numeric_limits<int64_t>::min();

Hdf5Dataset required(const Hdf5File& file, const std::filesystem::path& path, const char* name) {
  if (!file.has(name))
    fail<InputError>(
        "{}: {} is missing; a prompt shard needs /tokens, /turn_offsets, "
        "/request_offsets and /request_id: {}",
        path.string(), name, remedy);
  return file.dataset(name);
}

/// Reads offsets of `num_parts` adjacent parts that fill the `num_elements` elements of
/// `elements_name`.
std::vector<int64_t> read_offsets(const Hdf5Dataset& dataset, const char* elements_name,
                                  int64_t num_elements) {
  std::vector<int64_t> offsets = read_int64(dataset);
  const std::string& where = dataset.where();
  if (offsets.empty())
    fail<InputError>("{} is empty; it must have one entry more than parts: {}", where, remedy);
  if (offsets.front() != 0)
    fail<InputError>("{}[0] is {}; it must be 0: {}", where, offsets.front(), remedy);
  for (size_t row = 1; row < offsets.size(); ++row) {
    if (offsets[row] < offsets[row - 1])
      fail<InputError>("{}[{}] is {}, less than the {} before it; offsets must not fall: {}", where,
                       row, offsets[row], offsets[row - 1], remedy);
    if (offsets[row] > num_elements)
      fail<InputError>("{}[{}] is {}, beyond the {} entries of {}: {}", where, row, offsets[row],
                       num_elements, elements_name, remedy);
  }
  if (offsets.back() != num_elements)
    fail<InputError>("{}[{}], the last, is {}, but {} has {} entries; none may be left over: {}",
                     where, offsets.size() - 1, offsets.back(), elements_name, num_elements,
                     remedy);
  return offsets;
}

/// Reads the values of a dataset per turn or per request; empty when it is absent.
template <typename T>
std::vector<T> read_optional(const Hdf5File& file, const char* name,
                             std::vector<T> (*read)(const Hdf5Dataset&), int64_t num_rows,
                             const char* rows_name) {
  if (!file.has(name)) return {};
  const Hdf5Dataset dataset = file.dataset(name);
  std::vector<T> values = read(dataset);
  if (static_cast<int64_t>(values.size()) != num_rows)
    fail<InputError>("{} has {} for {} {}; it must have one for each: {}", dataset.where(),
                     counted(std::ssize(values), "row"), num_rows, rows_name, remedy);
  return values;
}

/// Throws for the first value for which `allowed` is false.
template <typename T, typename Allowed>
void check_values(const std::filesystem::path& path, const char* name, const std::vector<T>& values,
                  const char* range, const Allowed& allowed) {
  for (size_t row = 0; row < values.size(); ++row)
    if (!allowed(values[row]))
      fail<InputError>("{}: {}[{}] is {}; it must be {}: {}", path.string(), name, row, values[row],
                       range, remedy);
}

/// A dataset with a number for each turn, NaN where the job's holds.
std::vector<float> read_numbers(const Hdf5File& file, const std::filesystem::path& path,
                                const char* name, int64_t num_turns, const char* range,
                                bool (*allowed)(float)) {
  std::vector<float> values = read_optional(file, name, read_float, num_turns, "turns");
  check_values(path, name, values, range,
               [&](float value) { return std::isnan(value) || allowed(value); });
  return values;
}

/// The value of a row; absent where the shard has none, or has the one that stands for none.
std::optional<float> value_at(const std::vector<float>& values, int64_t row) {
  return values.empty() || std::isnan(values[row]) ? std::nullopt : std::optional(values[row]);
}
std::optional<int32_t> value_at(const std::vector<int32_t>& values, int64_t row) {
  constexpr int32_t none = -1;
  return values.empty() || values[row] == none ? std::nullopt : std::optional(values[row]);
}

/// The biases of each turn; empty where the shard has none. Checks everything but the vocabulary.
class LogitBiases {
 public:
  LogitBiases(const Hdf5File& file, const std::filesystem::path& path, int64_t num_turns) {
    constexpr const char *offsets = "/logit_bias_offsets", *tokens = "/logit_bias_tokens",
                         *values = "/logit_bias";
    if (!file.has(offsets) && !file.has(tokens) && !file.has(values)) return;
    for (const char* name : {offsets, tokens, values})
      if (!file.has(name))
        fail<InputError>("{}: {} is missing; biases need {}, {} and {}: {}", path.string(), name,
                         offsets, tokens, values, remedy);
    tokens_ = read_int32(file.dataset(tokens));
    values_ = read_optional(file, values, read_float, std::ssize(tokens_), "tokens");
    offsets_ = read_offsets(file.dataset(offsets), tokens, std::ssize(tokens_));
    if (std::ssize(offsets_) != num_turns + 1)
      fail<InputError>("{}: {} has {} for {}; it must have one more than turns: {}", path.string(),
                       offsets, counted(std::ssize(offsets_), "row"), counted(num_turns, "turn"),
                       remedy);
    check_values(path, tokens, tokens_, "a token id", [](int32_t token) { return token >= 0; });
    check_values(path, values, values_, "a number from -100 to 100",
                 [](float bias) { return bias >= -100 && bias <= 100; });
    for (int64_t turn = 0; turn < num_turns; ++turn) {
      std::vector<int32_t> named(tokens_.begin() + offsets_[turn],
                                 tokens_.begin() + offsets_[turn + 1]);
      std::sort(named.begin(), named.end());
      const auto twice = std::adjacent_find(named.begin(), named.end());
      if (twice != named.end())
        fail<InputError>("{}: {} names token {} twice in turn {}; name it once: {}", path.string(),
                         tokens, *twice, turn, remedy);
    }
  }

  std::vector<kernels::LogitBias> of(int64_t turn) const {
    std::vector<kernels::LogitBias> biases;
    if (!offsets_.empty())
      for (int64_t i = offsets_[turn]; i < offsets_[turn + 1]; ++i)
        biases.push_back({tokens_[i], values_[i]});
    return biases;
  }

 private:
  std::vector<int64_t> offsets_;
  std::vector<int32_t> tokens_;
  std::vector<float> values_;
};

/// Reads the offsets of each turn's rows among `num_rows` of `rows_name`.
std::vector<int64_t> read_turn_offsets(const Hdf5File& file, const std::filesystem::path& path,
                                       const char* name, const char* rows_name, int64_t num_rows,
                                       int64_t num_turns) {
  if (!file.has(name))
    fail<InputError>("{}: {} is missing, which says which rows of {} are of which turn: {}",
                     path.string(), name, rows_name, remedy);
  std::vector<int64_t> offsets = read_offsets(file.dataset(name), rows_name, num_rows);
  if (std::ssize(offsets) != num_turns + 1)
    fail<InputError>("{}: {} has {} for {}; it must have one more than turns: {}", path.string(),
                     name, counted(std::ssize(offsets), "row"), counted(num_turns, "turn"), remedy);
  return offsets;
}

/// The spans of each turn; none where the shard has none.
std::vector<std::vector<TokenSpan>> read_spans(const Hdf5File& file,
                                               const std::filesystem::path& path,
                                               int64_t num_turns) {
  std::vector<std::vector<TokenSpan>> spans(num_turns);
  constexpr const char* name = "/spans";
  if (!file.has(name)) return spans;
  const auto pairs = read_int64_pairs(file.dataset(name));
  const std::vector<int64_t> offsets =
      read_turn_offsets(file, path, "/span_offsets", name, std::ssize(pairs), num_turns);
  for (int64_t turn = 0; turn < num_turns; ++turn)
    for (int64_t row = offsets[turn]; row < offsets[turn + 1]; ++row)
      spans[turn].push_back({pairs[row].first, pairs[row].second});
  return spans;
}

/// The continuations of each turn; none where the shard has none.
std::vector<std::vector<std::vector<int32_t>>> read_continuations(const Hdf5File& file,
                                                                  const std::filesystem::path& path,
                                                                  int64_t num_turns) {
  std::vector<std::vector<std::vector<int32_t>>> continuations(num_turns);
  constexpr const char *lengths_name = "/continuation_lengths", *name = "/continuation_tokens";
  if (!file.has(lengths_name) && !file.has(name)) return continuations;
  for (const char* needed : {lengths_name, name})
    if (!file.has(needed))
      fail<InputError>("{}: {} is missing; continuations need {} and {}: {}", path.string(), needed,
                       lengths_name, name, remedy);
  const std::vector<int32_t> lengths = read_int32(file.dataset(lengths_name));
  const std::vector<int32_t> tokens = read_int32(file.dataset(name));
  check_values(path, lengths_name, lengths, "at least 1", [](int32_t n) { return n >= 1; });
  const int64_t all = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  if (all != std::ssize(tokens))
    fail<InputError>("{}: the {} together say {} tokens, {} has {}: {}", path.string(),
                     lengths_name, all, name, tokens.size(), remedy);
  const std::vector<int64_t> offsets = read_turn_offsets(
      file, path, "/continuation_offsets", lengths_name, std::ssize(lengths), num_turns);
  auto token = tokens.begin();
  for (int64_t turn = 0; turn < num_turns; ++turn)
    for (int64_t row = offsets[turn]; row < offsets[turn + 1]; ++row) {
      continuations[turn].emplace_back(token, token + lengths[row]);
      token += lengths[row];
    }
  return continuations;
}

/// The stop strings in a row of /stop; absent when the row leaves them to the job.
std::optional<std::vector<std::string>> read_stop(const std::filesystem::path& path, size_t row,
                                                  const std::string& text) {
  if (text.empty()) return {};
  using nlohmann::json;
  bool nested = false;
  const auto is_flat = [&](int depth, json::parse_event_t, json&) {
    nested = nested || depth > 1;
    return depth <= 1;
  };
  const json parsed = json::parse(text, is_flat, /*allow_exceptions=*/false);
  const bool allowed =
      !nested && parsed.is_array() && std::all_of(parsed.begin(), parsed.end(), [](const json& v) {
        return v.is_string() && !v.get_ref<const std::string&>().empty();
      });
  if (!allowed)
    fail<InputError>(
        "{}: /stop[{}] is '{}'; it must be a JSON array of texts that are not empty, as "
        "[\"\\n\\n\"], or empty where the job's hold: {}",
        path.string(), row, escaped(fitted_utf8(text, 60)), remedy);
  return parsed.get<std::vector<std::string>>();
}

void check_ids(const std::string& where, const std::vector<PromptRequest>& requests) {
  std::unordered_map<std::string_view, int64_t> row_of;
  row_of.reserve(requests.size());
  for (const PromptRequest& request : requests) {
    if (request.id.empty())
      fail<InputError>("{}[{}] is empty; every request needs an id: {}", where, request.row,
                       remedy);
    if (!is_utf8(request.id) || request.id.find('\0') != std::string::npos)
      fail<InputError>("{}[{}] is no UTF-8 text; ids must be UTF-8 without NUL: {}", where,
                       request.row, remedy);
    const auto [earlier, added] = row_of.emplace(request.id, request.row);
    if (!added)
      fail<InputError>("{}[{}] is '{}', as is row {}; ids must be unique: rename one", where,
                       request.row, escaped(request.id), earlier->second);
  }
}

Hdf5Dataset opened_tokens(const Hdf5File& file, const std::filesystem::path& path) {
  const std::string found = file.text_attribute("schema").value_or(prompts_schema);
  if (found != prompts_schema)
    fail<InputError>("{}: attribute 'schema' is '{}'; this version reads '{}': {}", path.string(),
                     found, prompts_schema, remedy);
  Hdf5Dataset tokens = required(file, path, "/tokens");
  if (tokens.type_class() != H5T_INTEGER)
    fail<InputError>("{} holds {}; write it as int32: {}", tokens.where(), tokens.type_name(),
                     remedy);
  tokens.check_readable_list();
  return tokens;
}

}  // namespace

struct PromptShard::Impl {
  explicit Impl(const std::filesystem::path& shard)
      : path(shard), file(Hdf5File::open(shard)), tokens(opened_tokens(file, path)) {
    read_attributes();
    read_requests();
  }

  void read_attributes() {
    const std::string text = file.text_attribute("followup").value_or("chain");
    if (text != "chain" && text != "fork")
      fail<InputError>("{}: attribute 'followup' is '{}'; it may be 'chain' or 'fork'",
                       path.string(), text);
    followup = text == "chain" ? Followup::chain : Followup::fork;
    tokenizer_sha256 = file.text_attribute("tokenizer_sha256").value_or("");
    created_by = file.text_attribute("created_by").value_or("");
    vocab_size = file.integer_attribute("vocab_size").value_or(0);
    if (vocab_size < 0)
      fail<InputError>("{}: attribute 'vocab_size' is {}; it must be positive", path.string(),
                       vocab_size);
  }

  void read_requests() {
    const auto turn_offsets =
        read_offsets(required(file, path, "/turn_offsets"), "/tokens", tokens.elements());
    const int64_t num_turns = static_cast<int64_t>(turn_offsets.size()) - 1;
    const Hdf5Dataset request_offsets_dataset = required(file, path, "/request_offsets");
    const auto request_offsets = read_offsets(request_offsets_dataset, "the turns", num_turns);
    const int64_t num_requests = static_cast<int64_t>(request_offsets.size()) - 1;
    const Hdf5Dataset ids_dataset = required(file, path, "/request_id");
    std::vector<std::string> ids = read_text(ids_dataset);
    if (static_cast<int64_t>(ids.size()) != num_requests)
      fail<InputError>("{} has {}, but /request_offsets describes {}: {}", ids_dataset.where(),
                       counted(std::ssize(ids), "row"), counted(num_requests, "request"), remedy);
    const auto max_new = read_optional(file, "/max_new_tokens", read_int32, num_turns, "turns");
    const auto numbers = [&](const char* name, const char* range, bool (*allowed)(float)) {
      return read_numbers(file, path, name, num_turns, range, allowed);
    };
    const auto temperature =
        numbers("/temperature", "a number of at least 0, or NaN where the job's holds",
                [](float t) { return t >= 0 && std::isfinite(t); });
    const auto top_p = numbers("/top_p", "above 0, up to 1, or NaN where the job's holds",
                               [](float p) { return p > 0 && p <= 1; });
    const auto min_p = numbers("/min_p", "from 0 to 1, or NaN where the job's holds",
                               [](float p) { return p >= 0 && p <= 1; });
    const auto repetition =
        numbers("/repetition_penalty", "a number above 0, or NaN where the job's holds",
                [](float p) { return p > 0 && std::isfinite(p); });
    constexpr const char* penalty_range = "a number from -2 to 2, or NaN where the job's holds";
    const auto is_penalty = [](float p) { return p >= -2 && p <= 2; };
    const auto presence = numbers("/presence_penalty", penalty_range, is_penalty);
    const auto frequency = numbers("/frequency_penalty", penalty_range, is_penalty);
    const auto top_k = read_optional(file, "/top_k", read_int32, num_turns, "turns");
    const auto ignore_eos = read_optional(file, "/ignore_eos", read_int32, num_turns, "turns");
    const auto logprobs = read_optional(file, "/logprobs", read_int32, num_turns, "turns");
    const LogitBiases biases(file, path, num_turns);
    const auto seed = read_optional(file, "/seed", read_int64, num_turns, "turns");
    const auto arrival = read_optional(file, "/arrival_s", read_double, num_requests, "requests");
    const auto stop = read_optional(file, "/stop", read_text, num_turns, "turns");
    const auto shape = read_optional(file, "/shape", read_text, num_turns, "turns");
    const auto produce = read_optional(file, "/produce", read_int32, num_turns, "turns");
    auto spans = read_spans(file, path, num_turns);
    auto continuations = read_continuations(file, path, num_turns);
    check_values(path, "/produce", produce, "0 (text), 1 (vector), 2 (score) or 3 (rerank)",
                 [](int32_t kind) { return kind >= 0 && kind < num_produce_kinds; });
    check_values(path, "/max_new_tokens", max_new, "0 or more, or -1 where the job's holds",
                 [](int32_t n) { return n >= no_max_new_tokens; });
    check_values(path, "/top_k", top_k, "0 (all) or more, or -1 where the job's holds",
                 [](int32_t k) { return k >= -1; });
    check_values(path, "/ignore_eos", ignore_eos, "0, 1, or -1 where the job's holds",
                 [](int32_t ignore) { return ignore >= -1 && ignore <= 1; });
    check_values(path, "/logprobs", logprobs, "0 or more, or -1 where none are asked for",
                 [](int32_t count) { return count >= -1; });
    check_values(path, "/arrival_s", arrival, "seconds after the start",
                 [](double s) { return s >= 0 && std::isfinite(s); });

    requests.resize(num_requests);
    for (int64_t row = 0; row < num_requests; ++row) {
      PromptRequest& request = requests[row];
      request.id = std::move(ids[row]);
      request.row = row;
      if (request_offsets[row] == request_offsets[row + 1])
        fail<InputError>("{}[{}]: request '{}' has no turns; every request needs one: {}",
                         request_offsets_dataset.where(), row, escaped(request.id), remedy);
      if (!arrival.empty()) request.arrival_s = arrival[row];
      request.turns.reserve(request_offsets[row + 1] - request_offsets[row]);
      for (int64_t t = request_offsets[row]; t < request_offsets[row + 1]; ++t) {
        PromptTurn& turn = request.turns.emplace_back();
        turn.token_begin = turn_offsets[t];
        turn.token_end = turn_offsets[t + 1];
        if (!max_new.empty() && max_new[t] != no_max_new_tokens) turn.max_new_tokens = max_new[t];
        turn.temperature = value_at(temperature, t);
        turn.top_p = value_at(top_p, t);
        turn.min_p = value_at(min_p, t);
        turn.repetition_penalty = value_at(repetition, t);
        turn.presence_penalty = value_at(presence, t);
        turn.frequency_penalty = value_at(frequency, t);
        turn.top_k = value_at(top_k, t);
        if (const auto ignore = value_at(ignore_eos, t)) turn.ignore_eos = *ignore == 1;
        turn.logprobs = value_at(logprobs, t);
        turn.logit_bias = biases.of(t);
        if (!seed.empty() && seed[t] != no_seed) turn.seed = seed[t];
        if (!stop.empty()) turn.stop = read_stop(path, t, stop[t]);
        if (!shape.empty() && !shape[t].empty()) turn.shape = shape[t];
        if (!produce.empty()) turn.produce = static_cast<Produce>(produce[t]);
        turn.spans = std::move(spans[t]);
        turn.continuations = std::move(continuations[t]);
      }
    }
    check_ids(ids_dataset.where(), requests);
  }

  std::vector<int32_t> read_tokens(int64_t begin, int64_t end) const {
    PECIA_CHECK(0 <= begin && begin <= end && end <= tokens.elements(), "tokens [{}, {}) of {}",
                begin, end, tokens.elements());
    std::vector<int32_t> read(end - begin);
    const FaultNote note(path);
    tokens.read(begin, end - begin, H5T_NATIVE_INT32, read.data());
    return read;
  }

  std::filesystem::path path;
  Hdf5File file;
  Hdf5Dataset tokens;
  std::vector<PromptRequest> requests;
  Followup followup = Followup::chain;
  std::string tokenizer_sha256, created_by;
  int64_t vocab_size = 0;
};

PromptShard::PromptShard(const std::filesystem::path& path)
    : impl_([&] {
        const FaultNote note(path);
        return std::make_unique<Impl>(path);
      }()) {}
PromptShard::~PromptShard() = default;
PromptShard::PromptShard(PromptShard&&) noexcept = default;
PromptShard& PromptShard::operator=(PromptShard&&) noexcept = default;

const std::filesystem::path& PromptShard::path() const {
  return impl_->path;
}
const std::vector<PromptRequest>& PromptShard::requests() const {
  return impl_->requests;
}
Followup PromptShard::followup() const {
  return impl_->followup;
}
std::string PromptShard::tokenizer_sha256() const {
  return impl_->tokenizer_sha256;
}
int64_t PromptShard::vocab_size() const {
  return impl_->vocab_size;
}
std::string PromptShard::created_by() const {
  return impl_->created_by;
}

std::vector<int32_t> PromptShard::tokens(const PromptTurn& turn) const {
  return impl_->read_tokens(turn.token_begin, turn.token_end);
}

std::span<const int32_t> PromptScan::tokens(const PromptTurn& turn) {
  constexpr int64_t ahead_tokens = 1 << 18;  // 1 MiB
  const PromptShard::Impl& shard = *shard_.impl_;
  if (turn.token_begin < begin_ || turn.token_end > begin_ + std::ssize(read_)) {
    const int64_t end = std::max(
        turn.token_end, std::min(turn.token_begin + ahead_tokens, shard.tokens.elements()));
    read_ = shard.read_tokens(turn.token_begin, end);
    begin_ = turn.token_begin;
  }
  return std::span(read_).subspan(turn.token_begin - begin_, turn.num_tokens());
}

}  // namespace pecia::io
