#include "controller/rollout/rollout.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/rpc/call.h"

namespace manta::controller {
namespace {

constexpr absl::Duration kReason = absl::Milliseconds(2500);  // to hear of a worker's end
constexpr int kMostSamplesInFlight = 8192;  // as many as a generator's queue takes by default

}  // namespace

uint64_t SampleSeed(uint64_t seed, uint64_t group, uint64_t index) {
  const auto block = Philox4x32({static_cast<uint32_t>(group), static_cast<uint32_t>(group >> 32),
                                 static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32)},
                                {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return static_cast<uint64_t>(block[0]) << 32 | block[1];
}

RolloutEngine::RolloutEngine(EventLoop& loop, GeneratorPool& generators,
                             std::vector<std::shared_ptr<grpc::Channel>> reward_workers,
                             std::map<std::string, Scorer> scorers,
                             std::shared_ptr<const tokenizer::Tokenizer> tokenizer, CancelToken cancel)
    : loop_(loop),
      generators_(generators),
      scorers_(std::move(scorers)),
      tokenizer_(std::move(tokenizer)),
      cancel_(std::move(cancel)) {
  for (auto& channel : reward_workers) rewards_.push_back(v1::RewardService::NewStub(channel));
}

Task<std::vector<Sample>> RolloutEngine::Run(std::vector<RolloutPrompt> prompts, RolloutOptions options) {
  const int fits = kMostSamplesInFlight / std::max(1, options.samples_per_prompt);
  Semaphore capacity(loop_, std::clamp(fits, 1, std::max(1, options.max_concurrent_groups)));
  const absl::Time start = absl::Now();
  last_generated_ = start;
  broken_ = false;
  std::vector<Task<std::vector<Sample>>> groups;
  groups.reserve(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    groups.push_back(RunGroup(&prompts[i], static_cast<int>(i), &options, &capacity));
  }
  std::vector<std::vector<Sample>> results = co_await WhenAll(std::move(groups));
  generation_seconds_ = absl::ToDoubleSeconds(last_generated_ - start);
  reward_seconds_ = absl::ToDoubleSeconds(absl::Now() - last_generated_);
  if (broken_) (void)co_await Sleep(loop_, kReason, cancel_);  // cancelled: with that reason
  std::vector<Sample> samples;
  for (auto& group : results) std::move(group.begin(), group.end(), std::back_inserter(samples));
  co_return samples;
}

Task<std::vector<Sample>> RolloutEngine::RunGroup(const RolloutPrompt* prompt, int group, const RolloutOptions* options,
                                                  Semaphore* capacity) {
  v1::SamplingParams sampling = options->sampling;
  const int room = options->max_total_length - static_cast<int>(prompt->tokens.size());
  if (options->max_total_length > 0) sampling.set_max_new_tokens(std::min(sampling.max_new_tokens(), room));
  std::vector<uint64_t> seeds;
  for (int i = 0; i < options->samples_per_prompt; ++i) {
    seeds.push_back(SampleSeed(options->seed, static_cast<uint64_t>(group), static_cast<uint64_t>(i)));
  }
  co_await capacity->Acquire();
  const int generator = generators_.Assign(options->samples_per_prompt);
  std::vector<absl::StatusOr<Completion>> completions =
      co_await generators_.Generate(generator, prompt->tokens, sampling, seeds);
  capacity->Release();
  last_generated_ = std::max(last_generated_, absl::Now());

  std::vector<Sample> samples;
  for (size_t i = 0; i < completions.size(); ++i) {
    NoteCall(completions[i].status());
    samples.push_back(MakeSample(*prompt, group, static_cast<int>(i), std::move(completions[i])));
  }
  const absl::Status scored = co_await Score(prompt, &samples);
  if (!scored.ok()) {
    NoteCall(scored);
    for (Sample& sample : samples) {
      if (sample.status.ok()) sample.status = scored;
    }
  }
  co_return samples;
}

Sample RolloutEngine::MakeSample(const RolloutPrompt& prompt, int group, int index,
                                 absl::StatusOr<Completion> completion) const {
  Sample sample;
  sample.prompt_index = prompt.row;
  sample.group = group;
  sample.index_in_group = index;
  sample.ground_truth = prompt.ground_truth;
  sample.tokens = prompt.tokens;
  sample.prompt_length = static_cast<int32_t>(prompt.tokens.size());
  sample.token_mask.assign(sample.tokens.size(), 0.0f);
  sample.generation_logprobs.assign(sample.tokens.size(), 0.0f);
  if (!completion.ok()) {
    sample.status = completion.status();
    return sample;
  }
  sample.tokens.insert(sample.tokens.end(), completion->tokens.begin(), completion->tokens.end());
  sample.token_mask.resize(sample.tokens.size(), 1.0f);
  sample.generation_logprobs.insert(sample.generation_logprobs.end(), completion->logprobs.begin(),
                                    completion->logprobs.end());
  sample.oldest_weight_version = completion->oldest_weight_version;
  sample.newest_weight_version = completion->newest_weight_version;
  sample.finish_reason = completion->finish_reason;
  sample.response_text = tokenizer_->Decode(completion->tokens, /*skip_special_tokens=*/true);
  return sample;
}

Task<absl::Status> RolloutEngine::Score(const RolloutPrompt* prompt, std::vector<Sample>* samples) {
  const auto scorer = scorers_.find(prompt->env_name);
  if (scorer == scorers_.end()) {
    co_return UserError(absl::StrCat("no environment is named \"", prompt->env_name, "\": add env.", prompt->env_name));
  }
  v1::ScoreRequest request;
  request.set_verifier(scorer->second.verifier);
  request.set_options_json(scorer->second.options_json);
  request.set_deadline_ms_per_sample(absl::ToInt64Milliseconds(scorer->second.deadline_per_sample));
  std::vector<Sample*> scored;
  for (Sample& sample : *samples) {
    if (!sample.status.ok()) continue;
    v1::ScoreSample* row = request.add_samples();
    row->set_prompt(prompt->text);
    row->set_response(sample.response_text);
    row->set_ground_truth(prompt->ground_truth);
    row->set_metadata_json(prompt->metadata_json);
    scored.push_back(&sample);
  }
  if (scored.empty()) co_return absl::OkStatus();
  // Each sample has its own deadline; the call's is what they add up to, should they run one after another.
  const absl::Duration deadline =
      scorer->second.deadline_per_sample * static_cast<double>(scored.size()) + absl::Seconds(10);
  auto& stub = rewards_[next_reward_++ % rewards_.size()];
  rpc::CallOptions options{.deadline = deadline, .cancel = cancel_};  // named: see task.h
  absl::StatusOr<v1::ScoreReply> reply = co_await rpc::Call(
      loop_, stub->async(), &v1::RewardService::Stub::async::Score, std::move(request), std::move(options));
  if (!reply.ok()) co_return Annotate(reply.status(), "score");
  if (static_cast<size_t>(reply->scores_size()) != scored.size()) {
    co_return absl::InternalError(
        absl::StrCat("the reward worker scored ", reply->scores_size(), " samples of ", scored.size()));
  }
  for (size_t i = 0; i < scored.size(); ++i) {
    const v1::SampleScore& score = reply->scores(static_cast<int>(i));
    scored[i]->status = FromProto(score.status());
    scored[i]->reward = score.reward();
    scored[i]->reward_components = {score.components().begin(), score.components().end()};
    scored[i]->extracted_answer = score.extracted_answer();
  }
  co_return absl::OkStatus();
}

}  // namespace manta::controller
