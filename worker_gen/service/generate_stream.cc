#include "worker_gen/service/generate_stream.h"

#include <utility>

#include "common/base/packed.h"
#include "common/base/status.h"

namespace manta::gen {

void GenerateStream::OnToken(const GeneratedToken& token) {
  AppendPacked(chunk_.mutable_tokens(), token.token);
  AppendPacked(chunk_.mutable_logprobs(), token.logprob);
  AppendPacked(chunk_.mutable_raw_logprobs(), token.raw_logprob);
  AppendPacked(chunk_.mutable_weight_versions(), token.weight_version);
  if (call_->stream) call_->writer->Write(TakeChunk());
}

void GenerateStream::OnFinish(const absl::Status& status, const Completion& completion) {
  if (status.ok()) {
    chunk_.set_finish_reason(completion.reason);
    chunk_.set_cached_prompt_tokens(completion.cached_prompt_tokens);
    chunk_.set_preemptions(completion.preemptions);
    chunk_.set_stop_string(completion.stop_string);
    chunk_.set_num_prompt_tokens(completion.num_prompt_tokens);
    call_->writer->Write(TakeChunk());
  } else if (call_->several) {
    *chunk_.mutable_status() = ToProto(status);
    call_->writer->Write(TakeChunk());
  }
  if (--call_->left == 0) call_->writer->Finish(call_->several ? absl::OkStatus() : status);
}

v1::GenerateChunk GenerateStream::TakeChunk() {
  chunk_.set_sample(sample_);
  return std::exchange(chunk_, v1::GenerateChunk());
}

}  // namespace manta::gen
