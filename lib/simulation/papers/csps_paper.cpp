// SPDX-License-Identifier: Apache-2.0
/// GLM-4-9B-1M on servers of 8 × A100 with 40 GB (a100-p4d), 64K tokens of a prompt on each GPU:
/// where a prompt's time goes with heads moved (SP-NTP) and with weights cut (SP-TP), what sparse
/// attention by levels saves, and prompts read at once beside chunks.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>

#include "lib/simulation/papers/machine.hpp"
#include "lib/simulation/papers/papers.hpp"

namespace pecia::simulation::papers {
namespace {

constexpr const char* csps_model = "glm-4-9b-1m";

/// A prompt of the paper's data sets, and the GPUs that read it.
struct SparsePrompt {
  int64_t tokens;
  int gpus;
};
constexpr std::array sparse_prompts{SparsePrompt{97'000, 2}, SparsePrompt{113'000, 2},
                                    SparsePrompt{406'000, 8}, SparsePrompt{995'000, 16}};

/// Nothing hides a collective: the shares were published without the paper's pipelines.
cluster_files::Cluster p4d() {
  cluster_files::Cluster cluster = cluster_files::cluster_of("a100-p4d");
  cluster.rank.in_order = true;
  return cluster;
}

Grid ntp(int gpus) {
  return {.sp = gpus, .prefill = parallel::PrefillMode::ulysses};
}
Grid sp_tp(int gpus) {
  return {.tp = gpus, .prefill = parallel::PrefillMode::sp_tp};
}

struct Shares {
  double messages, attention;
};
Shares shares_of(const RequestLatency& latency) {
  return {latency.prefill.exposed_comm_s / latency.ttft_s,
          latency.prefill.attention_s / latency.ttft_s};
}

void add_shares(Machine& machine, Paper& paper) {
  struct Published {
    const char* name;
    Grid (*grid)(int);
    double messages, messages_to, attention, attention_to;
  };
  for (const Published& of : {Published{"SP-NTP", ntp, 0.13, 0.34, 0.18, 0.43},
                              Published{"SP-TP", sp_tp, 0.39, 0.62, 0.11, 0.29}})
    for (const SparsePrompt& prompt : sparse_prompts) {
      const RequestLatency latency =
          machine.latency(of.grid(prompt.gpus), {.prompt_tokens = prompt.tokens}, prompt.tokens);
      const Shares shares = shares_of(latency);
      const std::string setting =
          fmt::format("{}, {} tokens on {} GPUs", of.name, prompt.tokens, prompt.gpus);
      const auto add = [&](const char* what, double from, double to, double ours) {
        paper.rows.push_back({.what = what,
                              .setting = setting,
                              .published = from,
                              .ours = ours,
                              .published_to = to,
                              .note =
                                  "not asserted: which prompts and GPUs gave the range is not at "
                                  "hand, and the preset's shares are guesses",
                              .plot = what,
                              .line = of.name,
                              .x = static_cast<double>(prompt.tokens)});
      };
      add("share of TTFT in messages", of.messages, of.messages_to, shares.messages);
      add("share of TTFT in attention", of.attention, of.attention_to, shares.attention);
    }
  for (const char* what : {"share of TTFT in messages", "share of TTFT in attention"})
    paper.plots.push_back({what, "tokens of the prompt", "share", true, false});
}

constexpr double published_drop = 0.22;

job::Job dropping(parallel::Geometry geometry) {
  job::Job job;
  job.attention.sparse = job::Sparse::csa;
  job.attention.geometry = geometry;
  job.attention.drop = job::DropSetting{published_drop, {}};
  return job;
}

/// What 22 % dropped leave of a prompt's attention and messages, beside dense attention.
class SparsePasses {
 public:
  explicit SparsePasses(Paper& paper) : paper_(paper) {}

