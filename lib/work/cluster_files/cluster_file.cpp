// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>

#include "lib/base/core/error.hpp"
#include "lib/base/core/mistyped.hpp"
#include "lib/files/disk/file.hpp"
#include "lib/work/cluster_files/cluster.hpp"
#include "lib/work/job/yaml_tree.hpp"

namespace pecia::cluster_files {
namespace {

using job::YamlNode;

constexpr int64_t most_bytes = 1 << 20;
constexpr double most_ranks = 1 << 20;

/// A number of the file for which `accept` holds; `allowed` completes "it must be …".
double number(const YamlNode& node, const std::string& key, const char* allowed,
              const std::function<bool(double)>& accept) {
  double value = NAN;
  const char* const end = node.text.data() + node.text.size();
  const bool plain = node.kind == YamlNode::Kind::scalar && !node.quoted;
  const auto read = std::from_chars(node.text.data(), end, value);
  if (!plain || read.ec != std::errc() || read.ptr != end || !std::isfinite(value) ||
      !accept(value))
    fail<InputError>("{}: {} is {}; it must be {}", node.where, key, describe(node), allowed);
  return value;
}

double rate(const YamlNode& node, const std::string& key) {
  return number(node, key, "a number above 0", [](double value) { return value > 0; });
}

double time(const YamlNode& node, const std::string& key) {
  return number(node, key, "a number of microseconds, 0 or more",
                [](double value) { return value >= 0; });
}

double share(const YamlNode& node, const std::string& key) {
  return number(node, key, "a share above 0 and at most 1",
                [](double value) { return value > 0 && value <= 1; });
}

int count(const YamlNode& node, const std::string& key) {
  return static_cast<int>(number(node, key, "a whole number from 1 to 1048576", [](double value) {
    return value >= 1 && value <= most_ranks && value == std::floor(value);
  }));
}

bool flag(const YamlNode& node, const std::string& key) {
  if (node.kind == YamlNode::Kind::scalar && (node.text == "true" || node.text == "false"))
    return node.text == "true";
  fail<InputError>("{}: {} is {}; it must be true or false", node.where, key, describe(node));
}

bool is_gpu(const YamlNode& node, const std::string& key) {
  if (node.kind == YamlNode::Kind::scalar && (node.text == "cpu" || node.text == "cuda"))
    return node.text == "cuda";
  fail<InputError>("{}: {} is {}; it must be cpu or cuda", node.where, key, describe(node));
}

std::string text(const YamlNode& node, const std::string& key) {
  if (node.kind == YamlNode::Kind::scalar && !node.text.empty()) return node.text;
  fail<InputError>("{}: {} is {}; it must be a name", node.where, key, describe(node));
}

/// A map of the file with some of the `known` keys.
class Section {
 public:
  Section(YamlNode& node, std::string path, std::vector<std::string> known)
      : node_(node), path_(std::move(path)), known_(std::move(known)) {
    if (node.kind != YamlNode::Kind::map)
      fail<InputError>("{}: {} is {}; it must be a map", node.where,
                       path_.empty() ? "the cluster file" : path_, describe(node));
    for (const YamlNode& child : node.children)
      if (std::ranges::find(known_, child.key) == known_.end()) refuse_unknown(child);
  }

  std::string name(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }

  YamlNode* find(const std::string& key) { return node_.find(key); }
  YamlNode& at(const std::string& key) {
    if (YamlNode* const found = find(key)) return *found;
    fail<InputError>("{}: {} is missing; a cluster file has every key, so that no figure is hidden",
                     node_.where, name(key));
  }
  template <typename Read>
  auto get(const std::string& key, Read read) {
    return read(at(key), name(key));
  }
  Section in(const std::string& key, std::vector<std::string> known) {
    return {at(key), name(key), std::move(known)};
  }

