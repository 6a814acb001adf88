#include "lib/runtime/inputs.hpp"

#include <algorithm>
#include <set>

#include "lib/core/random.hpp"
#include "lib/io/safetensors.hpp"

namespace pecia::runtime {

Inputs::Inputs(const Job& job, const model::ModelConfig& config) : job_(job), config_(config) {
  const auto tokenizer = job.model.path / "tokenizer.json";
  std::string tokenizer_sha256;
  if (std::filesystem::exists(tokenizer)) tokenizer_sha256 = io::sha256_of_file(tokenizer);
  std::set<std::string> ids;
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
    for (size_t index = 0; index < shard.requests().size(); ++index) {
      const io::PromptRequest& prompt = shard.requests()[index];
      if (job.batch.arrivals == Arrivals::replay && !prompt.arrival_s)
        fail<InputError>(
            "{}: /arrival_s is missing, which batch.arrivals: replay needs; pack it with "
            "arrival_s, "
            "or use arrivals: ignore",
            path.string());
      if (!ids.insert(prompt.id).second)
        fail<InputError>(
            "{}: /request_id[{}] is '{}', which an earlier input file has too; ids must be "
            "unique in a job",
            path.string(), index, prompt.id);
      InputRequest request{static_cast<int32_t>(shards_.size() - 1), static_cast<int64_t>(index),
                           num_turns_, 0};
      double length = 0;
      for (size_t turn = 0; turn < prompt.turns.size(); ++turn) {
        const int64_t new_tokens = max_new_tokens(request, turn);
        prompt_tokens_ += prompt.turns[turn].num_tokens();
        length += static_cast<double>(prompt.turns[turn].num_tokens() + new_tokens);
      }
      request.work = length * config.flops_per_token() +
                     2.0 * length * length *
                         static_cast<double>(config.num_heads * config.head_dim * config.layers);
      num_turns_ += static_cast<int64_t>(prompt.turns.size());
      requests_.push_back(request);
    }
  }
}

int32_t Inputs::max_new_tokens(const InputRequest& request, size_t turn) const {
  const auto& turns = prompt(request).turns;
  if (turns[turn].max_new_tokens) return *turns[turn].max_new_tokens;
  // The stem of a fork is only read, unless it asks for tokens.
  if (followup(request) == io::Followup::fork && turn == 0 && turns.size() > 1) return 0;
  return job_.generation.max_new_tokens;
}

int64_t Inputs::kept_tokens(const InputRequest& request, size_t turn) const {
  const int64_t tokens = prompt(request).turns[turn].num_tokens();
  if (job_.limits.over_length == OverLength::fail) return tokens;
  return std::min(tokens,
                  std::max<int64_t>(1, config_.max_positions - max_new_tokens(request, turn)));
}

io::ResultsLayout Inputs::layout() const {
  io::ResultsLayout layout;
  for (const InputRequest& request : requests_) {
    const io::PromptRequest& from = prompt(request);
    for (size_t turn = 0; turn < from.turns.size(); ++turn)
      layout.turns.push_back({from.id, request.shard, request.index, static_cast<int32_t>(turn),
                              max_new_tokens(request, turn), kept_tokens(request, turn)});
  }
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
    // An earlier run's answer may be fed again, and the last token of the answer before.
    const int64_t answer = answer_tokens(request, turn);
    const int64_t fed = kept_tokens(request, turn) + answer + 1;
    const int64_t chunks = fed / max_batch_tokens + 1;
    slots += fed / ring_size + 2 * (chunks + 1) + (answer + ring_size - 1) / ring_size;
  }
  return slots;
}

std::string Inputs::refusal(const InputRequest& request, size_t turn,
                            const std::vector<int32_t>& tokens) const {
  if (tokens.empty()) return "the turn has no tokens";
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= config_.vocab)
      return fmt::format("token {} of the turn is {}, the model's vocabulary has {} (0 … {})", i,
                         tokens[i], config_.vocab, config_.vocab - 1);
  const int64_t room = config_.max_positions - (max_new_tokens(request, turn) > 0 ? 1 : 0);
  if (static_cast<int64_t>(tokens.size()) > room)
    return fmt::format(
        "{} prompt tokens, the model's length is {}: shorten the prompt, or set "
        "limits.over_length or model.rope_scaling",
        tokens.size(), config_.max_positions);
  return {};
}

Request Inputs::load(const InputRequest& request) const {
  const io::PromptShard& shard = shards_[request.shard];
  const io::PromptRequest& from = prompt(request);
  Request loaded;
  loaded.followup = shard.followup();
  if (job_.batch.arrivals == Arrivals::replay) loaded.arrival_s = from.arrival_s;
  for (size_t index = 0; index < from.turns.size(); ++index) {
    const io::PromptTurn& given = from.turns[index];
    Turn turn;
    turn.row = request.first_row + static_cast<int64_t>(index);
    turn.tokens = shard.tokens(given);
    const int64_t kept = kept_tokens(request, index);
    const auto cut = static_cast<int64_t>(turn.tokens.size()) - kept;
    if (cut > 0) {  // truncate_left keeps the end, truncate_middle both ends
      const int64_t head = job_.limits.over_length == OverLength::truncate_left ? 0 : kept / 2;
      turn.tokens.erase(turn.tokens.begin() + head, turn.tokens.begin() + head + cut);
      turn.truncated_tokens = static_cast<int32_t>(cut);
    }
    turn.max_new_tokens = answer_tokens(request, index);
    turn.params = job_.generation.sampling;
    if (given.temperature) turn.params.temperature = *given.temperature;
    if (given.top_p) turn.params.top_p = *given.top_p;
    const uint64_t seed = given.seed ? mix(0, static_cast<uint64_t>(*given.seed))
                                     : mix(static_cast<uint64_t>(job_.generation.seed), from.id);
    turn.random_key = mix(seed, static_cast<uint64_t>(index));
    turn.refused = refusal(request, index, turn.tokens);
    loaded.turns.push_back(std::move(turn));
  }
  return loaded;
}

}  // namespace pecia::runtime
