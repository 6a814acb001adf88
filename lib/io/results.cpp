#include "lib/io/results.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "lib/core/error.hpp"
#include "lib/io/results_schema.hpp"
#include "lib/io/utf8.hpp"

namespace pecia::io {
namespace {

ResultsLayout read_layout(const Hdf5File& file, const std::string& path) {
  const std::string schema = file.text_attribute("schema").value_or("");
  if (schema != results_schema)
    fail<InputError>("{}: attribute 'schema' is '{}', not '{}': this is no results file", path,
                     schema, results_schema);
  const auto integer = [&](const char* name, int64_t low) {
    const auto value = file.integer_attribute(name);
    if (!value || *value < low || *value > std::numeric_limits<int32_t>::max())
      fail<InputError>("{}: attribute '{}' is missing or out of range: the file is damaged", path,
                       name);
    return *value;
  };
  ResultsLayout layout;
  layout.vocab = integer("vocab_size", 0);
  layout.logprobs = static_cast<int>(integer("logprobs", -1));
  layout.prompt_logprobs = static_cast<int>(integer("prompt_logprobs", -1));
  layout.identity = file.text_attribute("identity").value_or("");
  const auto inputs =
      nlohmann::json::parse(file.text_attribute("inputs").value_or("[]"), nullptr, false);
  try {
    layout.inputs = inputs.get<std::vector<std::string>>();
  } catch (const nlohmann::json::exception&) {
    fail<InputError>("{}: attribute 'inputs' is no JSON array of paths: the file is damaged", path);
  }

  const auto ids = read_text(file.dataset("/request_id"));
  const auto shards = read_int32(file.dataset("/shard"));
  const auto requests = read_int64(file.dataset("/request"));
  const auto turns = read_int32(file.dataset("/turn"));
  const auto slots = read_int64(file.dataset("/slot_offsets"));
  const auto prompt_tokens = read_int32(file.dataset("/prompt_tokens"));
  std::vector<int64_t> prompt_slots;
  if (layout.prompt_logprobs != 0) prompt_slots = read_int64(file.dataset("/prompt_slot_offsets"));
  const size_t num_turns = ids.size();
  if (shards.size() != num_turns || requests.size() != num_turns || turns.size() != num_turns ||
      prompt_tokens.size() != num_turns || slots.size() != num_turns + 1 ||
      (layout.prompt_logprobs != 0 && prompt_slots.size() != num_turns + 1))
    fail<InputError>("{}: the datasets' lengths do not agree: the file is damaged", path);
  for (const auto& offsets : {slots, prompt_slots})
    if (!offsets.empty() &&
        (offsets.front() != 0 || !std::is_sorted(offsets.begin(), offsets.end())))
      fail<InputError>("{}: slot offsets fall: the file is damaged", path);
  layout.turns.resize(num_turns);
  for (size_t t = 0; t < num_turns; ++t)
    layout.turns[t] = {ids[t],
                       shards[t],
                       requests[t],
                       turns[t],
                       slots[t + 1] - slots[t],
                       prompt_slots.empty() ? std::max(prompt_tokens[t], 0)
                                            : prompt_slots[t + 1] - prompt_slots[t]};
  return layout;
}

}  // namespace

struct ResultsFile::Impl {
  Impl(const std::filesystem::path& path, Access access) {
    {
      const Hdf5File hdf5 = Hdf5File::open(path);
      layout = read_layout(hdf5, path.string());
      file.emplace(path, access);
      locate(hdf5);
    }
    slots = slot_offsets(layout);
    prompt_slots = prompt_slot_offsets(layout);
  }

  /// Finds every dataset's place, refusing what is not exactly as `create` made it: bytes are
  /// written there without HDF5.
  void locate(const Hdf5File& hdf5) {
    const int64_t file_bytes = file->size();
    for (const ResultsDataset& spec : results_datasets(layout)) {
      const Hdf5Dataset dataset = hdf5.dataset(spec.name);
      const Hdf5Type type = hdf5_type(spec);
      if (H5Tequal(dataset.type(), type.get()) <= 0 || dataset.extents() != spec.extents)
        fail<InputError>("{} has another type or shape than this version writes", dataset.where());
      const int64_t bytes = spec.bytes();
      const auto offset = dataset.offset();
      if (bytes > 0 && !offset)
        fail<InputError>(
            "{} is not contiguous: the file was repacked, which is good for reading with HDF5 "
            "programs only",
            dataset.where());
      if (bytes > 0 && (*offset > file_bytes || bytes > file_bytes - *offset))
        fail<InputError>("{} lies beyond the file's end: the file was cut off", dataset.where());
      places[spec.name] = {offset.value_or(0), spec.element_bytes};
    }
  }

