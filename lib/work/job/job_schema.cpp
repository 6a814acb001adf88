// SPDX-License-Identifier: Apache-2.0
#include "lib/work/job/job_schema.hpp"

#include <algorithm>

#include "lib/base/core/mistyped.hpp"
#include "lib/work/job/job_codecs.hpp"

namespace pecia::job {
namespace {

/// `access` gives the member of a job, const or not.
template <typename T, typename Access>
Field field(std::string key, Access access, Codec<T> codec, std::string help,
            std::string example = {}) {
  const auto read = [access, reader = codec.read](Job& job, const YamlNode& node) {
    std::optional<T> value = reader(node);
    if (value) access(job) = std::move(*value);
    return value.has_value();
  };
  const auto write = [access, writer = codec.write](const Job& job) { return writer(access(job)); };
  return {std::move(key), std::move(codec.allowed), std::move(help), std::move(example), read,
          write};
}

#define PECIA_MEMBER(member) \
  [](auto& job) -> auto& {   \
    return job.member;       \
  }

const Words<Precision> precisions{{"fp32", Precision::fp32}, {"bf16", Precision::bf16},
                                  {"fp16", Precision::fp16}, {"fp8", Precision::fp8},
                                  {"int8", Precision::int8}, {"int4", Precision::int4}};
const Words<Load> loads{{"mapped", Load::mapped}, {"spread", Load::spread}};
const Words<BackendKind> backends{{"cpu", BackendKind::cpu}, {"cuda", BackendKind::cuda}};

const Words<io::Produce> produce_words{{"text", io::Produce::text},
                                       {"vector", io::Produce::vector},
                                       {"score", io::Produce::score},
                                       {"rerank", io::Produce::rerank}};

template <typename Modes>
Words<typename Modes::value_type> words_of(const Modes& modes) {
  Words<typename Modes::value_type> words;
  for (const auto mode : modes) words.emplace_back(name_of(mode), mode);
  return words;
}

template <typename E>
std::string_view name_in(const Words<E>& words, E value) {
  for (const auto& [name, known] : words)
    if (known == value) return name;
  return "?";
}

Words<Precision> only(std::initializer_list<Precision> kept) {
  Words<Precision> words;
  for (const auto& entry : precisions)
    if (std::find(kept.begin(), kept.end(), entry.second) != kept.end()) words.push_back(entry);
  return words;
}

Codec<float> penalty() {
  return number("a number from -2 to 2", [](float value) { return value >= -2 && value <= 2; });
}

Field pipeline_field() {
  return {std::string(pipeline_key),
          "off; a map is for pecia-summarize --job",
          "Books to summaries in several runs, as {kind: summary, books: [books/]}; "
          "pecia-summarize --help has its keys.",
          {},
          [](Job&, const YamlNode& node) {
            return node.kind == YamlNode::Kind::null ||
                   (node.kind == YamlNode::Kind::scalar && node.text == "off");
          },
          [](const Job&) { return "off"; }};
}

/// One table: every key of a job file, in the order in which it is printed.
std::vector<Field> make_schema() {
  constexpr int32_t max_degree = 1 << 20;
  return {
      field("model.path", PECIA_MEMBER(model.path), path(),
            "Hugging Face folder: config.json, *.safetensors.", "models/NAME"),
      field(
          "model.dtype", PECIA_MEMBER(model.dtype), auto_or(weight_precision(precisions)),
          "Resident weights; auto: as stored. Rounded at load: fp8 (GPUs; the layers' matrices, or "
          "with {ffn: fp8} those of feed-forward and experts), "
          "int8 (CPUs; those and the head, a scale for each row) and int4 (CPUs; q, o, gate and "
          "up, scales for each 128 numbers; the others in int8)."),
      field("model.compute", PECIA_MEMBER(model.compute),
            auto_or(word(only({Precision::fp32, Precision::bf16, Precision::fp8}))),
            "Matrix products; auto: the resident dtype where the hardware multiplies it natively, "
            "else fp32; on CPUs what is fastest there, measured once, but with reproducible: "
            "layout."),
      field("model.wire", PECIA_MEMBER(model.wire),
            auto_or(word(only({Precision::fp32, Precision::bf16}))),
            "Type in which activations travel between ranks; auto: bf16 where matrix products take "
            "bf16, else fp32; with reproducible: layout fp32."),
      field("model.rope_scaling", PECIA_MEMBER(model.rope_scaling), auto_or(rope_override()),
            "Stretches the positions, for prompts longer than the model's own length; auto: as "
            "config.json says."),
      field("model.load", PECIA_MEMBER(model.load), word(loads),
            "mapped: each host reads the files as it needs them; spread: the hosts read each byte "
            "once and send it to each other, for many hosts on one file system. Each then has all "
            "files in memory."),
      field(
          "model.replicate", PECIA_MEMBER(model.replicate), boolean(),
          "Each rank keeps weights of its own, near its cores, for hosts with several NUMA nodes; "
          "false: the ranks of a host share the mapped files."),
      field(
          "model.prepack", PECIA_MEMBER(model.prepack), auto_or(boolean()),
          "CPUs: each host keeps the weights of bf16 a second time, in the order in which products "
          "read them fastest; auto: where that takes at most half of its free memory."),
      field("input", PECIA_MEMBER(input), paths(), "Prompt shards, schema pecia.prompts/1.",
            "[prompts/*.h5]"),
      field("output", PECIA_MEMBER(output), path(),
            "Folder, made if absent; holds results.h5, report.json, progress.json, starts.json, "
            "trace/.",
            "runs/NAME"),
      field("backend", PECIA_MEMBER(backend), auto_or(word(backends)),
            "What computes; auto: GPUs where every rank sees one, else the CPU."),
      field(
          "allow_gpu_sharing", PECIA_MEMBER(gpu_sharing), gpu_sharing(),
          "Several ranks on one GPU, which is slower than one; for tests. They exchange by way of "
          "their hosts; nccl: by NCCL, which takes such ranks under MPS alone."),
      field("topology", PECIA_MEMBER(topology), auto_or(path()),
            "File with HOST RACK [SERVER] per line; auto: what PECIA_TOPOLOGY_FILE names, else "
            "Slurm's topology address, else host names."),

      field("parallel.dp", PECIA_MEMBER(parallel.dp), auto_or(whole32(1, max_degree)),
            "Replicas, each running requests of its own; auto, of dp, sp and tp: the grid in which "
            "the batch should end first, by what pecia topology measured with these ranks."),
      field("parallel.pp", PECIA_MEMBER(parallel.pp), auto_or(whole32(1, max_degree)),
            "Stages of a pipeline: each has a part of the layers, their weights and their keys "
            "alone, on cp × sp × tp ranks of its own; auto: chosen with dp, sp and tp."),
      field("parallel.cp", PECIA_MEMBER(parallel.cp), cp_setting(max_degree),
            "Ranks that share a sequence's tokens; auto: all ranks that dp, sp and tp leave, or "
            "elastic where no mode is named and the batch should end 5 % sooner; elastic: as many "
            "of them as each request needs, changing from pass to pass."),
      field("parallel.elastic", PECIA_MEMBER(parallel.elastic), elastic_range(max_degree),
            "With cp elastic, instances (SP × TP blocks) of a request; auto: all."),
      field("parallel.scheduler", PECIA_MEMBER(parallel.scheduler),
            auto_or(word<TeamScheduler>(
                {{"greedy", TeamScheduler::greedy}, {"loongserve", TeamScheduler::loongserve}})),
            "With cp elastic, how requests get instances: greedy, each by itself as instances "
            "become free; loongserve, in batches of prompts that are dealt to instances by "
            "LoongServe's four steps; auto: with policy prefill_first the one that should take "
            "less time, else greedy."),
      field(
          "parallel.phases", PECIA_MEMBER(parallel.phases),
          word<Phases>(
              {{"together", Phases::together}, {"apart", Phases::apart}, {"auto", Phases::any}}),
          "Which of cp's instances (SP × TP blocks) read and answer. together: all do both; apart: "
          "some read the prompts and send the keys on, layer by layer, to the others, which "
          "answer, "
          "so that no answer waits for a prompt; auto: apart where the batch should end 5 % "
          "sooner, "
          "or with objective ttft its first tokens should come so."),
      field(
          "parallel.answering", PECIA_MEMBER(parallel.answering), auto_or(whole32(1, max_degree)),
          "With phases apart, how many instances answer; auto: as many as let the batch end first, "
          "by the expected times of passes."),
      field("parallel.sp", PECIA_MEMBER(parallel.sp), auto_or(whole32(1, max_degree)),
            "Ranks that share a pass's rows and its heads (Ulysses)."),
      field("parallel.tp", PECIA_MEMBER(parallel.tp), auto_or(whole32(1, max_degree)),
            "Ranks that share the weights."),
      field(
          "parallel.ep", PECIA_MEMBER(parallel.ep), auto_or(whole32(1, max_degree)),
          "Ranks that experts are dealt out over, whole: 1, or sp × tp (expert parallelism); "
          "auto: 1, or sp × tp where the batch should end sooner, by 5 % if the other degrees are "
          "given."),
      field("parallel.prefill", PECIA_MEMBER(parallel.prefill),
            auto_or(word(words_of(parallel::named_prefill_modes))), "How prompts are read."),
      field("parallel.ring", PECIA_MEMBER(parallel.ring),
            auto_or(word(words_of(parallel::named_ring_modes))),
            "What goes round CP's ring in prefill; auto: by the cached share of each turn, or by "
            "what pecia topology measured of both."),
      field("parallel.decode", PECIA_MEMBER(parallel.decode),
            auto_or(word(words_of(parallel::named_decode_modes))), "How output tokens are made."),
      field("parallel.shift_threshold", PECIA_MEMBER(parallel.shift_threshold), auto_or(whole(1)),
            "Most new tokens of a pass that decode shift runs by tensor parallelism alone."),
      field(
          "parallel.gather_threshold", PECIA_MEMBER(parallel.gather_threshold), auto_or(whole(1)),
          "With prefill ulysses and sp 1, fewest new tokens of a pass that gathers weights; passes "
          "with fewer are sp_tp; auto: all gather, or with prefill auto those where it moves "
          "less."),

      field("attention.sparse", PECIA_MEMBER(attention.sparse),
            word<Sparse>({{"off", Sparse::off}, {"csa", Sparse::csa}}),
            "csa: prompts attend to fewer tokens the farther away these are kept, in levels that "
            "follow from the ranks' places; an approximation that computes and sends less. The "
            "other keys of this section need it."),
      field("attention.geometry", PECIA_MEMBER(attention.geometry),
            word<parallel::Geometry>({{"disjoint", parallel::Geometry::disjoint},
                                      {"nested", parallel::Geometry::nested}}),
            "disjoint: a level covers what no lower one does, exact where nothing is dropped; "
            "nested: it covers all of its segments, near pairs once for each level, as published."),
      field("attention.levels", PECIA_MEMBER(attention.levels), auto_or(whole32(1, 4)),
            "Levels of nearness, the first of which drops nothing; auto: by the ranks' places."),
      field("attention.drop", PECIA_MEMBER(attention.drop), auto_or(drop_setting()),
            "Share of the tokens that level 2 leaves out; each level above keeps half of what the "
            "one below keeps; auto: 0, nothing is left out. file: what pecia tune wrote, by which "
            "the run chooses shares and levels. layers: a share for each layer with attention, or "
            "one for each of its KV heads; the first and the last layer leave nothing out."),
      field("attention.pipeline", PECIA_MEMBER(attention.pipeline), auto_or(micro_partitions()),
            "Micro-partitions of each level, so that sending and computing overlap, or a list for "
            "level 2 and those above, whose last number counts for all further ones; auto: by the "
            "measured speed of the ranks' links, or 1 with tp alone, where no tokens travel."),
      field("attention.first_tokens", PECIA_MEMBER(attention.first_tokens),
            auto_or(whole(0, 1 << 20)),
            "Tokens at the beginning of a prompt that all its tokens attend to, with levels 1 too; "
            "auto: 16 where anything is dropped, and none with levels 1. More than the first rank "
            "has count as what it has."),
      field("attention.objective", PECIA_MEMBER(attention.objective), attention_goal(),
            "With a tuned file: the fastest settings that lose at most this, in nats per token, or "
            "those that lose least within this time to the first token; off: as {loss: 0}."),
      field("attention.decode", PECIA_MEMBER(attention.decode),
            word<SparseDecode>({{"dense", SparseDecode::dense}, {"sparse", SparseDecode::sparse}}),
            "Output tokens attend to all keys, or to those that the levels keep."),

      field("generation.max_new_tokens", PECIA_MEMBER(generation.max_new_tokens), whole32(1),
            "Per turn, where the shard does not say."),
      field("generation.temperature", PECIA_MEMBER(generation.sampling.temperature),
            number("a number of at least 0", [](float value) { return value >= 0; }), "0: greedy."),
      field("generation.top_k", PECIA_MEMBER(generation.sampling.top_k), whole32(0), "0: all."),
      field("generation.top_p", PECIA_MEMBER(generation.sampling.top_p),
            number("a number above 0, up to 1", [](float v) { return v > 0 && v <= 1; }),
            "The most likely tokens with at least this probability together; 1: all."),
      field("generation.min_p", PECIA_MEMBER(generation.sampling.min_p),
            number("a number from 0 to 1", [](float v) { return v >= 0 && v <= 1; }),
            "Tokens with at least this share of the most likely one's probability; 0: all."),
      field("generation.repetition_penalty", PECIA_MEMBER(generation.sampling.repetition_penalty),
            number("a number above 0", [](float value) { return value > 0; }),
            "Of tokens in prompt or output; 1: none."),
      field("generation.presence_penalty", PECIA_MEMBER(generation.sampling.presence_penalty),
            penalty(), "Once for each token in the output; 0: none."),
      field("generation.frequency_penalty", PECIA_MEMBER(generation.sampling.frequency_penalty),
            penalty(), "For each occurrence in the output; 0: none."),
      field("generation.seed", PECIA_MEMBER(generation.seed), whole(INT64_MIN),
            "With the request id it decides all random choices."),
      field("generation.stop_token_ids", PECIA_MEMBER(generation.stop_token_ids),
            auto_or(token_ids()), "Tokens that end an answer; auto: the model's."),
      field("generation.stop", PECIA_MEMBER(generation.stop), texts(),
            "Texts that end an answer, which is cut before them; as [\"\\n\\n\", \"User:\"]."),
      field("generation.ignore_eos", PECIA_MEMBER(generation.ignore_eos), boolean(),
            "Go on after the model's stop tokens, up to max_new_tokens or a text of stop."),
      field("generation.schema", PECIA_MEMBER(generation.schema), off_or(path()),
            "File with the JSON schema of every answer."),
      field("generation.regex", PECIA_MEMBER(generation.regex), off_or(text()),
            "Regular expression of every answer."),
      field("generation.choice", PECIA_MEMBER(generation.choice), texts(),
            "Texts of which every answer is one."),
      field("generation.drafts", PECIA_MEMBER(generation.drafts), off_or(auto_or(whole32(1, 64))),
            "Tokens of an answer that a pass tries at once, as they came after the same tokens "
            "before: "
            "in the prompt, the answer, or other answers to its instruction; auto: as many as pay. "
            "The text "
            "stays the same."),
      field("generation.logprobs", PECIA_MEMBER(generation.logprobs), whole32(-1),
            "Top log-probabilities kept per output token; -1: the whole vocabulary."),
      field("generation.prompt_logprobs", PECIA_MEMBER(generation.prompt_logprobs), whole32(-1),
            "Likewise per prompt token."),

      field("produce", PECIA_MEMBER(produce), word(produce_words),
            "What turns give, where their shard does not say. text: an answer. The others end with "
            "the prompt: vector, of its hidden states; score, log-probabilities of its "
            "continuations, or without any of the prompt's own tokens; rerank, the probability of "
            "each of its continuations, of one token each, among these."),
      field("vector.pool", PECIA_MEMBER(vector.pool),
            word<Pool>({{"last", Pool::last}, {"mean", Pool::mean}, {"spans", Pool::spans}}),
            "The hidden states after the final norm that a vector is the mean of; last: the last "
            "token's; mean: all of the turn's; spans: a vector for each of the shard's /spans."),
      field("vector.normalize", PECIA_MEMBER(vector.normalize), boolean(),
            "Vectors have length 1."),
      field("vector.dtype", PECIA_MEMBER(vector.dtype),
            word<io::VectorType>({{"fp32", io::VectorType::fp32}, {"fp16", io::VectorType::fp16}}),
            "Type of /vectors in the results."),

      field(
          "kv.dtype", PECIA_MEMBER(kv.dtype),
          auto_or(word(only({Precision::fp32, Precision::bf16, Precision::fp16, Precision::fp8}))),
          "Of cached keys and values; auto: the resident dtype; fp8: with a scale for each token "
          "and "
          "head."),
      field("kv.memory", PECIA_MEMBER(kv.memory), auto_or(size_in_bytes()),
            "For the cache, per rank; auto: what the batch needs and the machine has. Of free "
            "memory a "
            "fifth is left to others, on GPUs at most 2 GiB."),
      field("kv.admission", PECIA_MEMBER(kv.admission),
            auto_or(word<KvAdmission>(
                {{"reserve", KvAdmission::reserve}, {"demand", KvAdmission::demand}})),
            "Slots that a sequence begins with; reserve: for its longest answers; demand: for what "
            "answers have needed so far, and more as it grows, while others yield; auto: demand."),
      field("kv.park", PECIA_MEMBER(kv.park),
            auto_or(word<KvPark>(
                {{"host", KvPark::host}, {"disk", KvPark::disk}, {"off", KvPark::off}})),
            "Where keys and values of sequences that yield lie until they come back; host: in half "
            "of its free memory; disk: in the output folder; auto: in either. Where there is no "
            "room, or it would take longer, and with off, sequences read their tokens again."),
      field("kv.keep", PECIA_MEMBER(kv.keep),
            word<KvKeeping>({{"auto", KvKeeping::what_is_read}, {"all", KvKeeping::all}}),
            "Tokens that layers with a sliding window keep; auto: those that the window reaches, "
            "where that saves memory."),
      field("kv.save", PECIA_MEMBER(kv.save), kv_saving(),
            "A run that has to stop keeps what it has read of unfinished prompts where that is "
            "cheaper than reading them again; auto: in kv/ of the output, else in this folder."),

      field("batch.max_sequences", PECIA_MEMBER(batch.max_sequences), auto_or(whole(1)),
            "Run at once, per replica; auto: as few as decode within 2 % of the speed of 256, so "
            "that "
            "answers end all through a run."),
      field("batch.max_batch_tokens", PECIA_MEMBER(batch.max_batch_tokens), auto_or(whole(1)),
            "In one pass, per replica."),
      field("batch.order", PECIA_MEMBER(batch.order),
            word<Order>({{"longest_first", Order::longest_first}, {"fcfs", Order::fcfs}}),
            "Which request is next."),
      field("batch.policy", PECIA_MEMBER(batch.policy),
            word<Policy>({{"prefill_first", Policy::prefill_first}, {"chunked", Policy::chunked}}),
            "Whole prompts before decoding, or prompts in chunks beside it."),
      field("batch.arrivals", PECIA_MEMBER(batch.arrivals),
            word<Arrivals>({{"ignore", Arrivals::ignore}, {"replay", Arrivals::replay}}),
            "Whether requests wait for their arrival_s in the shard."),
      field("batch.objective", PECIA_MEMBER(batch.objective), batch_goal(),
            "End the batch soon, or let no request wait long for its size; auto: "
            "ttft where arrivals are replayed. {tbt: 50ms}: as auto, and prompts are read in "
            "pieces so short that no answer waits longer for its next token, where that can be."),
      field("batch.prefix_sharing", PECIA_MEMBER(batch.prefix_sharing), boolean(),
            "Compute what prompts of several requests begin with once (vLLM: "
            "enable_prefix_caching); the text stays the same."),
      field(
          "batch.limit", PECIA_MEMBER(batch.limit), off_or(whole(1)),
          "Only the first requests of the inputs, for a trial; a later start with a larger limit, "
          "or without, goes on with the rest."),

      field("limits.over_length", PECIA_MEMBER(limits.over_length),
            word<OverLength>({{"fail", OverLength::fail},
                              {"truncate_left", OverLength::truncate_left},
                              {"truncate_middle", OverLength::truncate_middle}}),
            "A request longer than the model's length: fail it alone, or cut its prompt."),
      field("limits.wall_time", PECIA_MEMBER(limits.wall_time_s), auto_or(duration(1)),
            "Time the run has; auto: what Slurm says, none elsewhere."),
      field("limits.grace", PECIA_MEMBER(limits.grace_s), duration(0),
            "Kept back at the end for finishing and writing."),
      field("limits.silence", PECIA_MEMBER(limits.silence_s), duration(1),
            "A rank that shows no sign of life for so long (stopped, lost) ends the run."),
      field("limits.wait", PECIA_MEMBER(limits.wait_s), duration(1),
            "Longest wait for a rank that lives; more than any takes alone, as for its weights."),
      field("limits.retries", PECIA_MEMBER(limits.retries), whole32(0, 100),
            "How often turns that failed are run again before the run ends; 0: only --retry-failed "
            "takes them again."),

      field("report.trace", PECIA_MEMBER(report.trace),
            word<Trace>({{"off", Trace::off}, {"summary", Trace::summary}, {"full", Trace::full}}),
            "full writes trace/, for Perfetto."),
      field("report.progress", PECIA_MEMBER(report.progress),
            auto_or(word<Progress>(
                {{"bar", Progress::bar}, {"lines", Progress::lines}, {"off", Progress::off}})),
            "auto: a bar on a terminal, lines elsewhere."),
      field("report.peak", PECIA_MEMBER(report.peak),
            word<Peak>({{"auto", Peak::measured}, {"off", Peak::off}}),
            "What the ranks' hardware can do at most, for shares of peak in the report; auto: "
            "measured in a fraction of a second and kept for later runs."),
      field("report.node_hour_price", PECIA_MEMBER(report.node_hour_price),
            off_or(number64("a number of at least 0", [](double value) { return value >= 0; })),
            "Price of a host for an hour, so that the report says what the run cost."),
      field(
          "reproducible", PECIA_MEMBER(reproducible),
          word<Reproducible>({{"run", Reproducible::run}, {"layout", Reproducible::layout}}),
          "run: same layout, same text; layout: same bits on every cp × sp × tp that it takes, in "
          "every mode and batch."),
      pipeline_field(),
  };
}

#undef PECIA_MEMBER

std::string_view after_dot(std::string_view key) {
  const size_t dot = key.rfind('.');
  return dot == std::string_view::npos ? key : key.substr(dot + 1);
}

}  // namespace

std::string_view Field::section() const {
  const size_t dot = key.find('.');
  return dot == std::string::npos ? std::string_view() : std::string_view(key).substr(0, dot);
}

std::string_view Field::name() const {
  return after_dot(key);
}

const std::vector<Field>& schema() {
  static const std::vector<Field> fields = make_schema();
  return fields;
}

std::string nearest_key(std::string_view unknown) {
  const std::string_view typed = after_dot(unknown);
  const std::string_view section = unknown.substr(0, unknown.size() - typed.size());
  std::string best;
  size_t best_distance = SIZE_MAX;
  const auto consider = [&](std::string_view key) {
    const std::string_view name = after_dot(key);
    if (!may_mean(typed, name)) return;
    // A right name in the wrong section is nearer than a wrong name in the right one.
    const bool elsewhere = key.substr(0, key.size() - name.size()) != section;
    const size_t distance = 2 * edit_distance(typed, name) + (elsewhere ? 1 : 0);
    if (distance < best_distance) best_distance = distance, best = key;
  };
  // What other programs call it is no misspelling, but it is meant all the same.
  if (typed == "enable_prefix_caching" || typed == "prefix_caching") return "batch.prefix_sharing";
  for (const Field& field : schema()) {
    consider(field.key);
    if (!field.section().empty()) consider(field.section());
  }
  return best;
}

std::string_view name_of(Precision value) {
  return value == Precision::fp8_ffn ? "{ffn: fp8}" : name_in(precisions, value);
}
std::string_view name_of(BackendKind value) {
  return name_in(backends, value);
}

}  // namespace pecia::job
