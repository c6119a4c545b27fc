// Supervised fine-tuning: cross-entropy on what assistants said, validation loss, checkpoints.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "controller/algorithms/loop_context.h"
#include "controller/algorithms/loop_control.h"
#include "controller/algorithms/loss_proto.h"
#include "controller/data/dataset.h"
#include "controller/data/sampler.h"

namespace manta::controller {
namespace {

class Sft {
 public:
  Sft(LoopContext context, Dataset train, Dataset validation)
      : context_(context),
        config_(context.config),
        train_(std::move(train)),
        validation_(std::move(validation)),
        sampler_(static_cast<int64_t>(train_.rows.size()), config_.sft.seed, config_.data.shuffle,
                 {context.start.epoch, context.start.position}),
        info_(context.start) {
    info_.data_seed = config_.sft.seed;
    num_steps_ = static_cast<int64_t>(train_.rows.size()) / config_.policy.train_global_batch_size *
                 config_.sft.max_num_epochs;
    if (config_.sft.max_num_steps >= 0) num_steps_ = std::min(num_steps_, config_.sft.max_num_steps);
  }

  Task<absl::StatusOr<RunOutcome>> Run();

 private:
  // The rows of one global batch, as sequences.
  struct Batch {
    std::vector<SftExample> examples;
    std::vector<Sequence> sequences;
    int64_t overlong = 0;
  };
  absl::StatusOr<Batch> MakeBatch(const Dataset& dataset, std::span<const int64_t> rows) const;
  Task<absl::Status> Step();
  Task<absl::Status> Validate();
  Task<absl::Status> Save();