  void add(const SparsePrompt& prompt) {
    for (const auto& [name, of] :
         {std::pair{"nested", &nested_}, std::pair{"disjoint", &disjoint_}}) {
      const std::string setting = fmt::format("22 % dropped, {} levels, {} tokens on {} GPUs", name,
                                              prompt.tokens, prompt.gpus);
      const auto row = [&](const char* what, std::optional<double> published, double ours,
                           bool asserted = false, How how = How::simulated) {
        paper_.rows.push_back({.what = what,
                               .setting = setting,
                               .published = published,
                               .ours = ours,
                               .how = how,
                               .allowed = asserted ? std::optional(0.1) : std::nullopt,
                               .note = published ? note_of(prompt, asserted) : ""});
      };
      const RequestLatency dense = dense_.whole(prompt), sparse = of->whole(prompt);
      row("time of attention, by dense", 1 - 0.28,
          sparse.prefill.attention_s / dense.prefill.attention_s, prompt.gpus == 8);
      row("time of messages alone, by dense", 1 - 0.19,
          of->messages_s(prompt) / dense_.messages_s(prompt), prompt.gpus > 8 && of == &nested_);
      row("bytes of messages, by dense", {}, all_bytes(sparse) / all_bytes(dense), false,
          How::counted);
      if (bytes_between_servers(dense) > 0)
        row("bytes between servers, by dense", {},
            bytes_between_servers(sparse) / bytes_between_servers(dense), false, How::counted);
    }
  }

  /// What ranks still wait for, where messages move beside attention.
  void add_waits(const SparsePrompt& prompt) {
    const double waits_s = disjoint_.whole(prompt).prefill.exposed_comm_s;
    paper_.rows.push_back(
        {.what = "waits in the pipeline, by the time of dense messages alone",
         .setting = fmt::format("22 % dropped, disjoint levels, {} tokens on {} GPUs",
                                prompt.tokens, prompt.gpus),
         .ours = waits_s / dense_.messages_s(prompt),
         .note =
             "no time of messages, but what attention of a rank's own part does not hide of it"});
  }

 private:
  /// A way to attend, on the described machine and where ops take no time.
  class Way {
   public:
    explicit Way(const job::Job& job)
        : whole_(csps_model, cluster_files::cluster_of("a100-p4d"), job),
          messages_(csps_model, without_ops(), job) {}

    RequestLatency whole(const SparsePrompt& prompt) { return latency(whole_, prompt); }
    double messages_s(const SparsePrompt& prompt) { return latency(messages_, prompt).ttft_s; }

   private:
    static cluster_files::Cluster without_ops() {
      constexpr double fast = 1e9;
      cluster_files::Cluster cluster = cluster_files::cluster_of("a100-p4d");
      for (auto& [type, flops] : cluster.rank.flops) flops *= fast;
      cluster.rank.memory_gbs *= fast;
      cluster.overhead.op_us = cluster.overhead.step_us = 0;
      return cluster;
    }
    static RequestLatency latency(Machine& machine, const SparsePrompt& prompt) {
      return machine.latency(ntp(prompt.gpus), {.prompt_tokens = prompt.tokens}, prompt.tokens);
    }

    Machine whole_, messages_;
  };

  static double bytes_between_servers(const RequestLatency& latency) {
    return latency.sent_bytes[static_cast<size_t>(comm::LinkLevel::rack)];
  }
  static double all_bytes(const RequestLatency& latency) {
    return std::accumulate(latency.sent_bytes.begin(), latency.sent_bytes.end(), 0.0);
  }
  static std::string note_of(const SparsePrompt& prompt, bool asserted) {
    const std::string prompts =
        "published without the prompts that it is of; rows of other lengths stand beside";
    if (asserted) return prompts;
    if (prompt.gpus > 8)
      return "not asserted: " + prompts +
             ". Level 3, which joins servers, keeps 0.39 of the tokens, half of what level 2 does";
    return "not asserted: " + prompts +
           ". Work is dealt in equal numbers of pairs, so ports carry unequal numbers of bytes";
  }

