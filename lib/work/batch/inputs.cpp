// SPDX-License-Identifier: Apache-2.0
#include "lib/work/batch/inputs.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/base/core/escaped.hpp"
#include "lib/base/core/random.hpp"
#include "lib/files/checkpoint/safetensors.hpp"
#include "lib/work/batch/request_turns.hpp"
#include "lib/work/job/answer_shape.hpp"

namespace pecia::batch {
namespace {

std::vector<io::PromptScan> scans_of(const std::vector<io::PromptShard>& shards) {
  return {shards.begin(), shards.end()};
}

/// Cuts a prompt to `kept` tokens: truncate_left keeps its end, truncate_middle both ends.
std::vector<int32_t> shortened(std::vector<int32_t> tokens, int64_t kept, job::OverLength way) {
  const auto cut = static_cast<int64_t>(tokens.size()) - kept;
  if (cut <= 0) return tokens;
  const int64_t head = way == job::OverLength::truncate_left ? 0 : kept / 2;
  tokens.erase(tokens.begin() + head, tokens.begin() + head + cut);
  return tokens;
}

/// The turn's own values, and the job's for the others.
kernels::SamplingParams sampling_of(const io::PromptTurn& turn,
                                    const kernels::SamplingParams& of_job) {
  return {.temperature = turn.temperature.value_or(of_job.temperature),
          .top_k = turn.top_k.value_or(of_job.top_k),
          .top_p = turn.top_p.value_or(of_job.top_p),
          .min_p = turn.min_p.value_or(of_job.min_p),
          .repetition_penalty = turn.repetition_penalty.value_or(of_job.repetition_penalty),
          .presence_penalty = turn.presence_penalty.value_or(of_job.presence_penalty),
          .frequency_penalty = turn.frequency_penalty.value_or(of_job.frequency_penalty)};
}

/// "prompts/a.h5: request 'book', turn 2"; the turn is named where there are several.
std::string turn_text(const std::filesystem::path& shard, const io::PromptRequest& request,
                      size_t turn) {
  return fmt::format("{}: request '{}'{}", shard.string(), escaped(request.id),
                     request.turns.size() > 1 ? fmt::format(", turn {}", turn + 1) : "");
}

/// Log-probabilities cannot be added to answers later.
void require_logprobs(const job::Job& job, const std::filesystem::path& shard,
                      const io::PromptRequest& request) {
  const int32_t written = job.generation.logprobs;
  if (written < 0) return;
  for (size_t turn = 0; turn < request.turns.size(); ++turn)
    if (const int32_t asked = request.turns[turn].logprobs.value_or(0); asked > written)
      fail<InputError>(
          "{}: /logprobs asks for {} log-probabilities of each token, and the job writes {}; set "
          "generation.logprobs: {} or more, as they cannot be added later",
          turn_text(shard, request, turn), asked, written, asked);
}

}  // namespace

Inputs::Inputs(const job::Job& job, const model::ModelConfig& config,
               std::vector<EarlierTurn> earlier)
    : job_(job), config_(config), earlier_(std::move(earlier)), shape_(job::answer_shape(job)) {
  const auto tokenizer = job.model.path / "tokenizer.json";
  std::string tokenizer_sha256;
  if (std::filesystem::exists(tokenizer)) tokenizer_sha256 = io::sha256_of_file(tokenizer);
  std::unordered_set<std::string_view> ids;  // of all shards, each of which has unique ones
  for (const auto& path : job.input) {
    const io::PromptShard& shard = shards_.emplace_back(path);
    const std::string remedy =
        fmt::format("pack it again with scripts/pecia-pack --model {}", job.model.path.string());
    if (shard.vocab_size() != 0 && shard.vocab_size() != config.vocab)
      fail<InputError>("{}: attribute vocab_size is {}, the model {} has {} tokens; {}",
                       path.string(), shard.vocab_size(), job.model.path.string(), config.vocab,
                       remedy);
    if (!shard.tokenizer_sha256().empty() && !tokenizer_sha256.empty() &&
        shard.tokenizer_sha256() != tokenizer_sha256)
      fail<InputError>("{}: attribute tokenizer_sha256 is {:.12}…, {} has {:.12}…; {}",
                       path.string(), shard.tokenizer_sha256(), tokenizer.string(),
                       tokenizer_sha256, remedy);
    const size_t left = static_cast<size_t>(job.batch.limit.value_or(INT64_MAX)) - requests_.size();
    const size_t taken = std::min(left, shard.requests().size());
    requests_.reserve(requests_.size() + taken);
    for (size_t index = 0; index < taken; ++index) {
      const io::PromptRequest& prompt = shard.requests()[index];
      if (job.batch.arrivals == job::Arrivals::replay && !prompt.arrival_s)
        fail<InputError>(
            "{}: /arrival_s is missing, which batch.arrivals: replay needs; pack it with "
            "arrival_s, "
            "or use arrivals: ignore",
            path.string());
      if (job.input.size() > 1 && !ids.insert(prompt.id).second)
        fail<InputError>(
            "{}: /request_id[{}] is '{}', which an earlier input file has too; ids must be "
            "unique in a job",
            path.string(), index, escaped(prompt.id));
      InputRequest request{static_cast<int32_t>(shards_.size() - 1), static_cast<int64_t>(index),
                           num_turns_, 0};
      require_logprobs(job, path, prompt);
      for (size_t turn = 0; turn < prompt.turns.size(); ++turn) {
        const io::Produce product = produce(request, turn);
        // What a fork's first turn is only read for needs no head either.
        needs_head_ = needs_head_ || io::scores(product) || max_new_tokens(request, turn) > 0;
        if (product != io::Produce::text) continue;
        if (const auto& own = prompt.turns[turn].shape; !own.value_or(shape_).empty())
          shapes_.try_emplace(own.value_or(shape_),
                              own ? turn_text(path, prompt, turn) : "the job");
        have_stop_strings_ =
            have_stop_strings_ || !prompt.turns[turn].stop.value_or(job.generation.stop).empty();
      }
      num_turns_ += static_cast<int64_t>(prompt.turns.size());
      requests_.push_back(request);
    }
  }
  needs_head_ = needs_head_ || job.generation.prompt_logprobs != 0;
  left_out_.resize(num_turns_);
  count();
}

/// Finds out which turns can run, and how much work they are.
void Inputs::count() {
  prompt_tokens_ = refused_requests_ = 0;
  counts_.assign(num_turns_, false);
  for (InputRequest& request : requests_) {
    const std::vector<std::string> refused = refusals(request);
    const bool chain = followup(request) == io::Followup::chain;
    bool blocked = false, any_refused = false;  // a failing turn takes along the turns that see it
    double length = 0;
    for (size_t turn = 0; turn < refused.size(); ++turn) {
      const EarlierTurn before = earlier(request, turn);
      const bool is_refused = !refused[turn].empty() || left_out_[row(request, turn)];
      any_refused = any_refused || is_refused;
      const bool runs = before.done() || !(blocked || is_refused);
      counts_[row(request, turn)] = runs;
      blocked = blocked || (!runs && (chain || turn == 0));
      if (!runs) continue;
      const int64_t prompt = kept_tokens(request, turn);
      prompt_tokens_ += prompt;
      length += static_cast<double>(prompt + answer_tokens(request, turn) +
                                    continuation_tokens(request, turn));
    }
    refused_requests_ += any_refused ? 1 : 0;
    request.work = flops_of(length);
  }
  count_shared();
}

double Inputs::flops_of(double length) const {
  return length * config_.flops_per_token() + length * length * config_.prompt_flops_per_pair() / 2;
}

/// The first request of a group that runs computes the beginning for the others.
void Inputs::count_shared() {
  shared_tokens_ = 0;
  for (const SharedPrefix& prefix : shared_prefixes_) {
    bool computed = false;
    for (const int64_t index : prefix.requests) {
      InputRequest& request = requests_.at(index);
      request.spared_tokens = request.stem_end_tokens = 0;
      if (!counts_[request.first_row]) continue;
      if (followup(request) == io::Followup::fork) {
        request.stem_end_tokens = kept_tokens(request, 0) - prefix.tokens;
        const int64_t again = (branches(request) - 1) * request.stem_end_tokens;
        request.work += static_cast<double>(again) * config_.flops_per_token();
        shared_tokens_ -= again;
      }
      if (!std::exchange(computed, true)) continue;
      request.spared_tokens = prefix.tokens;
      request.work -= flops_of(static_cast<double>(prefix.tokens));
      shared_tokens_ += prefix.tokens;
    }
  }
}

void Inputs::share(std::vector<SharedPrefix> prefixes) {
  shared_prefixes_ = std::move(prefixes);
  count();
}

/// Branches that the request has in a group: the turns of a fork that are still to run, at least one.
int64_t Inputs::branches(const InputRequest& request) const {
  if (followup(request) == io::Followup::chain) return 1;
  int64_t open = 0;
  for (size_t turn = 0; turn < prompt(request).turns.size(); ++turn) {
    const EarlierTurn before = earlier(request, turn);
    open += counts_[row(request, turn)] && !before.done() && !before.failed();
  }
  return std::max<int64_t>(1, open);
}

/// Tokens of a chain with all its answers, or of a fork's first turn and its longest branch.
int64_t Inputs::longest_sequence(const InputRequest& request) const {
  const bool fork = followup(request) == io::Followup::fork;
  int64_t chain = 0, branch = 0;
  for (size_t turn = 0; turn < prompt(request).turns.size(); ++turn) {
    const int64_t prompt = kept_tokens(request, turn);
    const int64_t answer = answer_tokens(request, turn) + longest_continuation(request, turn);
    chain += prompt + answer;
    branch = std::max(branch, turn == 0 ? answer : prompt + answer);
  }
  return fork ? kept_tokens(request, 0) + branch : chain;
}

std::vector<PromptPrefix> Inputs::prompt_prefixes(int64_t block) const {
  std::vector<PromptPrefix> prompts;
  std::vector<io::PromptScan> scans = scans_of(shards_);
  for (size_t index = 0; index < requests_.size(); ++index) {
    const InputRequest& request = requests_[index];
    const EarlierTurn before = earlier(request, 0);
    const bool begun = before.done() && followup(request) == io::Followup::chain;
    if (!counts_[request.first_row] || begun || before.failed()) continue;
    if (reads_alone(request)) continue;
    PromptPrefix& found = prompts.emplace_back();
    found.request = static_cast<int64_t>(index);
    found.prompt_tokens = kept_tokens(request, 0);
    found.answer_tokens = answer_tokens(request, 0);
    for (size_t turn = 1; turn < prompt(request).turns.size(); ++turn)  // after the first prompt
      found.answer_tokens += kept_tokens(request, turn) + answer_tokens(request, turn);
    found.branches = branches(request);
    // longrope rotates all tokens of a long request by other factors.
    const bool is_long = config_.rope.scaling == model::RopeScaling::longrope &&
                         longest_sequence(request) > config_.rope.original_max_positions;
    found.hashes =
        prefix_hashes(kept_prompt(request, 0, scans[request.shard]), block, is_long ? 1 : 0);
  }
  return prompts;
}

/// Whether the request cannot take the outputs of what it begins with from another one, or is a fork
/// of its own continuations.
bool Inputs::reads_alone(const InputRequest& request) const {
  for (size_t turn = 0; turn < prompt(request).turns.size(); ++turn) {
    const io::Produce product = produce(request, turn);
    const int64_t last = kept_tokens(request, turn) - 1;
    if (io::scores(product) && prompt(request).turns[turn].continuations.empty()) return true;
    if (io::scores(product) && longest_continuation(request, turn) > 0) return true;
    if (product != io::Produce::vector) continue;
    for (const io::TokenSpan& span : pooled(request, turn))
      if (span.begin != last) return true;
  }
  return false;
}

bool Inputs::any_can_run() const {
  return std::find(counts_.begin(), counts_.end(), true) != counts_.end();
}

bool Inputs::depends_on(const std::string& key, int64_t row) const {
  const auto after = std::upper_bound(
      requests_.begin(), requests_.end(), row,
      [](int64_t of, const InputRequest& request) { return of < request.first_row; });
  const InputRequest& request = *std::prev(after);
  const auto turn = static_cast<size_t>(row - request.first_row);
  const io::PromptTurn& given = prompt(request).turns[turn];
  const bool is_text = produce(request, turn) == io::Produce::text;
  if (key == "generation.stop") return is_text && !given.stop;
  if (key == "generation.max_new_tokens")
    return is_text && !given.max_new_tokens && !is_only_read(request, turn);
  if (key == "limits.over_length") return given.num_tokens() > longest_prompt(request, turn);
  return true;
}

int64_t Inputs::cut_prompts() const {
  int64_t cut = 0;
  for (const InputRequest& request : requests_)
    for (size_t turn = 0; turn < prompt(request).turns.size(); ++turn)
      cut += counts_[row(request, turn)] && !earlier(request, turn).done() &&
             kept_tokens(request, turn) < prompt(request).turns[turn].num_tokens();
  return cut;
}

std::vector<int64_t> Inputs::rows_with_bad_tokens() const {
  std::vector<int64_t> rows;
  std::vector<io::PromptScan> scans = scans_of(shards_);
  for (const InputRequest& request : requests_)
    for (size_t turn = 0; turn < prompt(request).turns.size(); ++turn)
      if (counts_[row(request, turn)] && !earlier(request, turn).done() &&
          !bad_token(kept_prompt(request, turn, scans[request.shard])).empty())
        rows.push_back(row(request, turn));
  return rows;
}

/// The tokens of a turn, after limits.over_length.
std::vector<int32_t> Inputs::kept_prompt(const InputRequest& request, size_t turn,
                                         io::PromptScan& scan) const {
  const std::span<const int32_t> tokens = scan.tokens(prompt(request).turns[turn]);
  return shortened({tokens.begin(), tokens.end()}, kept_tokens(request, turn),
                   way_of_cutting(request, turn));
}

/// How a prompt that is too long is cut. That of a done turn stays as it was.
job::OverLength Inputs::way_of_cutting(const InputRequest& request, size_t turn) const {
  const EarlierTurn before = earlier(request, turn);
  if (!before.done()) return job_.limits.over_length;
  return before.cut_left != 0 ? job::OverLength::truncate_left : job::OverLength::truncate_middle;
}

void Inputs::leave_out(const std::vector<int64_t>& rows) {
  for (const int64_t of : rows) left_out_.at(of) = true;
  if (!rows.empty()) count();
}

EarlierTurn Inputs::earlier(const InputRequest& request, size_t turn) const {
  const auto at = static_cast<size_t>(row(request, turn));
  return at < earlier_.size() ? earlier_[at] : EarlierTurn{};
}

std::shared_ptr<const io::Detokenizer> Inputs::detokenizer() const {
  if (!have_stop_strings_) return nullptr;
  const auto path = job_.model.path / "tokenizer.json";
  if (!std::filesystem::exists(path))
    fail<InputError>(
        "{} is not there, and stop strings are found in text; put it there from the model's "
        "source, or use generation.stop_token_ids",
        path.string());
  return std::make_shared<io::Detokenizer>(path);
}

io::Produce Inputs::produce(const InputRequest& request, size_t turn) const {
  if (const auto& own = prompt(request).turns[turn].produce) return *own;
  return is_only_read(request, turn) ? io::Produce::text : job_.produce;
}

/// Of a vector turn: what each vector is the mean of.
std::vector<io::TokenSpan> Inputs::pooled(const InputRequest& request, size_t turn) const {
  const int64_t tokens = kept_tokens(request, turn);
  switch (job_.vector.pool) {
    case job::Pool::last:
      return {{std::max<int64_t>(0, tokens - 1), tokens}};
    case job::Pool::mean:
      return {{0, tokens}};
    case job::Pool::spans:
      break;
  }
  return prompt(request).turns[turn].spans;
}

int64_t Inputs::longest_continuation(const InputRequest& request, size_t turn) const {
  size_t longest = 1;
  if (io::scores(produce(request, turn)))
    for (const auto& tokens : prompt(request).turns[turn].continuations)
      longest = std::max(longest, tokens.size());
  return static_cast<int64_t>(longest) - 1;
}
int64_t Inputs::continuation_tokens(const InputRequest& request, size_t turn) const {
  int64_t all = 0;
  if (io::scores(produce(request, turn)))
    for (const auto& tokens : prompt(request).turns[turn].continuations)
      all += std::ssize(tokens) - 1;
  return all;
}

int32_t Inputs::max_new_tokens(const InputRequest& request, size_t turn) const {
  if (produce(request, turn) != io::Produce::text) return 0;
  const auto& turns = prompt(request).turns;
  if (turns[turn].max_new_tokens) return *turns[turn].max_new_tokens;
  return is_only_read(request, turn) ? 0 : job_.generation.max_new_tokens;
}

/// The stem of a fork is only read, unless it asks for tokens.
bool Inputs::is_only_read(const InputRequest& request, size_t turn) const {
  return followup(request) == io::Followup::fork && turn == 0 && prompt(request).turns.size() > 1;
}

/// Tokens of the longest prompt to which limits.over_length does nothing.
int64_t Inputs::longest_prompt(const InputRequest& request, size_t turn) const {
  return std::max<int64_t>(1, config_.max_positions - max_new_tokens(request, turn) -
                                  longest_continuation(request, turn));
}

int64_t Inputs::kept_tokens(const InputRequest& request, size_t turn) const {
  const int64_t tokens = prompt(request).turns[turn].num_tokens();
  if (const EarlierTurn before = earlier(request, turn); before.done())
    return std::clamp<int64_t>(before.prompt_tokens, 0, tokens);
  if (job_.limits.over_length == job::OverLength::fail) return tokens;
  return std::min(tokens, longest_prompt(request, turn));
}

io::ResultsLayout Inputs::layout() const {
  io::ResultsLayout layout;
  for (const InputRequest& request : requests_) {
    const io::PromptRequest& from = prompt(request);
    for (size_t turn = 0; turn < from.turns.size(); ++turn) {
      io::ResultTurn& of = layout.turns.emplace_back(
          io::ResultTurn{from.id, request.shard, request.index, static_cast<int32_t>(turn),
                         max_new_tokens(request, turn), kept_tokens(request, turn)});
      const io::Produce product = produce(request, turn);
      const auto& continuations = from.turns[turn].continuations;
      if (product == io::Produce::vector)
        of.vectors = static_cast<int32_t>(pooled(request, turn).size());
      if (!io::scores(product)) continue;
      of.scores = static_cast<int32_t>(std::max<size_t>(1, continuations.size()));
      of.score_tokens = continuations.empty()
                            ? of.prompt_tokens
                            : std::ssize(continuations) + continuation_tokens(request, turn);
    }
  }
  layout.vector_width = config_.hidden;
  layout.vector_type = job_.vector.dtype;
  for (const auto& path : job_.input) layout.inputs.push_back(path.string());
  layout.vocab = config_.vocab;
  layout.logprobs = job_.generation.logprobs;
  layout.prompt_logprobs = job_.generation.prompt_logprobs;
  return layout;
}

int32_t Inputs::answer_tokens(const InputRequest& request, size_t turn) const {
  const int64_t room = std::max<int64_t>(0, config_.max_positions - kept_tokens(request, turn));
  return static_cast<int32_t>(std::min<int64_t>(max_new_tokens(request, turn), room));
}

int64_t Inputs::max_slots(const InputRequest& request, int ring_size,
                          int64_t max_batch_tokens) const {
  int64_t slots = 0;
  for (size_t turn = 0; turn < prompt(request).turns.size(); ++turn) {
    if (!counts_[row(request, turn)]) continue;
    // What an earlier run left of an answer is fed again, and the rest is generated. The last token
    // of the answer before may be fed, too.
    const int64_t answer =
        std::max(answer_tokens(request, turn), earlier(request, turn).output_tokens) +
        static_cast<int32_t>(continuation_tokens(request, turn));
    const int64_t prompt =
        kept_tokens(request, turn) + (turn == 0 ? -request.spared_tokens : request.stem_end_tokens);
    const int64_t fed = prompt + answer + 1;
    // Where the layout must not matter, the end of a fork's first turn is a chunk by itself.
    const int64_t chunks = fed / max_batch_tokens + (request.stem_end_tokens > 0 ? 2 : 1) +
                           std::ssize(this->prompt(request).turns[turn].continuations);
    const int64_t cuts = chunks + (config_.recurrent ? 1 : 0);  // also where a state is restored
    slots += fed / ring_size + 2 * (cuts + 1) + 1;  // 1: both parts of an answer are rounded
  }
  return slots;
}

/// Names the first token outside the vocabulary; empty where there is none.
std::string Inputs::bad_token(const std::vector<int32_t>& tokens) const {
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= config_.vocab)
      return fmt::format("token {} of the turn is {}, the model's vocabulary has {} (0 … {})", i,
                         tokens[i], config_.vocab, config_.vocab - 1);
  return {};
}

