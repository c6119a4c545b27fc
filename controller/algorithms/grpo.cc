// Synchronous GRPO: sample, score, compute advantages, train, push the new weights, and again.
//
// A step has one weight version: generators take version v + 1 before the next step's first prompt.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "controller/algorithms/dynamic_sampling.h"
#include "controller/algorithms/grpo_batch.h"
#include "controller/algorithms/loss_proto.h"
#include "controller/algorithms/training_loop.h"
#include "controller/algorithms/validation.h"
#include "controller/data/dataset.h"
#include "controller/data/sampler.h"
#include "controller/rollout/rollout_metrics.h"

namespace manta::controller {
namespace {

// Steps that the data and max_num_steps allow. With dynamic sampling a step may take several batches of prompts, so
// that the data may come to its end before.
int64_t NumSteps(const config::GrpoConfig& config, const Dataset& train) {
  const int64_t batches_per_epoch = static_cast<int64_t>(train.rows.size()) / config.prompts_per_batch();
  return std::min(config.max_num_steps, batches_per_epoch * config.max_num_epochs);
}

class Grpo final : public TrainingLoop {
 public:
  Grpo(const LoopContext& loop, Dataset train, Dataset validation)
      : TrainingLoop(loop,
                     {.num_steps = NumSteps(loop.config.grpo, train),
                      .val_period = loop.config.grpo.val_period,
                      .val_start_at = loop.config.grpo.val_start_at,
                      .val_at_start = loop.config.grpo.val_at_start,
                      .val_at_end = loop.config.grpo.val_at_end,
                      .stop_at = {.metric = loop.config.grpo.stop_at_validation_metric,
                                  .threshold = loop.config.grpo.stop_at_validation_threshold.value_or(0)}},
                     loop.config.grpo.seed),
        grpo_(loop.config.grpo),
        train_(std::move(train)),
        validation_(std::move(validation)),
        sampler_(static_cast<int64_t>(train_.rows.size()), grpo_.seed, loop.config.data.shuffle,
                 {loop.start.epoch, loop.start.position}) {}

 private:
  Task<absl::Status> Prepare() override;
  Task<absl::StatusOr<bool>> TrainStep() override;
  Task<absl::Status> Validate() override;

  // Empty where the data is over.
  Task<absl::StatusOr<std::optional<GrpoBatch>>> Rollout();
  Task<absl::StatusOr<std::vector<Sample>>> Generate(int64_t batch, const std::string& detail);
  Task<absl::Status> AddLogprobs(GrpoBatch* batch);
  Task<absl::Status> Train(const GrpoBatch& batch, const TrainingInfo& after);
  Task<absl::Status> SyncWeights();
  absl::StatusOr<ShardPlan> Plan(std::span<const Sequence> sequences, bool logprobs) {
    return PlanShards(LengthsOf(sequences), ShardOptionsOf(config(), context().trainers->size(), logprobs),
                      GroupsOf(sequences), NewTokens(sequences));
  }
  void AddMetrics(const std::map<std::string, double>& values) {
    for (const auto& [name, value] : values) metrics()[absl::StrCat("train/", name)] = value;
  }

