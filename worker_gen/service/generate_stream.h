// The answer to one Generate call: turns what the engine says of its samples into chunks on the wire.
//
// The engine's thread calls the sinks; gRPC's threads write. A request that does not stream gathers a sample's tokens and
// sends one chunk at its end. The call ends with its last sample. What can wait for a slow reader is bounded by
// max_new_tokens.
#pragma once

#include <atomic>
#include <memory>

#include "common/rpc/stream_writer.h"
#include "manta/v1/generator.pb.h"
#include "worker_gen/engine/sequence.h"

namespace manta::gen {

// What the samples of a call share.
struct GenerateCall {
  using Writer = rpc::StreamWriter<v1::GenerateReply>;
  // A writer that sends chunks together that wait for one another.
  static std::shared_ptr<Writer> MakeWriter(size_t max_queued);
  GenerateCall(std::shared_ptr<Writer> w, bool s, int samples) : writer(std::move(w)), stream(s), left(samples) {}

  const std::shared_ptr<Writer> writer;
  const bool stream;
  std::atomic<int> left;  // samples that have not ended
  bool several = false;   // a sample's failure is its own: it goes into its chunk
};

class GenerateStream : public RequestSink {
 public:
  GenerateStream(std::shared_ptr<GenerateCall> call, int sample) : call_(std::move(call)), sample_(sample) {}

  void OnToken(const GeneratedToken& token) override;
  void OnFinish(const absl::Status& status, const Completion& completion) override;

 private:
  void WriteChunk();

  const std::shared_ptr<GenerateCall> call_;
  const int sample_;
  v1::GenerateChunk chunk_;  // what is not written yet
};

}  // namespace manta::gen
