// Synchronous GRPO: sample, score, compute advantages, train, push the new weights, and again.
//
// A step has one weight version: generators take version v + 1 before the next step's first prompt. The loop's whole state
// between steps is TrainingInfo and the trainer's checkpoint, so a resumed run continues bit for bit on a CPU.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "controller/algorithms/grpo_batch.h"
#include "controller/algorithms/loop_context.h"
#include "controller/algorithms/loop_control.h"
#include "controller/algorithms/loss_proto.h"
#include "controller/algorithms/validation.h"
#include "controller/data/dataset.h"
#include "controller/data/sampler.h"
#include "controller/rollout/rollout_metrics.h"

namespace manta::controller {
namespace {

class Grpo {
 public:
  Grpo(LoopContext context, Dataset train, Dataset validation)
      : context_(context),
        config_(context.config),
        train_(std::move(train)),
        validation_(std::move(validation)),
        sampler_(static_cast<int64_t>(train_.rows.size()), config_.grpo.seed, config_.data.shuffle,
                 {context.start.epoch, context.start.position}),
        info_(context.start) {
    info_.data_seed = config_.grpo.seed;
    const int64_t steps_per_epoch = static_cast<int64_t>(train_.rows.size()) / config_.grpo.num_prompts_per_step;
    num_steps_ = std::min(config_.grpo.max_num_steps, steps_per_epoch * config_.grpo.max_num_epochs);
  }

  Task<absl::StatusOr<RunOutcome>> Run();

 private:
  Task<absl::Status> Step();
  Task<absl::StatusOr<GrpoBatch>> Rollout();
  Task<absl::Status> AddLogprobs(GrpoBatch* batch);
  Task<absl::Status> Train(const GrpoBatch& batch);
  Task<absl::Status> SyncWeights();
  Task<absl::Status> Validate();
  Task<absl::Status> Save();

  absl::StatusOr<ShardPlan> Plan(std::span<const Sequence> sequences, bool logprobs) const;
  void Begin(const char* phase) {
    phases_.Begin(phase);
    context_.events.Phase(absl::StrCat("step ", info_.step + 1, ": ", phase));
  }

