// SPDX-License-Identifier: Apache-2.0
#include "lib/work/job/job.hpp"

#include <glob.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>

#include "lib/base/core/error.hpp"
#include "lib/work/job/glob_pattern.hpp"
#include "lib/work/job/job_schema.hpp"
#include "lib/work/job/yaml_tree.hpp"

namespace pecia::job {
namespace {

constexpr int64_t max_file_bytes = 1'000'000;
constexpr size_t max_problems = 20;

/// Collects the problems of a job, one line each, so that a user sees all of them at once.
class Problems {
 public:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    if (lines_.size() < max_problems)
      lines_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  bool full() const { return lines_.size() >= max_problems; }

  void throw_if_any() const {
    if (!lines_.empty()) fail<InputError>("{}", fmt::join(lines_, "\n       "));
  }

 private:
  std::vector<std::string> lines_;
};

std::string keys_of(std::string_view section) {
  std::string keys;
  for (const Field& field : schema()) {
    if (field.section() != section) continue;
    if (!keys.empty()) keys += ", ";
    keys += field.name();
  }
  return keys;
}

bool is_section(std::string_view name) {
  return std::any_of(schema().begin(), schema().end(),
                     [&](const Field& field) { return !name.empty() && field.section() == name; });
}

/// Lists the known keys, for a message about an unknown key that resembles none of them.
std::string known_keys(std::string_view unknown) {
  const size_t dot = unknown.find('.');
  if (dot == std::string_view::npos) return "pecia run --print-default shows all keys";
  const std::string_view section = unknown.substr(0, dot);
  return fmt::format("{} has the keys {}", section, keys_of(section));
}

/// Jobs with a pipeline are for another command, which sets the key to off in the runs that it makes.
void refuse_pipeline(YamlNode& root, const std::string& name) {
  const YamlNode* const pipeline = root.find(std::string(pipeline_key));
  if (pipeline == nullptr || pipeline->kind != YamlNode::Kind::map) return;
  fail<InputError>(
      "{}: this job has a {} of several runs: pecia-summarize --job {} makes them. With --set "
      "{}=off "
      "it is a job of one run, which needs an input",
      pipeline->where, pipeline_key, name, pipeline_key);
}

void read_key(Job& job, const std::string& key, const YamlNode& node, std::set<std::string>& seen,
              Problems& problems) {
  const auto field = std::find_if(schema().begin(), schema().end(),
                                  [&](const Field& known) { return known.key == key; });
  if (field == schema().end()) {
    YamlNode shown;
    shown.kind = YamlNode::Kind::scalar;
    shown.text = key;
    const std::string nearest = nearest_key(key);
    problems.add("{}: unknown key {}; {}", node.where, describe(shown),
                 nearest.empty() ? known_keys(key) : fmt::format("did you mean {}?", nearest));
    return;
  }
  seen.insert(key);
  if (!field->read(job, node))
    problems.add("{}: {} is {}; it may be {}", node.where, key, describe(node), field->allowed);
}

void read_section(Job& job, const YamlNode& section, std::set<std::string>& seen,
                  Problems& problems) {
  if (section.kind == YamlNode::Kind::null) return;  // all its keys commented out
  if (section.kind != YamlNode::Kind::map) {
    problems.add("{}: {} is {}; it is a section with the keys {}", section.where, section.key,
                 describe(section), keys_of(section.key));
    return;
  }
  for (const YamlNode& child : section.children) {
    if (problems.full()) return;
    read_key(job, section.key + "." + child.key, child, seen, problems);
  }
}

std::string read_text(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    fail<InputError>("{}: a folder, not a job file", path.string());
  std::ifstream file(path, std::ios::binary);
  if (!file) fail<InputError>("{}: cannot be read: {}", path.string(), std::strerror(errno));
  std::string text(max_file_bytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(file.gcount());
  if (static_cast<int64_t>(text.size()) > max_file_bytes)
    fail<InputError>(
        "{}: larger than {} bytes; a job file names its prompts, it does not hold them",
        path.string(), max_file_bytes);
  return text;
}

std::vector<std::filesystem::path> expand(const std::filesystem::path& folder,
                                          const std::filesystem::path& pattern,
                                          const std::filesystem::path& job_file) {
  const std::filesystem::path literal = (folder / pattern).lexically_normal();
  std::error_code ignored;
  if (std::filesystem::exists(literal, ignored)) return {literal};
  const std::string full =
      pattern.is_absolute()
          ? pattern.string()
          : (std::filesystem::path(escaped_for_glob(folder.string())) / pattern).string();
  glob_t found{};
  const int status = glob(full.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<std::filesystem::path> matches;
  for (size_t i = 0; status == 0 && i < found.gl_pathc; ++i)
    matches.push_back(std::filesystem::path(found.gl_pathv[i]).lexically_normal());
  globfree(&found);
  if (status != 0 && status != GLOB_NOMATCH)
    fail<InputError>("{}: input {}: a folder could not be listed; check its permissions",
                     job_file.string(), full);
  if (matches.empty())
    fail<InputError>("{}: input {} matches no file (looked for {})", job_file.string(),
                     pattern.string(), full);
  std::sort(matches.begin(), matches.end());
  return matches;
}

}  // namespace

Job parse_job(const std::string& text, const std::string& name,
              const std::vector<std::string>& overrides) {
  YamlNode root = parse_yaml(text, name);
  if (root.kind == YamlNode::Kind::null) root.kind = YamlNode::Kind::map;
  if (root.kind != YamlNode::Kind::map)
    fail<InputError>("{}: {} instead of keys with values; pecia run --print-default shows one",
                     name, describe(root));
  for (const std::string& assignment : overrides) apply_override(root, assignment);
  refuse_pipeline(root, name);

  Job job;
  Problems problems;
  std::set<std::string> seen;
  for (const YamlNode& child : root.children) {
    if (problems.full()) break;
    if (is_section(child.key))
      read_section(job, child, seen, problems);
    else if (child.key.find('.') != std::string::npos)
      problems.add("{}: {} has a dot; in a job file a key stands under its section's name",
                   child.where, child.key.substr(0, 60));
    else
      read_key(job, child.key, child, seen, problems);
  }
  for (const Field& field : schema())
    if (field.required() && seen.count(field.key) == 0)
      problems.add("{}: {} is missing; it is {}, as {}", name, field.key, field.allowed,
                   field.example);
  problems.throw_if_any();
  return job;
}

Job read_job(const std::filesystem::path& path, const std::vector<std::string>& overrides) {
  Job job = parse_job(read_text(path), path.string(), overrides);
  const std::filesystem::path folder = path.parent_path();
  job.model.path = (folder / job.model.path).lexically_normal();
  job.output = (folder / job.output).lexically_normal();
  if (!job.kv.save.folder.empty())
    job.kv.save.folder = (folder / job.kv.save.folder).lexically_normal();
  if (job.attention.drop && !job.attention.drop->file.empty())
    job.attention.drop->file = (folder / job.attention.drop->file).lexically_normal();
  if (job.generation.schema)
    job.generation.schema = (folder / *job.generation.schema).lexically_normal();
  if (job.topology) job.topology = (folder / *job.topology).lexically_normal();
  return job;
}

Job load_job(const std::filesystem::path& path, const std::vector<std::string>& overrides) {
  Job job = read_job(path, overrides);
  const std::filesystem::path folder = path.parent_path();
  std::vector<std::filesystem::path> files;
  for (const std::filesystem::path& pattern : job.input)
    for (std::filesystem::path& file : expand(folder, pattern, path)) {
      if (std::find(files.begin(), files.end(), file) != files.end())
        fail<InputError>("{}: input names {} twice; leave one pattern out", path.string(),
                         file.string());
      files.push_back(std::move(file));
    }
  job.input = std::move(files);
  return job;
}

std::set<std::string> named_keys(const std::filesystem::path& path,
                                 const std::vector<std::string>& overrides) {
  YamlNode root = parse_yaml(path.empty() ? std::string() : read_text(path), path.string());
  if (root.kind == YamlNode::Kind::null) root.kind = YamlNode::Kind::map;
  for (const std::string& assignment : overrides) apply_override(root, assignment);
  std::set<std::string> keys;
  for (const YamlNode& child : root.children) {
    if (!is_section(child.key)) keys.insert(child.key);
    for (const YamlNode& below : child.children) keys.insert(child.key + "." + below.key);
  }
  return keys;
}

}  // namespace pecia::job
