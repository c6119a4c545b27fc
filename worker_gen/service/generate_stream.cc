#include "worker_gen/service/generate_stream.h"

#include <utility>

#include "worker_gen/service/packed.h"

namespace manta::gen {

void GenerateStream::OnToken(const GeneratedToken& token) {
  AppendPacked(chunk_.mutable_tokens(), token.token);
  AppendPacked(chunk_.mutable_logprobs(), token.logprob);
  AppendPacked(chunk_.mutable_raw_logprobs(), token.raw_logprob);
  AppendPacked(chunk_.mutable_weight_versions(), token.weight_version);
  if (stream_) writer_->Write(std::exchange(chunk_, v1::GenerateChunk()));
}

void GenerateStream::OnFinish(const absl::Status& status, const Completion& completion) {
  if (status.ok()) {
    chunk_.set_finish_reason(completion.reason);
    chunk_.set_cached_prompt_tokens(completion.cached_prompt_tokens);
    chunk_.set_preemptions(completion.preemptions);
    chunk_.set_stop_string(completion.stop_string);
    chunk_.set_num_prompt_tokens(completion.num_prompt_tokens);
    writer_->Write(std::move(chunk_));
  }
  writer_->Finish(status);
}

}  // namespace manta::gen
