#include "worker_gen/service/generate_stream.h"

#include <utility>

#include "common/base/packed.h"
#include "common/base/status.h"

namespace manta::gen {

std::shared_ptr<GenerateCall::Writer> GenerateCall::MakeWriter(size_t max_queued) {
  constexpr int kMostChunks = 256;  // in a message
  return Writer::Create(max_queued, [](v1::GenerateReply& waiting, v1::GenerateReply& reply) {
    if (waiting.chunks_size() + reply.chunks_size() > kMostChunks) return false;
    for (v1::GenerateChunk& chunk : *reply.mutable_chunks()) waiting.add_chunks()->Swap(&chunk);
    return true;
  });
}

void GenerateStream::OnToken(const GeneratedToken& token) {
  AppendPacked(chunk_.mutable_tokens(), token.token);
  AppendPacked(chunk_.mutable_logprobs(), token.logprob);
  AppendPacked(chunk_.mutable_raw_logprobs(), token.raw_logprob);
  AppendPacked(chunk_.mutable_weight_versions(), token.weight_version);
  if (call_->stream) WriteChunk();
}

void GenerateStream::OnFinish(const absl::Status& status, const Completion& completion) {
  if (status.ok()) {
    chunk_.set_finish_reason(completion.reason);
    chunk_.set_cached_prompt_tokens(completion.cached_prompt_tokens);
    chunk_.set_preemptions(completion.preemptions);
    chunk_.set_stop_string(completion.stop_string);
    chunk_.set_num_prompt_tokens(completion.num_prompt_tokens);
    WriteChunk();
  } else if (call_->several) {
    *chunk_.mutable_status() = ToProto(status);
    WriteChunk();
  }
  if (--call_->left == 0) call_->writer->Finish(call_->several ? absl::OkStatus() : status);
}

void GenerateStream::WriteChunk() {
  chunk_.set_sample(sample_);
  v1::GenerateReply reply;
  reply.add_chunks()->Swap(&chunk_);
  call_->writer->Write(std::move(reply));
}

}  // namespace manta::gen