  LoopContext context_;
  const config::RunConfig& config_;
  const Dataset train_, validation_;
  RowSampler sampler_;
  TrainingInfo info_;
  int64_t num_steps_ = 0;
  StepTimer timer_;
  PhaseTimes phases_;
  std::map<std::string, double> metrics_;
  RunOutcome outcome_;
};

absl::StatusOr<Sft::Batch> Sft::MakeBatch(const Dataset& dataset, std::span<const int64_t> rows) const {
  Batch batch;
  for (int64_t row : rows) {
    MANTA_ASSIGN_OR_RETURN(SftExample example, context_.prompts.Example(dataset, row));
    batch.overlong += example.sample_mask == 0 ? 1 : 0;
    batch.examples.push_back(std::move(example));
  }
  for (const SftExample& example : batch.examples) {
    batch.sequences.push_back(
        {.tokens = example.tokens, .token_mask = example.token_mask, .sample_mask = example.sample_mask});
  }
  return batch;
}

Task<absl::StatusOr<RunOutcome>> Sft::Run() {
  if (static_cast<int64_t>(train_.rows.size()) < config_.policy.train_global_batch_size) {
    co_return UserError(absl::StrCat(train_.path, ": has ", train_.rows.size(), " rows, fewer than the ",
                                     config_.policy.train_global_batch_size, " of policy.train_global_batch_size"));
  }
  if (info_.step >= num_steps_) {
    context_.events.Text(NothingLeft(info_.step, num_steps_));
    co_return outcome_;
  }
  if (config_.sft.val_at_start && info_.step == 0) {
    context_.events.Phase("validation");
    MANTA_CO_RETURN_IF_ERROR(co_await Validate());
    if (!metrics_.empty()) {
      MANTA_CO_RETURN_IF_ERROR(context_.logger.Log(0, 0, metrics_));
      context_.events.Step(0, num_steps_, 0, metrics_);
    }
  }
  while (info_.step < num_steps_) {
    if (context_.stop.cancelled()) co_return context_.stop.status();
    absl::Status status = co_await Step();
    if (!status.ok()) co_return Annotate(status, absl::StrCat("step ", info_.step + 1));
  }
  co_return outcome_;
}

Task<absl::Status> Sft::Step() {
  timer_.Begin();
  phases_ = PhaseTimes();
  metrics_.clear();
  phases_.Begin("data_processing");
  const std::vector<int64_t> rows = sampler_.Next(config_.policy.train_global_batch_size);
  MANTA_CO_ASSIGN_OR_RETURN(const Batch batch, MakeBatch(train_, rows));
  phases_.Begin("policy_training");
  context_.events.Phase(absl::StrCat("step ", info_.step + 1, ": training"));
  MANTA_CO_ASSIGN_OR_RETURN(ShardPlan plan,
                            PlanShards(LengthsOf(batch.sequences),
                                       ShardOptionsOf(config_.policy, context_.trainers->size(), /*logprobs=*/false)));
  v1::TrainRequest request;
  request.mutable_nll();
  request.set_advance_schedule(true);
  MANTA_CO_ASSIGN_OR_RETURN(const v1::TrainReply reply,
                            co_await context_.trainers->Train(request, batch.sequences, plan));
  for (const auto& [name, value] : reply.metrics()) metrics_[absl::StrCat("train/", name)] = value;
  metrics_["train/grad_norm"] = reply.grad_norm();
  metrics_["train/lr"] = reply.lr();
  metrics_["train/num_overlong_masked"] = static_cast<double>(batch.overlong);
  double tokens = 0;
  for (const Sequence& sequence : batch.sequences) tokens += static_cast<double>(sequence.tokens.size());
  metrics_["train/total_num_tokens"] = tokens;

  ++info_.step;
  info_.epoch = sampler_.position().epoch;
  info_.position = sampler_.position().row;
  info_.consumed_samples += config_.policy.train_global_batch_size;
  if (ValidateAfter(info_.step, num_steps_, config_.sft.val_period, -1, config_.sft.val_at_end)) {
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
  metrics_["performance/tokens_per_sec"] = tokens / seconds;
  MANTA_CO_RETURN_IF_ERROR(context_.logger.Log(info_.step, static_cast<uint64_t>(info_.step), metrics_));
  context_.events.Step(info_.step, num_steps_, timer_.SecondsLeft(num_steps_ - info_.step), metrics_);
  co_return absl::OkStatus();
}

Task<absl::Status> Sft::Validate() {
  if (validation_.rows.empty()) co_return absl::OkStatus();
  config::PolicyConfig policy = config_.policy;
  policy.train_micro_batch_size = config_.sft.val_micro_batch_size;
  double loss = 0, tokens = 0;
  int64_t batches = 0;
  const auto rows = static_cast<int64_t>(validation_.rows.size());
  for (int64_t begin = 0; begin < rows && (config_.sft.val_batches < 0 || batches < config_.sft.val_batches);
       begin += config_.sft.val_global_batch_size, ++batches) {
    std::vector<int64_t> indices;
    for (int64_t row = begin; row < std::min(rows, begin + config_.sft.val_global_batch_size); ++row) {
      indices.push_back(row);
    }
    MANTA_CO_ASSIGN_OR_RETURN(const Batch batch, MakeBatch(validation_, indices));
    const double valid = CountValid(batch.sequences).valid_tokens;
    if (valid == 0) continue;
    MANTA_CO_ASSIGN_OR_RETURN(
        ShardPlan plan, PlanShards(LengthsOf(batch.sequences), ShardOptionsOf(policy, context_.trainers->size(), false)));
    v1::TrainRequest request;
    request.mutable_nll();
    MANTA_CO_ASSIGN_OR_RETURN(const v1::TrainReply reply,
                              co_await context_.trainers->Evaluate(request, batch.sequences, plan));
    loss += reply.metrics().at("loss") * valid;
    tokens += valid;
  }
  if (tokens > 0) metrics_["validation/val_loss"] = loss / tokens;
  co_return absl::OkStatus();
}

Task<absl::Status> Sft::Save() {
  context_.events.Phase(absl::StrCat("step ", info_.step, ": saving the checkpoint"));
  MANTA_CO_ASSIGN_OR_RETURN(const auto policy, context_.checkpointer.Begin(info_.step));
  MANTA_CO_RETURN_IF_ERROR(co_await context_.trainers->Save(policy.string(), config_.checkpointing.save_optimizer));
  info_.metric = CheckpointMetric(config_.checkpointing, metrics_);
  info_.metrics = metrics_;
  info_.weight_version = static_cast<uint64_t>(info_.step);
  MANTA_CO_ASSIGN_OR_RETURN(const auto path, context_.checkpointer.Commit(info_, context_.config_yaml));
  outcome_.checkpoint = path.string();
  co_return absl::OkStatus();
}

}  // namespace

Task<absl::StatusOr<RunOutcome>> RunSft(LoopContext context) {
  auto datasets = LoadTrainAndValidation(context.config.data, context.config.sft.seed);
  if (!datasets.ok()) co_return datasets.status();
  Sft sft(context, std::move(datasets->first), std::move(datasets->second));
  co_return co_await sft.Run();
}

}  // namespace manta::controller
