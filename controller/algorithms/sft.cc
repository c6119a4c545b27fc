// Supervised fine-tuning: cross-entropy on what assistants said, validation loss, checkpoints.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "controller/algorithms/loss_proto.h"
#include "controller/algorithms/training_loop.h"
#include "controller/data/dataset.h"
#include "controller/data/sampler.h"

namespace manta::controller {
namespace {

// max_num_steps below 0: no bound but the epochs.
int64_t NumSteps(const config::RunConfig& config, const Dataset& train) {
  const int64_t of_epochs = static_cast<int64_t>(train.rows.size()) / config.policy.train_global_batch_size *
                            config.sft.max_num_epochs;
  return config.sft.max_num_steps < 0 ? of_epochs : std::min(of_epochs, config.sft.max_num_steps);
}

class Sft final : public TrainingLoop {
 public:
  Sft(const LoopContext& loop, Dataset train, Dataset validation)
      : TrainingLoop(loop,
                     {.num_steps = NumSteps(loop.config, train),
                      .val_period = loop.config.sft.val_period,
                      .val_at_start = loop.config.sft.val_at_start,
                      .val_at_end = loop.config.sft.val_at_end},
                     loop.config.sft.seed),
        train_(std::move(train)),
        validation_(std::move(validation)),
        sampler_(static_cast<int64_t>(train_.rows.size()), loop.config.sft.seed, loop.config.data.shuffle,
                 {loop.start.epoch, loop.start.position}) {}

 private:
  // The rows of one global batch, as sequences.
  struct Batch {
    std::vector<SftExample> examples;
    std::vector<Sequence> sequences;
    int64_t overlong = 0;
  };
  absl::StatusOr<Batch> MakeBatch(const Dataset& dataset, std::span<const int64_t> rows);
  Task<absl::Status> Prepare() override { co_return absl::OkStatus(); }
  Task<absl::StatusOr<bool>> TrainStep() override;
  Task<absl::Status> Validate() override;

  const Dataset train_, validation_;
  RowSampler sampler_;
};

absl::StatusOr<Sft::Batch> Sft::MakeBatch(const Dataset& dataset, std::span<const int64_t> rows) {
  Batch batch;
  for (int64_t row : rows) {
    MANTA_ASSIGN_OR_RETURN(SftExample example, context().prompts.Example(dataset, row));
    batch.overlong += example.sample_mask == 0 ? 1 : 0;
    batch.examples.push_back(std::move(example));
  }
  for (const SftExample& example : batch.examples) {
    batch.sequences.push_back(
        {.tokens = example.tokens, .token_mask = example.token_mask, .sample_mask = example.sample_mask});
  }
  return batch;
}

Task<absl::StatusOr<bool>> Sft::TrainStep() {
  BeginPhase("data_processing");
  const int64_t rows = config().policy.train_global_batch_size;
  if (sampler_.EpochOfNext(rows) >= config().sft.max_num_epochs) co_return false;
  const std::vector<int64_t> drawn = sampler_.Next(rows);
  MANTA_CO_ASSIGN_OR_RETURN(const Batch batch, MakeBatch(train_, drawn));
  BeginPhase("policy_training");
  MANTA_CO_ASSIGN_OR_RETURN(ShardPlan plan,
                            PlanShards(LengthsOf(batch.sequences),
                                       ShardOptionsOf(config(), context().trainers->size(), /*logprobs=*/false)));
  metrics()["train/num_overlong_masked"] = static_cast<double>(batch.overlong);
  double tokens = 0;
  for (const Sequence& sequence : batch.sequences) tokens += static_cast<double>(sequence.tokens.size());
  metrics()["train/total_num_tokens"] = tokens;
  TrainingInfo after = info();
  after.weight_version = static_cast<uint64_t>(next_step());
  after.epoch = sampler_.position().epoch;
  after.position = sampler_.position().row;
  after.consumed_samples += rows;
  v1::TrainRequest request;
  request.mutable_nll();
  request.set_advance_schedule(true);
  request.set_note(Note(after, /*part=*/1, /*parts=*/1, rows));
  const std::string key = TrainKey(1);
  MANTA_CO_ASSIGN_OR_RETURN(const v1::TrainReply reply,
                            co_await context().trainers->Train(request, batch.sequences, plan, key));
  AddTrainReply(reply);
  info() = after;
  set_step_samples(rows);
  co_return true;
}

Task<absl::Status> Sft::Validate() {
  if (validation_.rows.empty()) co_return absl::OkStatus();
  ShardOptions shards = ShardOptionsOf(config(), context().trainers->size(), /*logprobs=*/false);
  if (shards.max_sequences > 0) shards.max_sequences = config().sft.val_micro_batch_size;
  double loss = 0, tokens = 0;
  int64_t batches = 0;
  const auto rows = static_cast<int64_t>(validation_.rows.size());
  for (int64_t begin = 0; begin < rows && (config().sft.val_batches < 0 || batches < config().sft.val_batches);
       begin += config().sft.val_global_batch_size, ++batches) {
    std::vector<int64_t> indices;
    for (int64_t row = begin; row < std::min(rows, begin + config().sft.val_global_batch_size); ++row) {
      indices.push_back(row);
    }
    MANTA_CO_ASSIGN_OR_RETURN(const Batch batch, MakeBatch(validation_, indices));
    const double valid = CountValid(batch.sequences).valid_tokens;
    if (valid == 0) continue;
    MANTA_CO_ASSIGN_OR_RETURN(ShardPlan plan, PlanShards(LengthsOf(batch.sequences), shards));
    v1::TrainRequest request;
    request.mutable_nll();
    MANTA_CO_ASSIGN_OR_RETURN(const v1::TrainReply reply,
                              co_await context().trainers->Evaluate(request, batch.sequences, plan));
    loss += reply.metrics().at("loss") * valid;
    tokens += valid;
  }
  if (tokens > 0) metrics()["validation/val_loss"] = loss / tokens;
  co_return absl::OkStatus();
}

}  // namespace

Task<absl::StatusOr<RunOutcome>> RunSft(LoopContext context) {
  auto datasets = LoadTrainAndValidation(context.config.data, context.config.sft.seed);
  if (!datasets.ok()) co_return datasets.status();
  const auto [needed, key] = RowsOfAStep(context.config);
  MANTA_CO_RETURN_IF_ERROR(RequireRows(datasets->first, needed, key));
  Sft sft(context, std::move(datasets->first), std::move(datasets->second));
  co_return co_await sft.Run();
}

}  // namespace manta::controller
