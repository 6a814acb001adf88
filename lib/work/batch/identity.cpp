// SPDX-License-Identifier: Apache-2.0
#include "lib/work/batch/identity.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lib/base/core/build_info.hpp"
#include "lib/base/core/json.hpp"
#include "lib/work/job/answer_shape.hpp"

namespace pecia::batch {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* over_length_key = "limits.over_length";
constexpr const char* max_new_tokens_key = "generation.max_new_tokens";

constexpr const char* contents_key = "contents_sha256";  ///< in "model"

/// Keys of the job that each turn depends on by itself.
constexpr const char* settings_keys[] = {over_length_key, "model.rope_scaling", max_new_tokens_key,
                                         "generation.stop"};

/// The job's text leaves out keys that may change between starts, and has one spelling for each of
/// the others.
Json as_json(const job::Job& job) {
  return parse_json<Json>(to_json(job));
}

/// Parses a JSON object; damaged or too deeply nested text counts as empty.
Json parse_object(const std::string& text) {
  constexpr int max_depth = 8;
  const Json parsed = try_json<Json>(text, max_depth);
  return parsed.is_object() ? parsed : Json::object();
}

std::string text_of(const Json& object, const std::string& key) {
  return object.contains(key) ? json_text(object[key]) : std::string("absent");
}

/// The keys of both objects, each once; keys that only `before` has come last.
std::vector<std::string> keys_of(const Json& now, const Json& before) {
  std::vector<std::string> keys;
  for (const Json* object : {&now, &before})
    for (const auto& [key, value] : object->items())
      if (object == &now || !now.contains(key)) keys.push_back(key);
  return keys;
}

/// Inputs of `before` that are missing, moved or changed, one per line.
std::string input_differences(const io::ResultsLayout& before, const io::ResultsLayout& now) {
  const auto there = input_hashes(before.identity), here = input_hashes(now.identity);
  std::string lines;
  for (size_t i = 0; i < there.size(); ++i) {
    if (i < here.size() && here[i] == there[i]) continue;
    const std::string path = i < before.inputs.size() ? before.inputs[i] : "";
    const bool found = std::find(here.begin(), here.end(), there[i]) != here.end();
    const bool named = std::find(now.inputs.begin(), now.inputs.end(), path) != now.inputs.end();
    lines += fmt::format("\n       input {} (input_sha256/{}: {:.12}… there) {}", path, i, there[i],
                         found   ? "is in another place now"
                         : named ? "has other contents now"
                                 : "is not among the inputs now");
  }
  return lines;
}

}  // namespace

std::vector<std::string> sha256_of_files(const std::vector<std::filesystem::path>& files) {
  std::vector<std::string> hashes;
  for (const auto& file : files) {
    std::error_code unreachable;                           // reading the file reports an error
    if (std::filesystem::is_directory(file, unreachable))  // so does opening it for the run
      fail<InputError>("{} is a folder; name the HDF5 files in it", file.string());
    hashes.push_back(io::sha256_of_file(file));
  }
  return hashes;
}

std::string identity(const job::Job& job, const model::ModelConfig& config,
                     const io::Checkpoint& checkpoint, const std::string& contents_sha256,
                     DType kv_dtype, const std::vector<std::string>& input_sha256) {
  const Json settings = as_json(job);
  Json id;
  id["version"] = build_info().version;
  id["model"] = {{"path", std::filesystem::weakly_canonical(job.model.path).string()},
                 {"config_sha256", config.sha256},
                 {"weights_sha256", checkpoint.index_sha256()},
                 {contents_key, contents_sha256},
                 {"dtype", settings["model"]["dtype"]},
                 {"compute", settings["model"]["compute"]},
                 {"wire", settings["model"]["wire"]}};
  id["kv"] = {{"dtype", std::string(name_of(kv_dtype))}};
  for (const auto& [key, value] : settings["generation"].items())
    if (std::find(std::begin(settings_keys), std::end(settings_keys), "generation." + key) ==
        std::end(settings_keys))
      id["generation"][key] = value;
  // The schema itself counts, wherever its file lies.
  id["generation"].erase("schema");
  id["generation"].erase("drafts");  // they change no text
  if (const std::string shape = job::answer_shape(job); !shape.empty())
    id["generation"]["shape"] = shape;
  if (job.reproducible ==
      parallel::Reproducible::layout)  // its bits depend on where prompts are cut
    id["reproducible"] = {{"mode", "layout"},
                          {"max_batch_tokens", settings["batch"]["max_batch_tokens"]}};
  // As the default, these leave no trace, so that results of earlier versions are gone on with.
  const job::Job defaults;
  if (job.produce != defaults.produce) id["produce"] = settings["produce"];
  if (settings["vector"] != as_json(defaults)["vector"]) id["vector"] = settings["vector"];
  if (job.attention.sparse != job::Sparse::off) id["attention"] = settings["attention"];
  id["input_sha256"] = input_sha256;
  return json_text(id);
}

