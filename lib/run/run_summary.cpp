// SPDX-License-Identifier: Apache-2.0
#include "lib/run/run_summary.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "lib/base/core/files.hpp"
#include "lib/base/core/json.hpp"
#include "lib/base/report/format.hpp"
#include "lib/base/report/memory.hpp"
#include "lib/base/report/trace.hpp"
#include "lib/engine/schedule/job_limits.hpp"
#include "lib/ranks/cluster/machine.hpp"
#include "lib/run/sparse_summary.hpp"
#include "lib/work/resources/prefix_sharing.hpp"

namespace pecia::run {
namespace {

using Json = nlohmann::ordered_json;

/// What one rank knows about its own part.
struct RankFacts {
  std::string host, cpu;
  double compute_s = 0, comm_s = 0, idle_s = 0;
  int64_t peak_rss_bytes = 0, memory_bytes = 0;
  static constexpr std::array<const char*, 5> groups{"ring", "sp", "tp", "block", "stages"};
  std::array<comm::Traffic, groups.size()> traffic;
  attention::SparseTotals sparse;
  attention::WindowTotals windows;
  int32_t cores = 0;
  struct Stage {
    std::string name;
    report::Kind kind = report::Kind::compute;
    int64_t count = 0, bytes = 0;
    double seconds = 0, flops = 0;
    template <typename A>
    void visit(A& archive) {
      archive(name), archive(kind), archive(count), archive(bytes), archive(seconds),
          archive(flops);
    }
  };
  std::vector<Stage> stages;
  execute::ReplicaTotals totals;