  struct Place {
    int64_t offset = 0;
    int64_t element_bytes = 0;
  };

  /// Bytes of elements from `index` on of a dataset.
  int64_t offset_of(std::string_view dataset, int64_t index) const {
    const Place& place = places.find(dataset)->second;
    return place.offset + index * place.element_bytes;
  }

  template <typename T>
  void put(std::string_view dataset, int64_t index, std::span<const T> values) const {
    file->write_at(offset_of(dataset, index), std::as_bytes(values));
  }
  template <typename T>
  void put(std::string_view dataset, int64_t index, const T& value) const {
    put(dataset, index, std::span<const T>(&value, 1));
  }
  void put_text(std::string_view dataset, int64_t index, std::string_view text) const {
    const size_t width = places.find(dataset)->second.element_bytes;
    std::string padded = fitted_utf8(text, width);
    padded.resize(width);
    put(dataset, index, std::span<const char>(padded));
  }

  template <typename T>
  void get(std::string_view dataset, int64_t index, std::span<T> values) const {
    file->read_at(offset_of(dataset, index), std::as_writable_bytes(values));
  }
  template <typename T>
  T get(std::string_view dataset, int64_t index) const {
    T value;
    get(dataset, index, std::span<T>(&value, 1));
    return value;
  }
  template <typename T>
  std::vector<T> get_many(std::string_view dataset, int64_t index, int64_t count) const {
    std::vector<T> values(count);
    if (count > 0) get(dataset, index, std::span<T>(values));
    return values;
  }
  std::string get_text(std::string_view dataset, int64_t index) const {
    std::string text(places.find(dataset)->second.element_bytes, '\0');
    get(dataset, index, std::span<char>(text));
    text.erase(text.find_last_not_of('\0') + 1);
    return text;
  }

  TurnState state(int64_t turn) const {
    PECIA_CHECK(turn >= 0 && turn < static_cast<int64_t>(layout.turns.size()), "turn {} of {}",
                turn, layout.turns.size());
    const auto value = get<uint8_t>("/state", turn);
    if (value > static_cast<uint8_t>(TurnState::failed))
      fail<InputError>("{}: /state[{}] is {}: the file is damaged", file->path().string(), turn,
                       value);
    return static_cast<TurnState>(value);
  }

  void check(const TurnUpdate& update) const;
  int64_t safe_tokens(const TurnUpdate& update) const;
  void write_row(const TurnUpdate& update) const;
  void write_prompt(const TurnUpdate& update) const;

