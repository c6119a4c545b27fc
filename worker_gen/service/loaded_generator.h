// A configured generator: a model's parameters, its tokenizer where there is one, and the engine that runs it.
//
// Load reads everything a ConfigureGeneratorRequest names and says what is wrong with it: one error that names the
// file, field or number. Thread-safe but for UpdateWeights, which is called one at a time.
#pragma once

#include <ATen/ATen.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/comm/weight_client.h"
#include "common/tokenizer/tokenizer.h"
#include "manta/v1/generator.pb.h"
#include "worker_gen/engine/engine.h"

namespace manta::gen {

class ModelRunner;

using comm::ChannelOpener;

class LoadedGenerator {
 public:
  static absl::StatusOr<std::shared_ptr<LoadedGenerator>> Load(const v1::ConfigureGeneratorRequest& request);
  ~LoadedGenerator();

  Engine& engine() { return *engine_; }
  v1::ConfigureGeneratorReply reply() const;
  // Null where there are no stop strings in `options`; an error where the folder has no tokenizer that can be read.
  absl::StatusOr<std::unique_ptr<TextStream>> MakeTextStream(const SamplingOptions& options) const;
  // Takes a version between two steps: on a GPU straight into the weights where the holders are on GPUs too, otherwise
  // by way of memory beside them. After an error the old weights are in use, or none (see Engine::UpdateWeights).
  absl::Status UpdateWeights(const v1::UpdateWeightsRequest& request, const ChannelOpener& open_channel,
                             v1::UpdateWeightsReply* reply);

 private:
  LoadedGenerator() = default;

  std::filesystem::path tokenizer_folder_;
  mutable absl::Mutex mutex_;
  // Read when the first stop string asks for it.
  mutable std::shared_ptr<const tokenizer::Tokenizer> tokenizer_ ABSL_GUARDED_BY(mutex_);
  ModelRunner* runner_ = nullptr;  // the engine's
  at::Tensor incoming_;            // where weights are fetched to that come through the host; kept while they do
  std::unique_ptr<comm::WeightClient> client_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace manta::gen
