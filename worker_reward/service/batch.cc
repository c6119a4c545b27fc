#include "worker_reward/service/batch.h"

#include <exception>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "nlohmann/json.hpp"

namespace manta::reward {
namespace {

constexpr int64_t kDefaultDeadlineMs = 10'000;
constexpr size_t kMaxTextBytes = size_t{16} << 20;

}  // namespace

absl::Status ReadOptions(const std::string& environment_json, nlohmann::json& options) {
  options = nlohmann::json::object();
  if (environment_json.empty()) return absl::OkStatus();
  const nlohmann::json environment = nlohmann::json::parse(environment_json, nullptr, /*allow_exceptions=*/false);
  if (!environment.is_object()) return absl::InvalidArgumentError("options_json is not a JSON object");
  if (const auto it = environment.find("options"); it != environment.end()) options = *it;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Batch>> Batch::Create(const v1::ScoreRequest& request, v1::ScoreReply* reply) {
  nlohmann::json options;
  MANTA_RETURN_IF_ERROR(ReadOptions(request.options_json(), options));
  MANTA_ASSIGN_OR_RETURN(std::unique_ptr<Verifier> verifier, MakeVerifier(request.verifier(), options));
  return std::make_shared<Batch>(request, reply, std::move(verifier));
}

Batch::Batch(const v1::ScoreRequest& request, v1::ScoreReply* reply, std::unique_ptr<Verifier> verifier)
    : request_(request), size_(request.samples_size()), reply_(reply), verifier_(std::move(verifier)) {
  const int64_t milliseconds = request.deadline_ms_per_sample();
  allowed_ = absl::Milliseconds(milliseconds > 0 ? milliseconds : kDefaultDeadlineMs);
  reply->clear_scores();
  for (const v1::ScoreSample& sample : request.samples()) reply->add_scores()->set_sample_id(sample.sample_id());
}

bool Batch::Run(const std::function<bool()>& cancelled) {
  int finished = 0;
  for (int i; (i = next_.fetch_add(1)) < size(); ++finished) {
    if (cancelled()) {
      *reply_->mutable_scores(i)->mutable_status() = ToProto(absl::CancelledError("the call was cancelled"));
    } else {
      Score(i);
    }
  }
  return finished > 0 && done_.fetch_add(finished) + finished == size();
}

void Batch::Score(int i) const {
  const v1::ScoreSample& sample = request_.samples(i);
  v1::SampleScore* out = reply_->mutable_scores(i);
  absl::StatusOr<reward::Score> score = absl::UnknownError("not scored");
  if (sample.response().size() > kMaxTextBytes) {
    score = absl::InvalidArgumentError(absl::StrCat("the response has more than ", kMaxTextBytes, " bytes"));
  } else {
    try {
      score = verifier_->Verify({.prompt = sample.prompt(),
                                 .response = sample.response(),
                                 .ground_truth = sample.ground_truth(),
                                 .metadata_json = sample.metadata_json()},
                                Deadline(absl::Now() + allowed_));
    } catch (const std::exception& e) {
      score = absl::InternalError(absl::StrCat("the verifier failed: ", e.what()));
    } catch (...) {
      score = absl::InternalError("the verifier failed");
    }
  }
  *out->mutable_status() = ToProto(score.status());
  if (!score.ok()) return;
  out->set_reward(score->reward);
  out->set_extracted_answer(score->extracted_answer);
  for (const auto& [name, value] : score->components) (*out->mutable_components())[name] = value;
}

}  // namespace manta::reward