  ResultsLayout layout;
  std::optional<File> file;
  std::map<std::string_view, Place> places;
  std::vector<int64_t> slots, prompt_slots;
};

/// The result's lengths against the layout's.
void ResultsFile::Impl::check(const TurnUpdate& update) const {
  const auto [turn, result, new_state] = update;
  const TurnState old_state = state(turn);
  PECIA_CHECK(new_state != TurnState::open, "turn {} written as open", turn);
  PECIA_CHECK(old_state == TurnState::open || old_state == TurnState::partial,
              "turn {} is finished; reopen it before writing it again", turn);
  const size_t tokens = result.tokens.size(), prompt = result.prompt_logprobs.size();
  PECIA_CHECK(static_cast<int64_t>(tokens) <= layout.turns[turn].slots,
              "turn {} has {} tokens but {} slots", turn, tokens, layout.turns[turn].slots);
  PECIA_CHECK(prompt == 0 || (layout.prompt_logprobs != 0 &&
                              static_cast<int64_t>(prompt) <= layout.turns[turn].prompt_tokens),
              "turn {} has {} prompt log-probabilities; its prompt has {} tokens", turn, prompt,
              layout.turns[turn].prompt_tokens);
  const auto check_size = [&](const char* name, size_t size, int64_t rows, int64_t width) {
    PECIA_CHECK(static_cast<int64_t>(size) == rows * width, "turn {} has {} {}; {} × {} are wanted",
                turn, size, name, rows, width);
  };
  check_size("token_logprobs", result.token_logprobs.size(), tokens, 1);
  check_size("top_tokens", result.top_tokens.size(), tokens, top_tokens_width(layout.logprobs));
  check_size("top_logprobs", result.top_logprobs.size(), tokens,
             top_logprobs_width(layout.logprobs, layout.vocab));
  check_size("prompt_top_tokens", result.prompt_top_tokens.size(), prompt,
             top_tokens_width(layout.prompt_logprobs));
  check_size("prompt_top_logprobs", result.prompt_top_logprobs.size(), prompt,
             top_logprobs_width(layout.prompt_logprobs, layout.vocab));
  PECIA_CHECK(static_cast<int64_t>(result.mode.size()) <= mode_bytes, "mode '{}' is longer than {}",
              result.mode, mode_bytes);
  if (old_state == TurnState::open) return;
  const int64_t safe = get<int32_t>("/output_tokens", turn);
  const auto on_disk = get_many<int32_t>("/tokens", slots[turn], safe);
  PECIA_CHECK(safe <= static_cast<int64_t>(tokens) &&
                  std::equal(on_disk.begin(), on_disk.end(), result.tokens.begin()),
              "turn {} is partial and does not go on from its {} tokens in the file; reopen it",
              turn, safe);
}

/// How many of the turn's slots are safe on disk already and are not written again.
int64_t ResultsFile::Impl::safe_tokens(const TurnUpdate& update) const {
  return state(update.turn) == TurnState::partial ? get<int32_t>("/output_tokens", update.turn) : 0;
}

/// Everything but the state; of a partial turn neither its safe slots nor /output_tokens.
void ResultsFile::Impl::write_row(const TurnUpdate& update) const {
  const auto [turn, result, new_state] = update;
  const int64_t safe = safe_tokens(update);
  const auto put_slots = [&](const char* dataset, const auto& values, int64_t width) {
    put(dataset, (slots[turn] + safe) * width, std::span(values).subspan(safe * width));
  };
  put_slots("/tokens", result.tokens, 1);
  put_slots("/token_logprob", result.token_logprobs, 1);
  if (layout.logprobs > 0) put_slots("/top_tokens", result.top_tokens, layout.logprobs);
  if (layout.logprobs != 0)
    put_slots("/top_logprobs", result.top_logprobs,
              top_logprobs_width(layout.logprobs, layout.vocab));
  if (state(turn) == TurnState::open) {
    if (layout.prompt_logprobs != 0) write_prompt(update);
    put("/output_tokens", turn, static_cast<int32_t>(result.tokens.size()));
  }
  put("/prompt_tokens", turn, result.prompt_tokens);
  put("/cached_tokens", turn, result.cached_tokens);
  put("/finish_reason", turn, result.finish_reason);
  put_text("/error", turn, result.error);
  put("/queue_s", turn, result.queue_s);
  put("/ttft_s", turn, result.ttft_s);
  put("/decode_s", turn, result.decode_s);
  put("/prefill_compute_s", turn, result.prefill_compute_s);
  put("/prefill_comm_s", turn, result.prefill_comm_s);
  put("/decode_compute_s", turn, result.decode_compute_s);
  put("/decode_comm_s", turn, result.decode_comm_s);
  put_text("/mode", turn, result.mode);
  put("/replica", turn, result.replica);
}

void ResultsFile::Impl::write_prompt(const TurnUpdate& update) const {
  const auto [turn, result, new_state] = update;
  const int64_t rows = layout.turns[turn].prompt_tokens, begin = prompt_slots[turn];
  std::vector<float> logprobs = result.prompt_logprobs;
  logprobs.resize(rows, std::numeric_limits<float>::quiet_NaN());
  put("/prompt_token_logprob", begin, std::span<const float>(logprobs));
  if (const int64_t width = top_tokens_width(layout.prompt_logprobs); width > 0) {
    std::vector<int32_t> tokens = result.prompt_top_tokens;
    tokens.resize(rows * width, -1);
    put("/prompt_top_tokens", begin * width, std::span<const int32_t>(tokens));
  }
  put("/prompt_top_logprobs", begin * top_logprobs_width(layout.prompt_logprobs, layout.vocab),
      std::span<const float>(result.prompt_top_logprobs));
}

ResultsFile::ResultsFile(const std::filesystem::path& path, Access access)
    : impl_(std::make_unique<Impl>(path, access)) {}
ResultsFile::~ResultsFile() = default;
ResultsFile::ResultsFile(ResultsFile&&) noexcept = default;
ResultsFile& ResultsFile::operator=(ResultsFile&&) noexcept = default;

const ResultsLayout& ResultsFile::layout() const {
  return impl_->layout;
}
int64_t ResultsFile::num_turns() const {
  return static_cast<int64_t>(impl_->layout.turns.size());
}
TurnState ResultsFile::state(int64_t turn) const {
  return impl_->state(turn);
}

TurnResult ResultsFile::read(int64_t turn) const {
  PECIA_CHECK(state(turn) != TurnState::open, "turn {} is open: there is nothing to read", turn);
  const Impl& in = *impl_;
  const ResultsLayout& layout = in.layout;
  TurnResult result;
  const int64_t slot = in.slots[turn];
  const int64_t tokens = in.get<int32_t>("/output_tokens", turn);
  if (tokens < 0 || tokens > layout.turns[turn].slots)
    fail<InputError>("{}: /output_tokens[{}] is {} of {} slots: the file is damaged",
                     in.file->path().string(), turn, tokens, layout.turns[turn].slots);
  result.tokens = in.get_many<int32_t>("/tokens", slot, tokens);
  result.token_logprobs = in.get_many<float>("/token_logprob", slot, tokens);
  if (const int64_t width = top_tokens_width(layout.logprobs); width > 0)
    result.top_tokens = in.get_many<int32_t>("/top_tokens", slot * width, tokens * width);
  if (const int64_t width = top_logprobs_width(layout.logprobs, layout.vocab); width > 0)
    result.top_logprobs = in.get_many<float>("/top_logprobs", slot * width, tokens * width);
  if (layout.prompt_logprobs != 0) {
    const int64_t begin = in.prompt_slots[turn], rows = layout.turns[turn].prompt_tokens;
    result.prompt_logprobs = in.get_many<float>("/prompt_token_logprob", begin, rows);
    if (const int64_t width = top_tokens_width(layout.prompt_logprobs); width > 0)
      result.prompt_top_tokens =
          in.get_many<int32_t>("/prompt_top_tokens", begin * width, rows * width);
    const int64_t width = top_logprobs_width(layout.prompt_logprobs, layout.vocab);
    result.prompt_top_logprobs =
        in.get_many<float>("/prompt_top_logprobs", begin * width, rows * width);
  }
  result.prompt_tokens = in.get<int32_t>("/prompt_tokens", turn);
  result.cached_tokens = in.get<int32_t>("/cached_tokens", turn);
  result.finish_reason = in.get<FinishReason>("/finish_reason", turn);
  if (result.finish_reason > FinishReason::failed)
    fail<InputError>("{}: /finish_reason[{}] is {}: the file is damaged", in.file->path().string(),
                     turn, static_cast<int>(result.finish_reason));
  result.error = in.get_text("/error", turn);
  result.queue_s = in.get<float>("/queue_s", turn);
  result.ttft_s = in.get<float>("/ttft_s", turn);
  result.decode_s = in.get<float>("/decode_s", turn);
  result.prefill_compute_s = in.get<float>("/prefill_compute_s", turn);
  result.prefill_comm_s = in.get<float>("/prefill_comm_s", turn);
  result.decode_compute_s = in.get<float>("/decode_compute_s", turn);
  result.decode_comm_s = in.get<float>("/decode_comm_s", turn);
  result.mode = in.get_text("/mode", turn);
  result.replica = in.get<int32_t>("/replica", turn);
  return result;
}

void ResultsFile::write(int64_t turn, const TurnResult& result, TurnState state) {
  const TurnUpdate update{turn, result, state};
  write_all(std::span(&update, 1));
}

void ResultsFile::write_all(std::span<const TurnUpdate> updates) {
  if (updates.empty()) return;
  const Impl& out = *impl_;
  for (const TurnUpdate& update : updates) out.check(update);
  try {
    bool any_partial = false;
    for (const TurnUpdate& update : updates) out.write_row(update);
    out.file->sync_data();
    // The count of a partial turn is what calls its tokens safe, so it follows them to the disk.
    for (const TurnUpdate& update : updates) {
      if (out.state(update.turn) != TurnState::partial) continue;
      any_partial = true;
      out.put("/output_tokens", update.turn, static_cast<int32_t>(update.result.tokens.size()));
    }
    if (any_partial) out.file->sync_data();
    for (const TurnUpdate& update : updates) out.put("/state", update.turn, update.state);
    out.file->sync_data();
  } catch (const SystemError& error) {
    const TurnUpdate& first = updates.front();
    const ResultTurn& turn = out.layout.turns[first.turn];
    fail<SystemError>(
        "{}\nRow {} (request '{}', turn {}){} was not recorded; make room and run the same command "
        "to continue",
        error.what(), first.turn, turn.request_id, turn.turn,
        updates.size() > 1 ? fmt::format(" and {} more", updates.size() - 1) : "");
  }
}

void ResultsFile::reopen(int64_t turn) {
  if (state(turn) == TurnState::open) return;
  impl_->put("/state", turn, TurnState::open);
  impl_->file->sync_data();
}

}  // namespace pecia::io
