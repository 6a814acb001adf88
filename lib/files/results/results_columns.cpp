// SPDX-License-Identifier: Apache-2.0
#include "lib/files/results/results_columns.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/base/core/json.hpp"
#include "lib/files/results/results_schema.hpp"
#include "lib/files/text/utf8.hpp"

namespace pecia::io {
namespace {

/// The root attribute `settings`, a JSON array of flat objects; empty when it is absent.
std::vector<std::string> read_settings(const Hdf5File& file, const std::string& path) {
  constexpr int max_depth = 8;
  const auto json =
      try_json<nlohmann::ordered_json>(file.text_attribute("settings").value_or("[]"), max_depth);
  const bool good = json.is_array() && std::all_of(json.begin(), json.end(), [](const auto& each) {
                      return each.is_object();
                    });
  if (!good)
    fail<InputError>("{}: attribute 'settings' is no JSON array of objects: the file is damaged",
                     path);
  std::vector<std::string> settings;
  for (const auto& each : json) settings.push_back(json_text(each));
  return settings;
}

/// The width and type of /vectors.
void read_vector_form(const Hdf5File& file, ResultsLayout& layout) {
  const Hdf5Dataset vectors = file.dataset("/vectors");
  if (vectors.extents().size() != 2 || vectors.extents()[1] < 1 ||
      vectors.type_class() != H5T_FLOAT)
    fail<InputError>("{} is no matrix of numbers: the file is damaged", vectors.where());
  layout.vector_width = vectors.extents()[1];
  layout.vector_type = H5Tget_size(vectors.type()) == 2 ? VectorType::fp16 : VectorType::fp32;
}

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
  layout.measured = file.text_attribute("measured").value_or("");
  const auto inputs = try_json<nlohmann::json>(file.text_attribute("inputs").value_or("[]"));
  try {
    layout.inputs = inputs.get<std::vector<std::string>>();
  } catch (const nlohmann::json::exception&) {
    fail<InputError>("{}: attribute 'inputs' is no JSON array of paths: the file is damaged", path);
  }

  layout.settings = read_settings(file, path);

  const auto ids = read_text(file.dataset("/request_id"));
  const auto shards = read_int32(file.dataset("/shard"));
  const auto requests = read_int64(file.dataset("/request"));
  const auto turns = read_int32(file.dataset("/turn"));
  const auto slots = read_int64(file.dataset("/slot_offsets"));
  const auto prompt_tokens = read_int32(file.dataset("/prompt_tokens"));
  std::vector<int64_t> prompt_slots;
  if (layout.prompt_logprobs != 0) prompt_slots = read_int64(file.dataset("/prompt_slot_offsets"));
  const auto counted_by = [&](const char* name) {
    return file.has(name) ? read_int64(file.dataset(name)) : std::vector<int64_t>();
  };
  const auto vectors = counted_by("/vector_offsets"), scores = counted_by("/score_offsets"),
             score_tokens = counted_by("/score_token_offsets");
  const size_t num_turns = ids.size();
  std::vector<int32_t> settings(num_turns);
  if (file.has("/settings")) settings = read_int32(file.dataset("/settings"));
  if (shards.size() != num_turns || requests.size() != num_turns || turns.size() != num_turns ||
      prompt_tokens.size() != num_turns || settings.size() != num_turns ||
      slots.size() != num_turns + 1 ||
      (layout.prompt_logprobs != 0 && prompt_slots.size() != num_turns + 1) ||
      scores.size() != score_tokens.size() ||
      std::ranges::any_of(std::array{&vectors, &scores}, [&](const auto* offsets) {
        return !offsets->empty() && offsets->size() != num_turns + 1;
      }))
    fail<InputError>("{}: the datasets' lengths do not agree: the file is damaged", path);
  for (const auto& offsets : {slots, prompt_slots, vectors, scores, score_tokens})
    if (!offsets.empty() &&
        (offsets.front() != 0 || !std::is_sorted(offsets.begin(), offsets.end())))
      fail<InputError>("{}: slot offsets fall: the file is damaged", path);
  for (const auto& offsets : {slots, prompt_slots, vectors, scores, score_tokens})
    for (size_t t = 0; t + 1 < offsets.size(); ++t)
      if (offsets[t + 1] - offsets[t] > std::numeric_limits<int32_t>::max())
        fail<InputError>("{}: turn {} has {} slots: the file is damaged", path, t,
                         offsets[t + 1] - offsets[t]);
  for (size_t t = 0; t < num_turns; ++t)
    if (!is_utf8(ids[t]) || ids[t].find('\0') != std::string::npos)
      fail<InputError>("{}: /request_id[{}] is no UTF-8 text: the file is damaged", path, t);
  for (size_t t = 0; t < num_turns; ++t)
    if (settings[t] < 0 || settings[t] >= std::max<int64_t>(1, std::ssize(layout.settings)))
      fail<InputError>("{}: /settings[{}] is {} of {}: the file is damaged", path, t, settings[t],
                       layout.settings.size());
  if (!vectors.empty()) read_vector_form(file, layout);
  layout.turns.resize(num_turns);
  for (size_t t = 0; t < num_turns; ++t)
    layout.turns[t] = {ids[t],
                       shards[t],
                       requests[t],
                       turns[t],
                       slots[t + 1] - slots[t],
                       prompt_slots.empty() ? std::max(prompt_tokens[t], 0)
                                            : prompt_slots[t + 1] - prompt_slots[t],
                       settings[t]};
  for (size_t t = 0; t < num_turns; ++t) {
    const auto count = [&](const std::vector<int64_t>& offsets) {
      return offsets.empty() ? 0 : offsets[t + 1] - offsets[t];
    };
    layout.turns[t].vectors = static_cast<int32_t>(count(vectors));
    layout.turns[t].scores = static_cast<int32_t>(count(scores));
    layout.turns[t].score_tokens = count(score_tokens);
  }
  return layout;
}

}  // namespace