  template <typename A>
  void visit(A& archive) {
    archive(host), archive(cpu), archive(compute_s), archive(comm_s), archive(idle_s),
        archive(peak_rss_bytes), archive(memory_bytes), archive(cores);
    for (comm::Traffic& of : traffic) archive(of.messages_by_level), archive(of.bytes_by_level);
    sparse.visit(archive), windows.visit(archive);
    visit_all(archive, stages);
    totals.visit(archive);
  }
};

const char* kind_name(report::Kind kind) {
  switch (kind) {
    case report::Kind::compute:
      return "compute";
    case report::Kind::comm:
      return "comm";
    case report::Kind::idle:
      return "idle";
    case report::Kind::phase:
      return "phase";
  }
  return "?";
}

/// The tensor that goes round the ring, or levels in its place; empty where there are neither.
std::string_view ring_text(const resources::Resources& resources) {
  if (resources.levels_from()) return name_of(parallel::AttentionExchange::levels);
  if (resources.cp == 1) return "";
  if (resources.elastic) return resources.fixed_parts ? "pass_kv" : "elastic";
  return resources.ring ? name_of(*resources.ring) : "auto";
}

/// "1 thread (avx2)"; "8 threads (neon_bf16), each on a core of its own".
std::string threads_text(const resources::Threads& threads, const std::string& isa) {
  return fmt::format("{} thread{} ({}){}", threads.count, threads.count == 1 ? "" : "s", isa,
                     threads.cpus.empty()       ? ""
                     : threads.cpus.size() == 1 ? " on a core of its own"
                                                : ", each on a core of its own");
}

/// ": DP 2 × CP 4 · prefill ring pass_kv, decode pass_q"; ": DP 2 · single"; " · single".
std::string grid_text(const resources::Resources& resources) {
  const std::string replica = to_string(resources.degrees());
  std::vector<std::string> degrees;
  if (resources.dp > 1) degrees.push_back(fmt::format("DP {}", resources.dp));
  if (resources.pp > 1) degrees.push_back(fmt::format("PP {}", resources.pp));
  if (!replica.empty()) degrees.push_back(replica);
  const std::string before =
      degrees.empty() ? " · " : fmt::format(": {} · ", fmt::join(degrees, " × "));
  if (replica.empty()) return before + "single";
  const std::string_view ring = ring_text(resources);
  return fmt::format(
      "{}prefill {}{}{}{}, decode {}{}{}", before, name_of(resources.prefill),
      ring.empty() ? "" : " ", ring,
      resources.gather_threshold
          ? fmt::format(" from {} new tokens, sp_tp below", *resources.gather_threshold)
          : "",
      name_of(resources.decode),
      resources.shift_threshold ? fmt::format(" up to {} new tokens", *resources.shift_threshold)
                                : "",
      resources.answering > 0
          ? fmt::format(" on {} of {} instances", resources.answering, resources.cp)
          : "");
}

RankFacts own_facts(const execute::Replica& replica, const report::Recorder& recorder,
                    const execute::ReplicaTotals& totals) {
  RankFacts facts;
  const cluster::CpuFacts cpu = cluster::cpu_facts();
  facts.host = cluster::host_name();
  facts.cpu = cpu.model;
  facts.cores = static_cast<int32_t>(cpu.cores.size());
  facts.memory_bytes = cluster::memory_facts().total_bytes;
  facts.compute_s = recorder.totals().compute_s;
  facts.comm_s = recorder.totals().comm_s;
  facts.idle_s = recorder.totals().idle_s;
  facts.peak_rss_bytes = report::peak_rss_bytes();
  const attention::ReplicaGroups& groups = replica.groups();
  comm::Traffic between_instances = groups.ring->traffic();
  if (groups.copies) between_instances += groups.copies->traffic();
  facts.traffic = {between_instances, groups.sp->traffic(), groups.tp->traffic(),
                   groups.block->traffic(), groups.line ? groups.line->traffic() : comm::Traffic{}};
  facts.sparse = replica.attention().sparse_totals();
  facts.windows = replica.attention().window_totals();
  for (const report::Stage& stage : recorder.stages())
    facts.stages.push_back(
        {stage.name, stage.kind, stage.count, stage.bytes, stage.seconds, stage.flops});
  facts.totals = totals;
  return facts;
}

void add_stages(const std::vector<RankFacts>& ranks, report::RunReport& report) {
  std::map<std::string, size_t> index;
  for (const RankFacts& rank : ranks)
    for (const RankFacts::Stage& stage : rank.stages) {
      const auto [found, added] = index.try_emplace(stage.name, report.stages.size());
      if (added) report.stages.push_back({stage.name, kind_name(stage.kind)});
      report::StageReport& sum = report.stages[found->second];
      sum.count += stage.count;
      sum.seconds += stage.seconds;
      sum.flops += stage.flops;
      sum.bytes += stage.bytes;
    }
}

/// When which instances of a replica worked together.
void add_timeline(const execute::TeamTimeline& timeline, size_t replica, Json& spans) {
  const auto rounded = [](double seconds) { return std::round(1e4 * seconds) / 1e4; };
  for (const execute::TeamSpan& span : timeline.spans())
    spans.push_back({{"replica", replica},
                     {"begin_s", rounded(span.begin_s)},
                     {"end_s", rounded(span.end_s)},
                     {"instances", span.instances},
                     {"workers", span.workers},
                     {"phase", span.prompts != 0 ? "prefill" : "decode"},
                     {"sequence", span.sequence}});
}

/// What teams of all replicas did, by their number of instances.
Json elastic_json(const std::vector<RankFacts>& ranks, const resources::Resources& resources,
                  int64_t kv_bytes_per_token) {
  const size_t ranks_of_replica = static_cast<size_t>(resources.cp) * resources.sp * resources.tp;
  execute::ElasticTotals all;
  for (const RankFacts& rank : ranks) all += rank.totals.elastic;
  Json degrees = Json::array();
  for (size_t i = 0; i < all.by_degree.size(); ++i) {
    const execute::TeamTotals& of = all.by_degree[i];
    degrees.push_back({{"instances", i + 1},
                       {"prefill_passes", of.prefill_passes},
                       {"prefill_tokens", of.prefill_tokens},
                       {"decode_passes", of.decode_passes},
                       {"decode_tokens", of.decode_tokens},
                       {"masters", of.masters}});
  }
  Json spans = Json::array();
  double least_s = 0;
  for (size_t rank = 0; rank < ranks.size(); rank += ranks_of_replica) {
    const execute::TeamTimeline& timeline = ranks[rank].totals.elastic.timeline;
    add_timeline(timeline, rank / ranks_of_replica, spans);
    least_s = std::max(least_s, timeline.least_s());
  }
  const auto errors = [](const std::vector<double>& of) -> Json {
    const auto shares = report::percentiles(of);
    if (!shares) return nullptr;
    return {{"passes", of.size()}, {"p50", shares->p50}, {"p90", shares->p90}};
  };
  const bool deals = resources.scheduler == job::TeamScheduler::loongserve;
  return {{"scheduler", deals ? "loongserve" : "greedy"},
          {"answering", resources.answering},
          {"degrees", degrees},
          {"scale_downs", all.scale_downs},
          {"scale_ups", all.scale_ups},
          {"shrinks", all.shrinks},
          {"moved_tokens", all.moved_tokens},
          {"moved_bytes", all.moved_tokens * kv_bytes_per_token},
          {"time_errors",
           {{"prefill", errors(all.prefill_errors)}, {"decode", errors(all.decode_errors)}}},
          {"timeline", {{"least_s", least_s}, {"spans", spans}}}};
}

batch::Sharing sharing_of(const std::vector<RankFacts>& ranks) {
  batch::Sharing all;
  for (const RankFacts& rank : ranks) all += rank.totals.sharing;
  return all;
}

/// Replicas run side by side, so the run is shorter by what one of them saves.
report::DraftReport drafts_of(const std::vector<RankFacts>& ranks, int replicas) {
  schedule::DraftCounts counts;
  for (const RankFacts& rank : ranks) counts += rank.totals.drafts;
  const auto tokens_of = [](const schedule::DraftedTokens& of) {
    return report::DraftReport::Tokens{of.tried, of.accepted};
  };
  report::DraftReport drafts{.passes = counts.passes,
                             .tokens = tokens_of(counts.tokens),
                             .computed_again = counts.again,
                             .saved_s = {},
                             .by_match = {},
                             .by_instruction = {}};
  if (counts.priced > 0) drafts.saved_s = counts.saved_s / replicas;
  for (size_t match = 0; match < counts.by_match.size(); ++match)
    if (counts.by_match[match].tried > 0)
      drafts.by_match.push_back(
          {schedule::DraftAcceptance::longest_of(match), tokens_of(counts.by_match[match])});
  for (const schedule::InstructionDrafts& of : counts.by_instruction) {
    const bool is_rest = of.row == schedule::InstructionDrafts::others;
    drafts.by_instruction.push_back(
        {is_rest ? std::nullopt : std::optional(of.row), tokens_of(of.tokens)});
  }
  return drafts;
}

void add_totals(const std::vector<RankFacts>& ranks, job::Arrivals arrivals,
                report::RunReport& report) {
  report::PhaseReport prefill{"prefill"}, decode{"decode"};
  for (const RankFacts& rank : ranks) {
    const execute::ReplicaTotals& totals = rank.totals;
    if (arrivals == job::Arrivals::replay)
      report.counts.arrived = std::max(report.counts.arrived.value_or(0), totals.arrived);
    report.counts.done += totals.done;
    report.counts.failed += totals.failed;
    report.counts.prompt_tokens += totals.prompt_tokens;
    report.counts.cached_tokens += totals.cached_tokens;
    report.counts.output_tokens += totals.output_tokens;
    report.counts.vectors += totals.vectors;
    report.counts.scores += totals.scores;
    report.counts.score_tokens += totals.score_tokens;
    report.counts.truncated_turns += totals.truncated_turns;
    report.counts.truncated_tokens += totals.truncated_tokens;
    report.counts.cut_by_length += totals.cut_by_length;
    report.counts.cut_by_model_length += totals.cut_by_model_length;
    report::KvReport& kv = report.kv;
    kv.restored_requests += totals.restored_requests;
    kv.restored_tokens += totals.restored_tokens;
    kv.restore_s = std::max(kv.restore_s, totals.restore_s);
    kv.kept_requests += totals.kept_requests;
    kv.kept_tokens += totals.kept_tokens;
    kv.kept_bytes += totals.kept_bytes;
    kv.keep_s = std::max(kv.keep_s, totals.keep_s);
    kv.not_worth_keeping += totals.not_worth_keeping;
    if (kv.demand) {
      kv.demand->most_at_once = std::max(kv.demand->most_at_once, totals.demand.most_at_once);
      kv.demand->blocks += totals.demand.blocks;
      kv.demand->parked += totals.demand.parked;
      kv.demand->parked_tokens += totals.demand.parked_tokens;
      kv.demand->moved += totals.demand.moved;
      kv.demand->moved_tokens += totals.demand.moved_tokens;
      kv.demand->scale_ups += totals.demand.scale_ups;
      kv.demand->forgotten += totals.demand.forgotten;
      kv.demand->reread_tokens += totals.demand.reread_tokens;
      kv.demand->park_s = std::max(kv.demand->park_s, totals.park_s);
    }
    for (size_t i = 0; i < kv.answer_quantiles.size(); ++i)
      kv.answer_quantiles[i] = std::max(kv.answer_quantiles[i], totals.answer_quantiles[i]);
    // Replicas run side by side, so the run takes the time of the slowest one.
    prefill.seconds = std::max(prefill.seconds, totals.prefill_s);
    decode.seconds = std::max(decode.seconds, totals.decode_s);
    prefill.tokens += totals.prompt_tokens;
    decode.tokens += static_cast<int64_t>(totals.tbt_s.size());
    prefill.flops += totals.prefill_flops;
    decode.flops += totals.decode_flops;
    report.first_tokens += totals.first_tokens;
    report.shared_first_tokens += totals.shared_first_tokens;
    report.ttft_s.insert(report.ttft_s.end(), totals.ttft_s.begin(), totals.ttft_s.end());
    report.tbt_s.insert(report.tbt_s.end(), totals.tbt_s.begin(), totals.tbt_s.end());
  }
  report.phases = {prefill, decode};
}

/// Adds the bytes that each kind of group sent over each level of links.
void add_links(const std::vector<RankFacts>& ranks, report::RunReport& report) {
  for (size_t group = 0; group < RankFacts::groups.size(); ++group)
    for (size_t level = 0; level < comm::num_link_levels; ++level) {
      report::LinkReport link{RankFacts::groups[group], comm::link_level_names[level]};
      for (const RankFacts& rank : ranks) {
        link.messages += rank.traffic[group].messages_by_level[level];
        link.bytes += rank.traffic[group].bytes_by_level[level];
      }
      if (link.messages > 0) report.links.push_back(link);
    }
}

}  // namespace

int64_t num_gpus(const RunFacts& facts) {
  if (facts.gpu.empty()) return 0;
  std::set<std::string> gpus;
  for (const auto& place : facts.places) gpus.insert(comm::to_string(place));
  return std::ssize(gpus);
}

int num_hosts(const RunFacts& facts) {
  std::set<std::string> servers;
  for (const auto& place : facts.places) servers.insert(place.rack + '/' + place.server);
  return static_cast<int>(servers.size());
}

std::string first_line(const RunFacts& facts, int64_t requests, int64_t prompt_tokens) {
  const resources::Resources& resources = facts.resources;
  const int64_t kv_bytes = resources::kv_memory_of_rank(facts.config, resources);
  const int hosts = num_hosts(facts);
  const auto ranks = static_cast<int>(facts.places.size());
  const std::string sparse = sparse_text(resources, facts.places);
  return fmt::format(
      "{} {} {}{} · {} request{}, {} tokens · context {} · KV {} {} per rank · {} rank{} of {} on "
      "{} "
      "host{}{}{}{}",
      facts.job.model.path.filename().string(), facts.weights,
      report::format_bytes(facts.weight_bytes),
      resources.tp > 1 || resources.ep > 1 ? " per rank" : "", requests, requests == 1 ? "" : "s",
      report::format_count(static_cast<double>(prompt_tokens)), facts.config.max_positions,
      name_of(resources.kv_dtype), report::format_bytes(kv_bytes), ranks, ranks == 1 ? "" : "s",
      facts.gpu.empty() ? threads_text(resources.threads, facts.isa) : "1 " + facts.gpu, hosts,
      hosts == 1 ? "" : "s", grid_text(resources), sparse.empty() ? "" : " · " + sparse,
      resources.reasons.empty() ? "" : "\n       auto: " + resources.reasons.text());
}

std::optional<report::RunReport> gather_report(comm::Communicator& ordered, const RunFacts& facts,
                                               const execute::Replica& replica,
                                               const report::Recorder& recorder,
                                               const execute::ReplicaTotals& totals,
                                               double seconds) {
  const auto parts = ordered.gather(to_bytes(own_facts(replica, recorder, totals)), 0);
  if (ordered.rank() != 0) return {};
  std::vector<RankFacts> ranks;
  for (const auto& part : parts) ranks.push_back(from_bytes<RankFacts>(part));

  const resources::Resources& resources = facts.resources;
  report::RunReport report;
  report.seconds = seconds;
  report.cores = resources.threads.cores_of_job;
  report.gpus = num_gpus(facts);
  report.hosts = num_hosts(facts);
  report.node_hour_price = facts.job.report.node_hour_price;
  report.job = parse_json<Json>(to_json(facts.asked));
  report.model = Json{{"weights", facts.weights},
                      {"read_bytes_by_host", facts.read_bytes},
                      {"quantization", nullptr}};
  if (facts.rounding)
    report.model["quantization"] = {{"dtype", facts.weights}, {"error", to_json(*facts.rounding)}};
  report.machine = {ranks[0].cpu, ranks[0].cores, ranks[0].memory_bytes, facts.gpu, facts.isa};
  for (const auto& place : facts.places) report.topology.push_back(comm::to_string(place));
  report.grid = {resources.dp, resources.cp, resources.sp, resources.tp};
  if (facts.config.experts) report.grid.ep = resources.ep;
  if (resources.pp > 1) report.grid.pp = resources.pp;
  report.modes = {.mode = resources::mode_name(resources),
                  .prefill = std::string(name_of(resources.prefill)),
                  .ring = std::string(ring_text(resources)),
                  .decode = std::string(name_of(resources.decode)),
                  .shift_threshold = resources.shift_threshold,
                  .gather_threshold = resources.gather_threshold,
                  .why = resources.reasons.text(),
                  .threads = resources.threads.count,
                  .compute = std::string(name_of(facts.compute)),
                  .attention_library = facts.attention_library,
                  .expert_library = facts.expert_library,
                  .kv_dtype = std::string(name_of(resources.kv_dtype)),
                  .wire = resources.wire && resources.replica_ranks() > 1
                              ? std::string(name_of(*resources.wire))
                              : "",
                  .kv_tokens_per_rank = resources.kv_tokens,
                  .kv_recent_tokens_per_rank = resources.kv_recent_tokens,
                  .weight_bytes = facts.weight_bytes,
                  .max_sequences = resources.max_sequences,
                  .max_batch_tokens = resources.max_batch_tokens};
  if (schedule::on_demand(facts.job)) report.kv.demand.emplace();
  if (facts.job.generation.drafts) report.drafts = drafts_of(ranks, resources.dp);
  report.tbt_goal_s = facts.job.batch.objective.tbt_s;
  if (resources.elastic)
    report.elastic =
        elastic_json(ranks, resources, facts.config.kv_bytes_per_token(resources.kv_dtype));
  report.prefix_sharing = resources::json_of(
      sharing_of(ranks), resources::why_not_shared(facts.job, facts.config, resources));
  if (resources.sparse) {
    std::vector<attention::SparseTotals> sparse;
    for (const RankFacts& rank : ranks) sparse.push_back(rank.sparse);
    report.sparse = sparse_json(resources, sparse);
  }
  attention::WindowTotals windows;
  for (const RankFacts& rank : ranks) windows += rank.windows;
  if (windows.whole_ring_bytes > 0) report.windows = {windows.sent_bytes, windows.whole_ring_bytes};
  add_totals(ranks, facts.job.batch.arrivals, report);
  add_stages(ranks, report);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankFacts& of = ranks[rank];
    report.ranks.push_back(
        {static_cast<int>(rank), of.host, of.compute_s, of.comm_s, of.idle_s, of.peak_rss_bytes});
  }
  add_links(ranks, report);
  return report;
}

void write_traces(comm::Communicator& ordered, const std::filesystem::path& folder, int replica,
                  std::optional<int> stage, const report::Recorder& recorder) {
  ordered.barrier();
  const int64_t now = recorder.now_ns();
  const report::Track track{replica, ordered.rank(),
                            cluster::host_name() + (stage ? fmt::format(", stage {}", *stage) : ""),
                            ordered.all_reduce_max(now) - now};
  refuse_foreign_link(folder);
  std::filesystem::create_directories(folder);
  report::write_trace(folder / report::trace_file_name(ordered.rank()), track, recorder);
  ordered.barrier();
  if (ordered.rank() == 0) report::tidy_traces(folder, ordered.size());
}

}  // namespace pecia::run
