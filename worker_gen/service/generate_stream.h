// One Generate call: turns what the engine says of a request into chunks on the wire.
//
// The engine's thread calls it; gRPC's threads write. A request that does not stream gathers its tokens and sends one
// chunk at the end. What can wait for a slow reader is bounded by max_new_tokens.
#pragma once

#include <memory>

#include "common/rpc/stream_writer.h"
#include "manta/v1/generator.pb.h"
#include "worker_gen/engine/sequence.h"

namespace manta::gen {

class GenerateStream : public RequestSink {
 public:
  using Writer = rpc::StreamWriter<v1::GenerateChunk>;
  GenerateStream(std::shared_ptr<Writer> writer, bool stream) : writer_(std::move(writer)), stream_(stream) {}

  void OnToken(const GeneratedToken& token) override;
  void OnFinish(const absl::Status& status, const Completion& completion) override;

 private:
  const std::shared_ptr<Writer> writer_;
  const bool stream_;
  v1::GenerateChunk chunk_;  // what is not written yet
};

}  // namespace manta::gen