ResultsColumns::ResultsColumns(const std::filesystem::path& path, Access access)
    : ResultsColumns(File::open_input(path, access)) {}

ResultsColumns::ResultsColumns(File file) : ResultsColumns(Hdf5File::open(file), std::move(file)) {}

ResultsColumns::ResultsColumns(const Hdf5File& hdf5, File&& file)
    : layout_(read_layout(hdf5, file.path().string())),
      file_(std::move(file)),
      slots_(slot_offsets(layout_)),
      prompt_slots_(prompt_slot_offsets(layout_)),
      vectors_(vector_offsets(layout_)),
      scores_(score_offsets(layout_)),
      score_tokens_(score_token_offsets(layout_)) {
  locate(hdf5);
}

/// Finds every dataset's place. Throws unless each is exactly as `create` made it, because bytes
/// are written there without HDF5.
void ResultsColumns::locate(const Hdf5File& hdf5) {
  const int64_t file_bytes = file_.size();
  for (const ResultsDataset& spec : results_datasets(layout_)) {
    if (spec.may_lack && !hdf5.has(spec.name)) continue;
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
    if (bytes > 0 && (*offset < 0 || *offset > file_bytes || bytes > file_bytes - *offset))
      fail<InputError>("{} lies beyond the file's end: the file was cut off", dataset.where());
    places_[spec.name] = {offset.value_or(0), spec.element_bytes};
  }
}

const ResultsColumns::Place& ResultsColumns::place(std::string_view dataset) const {
  const auto found = places_.find(dataset);
  PECIA_CHECK(found != places_.end(), "this file has no {}", dataset);
  return found->second;
}

int64_t ResultsColumns::offset_of(std::string_view dataset, int64_t index) const {
  const Place& at = place(dataset);
  return at.offset + index * at.element_bytes;
}

TurnState ResultsColumns::state(int64_t turn) const {
  PECIA_CHECK(turn >= 0 && turn < static_cast<int64_t>(layout_.turns.size()), "turn {} of {}", turn,
              layout_.turns.size());
  return checked_state(get<uint8_t>("/state", turn), turn);
}

std::vector<TurnState> ResultsColumns::states() const {
  const auto values = get<uint8_t>("/state", 0, static_cast<int64_t>(layout_.turns.size()));
  std::vector<TurnState> states;
  states.reserve(values.size());
  for (const uint8_t value : values)
    states.push_back(checked_state(value, static_cast<int64_t>(states.size())));
  return states;
}

TurnState ResultsColumns::checked_state(uint8_t value, int64_t turn) const {
  if (value > static_cast<uint8_t>(TurnState::failed))
    fail<InputError>("{}: /state[{}] is {}: the file is damaged", file_.path().string(), turn,
                     value);
  return static_cast<TurnState>(value);
}

void ResultsColumns::put_text(std::string_view dataset, int64_t index,
                              std::string_view text) const {
  const size_t width = place(dataset).element_bytes;
  std::string padded = fitted_utf8(text, width);
  padded.resize(width);
  put(dataset, index, std::span<const char>(padded));
}

std::string ResultsColumns::get_text(std::string_view dataset, int64_t index) const {
  const auto data = get<char>(dataset, index, place(dataset).element_bytes);
  const std::string_view text(data.data(), data.size());
  return std::string(text.substr(0, text.find_last_not_of('\0') + 1));
}

}  // namespace pecia::io