  LoopContext context_;
  const config::RunConfig& config_;
  const Dataset train_, validation_;
  RowSampler sampler_;
  TrainingInfo info_;
  int64_t num_steps_ = 0;
  StepTimer timer_;
  PhaseTimes phases_;
  std::map<std::string, double> metrics_;  // of the step, as logged: with prefixes
  RunOutcome outcome_;
};

Task<absl::StatusOr<RunOutcome>> Grpo::Run() {
  const auto needed = config_.grpo.num_prompts_per_step;
  if (static_cast<int64_t>(train_.rows.size()) < needed) {
    co_return UserError(absl::StrCat(train_.path, ": has ", train_.rows.size(), " rows, fewer than the ", needed,
                                     " of grpo.num_prompts_per_step"));
  }
  if (info_.step >= num_steps_) {
    context_.events.Text(NothingLeft(info_.step, num_steps_));
    co_return outcome_;
  }
  context_.events.Phase("sending the weights to the generators");
  // A new run's first version is 1; a resumed run sends the version it stopped at again.
  if (info_.weight_version == 0) info_.weight_version = 1;
  MANTA_CO_RETURN_IF_ERROR(co_await SyncWeights());
  if (config_.grpo.val_at_start && info_.step == 0) {
    context_.events.Phase("validation");
    MANTA_CO_RETURN_IF_ERROR(co_await Validate());
    MANTA_CO_RETURN_IF_ERROR(context_.logger.Log(0, info_.weight_version, metrics_));
    context_.events.Step(0, num_steps_, 0, metrics_);
  }
  while (info_.step < num_steps_) {
    if (context_.stop.cancelled()) co_return context_.stop.status();
    absl::Status status = co_await Step();
    if (!status.ok()) co_return Annotate(status, absl::StrCat("step ", info_.step + 1));
  }
  co_return outcome_;
}

Task<absl::Status> Grpo::Step() {
  timer_.Begin();
  phases_ = PhaseTimes();
  metrics_.clear();

  MANTA_CO_ASSIGN_OR_RETURN(GrpoBatch batch, co_await Rollout());
  const auto trained = std::count(batch.sample_mask.begin(), batch.sample_mask.end(), 1.0f);
  if (trained == 0) {
    // Every sample failed or was filtered: say why rather than take a step on nothing.
    for (const Sample& sample : batch.samples) {
      if (!sample.status.ok()) co_return Annotate(sample.status, "no sample of this step can be trained on");
    }
  }
  MANTA_CO_RETURN_IF_ERROR(co_await AddLogprobs(&batch));
  Begin("advantage_calculation");
  MANTA_CO_RETURN_IF_ERROR(ComputeAdvantages(batch, config_.grpo, config_.loss));
  for (const auto& [name, value] : batch.metrics) metrics_[absl::StrCat("train/", name)] = value;
  if (!batch.prev_logprobs.empty()) {
    for (const auto& [name, value] : MismatchMetrics(batch.samples, batch.prev_logprobs)) {
      metrics_[absl::StrCat("train/", name)] = value;
    }
  }
  MANTA_CO_RETURN_IF_ERROR(co_await Train(batch));
  Begin("weight_sync");
  ++info_.weight_version;
  MANTA_CO_RETURN_IF_ERROR(co_await SyncWeights());

  ++info_.step;
  info_.epoch = sampler_.position().epoch;
  info_.position = sampler_.position().row;
  info_.consumed_samples += config_.grpo.num_prompts_per_step;
  if (ValidateAfter(info_.step, num_steps_, config_.grpo.val_period, config_.grpo.val_start_at, config_.grpo.val_at_end)) {
    phases_.Begin("validation");
    context_.events.Phase(absl::StrCat("step ", info_.step, ": validation"));
    MANTA_CO_RETURN_IF_ERROR(co_await Validate());
  }
  if (SaveAfter(info_.step, num_steps_, config_.checkpointing)) {
    phases_.Begin("checkpointing");
    MANTA_CO_RETURN_IF_ERROR(co_await Save());
  }
  phases_.Begin("");
  const double seconds = timer_.End();
  for (const auto& [name, value] : phases_.seconds()) metrics_[absl::StrCat("timing/train/", name)] = value;
  metrics_["timing/train/total_step_time"] = seconds;
  metrics_["performance/samples_per_sec"] = static_cast<double>(batch.samples.size()) / seconds;
  metrics_["performance/tokens_per_sec"] = metrics_["train/total_num_tokens"] / seconds;
  MANTA_CO_RETURN_IF_ERROR(context_.logger.Log(info_.step, info_.weight_version, metrics_));
  context_.events.Step(info_.step, num_steps_, timer_.SecondsLeft(num_steps_ - info_.step), metrics_);
  co_return absl::OkStatus();
}

Task<absl::StatusOr<GrpoBatch>> Grpo::Rollout() {
  Begin("data_processing");
  std::vector<RolloutPrompt> prompts;
  for (int64_t row : sampler_.Next(config_.grpo.num_prompts_per_step)) {
    MANTA_CO_ASSIGN_OR_RETURN(std::optional<RolloutPrompt> prompt, context_.prompts.Prompt(train_, row));
    if (prompt) prompts.push_back(std::move(*prompt));
  }
  if (prompts.empty()) {
    co_return UserError("every prompt of this step is longer than data.max_input_seq_length");
  }
  metrics_["train/num_overlong_prompts"] =
      static_cast<double>(config_.grpo.num_prompts_per_step - static_cast<int64_t>(prompts.size()));
  Begin("generation");
  RolloutOptions options;
  options.sampling = TrainSampling(config_.policy.generation);
  options.max_total_length = static_cast<int>(config_.policy.max_total_sequence_length);
  options.samples_per_prompt = static_cast<int>(config_.grpo.num_generations_per_prompt);
  options.seed = SampleSeed(config_.grpo.seed, static_cast<uint64_t>(info_.step) + 1, 0);
  std::vector<Sample> samples = co_await context_.rollouts->Run(std::move(prompts), options);
  if (context_.stop.cancelled()) co_return context_.stop.status();
  metrics_["timing/train/reward_calculation"] = context_.rollouts->reward_seconds();
  co_return PrepareGrpoBatch(std::move(samples), config_.grpo);
}

absl::StatusOr<ShardPlan> Grpo::Plan(std::span<const Sequence> sequences, bool logprobs) const {
  return PlanShards(LengthsOf(sequences), ShardOptionsOf(config_.policy, context_.trainers->size(), logprobs),
                    GroupsOf(sequences), NewTokens(sequences));
}

Task<absl::Status> Grpo::AddLogprobs(GrpoBatch* batch) {
  Begin("policy_and_reference_logprobs");
  const std::vector<Sequence> sequences = SequencesOf(*batch, 0, batch->samples.size());
  MANTA_CO_ASSIGN_OR_RETURN(const ShardPlan plan, Plan(sequences, /*logprobs=*/true));
  const auto& generation = config_.policy.generation;
  v1::LogprobRequest request;
  request.set_temperature(generation.temperature);
  // With force_on_policy_ratio the loss does not read them.
  if (!config_.loss.force_on_policy_ratio || config_.grpo.seq_logprob_error_threshold) {
    request.set_top_k(static_cast<int32_t>(generation.top_k));
    request.set_top_p(static_cast<float>(generation.top_p));
    MANTA_CO_ASSIGN_OR_RETURN(batch->prev_logprobs,
                              co_await context_.trainers->ComputeLogprobs(request, sequences, plan));
  }
  if (config_.loss.reference_policy_kl_penalty != 0) {
    request.set_reference(true);
    request.clear_top_k();
    request.clear_top_p();
    MANTA_CO_ASSIGN_OR_RETURN(batch->reference_logprobs,
                              co_await context_.trainers->ComputeLogprobs(request, sequences, plan));
  }
  co_return absl::OkStatus();
}

Task<absl::Status> Grpo::Train(const GrpoBatch& batch) {
  Begin("policy_training");
  const size_t total = batch.samples.size();
  const size_t minibatch = std::min(total, static_cast<size_t>(config_.policy.train_global_batch_size));
  for (size_t begin = 0; begin < total; begin += minibatch) {
    const size_t end = std::min(total, begin + minibatch);
    const std::vector<Sequence> sequences = SequencesOf(batch, begin, end);
    MANTA_CO_ASSIGN_OR_RETURN(ShardPlan plan, Plan(sequences, /*logprobs=*/false));
    v1::TrainRequest request;
    *request.mutable_clipped_pg() = LossProto(config_.loss);
    request.set_temperature(config_.policy.generation.temperature);
    request.set_top_k(static_cast<int32_t>(config_.policy.generation.top_k));
    request.set_top_p(static_cast<float>(config_.policy.generation.top_p));
    request.set_advance_schedule(end == total);
    MANTA_CO_ASSIGN_OR_RETURN(const v1::TrainReply reply, co_await context_.trainers->Train(request, sequences, plan));
    // Of several minibatches the last one's metrics stand for the step.
    for (const auto& [name, value] : reply.metrics()) metrics_[absl::StrCat("train/", name)] = value;
    metrics_["train/grad_norm"] = reply.grad_norm();
    metrics_["train/lr"] = reply.lr();
  }
  co_return absl::OkStatus();
}

Task<absl::Status> Grpo::SyncWeights() {
  MANTA_CO_ASSIGN_OR_RETURN(const v1::WeightSources sources,
                            co_await context_.trainers->Publish(info_.weight_version, context_.generators->size()));
  v1::UpdateWeightsRequest request;
  *request.mutable_sources() = sources;
  const auto reply = co_await context_.generators->UpdateWeights(request);
  co_return reply.status();
}

Task<absl::Status> Grpo::Validate() {
  MANTA_CO_ASSIGN_OR_RETURN(const ValidationResult result,
                            co_await RunValidation(context_, validation_,
                                                   {.max_samples = config_.grpo.max_val_samples,
                                                    .batch_size = config_.grpo.val_batch_size,
                                                    .samples_per_prompt = config_.grpo.val_num_generations_per_prompt,
                                                    .seed = config_.grpo.seed}));
  for (const auto& [name, value] : result.metrics) metrics_[absl::StrCat("validation/", name)] = value;
  outcome_.summary = result.examples;
  co_return absl::OkStatus();
}

Task<absl::Status> Grpo::Save() {
  context_.events.Phase(absl::StrCat("step ", info_.step, ": saving the checkpoint"));
  MANTA_CO_ASSIGN_OR_RETURN(const auto policy, context_.checkpointer.Begin(info_.step));
  MANTA_CO_RETURN_IF_ERROR(co_await context_.trainers->Save(policy.string(), config_.checkpointing.save_optimizer));
  info_.metric = CheckpointMetric(config_.checkpointing, metrics_);
  info_.metrics = metrics_;
  MANTA_CO_ASSIGN_OR_RETURN(const auto path, context_.checkpointer.Commit(info_, context_.config_yaml));
  outcome_.checkpoint = path.string();
  co_return absl::OkStatus();
}

}  // namespace

Task<absl::StatusOr<RunOutcome>> RunGrpo(LoopContext context) {
  auto datasets = LoadTrainAndValidation(context.config.data, context.config.grpo.seed);
  if (!datasets.ok()) co_return datasets.status();
  Grpo grpo(context, std::move(datasets->first), std::move(datasets->second));
  co_return co_await grpo.Run();
}

}  // namespace manta::controller