 private:
  [[noreturn]] void refuse_unknown(const YamlNode& child) const {
    const auto nearest = std::ranges::min_element(
        known_, {}, [&](const std::string& key) { return edit_distance(child.key, key); });
    fail<InputError>("{}: unknown key {}; {}", child.where, name(child.key),
                     may_mean(child.key, *nearest)
                         ? fmt::format("did you mean {}?", name(*nearest))
                         : fmt::format("the keys here are {}", fmt::join(known_, ", ")));
  }

  YamlNode& node_;
  std::string path_;
  std::vector<std::string> known_;
};

Curve curve_of(const YamlNode& node, const std::string& key, Axis axis) {
  Curve curve{axis, {}};
  const auto refuse = [&](const YamlNode& where) {
    fail<InputError>("{}: {} must be a list of [size, share], in ascending order of sizes above 0",
                     where.where, key);
  };
  if (node.kind != YamlNode::Kind::list || node.children.empty()) refuse(node);
  for (const YamlNode& pair : node.children) {
    if (pair.kind != YamlNode::Kind::list || pair.children.size() != 2) refuse(pair);
    const double size = rate(pair.children[0], key);
    if (!curve.points.empty() && size <= curve.points.back().size) refuse(pair);
    curve.points.push_back({size, share(pair.children[1], key)});
  }
  return curve;
}

constexpr const char* slices_key = "rows_at_depth";

std::vector<Slice> slices_of(const YamlNode& node, const std::string& key) {
  std::vector<Slice> slices;
  const auto refuse = [&](const YamlNode& where) {
    fail<InputError>(
        "{}: {} must be a list of [depth, [[rows, share], …]], in ascending order of "
        "depths above 0",
        where.where, key);
  };
  if (node.kind != YamlNode::Kind::list || node.children.empty()) refuse(node);
  for (const YamlNode& pair : node.children) {
    if (pair.kind != YamlNode::Kind::list || pair.children.size() != 2) refuse(pair);
    const double depth = rate(pair.children[0], key);
    if (!slices.empty() && depth <= slices.back().depth) refuse(pair);
    slices.push_back({depth, curve_of(pair.children[1], key, Axis::rows)});
  }
  return slices;
}

/// A number, or a map from some of these axes to curves, with or without a `factor`. What has rows
/// and depth may have slices.
Efficiency efficiency_of(YamlNode& node, const std::string& key, const std::vector<Axis>& over) {
  if (node.kind != YamlNode::Kind::map) return {share(node, key)};
  std::vector<std::string> known{"factor"};
  for (const Axis axis : over) known.emplace_back(name_of(axis));
  if (over.size() > 1) known.emplace_back(slices_key);
  Section section(node, key, std::move(known));
  Efficiency efficiency;
  if (const YamlNode* factor = section.find("factor"))
    efficiency.factor = share(*factor, section.name("factor"));
  for (const Axis axis : over) {
    const std::string name(name_of(axis));
    if (const YamlNode* curve = section.find(name))
      efficiency.curves.push_back(curve_of(*curve, section.name(name), axis));
  }
  if (over.size() > 1)
    if (const YamlNode* slices = section.find(slices_key))
      efficiency.slices = slices_of(*slices, section.name(slices_key));
  return efficiency;
}

RankPeaks rank_of(Section section) {
  RankPeaks rank{section.get("name", text),
                 section.get("backend", is_gpu),
                 {},
                 section.get("memory_gbs", rate),
                 section.get("memory_gib", rate)};
  for (const auto& [key, times] :
       {std::pair("alone", &rank.alone), {"alone_flops", &rank.alone_flops}})
    if (const YamlNode* found = section.find(key))
      *times = number(*found, section.name(key), "a number from 1 on",
                      [](double value) { return value >= 1; });
  if (const YamlNode* program = section.find("program_gib"))
    rank.program_gib = number(*program, section.name("program_gib"),
                              "a number of GiB, 0 or more, below memory_gib",
                              [&](double gib) { return gib >= 0 && gib < rank.memory_gib; });
  if (const YamlNode* touch = section.find("first_touch_gbs"))
    rank.first_touch_gbs = number(*touch, section.name("first_touch_gbs"),
                                  "a number of 1e9 B/s, or 0 where it takes no time",
                                  [](double gbs) { return gbs >= 0; });
  if (const YamlNode* host = section.find("host_gbs")) {
    if (!rank.gpu)
      fail<InputError>("{}: {} is of GPUs, and the ranks are CPUs", host->where,
                       section.name("host_gbs"));
    rank.host_gbs = rate(*host, section.name("host_gbs"));
  }
  if (const YamlNode* in_order = section.find("in_order"))
    rank.in_order = flag(*in_order, section.name("in_order"));
  Section flops = section.in("flops", {"fp32", "bf16", "fp8"});
  for (const DType type : {DType::fp32, DType::bf16, DType::fp8}) {
    const std::string name(name_of(type));
    if (const YamlNode* found = flops.find(name)) rank.flops[type] = rate(*found, flops.name(name));
  }
  if (rank.flops.empty()) flops.at("fp32");
  return rank;
}

Link link_of(Section section, int ranks_per_server) {
  Link link{section.get("gbs", rate), section.get("us", time), section.get("shared", flag)};
  if (const YamlNode* adapters = section.find("adapters")) {
    link.adapters = count(*adapters, section.name("adapters"));
    if (!link.shared && link.adapters > 1)
      fail<InputError>("{}: {} is {}, but the link is not shared, so each rank has one of its own",
                       adapters->where, section.name("adapters"), link.adapters);
    if (ranks_per_server % link.adapters != 0)
      fail<InputError>("{}: {} is {}, which does not divide the {} ranks of a server",
                       adapters->where, section.name("adapters"), link.adapters, ranks_per_server);
  }
  if (const YamlNode* us = section.find("exchange_us"))
    link.exchange_us = time(*us, section.name("exchange_us"));
  return link;
}

constexpr std::array kv_types{DType::fp32, DType::bf16, DType::fp16, DType::fp8};

DType kv_type(const YamlNode& node, const std::string& key) {
  for (const DType type : kv_types)
    if (node.kind == YamlNode::Kind::scalar && node.text == name_of(type)) return type;
  fail<InputError>("{}: {} is {}; it must be fp32, bf16, fp16 or fp8", node.where, key,
                   describe(node));
}

double coefficient(const YamlNode& node, const std::string& key) {
  return number(node, key, "a number", [](double) { return true; });
}

RingRule ring_rule_of(Section section) {
  RingRule rule{{section.get("new_tokens", coefficient), section.get("miss_rate", coefficient),
                 section.get("constant", coefficient)},
                section.get("ranks", count),
                section.get("heads", count),
                section.get("kv_heads", count),
                section.get("head_dim", count),
                section.get("kv", kv_type)};
  if (rule.ranks < 2)
    fail<InputError>("{}: {} is 1, and one rank has no ring", section.at("ranks").where,
                     section.name("ranks"));
  return rule;
}

std::string text_of(const Curve& curve) {
  std::vector<std::string> points;
  for (const auto& [size, share] : curve.points)
    points.push_back(fmt::format("[{}, {}]", size, share));
  return fmt::format("[{}]", fmt::join(points, ", "));
}

std::string text_of(const Efficiency& efficiency) {
  if (efficiency.curves.empty() && efficiency.slices.empty())
    return fmt::format("{}", efficiency.factor);
  std::vector<std::string> entries;
  if (efficiency.factor != 1) entries.push_back(fmt::format("factor: {}", efficiency.factor));
  for (const Curve& curve : efficiency.curves)
    entries.push_back(fmt::format("{}: {}", name_of(curve.axis), text_of(curve)));
  std::vector<std::string> slices;
  for (const auto& [depth, rows] : efficiency.slices)
    slices.push_back(fmt::format("[{}, {}]", depth, text_of(rows)));
  if (!slices.empty())
    entries.push_back(fmt::format("{}: [{}]", slices_key, fmt::join(slices, ", ")));
  return fmt::format("{{{}}}", fmt::join(entries, ", "));
}

std::string quoted(const std::string& name) {
  std::string text = "\"";
  for (const char c : name) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + "\"";
}

}  // namespace

Cluster parse_cluster(const std::string& file_text, const std::string& name) {
  YamlNode root = job::parse_yaml(file_text, name);
  Section file(root, "",
               {"ranks_per_server", "servers_per_rack", "rank", "links", "efficiency", "overhead",
                "ring_rule"});
  Cluster cluster;
  cluster.ranks_per_server = file.get("ranks_per_server", count);
  cluster.servers_per_rack = file.get("servers_per_rack", count);
  cluster.rank = rank_of(
      file.in("rank", {"name", "backend", "flops", "memory_gbs", "memory_gib", "alone",
                       "alone_flops", "program_gib", "first_touch_gbs", "host_gbs", "in_order"}));

  Section links = file.in("links", {comm::link_level_names.begin(), comm::link_level_names.end()});
  for (int level = 0; level < comm::num_link_levels; ++level) {
    // The network's adapters are those of a server, and count where what leaves it is shared.
    std::vector<std::string> known{"gbs", "us", "shared", "exchange_us"};
    if (level == static_cast<int>(comm::LinkLevel::rack)) known.emplace_back("adapters");
    cluster.links[level] = link_of(links.in(comm::link_level_names[level], std::move(known)),
                                   cluster.ranks_per_server);
  }

  Section shares =
      file.in("efficiency", {"gemm", "attention", "recurrence", "recurrence_chunks", "copy",
                             "stream", "weights", "pieces", "send", "collective", "one_peer"});
  const auto over = [](std::vector<Axis> over_axes) {
    return [over_axes](YamlNode& node, const std::string& key) {
      return efficiency_of(node, key, over_axes);
    };
  };
  const auto of_work = over({Axis::rows, Axis::depth, Axis::width}), of_bytes = over({Axis::bytes});
  cluster.efficiency = {shares.get("gemm", of_work), shares.get("attention", of_work),
                        shares.get("copy", of_bytes), shares.get("send", of_bytes),
                        shares.get("collective", of_bytes)};
  cluster.efficiency.stream =
      shares.find("stream") != nullptr ? shares.get("stream", of_bytes) : cluster.efficiency.copy;

  for (const auto& [key, share] : {std::pair{"pieces", &cluster.efficiency.pieces},
                                   {"weights", &cluster.efficiency.weights},
                                   {"one_peer", &cluster.efficiency.one_peer}})
    if (shares.find(key) != nullptr) *share = shares.get(key, of_bytes);

  for (const auto& [key, share] : {std::pair{"recurrence", &cluster.efficiency.recurrence},
                                   {"recurrence_chunks", &cluster.efficiency.recurrence_chunks}})
    if (shares.find(key) != nullptr) *share = shares.get(key, of_work);

  Section overhead = file.in("overhead", {"op_us", "step_us", "exchange_us", "recurrent_row_us",
                                          "recurrent_chunk_us", "context_token_us", "layer_us"});
  cluster.overhead = {overhead.get("op_us", time), overhead.get("step_us", time)};
  for (const auto& [key, us] : {std::pair{"exchange_us", &cluster.overhead.exchange_us},
                                {"recurrent_row_us", &cluster.overhead.recurrent_row_us},
                                {"recurrent_chunk_us", &cluster.overhead.recurrent_chunk_us},
                                {"context_token_us", &cluster.overhead.context_token_us},
                                {"layer_us", &cluster.overhead.layer_us}})
    if (overhead.find(key) != nullptr) *us = overhead.get(key, time);
  if (file.find("ring_rule") != nullptr)
    cluster.ring_rule =
        ring_rule_of(file.in("ring_rule", {"new_tokens", "miss_rate", "constant", "ranks", "heads",
                                           "kv_heads", "head_dim", "kv"}));
  return cluster;
}

Cluster read_cluster(const std::filesystem::path& path) {
  const io::File file = io::File::open_input(path);
  if (file.size() > most_bytes)
    fail<InputError>("{}: larger than {} bytes; a cluster file has about thirty numbers",
                     path.string(), most_bytes);
  std::string text(file.size(), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return parse_cluster(text, path.string());
}

namespace {
std::string line_of(std::string_view key, const std::optional<Efficiency>& share) {
  return share ? fmt::format("  {}: {}\n", key, text_of(*share)) : "";
}
std::string line_of(const std::optional<RingRule>& of) {
  if (!of) return "";
  return fmt::format(
      "ring_rule:  # keys go round the ring where new_tokens · ln T + miss_rate · ln(T/(T+P)) +"
      " constant > 0\n"
      "  {{new_tokens: {}, miss_rate: {}, constant: {}, ranks: {}, heads: {}, kv_heads: {},"
      " head_dim: {}, kv: {}}}\n",
      of->rule.new_tokens, of->rule.miss_rate, of->rule.constant, of->ranks, of->heads,
      of->kv_heads, of->head_dim, name_of(of->kv));
}
}  // namespace

std::string to_yaml(const Cluster& cluster) {
  const RankPeaks& rank = cluster.rank;
  std::vector<std::string> flops;
  for (const auto& [type, value] : rank.flops)
    flops.push_back(fmt::format("{}: {}", name_of(type), value));
  std::string yaml = fmt::format(
      "ranks_per_server: {}\nservers_per_rack: {}\n"
      "rank: {{name: {}, backend: {}, flops: {{{}}}, memory_gbs: {}, memory_gib: {}, alone: {},"
      " alone_flops: {}, program_gib: {}, first_touch_gbs: {}{}{}}}\n"
      "links:  # gbs: 1e9 B/s per rank and direction, or per server or rack where it is shared\n",
      cluster.ranks_per_server, cluster.servers_per_rack, quoted(rank.name),
      rank.gpu ? "cuda" : "cpu", fmt::join(flops, ", "), rank.memory_gbs, rank.memory_gib,
      rank.alone, rank.alone_flops, rank.program_gib, rank.first_touch_gbs,
      rank.host_gbs ? fmt::format(", host_gbs: {}", *rank.host_gbs) : "",
      rank.in_order ? ", in_order: true" : "");
  for (int level = 0; level < comm::num_link_levels; ++level) {
    const Link& link = cluster.links[level];
    yaml += fmt::format(
        "  {}: {{gbs: {}, us: {}, shared: {}{}{}}}\n", comm::link_level_names[level], link.gbs,
        link.us, link.shared, link.adapters > 1 ? fmt::format(", adapters: {}", link.adapters) : "",
        link.exchange_us ? fmt::format(", exchange_us: {}", *link.exchange_us) : "");
  }
  const Cluster::Shares& shares = cluster.efficiency;
  return yaml +
         fmt::format(
             "efficiency:  # shares of these peaks: numbers, or curves of [size, share]\n"
             "  gemm: {}\n  attention: {}\n  copy: {}\n  stream: {}\n  send: {}\n"
             "  collective: {}\n{}{}{}{}{}"
             "overhead: {{op_us: {}, step_us: {}, exchange_us: {}, recurrent_row_us: {}, "
             "recurrent_chunk_us: {}, context_token_us: {}, layer_us: {}}}\n",
             text_of(shares.gemm), text_of(shares.attention), text_of(shares.copy),
             text_of(shares.stream.value_or(shares.copy)), text_of(shares.send),
             text_of(shares.collective), line_of("one_peer", shares.one_peer),
             line_of("pieces", shares.pieces), line_of("weights", shares.weights),
             line_of("recurrence", shares.recurrence),
             line_of("recurrence_chunks", shares.recurrence_chunks), cluster.overhead.op_us,
             cluster.overhead.step_us, cluster.overhead.exchange_us,
             cluster.overhead.recurrent_row_us, cluster.overhead.recurrent_chunk_us,
             cluster.overhead.context_token_us, cluster.overhead.layer_us) +
         line_of(cluster.ring_rule);
}

}  // namespace pecia::cluster_files