bool knows_weights(const std::string& identity) {
  const Json id = parse_object(identity);
  return id.contains("model") && id["model"].is_object() && id["model"].contains(contents_key);
}

std::vector<std::string> input_hashes(const std::string& identity) {
  const Json id = parse_object(identity);
  std::vector<std::string> hashes;
  if (id.contains("input_sha256") && id["input_sha256"].is_array())
    for (const Json& hash : id["input_sha256"])
      hashes.push_back(hash.is_string() ? hash.get<std::string>() : json_text(hash));
  return hashes;
}

std::string turn_settings(const job::Job& job) {
  const Json all = as_json(job);
  Json settings = Json::object();
  for (const std::string key : settings_keys) {
    const size_t dot = key.find('.');
    const Json& section = all[key.substr(0, dot)];
    const std::string name = key.substr(dot + 1);
    if (section.contains(name)) settings[key] = section[name];
  }
  return json_text(settings);
}

bool cuts_left(const std::string& settings) {
  return text_of(parse_object(settings), over_length_key) == "\"truncate_left\"";
}

std::string kv_identity(const std::string& identity, const job::Job& job) {
  Json id = parse_object(identity);
  id["model"].erase("path");
  id["model"]["rope_scaling"] = as_json(job)["model"]["rope_scaling"];
  Json kv{{"version", id["version"]}, {"model", id["model"]}, {"kv", id["kv"]}};
  if (id.contains("attention")) kv["attention"] = id["attention"];
  return json_text(kv);
}

std::vector<SettingsDifference> settings_difference(const std::string& before,
                                                    const std::string& now) {
  const Json there = parse_object(before), here = parse_object(now);
  std::vector<SettingsDifference> differences;
  const auto word = [](const Json& object, const std::string& key) {
    return object.contains(key) && object[key].is_string() ? object[key].get<std::string>()
                                                           : text_of(object, key);
  };
  for (const std::string& key : keys_of(here, there))
    if (text_of(there, key) != text_of(here, key))
      differences.push_back(
          {key, fmt::format("{} ({} → {})", key, word(there, key), word(here, key))});
  return differences;
}

bool may_go_on(const std::string& before, const std::string& now) {
  const Json there = parse_object(before), here = parse_object(now);
  for (const std::string& key : keys_of(here, there)) {
    const std::string old_text = text_of(there, key), new_text = text_of(here, key);
    if (old_text == new_text || key == max_new_tokens_key) continue;
    // If the prompt has the same length and one setting did not cut, the prompt is the same.
    if (key == over_length_key && (old_text == "\"fail\"" || new_text == "\"fail\"")) continue;
    return false;
  }
  return true;
}

void require_same_identity(const io::ResultsLayout& before, const io::ResultsLayout& now,
                           const std::filesystem::path& results) {
  Json there = parse_object(before.identity), here = parse_object(now.identity);
  for (Json* id : {&there, &here}) {
    id->erase("input_sha256");
    if (!id->empty()) *id = id->flatten();
  }
  std::string differences;
  for (const std::string& key : keys_of(here, there)) {
    if (key == "/model/path") continue;  // the hashes say whether the model is the same
    const bool of_contents = key == fmt::format("/model/{}", contents_key);
    if (of_contents && !there.contains(key)) continue;  // continuation() warns of this
    if (text_of(there, key) != text_of(here, key) && of_contents)
      differences += fmt::format(
          "\n       the contents of the model's weights (model/{}): {} there, {} now; the model's "
          "files were replaced",
          contents_key, text_of(there, key), text_of(here, key));
    else if (text_of(there, key) != text_of(here, key))
      differences += fmt::format("\n       {}: {} there, {} now", key.substr(1),
                                 text_of(there, key), text_of(here, key));
  }
  differences += input_differences(before, now);
  if (!differences.empty())
    fail<InputError>(
        "{} belongs to another run:{}\n       Choose another output folder, or start over with "
        "--fresh "
        "(the old results are kept beside the new ones).",
        results.string(), differences);
}

}  // namespace pecia::batch
