#include "lib/runtime/identity.hpp"

#include <nlohmann/json.hpp>

#include "lib/core/build_info.hpp"

namespace pecia::runtime {

using Json = nlohmann::ordered_json;

std::string identity(const Job& job, const model::ModelConfig& config,
                     const io::Checkpoint& checkpoint, DType kv_dtype) {
  // The job as text leaves out what may change between starts, and spells the rest one way.
  const Json settings = Json::parse(to_json(job));
  Json id;
  id["version"] = build_info().version;
  id["model"] = {{"path", std::filesystem::weakly_canonical(job.model.path).string()},
                 {"config_sha256", config.sha256},
                 {"weights_sha256", checkpoint.index_sha256()},
                 {"dtype", settings["model"]["dtype"]},
                 {"compute", settings["model"]["compute"]},
                 {"rope_scaling", settings["model"]["rope_scaling"]}};
  id["kv"] = {{"dtype", std::string(name_of(kv_dtype))}};
  id["generation"] = settings["generation"];
  id["over_length"] = settings["limits"]["over_length"];
  if (job.reproducible == Reproducible::layout)  // whose bits follow from where prompts are cut
    id["reproducible"] = {{"mode", "layout"},
                          {"max_batch_tokens", settings["batch"]["max_batch_tokens"]}};
  for (const auto& shard : job.input) id["input_sha256"].push_back(io::sha256_of_file(shard));
  // A path may be any bytes.
  return id.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void require_same_identity(const std::string& before, const std::string& now,
                           const std::filesystem::path& results) {
  // What is damaged, or nested as no identity is, counts as absent.
  constexpr int max_depth = 8;
  const auto is_shallow = [](int depth, Json::parse_event_t, Json&) { return depth <= max_depth; };
  const Json parsed = Json::parse(before, is_shallow, /*allow_exceptions=*/false);
  const Json old_id = parsed.is_object() ? parsed.flatten() : Json::object();
  const Json new_id = Json::parse(now).flatten();
  std::string differences;
  const auto text = [](const Json& id, const std::string& key) {
    return id.contains(key) ? id[key].dump() : std::string("absent");
  };
  const auto compare = [&](const Json& keys, bool only_missing) {
    for (const auto& [key, value] : keys.items()) {
      if (key == "/model/path") continue;  // the hashes say whether it is the same model
      if (only_missing && new_id.contains(key)) continue;
      if (text(old_id, key) != text(new_id, key))
        differences += fmt::format("\n       {}: {} there, {} now", key.substr(1),
                                   text(old_id, key), text(new_id, key));
    }
  };
  compare(new_id, false);
  compare(old_id, true);
  if (!differences.empty())
    fail<InputError>(
        "{} belongs to another run:{}\n       Choose another output folder, or start over with "
        "--fresh "
        "(the old results are kept beside the new ones).",
        results.string(), differences);
}

}  // namespace pecia::runtime