  Paper& paper_;
  Way dense_{job::Job()}, nested_{dropping(parallel::Geometry::nested)},
      disjoint_{dropping(parallel::Geometry::disjoint)};
};

void add_sparse(Paper& paper) {
  SparsePasses passes(paper);
  for (const SparsePrompt& prompt : sparse_prompts)
    if (prompt.tokens != sparse_prompts[1].tokens) passes.add(prompt);  // as the one before
  passes.add_waits(sparse_prompts.back());
}

/// A prompt read at once by a server or more, beside chunks on one server's TP.
void add_chunks(Machine& machine, Paper& paper) {
  bool sooner = true;
  for (const auto& [tokens, gpus] : sparse_prompts) {
    const SparsePrompt prompt{tokens, std::max(gpus, 8)};
    const RequestShape shape{.prompt_tokens = prompt.tokens, .new_tokens = 348};
    const RequestLatency chunks = machine.latency({.tp = 8}, shape, 256);
    const RequestLatency whole = machine.latency(ntp(prompt.gpus), shape, prompt.tokens);
    sooner = sooner && whole.ttft_s < chunks.ttft_s;
    const auto add = [&](const char* what, double from, double to, double ours) {
      paper.rows.push_back(
          {.what = what,
           .setting = fmt::format("{} tokens on {} GPUs, alone", prompt.tokens, prompt.gpus),
           .published = from,
           .ours = ours,
           .published_to = to,
           .note =
               "not asserted: published of a service whose requests wait for each other; this is "
               "one request alone",
           .plot = "chunks of 256 with TP 8, by SP",
           .line = what,
           .x = static_cast<double>(prompt.tokens)});
    };
    add("TTFT of chunks, by SP's", 6.1, 7.5, chunks.ttft_s / whole.ttft_s);
    add("TBT of chunks, by SP's", 1.6, 1.92, chunks.tbt_s / whole.tbt_s);
  }
  paper.claims.push_back(
      {"a prompt read at once begins its answer sooner than in chunks of 256 with TP 8", sooner});
  paper.plots.push_back(
      {"chunks of 256 with TP 8, by SP", "tokens of the prompt", "ratio", true, true});
}

/// What a decode step sends to where keys and values lie, beside moving these, in one layer.
void add_moves(const Machine& machine, Paper& paper) {
  const model::ModelConfig& config = machine.config();
  const cluster_files::Cluster& cluster = machine.cluster();
  const auto level = comm::LinkLevel::server;
  const auto ms = [&](double bytes) {
    const double rate = 1e9 * cluster.links[static_cast<size_t>(level)].gbs *
                        cluster.share_of_message(bytes, true, level, 1);
    return 1e3 * (cluster.latency_s(level, true) + bytes / rate);
  };
  constexpr double bf16_bytes = 2, others = 7.0 / 8;
  const auto add = [&](const char* what, const char* setting, double published, double bytes) {
    paper.rows.push_back({.what = what,
                          .setting = setting,
                          .unit = "ms",
                          .published = published,
                          .ours = ms(bytes),
                          .how = How::counted,
                          .note =
                              "not asserted: 1 GiB of keys in 1.2 s is no rate of the links; what "
                              "else the paper counts is not at hand"});
  };
  const double row = bf16_bytes * static_cast<double>(config.num_heads * config.head_dim);
  const double kv =
      others * 2 * bf16_bytes * static_cast<double>(config.num_kv_heads * config.head_dim);
  add("moving the query, a layer", "8 GPUs", 1, row);
  add("moving keys and values, a layer", "8 GPUs, 1000000 tokens", 1173, 1e6 * kv);
  add("moving keys and values, a layer", "8 GPUs, 406000 tokens", 984, 406e3 * kv);
  paper.claims.push_back({"moving the query costs less than a hundredth of moving keys and values",
                          ms(row) < 0.01 * ms(406e3 * kv)});
}

}  // namespace

Paper sparse_sequence_parallelism() {
  Paper paper{.name = "CSPS",
              .title = "Communication-Efficient Sequence-Parallelism based Serving",
              .machine = "GLM-4-9B-1M in bf16, servers of 8 × A100-40GB (a100-p4d)"};
  Machine machine(csps_model, p4d());
  add_shares(machine, paper);
  add_sparse(paper);
  add_chunks(machine, paper);
  add_moves(machine, paper);
  return paper;
}

}  // namespace pecia::simulation::papers