/// Why the turn's values keep it from running; empty where they do not.
std::string Inputs::bad_values(const batch::Turn& turn, const io::PromptTurn& given) const {
  if (turn.produce != io::Produce::text) {
    const std::string why = bad_product(turn, given);
    return why.empty() ? bad_token(turn.tokens) : why;
  }
  for (const auto& [token, bias] : turn.bias)
    if (token >= config_.vocab)
      return fmt::format("logit_bias names token {}, the model's vocabulary has {} (0 … {})", token,
                         config_.vocab, config_.vocab - 1);
  if (turn.ignore_eos && !turn.shape.empty())
    return "ignore_eos with an answer that has a shape: a stop token ends such an answer";
  return bad_token(turn.tokens);
}

/// The same of a turn that gives no text.
std::string Inputs::bad_product(const batch::Turn& turn, const io::PromptTurn& given) const {
  const std::string_view name = name_of(turn.produce);
  if (given.max_new_tokens.value_or(0) > 0 || given.stop || given.shape || given.logprobs)
    return fmt::format(
        "a turn that gives a {} has no answer: leave out max_new_tokens, stop, shape and logprobs",
        name);
  if (turn.produce == io::Produce::vector) {
    if (turn.spans.empty())
      return "vector.pool: spans, and the turn has no /spans: pack them, or use pool: mean";
    if (job_.vector.pool == job::Pool::spans && turn.truncated_tokens > 0)
      return "spans of a prompt that limits.over_length cuts: shorten the prompt";
    for (const auto& [begin, end] : turn.spans)
      if (begin < 0 || begin >= end || end > std::ssize(turn.tokens))
        return fmt::format("/spans has [{}, {}), the turn has {} tokens", begin, end,
                           turn.tokens.size());
    return {};
  }
  for (const auto& tokens : turn.continuations)
    if (const std::string bad = bad_token(tokens); !bad.empty())
      return fmt::format("of a continuation {}", bad);
  if (turn.produce == io::Produce::rerank &&
      (turn.continuations.size() < 2 ||
       std::ranges::any_of(turn.continuations, [](const auto& of) { return of.size() != 1; })))
    return "produce: rerank needs two continuations or more, of one token each (/continuation_…)";
  return {};
}

