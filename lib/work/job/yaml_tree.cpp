// SPDX-License-Identifier: Apache-2.0
#include "lib/work/job/yaml_tree.hpp"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <sstream>

#include "lib/base/core/error.hpp"

namespace pecia::job {
namespace {

constexpr size_t max_depth = 16;  // job files need 4
constexpr size_t max_shown_bytes = 60;

/// Builds the tree from the parser's events. yaml-cpp's own nodes would share aliased parts and
/// keep only the last of doubled keys.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::string name) : name_(std::move(name)) {}

  YamlNode take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    attach(make(YamlNode::Kind::null, mark, anchor));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    fail<InputError>("{}: an alias (*name); write the value out", place(mark));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    YamlNode node = make(YamlNode::Kind::scalar, mark, anchor);
    node.text = value;
    node.quoted = tag == "!";
    if (tag != "!" && tag != "?" && !tag.empty())
      fail<InputError>("{}: a tag ({}); leave it out", place(mark), tag);
    attach(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(make(YamlNode::Kind::list, mark, anchor), mark);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(make(YamlNode::Kind::map, mark, anchor), mark);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Level {
    YamlNode node;
    std::set<std::string> keys;
    bool key_given = false;
    std::string key;
  };

  std::string place(const YAML::Mark& mark) const {
    return fmt::format("{}:{}", name_, mark.line + 1);
  }

  YamlNode make(YamlNode::Kind kind, const YAML::Mark& mark, YAML::anchor_t anchor) const {
    if (anchor != 0)
      fail<InputError>("{}: an anchor (&name); write the value out where it is used", place(mark));
    YamlNode node;
    node.kind = kind;
    node.where = place(mark);
    return node;
  }

  void open(YamlNode node, const YAML::Mark& mark) {
    if (levels_.size() >= max_depth)
      fail<InputError>("{}: nested deeper than {} levels", place(mark), max_depth);
    levels_.push_back({std::move(node), {}, false, {}});
  }

  void close() {
    YamlNode node = std::move(levels_.back().node);
    levels_.pop_back();
    attach(std::move(node));
  }

  void attach(YamlNode node) {
    if (levels_.empty()) {
      root_ = std::move(node);
      return;
    }
    Level& level = levels_.back();
    if (level.node.kind == YamlNode::Kind::map && !level.key_given) {
      if (node.kind != YamlNode::Kind::scalar)
        fail<InputError>("{}: a key must be a word, this one is {}", node.where, describe(node));
      if (!level.keys.insert(node.text).second)
        fail<InputError>("{}: key '{}' is given twice; keep one", node.where, describe(node));
      level.key = node.text;
      level.key_given = true;
      return;
    }
    if (level.node.kind == YamlNode::Kind::map) {
      node.key = level.key;
      level.key_given = false;
    }
    level.node.children.push_back(std::move(node));
  }

  std::string name_;
  std::vector<Level> levels_;
  YamlNode root_;
};

std::string cut_short(const std::string& text) {
  if (text.size() <= max_shown_bytes) return text;
  size_t end = max_shown_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0u) == 0x80u) --end;
  return text.substr(0, end) + "…";
}

void set_where(YamlNode& node, const std::string& where) {
  node.where = where;
  for (YamlNode& child : node.children) set_where(child, where);
}

}  // namespace

YamlNode* YamlNode::find(const std::string& child_key) {
  for (YamlNode& child : children)
    if (child.key == child_key) return &child;
  return nullptr;
}

YamlNode parse_yaml(const std::string& text, const std::string& name) {
  std::istringstream stream(text);
  TreeBuilder builder(name), second(name);
  try {
    YAML::Parser parser(stream);
    parser.HandleNextDocument(builder);
    if (parser.HandleNextDocument(second))
      fail<InputError>("{}: a second YAML document (---); a job file holds one", name);
  } catch (const YAML::Exception& error) {
    fail<InputError>("{}:{}: not valid YAML: {} (column {})", name, error.mark.line + 1, error.msg,
                     error.mark.column + 1);
  }
  return builder.take();
}

void apply_override(YamlNode& root, const std::string& assignment) {
  const std::string where = "--set " + cut_short(assignment);
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0)
    fail<InputError>("{}: write it as key.path=value, as in --set generation.seed=7", where);

  YamlNode* node = &root;
  const std::string whole_key = assignment.substr(0, equals);
  if (std::count(whole_key.begin(), whole_key.end(), '.') >= static_cast<int64_t>(max_depth))
    fail<InputError>("{}: the key has more than {} levels", where, max_depth);
  std::istringstream path(whole_key);
  for (std::string key; std::getline(path, key, '.');) {
    if (key.empty()) fail<InputError>("{}: an empty name in the key", where);
    if (node->kind != YamlNode::Kind::map) {
      node->kind = YamlNode::Kind::map;
      node->children.clear();
    }
    if (node->find(key) == nullptr) {
      YamlNode child;
      child.key = key;
      child.where = where;
      node->children.push_back(std::move(child));
    }
    node = node->find(key);
  }
  YamlNode value = parse_yaml(assignment.substr(equals + 1), where);
  value.key = node->key;
  set_where(value, where);
  *node = std::move(value);
}

std::string describe(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::null:
      return "empty";
    case YamlNode::Kind::list:
      return "a list";
    case YamlNode::Kind::map:
      return "a map";
    case YamlNode::Kind::scalar:
      break;
  }
  const std::string shown = cut_short(node.text);
  return node.quoted ? '"' + shown + '"' : shown;
}

}  // namespace pecia::job