  const config::GrpoConfig& grpo_;
  const Dataset train_, validation_;
  RowSampler sampler_;
  int64_t drawn_rows_ = 0;  // in this step
};

Task<absl::Status> Grpo::Prepare() {
  context().events.Phase("sending the weights to the generators");
  // A new run's first version is 1; a resumed run sends the version it stopped at again.
  if (info().weight_version == 0) info().weight_version = 1;
  return SyncWeights();
}

Task<absl::StatusOr<bool>> Grpo::TrainStep() {
  MANTA_CO_ASSIGN_OR_RETURN(std::optional<GrpoBatch> rolled_out, co_await Rollout());
  if (!rolled_out) co_return false;
  GrpoBatch& batch = *rolled_out;
  const auto trained = std::count(batch.sample_mask.begin(), batch.sample_mask.end(), 1.0f);
  if (trained == 0) {
    // Every sample failed or was filtered: say why rather than take a step on nothing.
    for (const Sample& sample : batch.samples) {
      if (!sample.status.ok()) co_return Annotate(sample.status, "no sample of this step can be trained on");
    }
  }
  MANTA_CO_RETURN_IF_ERROR(co_await AddLogprobs(&batch));
  BeginPhase("advantage_calculation");
  MANTA_CO_RETURN_IF_ERROR(ComputeAdvantages(batch, grpo_, config().loss));
  AddMetrics(batch.metrics);
  if (!batch.prev_logprobs.empty()) AddMetrics(MismatchMetrics(batch.samples, batch.prev_logprobs));
  TrainingInfo after = info();
  ++after.weight_version;
  after.consumed_samples += drawn_rows_;
  after.epoch = sampler_.position().epoch;
  after.position = sampler_.position().row;
  MANTA_CO_RETURN_IF_ERROR(co_await Train(batch, after));
  info() = after;
  BeginPhase("weight_sync");
  MANTA_CO_RETURN_IF_ERROR(co_await SyncWeights());
  set_step_samples(static_cast<int64_t>(batch.samples.size()));
  co_return true;
}

Task<absl::StatusOr<std::optional<GrpoBatch>>> Grpo::Rollout() {
  drawn_rows_ = 0;
  DynamicSampling kept(grpo_);
  std::vector<Sample> samples;
  while (true) {
    if (sampler_.EpochOfNext(grpo_.prompts_per_batch()) >= grpo_.max_num_epochs) co_return std::optional<GrpoBatch>();
    std::string detail;
    if (kept.num_batches() > 0) {
      detail = absl::StrCat("batch ", kept.num_batches() + 1, ", ", kept.num_kept(), " of ", grpo_.num_prompts_per_step,
                            " prompts kept");
    }
    const int64_t batch = kept.num_batches();
    MANTA_CO_ASSIGN_OR_RETURN(samples, co_await Generate(batch, detail));
    if (!grpo_.use_dynamic_sampling) co_return PrepareGrpoBatch(std::move(samples), grpo_);
    BeginPhase("dynamic_sampling");
    kept.Add(std::move(samples));
    if (kept.complete()) break;
    MANTA_CO_RETURN_IF_ERROR(kept.CheckLimit());
  }
  GrpoBatch batch = PrepareGrpoBatch(kept.Take(), grpo_);
  for (const auto& [name, value] : kept.Metrics()) batch.metrics[name] = value;
  co_return std::move(batch);
}

// The next rows' prompts, sampled and scored. `batch` counts the generation batches of this step.
Task<absl::StatusOr<std::vector<Sample>>> Grpo::Generate(int64_t batch, const std::string& detail) {
  BeginPhase("data_processing");
  const int64_t rows = grpo_.prompts_per_batch();
  std::vector<RolloutPrompt> prompts;
  for (int64_t row : sampler_.Next(rows)) {
    MANTA_CO_ASSIGN_OR_RETURN(std::optional<RolloutPrompt> prompt, context().prompts.Prompt(train_, row));
    if (prompt) prompts.push_back(std::move(*prompt));
  }
  drawn_rows_ += rows;
  if (prompts.empty()) {
    co_return UserError(
        "every prompt of this step is longer than data.max_input_seq_length, or leaves no room for an answer");
  }
  metrics()["train/num_overlong_prompts"] += static_cast<double>(rows - static_cast<int64_t>(prompts.size()));
  BeginPhase("generation", detail);
  RolloutOptions options;
  options.sampling = TrainSampling(config().policy.generation);
  options.max_total_length = static_cast<int>(config().policy.max_total_sequence_length);
  options.samples_per_prompt = static_cast<int>(grpo_.num_generations_per_prompt);
  options.seed = SampleSeed(grpo_.seed, static_cast<uint64_t>(next_step()), static_cast<uint64_t>(batch));
  std::vector<Sample> samples = co_await context().rollouts->Run(std::move(prompts), options);
  if (context().stop.cancelled()) co_return context().stop.status();
  metrics()["timing/train/reward_calculation"] += context().rollouts->reward_seconds();
  co_return samples;
}

Task<absl::Status> Grpo::AddLogprobs(GrpoBatch* batch) {
  BeginPhase("policy_and_reference_logprobs");
  const std::vector<Sequence> sequences = SequencesOf(*batch, 0, batch->samples.size());
  MANTA_CO_ASSIGN_OR_RETURN(const ShardPlan plan, Plan(sequences, /*logprobs=*/true));
  const auto& generation = config().policy.generation;
  const config::LossConfig& loss = config().loss;
  const bool diverges = loss.reference_policy_kl_penalty != 0;
  v1::LogprobRequest request;
  request.set_temperature(generation.temperature);
  // With force_on_policy_ratio the loss does not read them.
  if (!loss.force_on_policy_ratio || grpo_.seq_logprob_error_threshold || (diverges && loss.use_kl_in_reward)) {
    request.set_top_k(static_cast<int32_t>(generation.top_k));
    request.set_top_p(static_cast<float>(generation.top_p));
    MANTA_CO_ASSIGN_OR_RETURN(batch->prev_logprobs,
                              co_await context().trainers->ComputeLogprobs(request, sequences, plan));
  }
  request.clear_top_k();
  request.clear_top_p();
  // The divergence is of the whole distributions, as the reference's log-probabilities are.
  const bool filters = generation.top_k > 0 || generation.top_p < 1;
  if (diverges && loss.use_kl_in_reward && filters) {
    MANTA_CO_ASSIGN_OR_RETURN(batch->policy_logprobs,
                              co_await context().trainers->ComputeLogprobs(request, sequences, plan));
  }
  if (diverges) {
    request.set_reference(true);
    MANTA_CO_ASSIGN_OR_RETURN(batch->reference_logprobs,
                              co_await context().trainers->ComputeLogprobs(request, sequences, plan));
  }
  co_return absl::OkStatus();
}

Task<absl::Status> Grpo::Train(const GrpoBatch& batch, const TrainingInfo& after) {
  BeginPhase("policy_training");
  const auto& generation = config().policy.generation;
  const size_t total = batch.samples.size();
  const size_t minibatch = std::min(total, static_cast<size_t>(config().policy.train_global_batch_size));
  const int parts = static_cast<int>((total + minibatch - 1) / minibatch);
  for (size_t begin = 0; begin < total; begin += minibatch) {
    const size_t end = std::min(total, begin + minibatch);
    const std::vector<Sequence> sequences = SequencesOf(batch, begin, end);
    MANTA_CO_ASSIGN_OR_RETURN(ShardPlan plan, Plan(sequences, /*logprobs=*/false));
    v1::TrainRequest request;
    *request.mutable_clipped_pg() = LossProto(config().loss);
    request.set_temperature(generation.temperature);
    request.set_top_k(static_cast<int32_t>(generation.top_k));
    request.set_top_p(static_cast<float>(generation.top_p));
    request.set_advance_schedule(end == total);
    const int part = static_cast<int>(begin / minibatch) + 1;
    request.set_note(Note(after, part, parts, static_cast<int64_t>(total)));
    const std::string key = TrainKey(part);
    MANTA_CO_ASSIGN_OR_RETURN(const v1::TrainReply reply,
                              co_await context().trainers->Train(request, sequences, plan, key));
    // Of several minibatches the last one's metrics stand for the step.
    AddTrainReply(reply);
  }
  co_return absl::OkStatus();
}

Task<absl::Status> Grpo::SyncWeights() {
  const int readers = context().generators->size();
  const std::string key = absl::StrCat(context().job, "/publish/", info().weight_version);
  MANTA_CO_ASSIGN_OR_RETURN(const v1::WeightSources sources,
                            co_await context().trainers->Publish(info().weight_version, readers, key));
  v1::UpdateWeightsRequest request;
  *request.mutable_sources() = sources;
  const auto reply = co_await context().generators->UpdateWeights(request);
  co_return reply.status();
}

Task<absl::Status> Grpo::Validate() {
  const ValidationOptions options{.max_samples = grpo_.max_val_samples,
                                  .batch_size = grpo_.val_batch_size,
                                  .samples_per_prompt = grpo_.val_num_generations_per_prompt,
                                  .seed = grpo_.seed,
                                  .samples_to_print = config().logger.num_val_samples_to_print};
  MANTA_CO_ASSIGN_OR_RETURN(const ValidationResult result, co_await RunValidation(context(), validation_, options));
  for (const auto& [name, value] : result.metrics) metrics()[absl::StrCat("validation/", name)] = value;
  if (!result.printed.empty()) {
    context().events.Text(absl::StrCat("validation after step ", info().step, ":\n", result.printed));
  }
  set_summary(result.examples);
  co_return absl::OkStatus();
}

}  // namespace

Task<absl::StatusOr<RunOutcome>> RunGrpo(LoopContext context) {
  auto datasets = LoadTrainAndValidation(context.config.data, context.config.grpo.seed);
  if (!datasets.ok()) co_return datasets.status();
  const auto [needed, key] = RowsOfAStep(context.config);
  MANTA_CO_RETURN_IF_ERROR(RequireRows(datasets->first, needed, key));
  Grpo grpo(context, std::move(datasets->first), std::move(datasets->second));
  co_return co_await grpo.Run();
}

}  // namespace manta::controller