/// By turn: why its length keeps it from running; empty where it does not.
std::vector<std::string> Inputs::refusals(const InputRequest& request) const {
  constexpr const char* again = "; then --retry-failed";
  const bool fork = followup(request) == io::Followup::fork;
  std::vector<std::string> refused(prompt(request).turns.size());
  int64_t before = 0;  // the fewest tokens that come before the turn
  for (size_t turn = 0; turn < refused.size(); ++turn) {
    const int64_t tokens = kept_tokens(request, turn), answer = max_new_tokens(request, turn);
    const int64_t continuation = longest_continuation(request, turn);
    const int64_t room = config_.max_positions - (answer > 0 ? 1 : 0) - continuation;
    const EarlierTurn left = earlier(request, turn);
    const bool weighs_itself =
        io::scores(produce(request, turn)) && prompt(request).turns[turn].continuations.empty();
    if (left.done()) {
      // It was run under its own settings.
    } else if (tokens == 0) {
      refused[turn] = "the turn has no tokens";
    } else if (weighs_itself && turn == 0 && tokens == 1) {
      refused[turn] = "a score of one token, which nothing precedes: there is no prediction of it";
    } else if (continuation > 0 && refused.size() > 1) {
      refused[turn] =
          "continuations of several tokens in a request of several turns are not in this version: "
          "make a request of the turn with all that comes before it";
    } else if (tokens > room && continuation > 0) {
      refused[turn] = fmt::format(
          "{} tokens with the longest continuation, the model's length is {}: shorten the prompt, "
          "or "
          "set limits.over_length or model.rope_scaling{}",
          tokens + continuation, config_.max_positions, again);
    } else if (tokens > room) {
      refused[turn] = fmt::format(
          "{} prompt tokens, the model's length is {}: shorten the prompt, or set "
          "limits.over_length or model.rope_scaling{}",
          tokens, config_.max_positions, again);
    } else if (before + tokens > room) {
      refused[turn] = fmt::format(
          "at least {} tokens with what comes before, the model's length is {}: shorten the "
          "prompt, or set "
          "model.rope_scaling{}",
          before + tokens, config_.max_positions, again);
    }
    if (fork && turn > 0) continue;
    before += tokens;
    if (!fork && left.done()) before += left.output_tokens;
    if (!fork && !left.done() && answer > 0) ++before;  // an answer has at least one token
  }
  return refused;
}

batch::Request Inputs::load(const InputRequest& request) const {
  const io::PromptShard& shard = shards_[request.shard];
  const io::PromptRequest& from = prompt(request);
  batch::Request loaded;
  loaded.followup = followup(request);
  const std::vector<std::string> refused = refusals(request);
  if (job_.batch.arrivals == job::Arrivals::replay) loaded.arrival_s = from.arrival_s;
  for (size_t index = 0; index < from.turns.size(); ++index) {
    const io::PromptTurn& given = from.turns[index];
    batch::Turn turn;
    turn.row = request.first_row + static_cast<int64_t>(index);
    const EarlierTurn left = earlier(request, index);
    turn.tokens =
        shortened(shard.tokens(given), kept_tokens(request, index), way_of_cutting(request, index));
    turn.truncated_tokens =
        static_cast<int32_t>(given.num_tokens() - static_cast<int64_t>(turn.tokens.size()));
    turn.max_new_tokens = answer_tokens(request, index);
    turn.params = sampling_of(given, job_.generation.sampling);
    turn.bias = given.logit_bias;
    turn.ignore_eos = given.ignore_eos.value_or(job_.generation.ignore_eos);
    turn.stop = given.stop.value_or(job_.generation.stop);
    turn.shape = given.shape.value_or(shape_);
    turn.produce = produce(request, index);
    if (turn.produce != io::Produce::text) turn.stop.clear(), turn.shape.clear();
    if (turn.produce == io::Produce::vector) turn.spans = pooled(request, index);
    if (io::scores(turn.produce)) turn.continuations = given.continuations;
    const uint64_t seed = given.seed ? mix(0, static_cast<uint64_t>(*given.seed))
                                     : mix(static_cast<uint64_t>(job_.generation.seed), from.id);
    turn.random_key = mix(seed, static_cast<uint64_t>(index));
    turn.finished = left.done();
    turn.recorded = left.done() || left.failed();
    if (left.failed())
      turn.refused = "it failed at an earlier start";
    else if (!left.done())
      turn.refused = refused[index].empty() ? bad_values(turn, given) : refused[index];
    loaded.turns.push_back(std::move(turn));
  }
  if (loaded.turns.size() == 1) fork_continuations(loaded);
  return loaded;
}

}  // namespace pecia::batch
