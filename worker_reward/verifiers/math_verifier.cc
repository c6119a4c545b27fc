// math: is the final answer the right one?
//
// Options: `answer` (any, boxed, hash: where the answer must stand), `tolerance` (relative, for rounded decimals;
// 1e-6), `correct` and `wrong` (rewards; 1 and 0). Components: correct, answered.
#include "absl/strings/str_cat.h"
#include "worker_reward/verifiers/answer_extraction.h"
#include "worker_reward/verifiers/math_answer.h"
#include "worker_reward/verifiers/options.h"
#include "worker_reward/verifiers/registry.h"

namespace manta::reward {
namespace {

class MathVerifier : public Verifier {
 public:
  absl::Status Configure(const nlohmann::json& options) {
    OptionReader reader("math", options);
    std::string form = "any";
    reader.Choice("answer", {"any", "boxed", "hash"}, &form);
    reader.Number("tolerance", &tolerance_);
    reader.Number("correct", &correct_);
    reader.Number("wrong", &wrong_);
    form_ = form == "boxed" ? AnswerForm::kBoxed : form == "hash" ? AnswerForm::kHash : AnswerForm::kAny;
    if (tolerance_ < 0 || tolerance_ > 0.1) {
      return absl::InvalidArgumentError(
          absl::StrCat("verifier math: tolerance must be between 0 and 0.1, found ", tolerance_));
    }
    return reader.Finish();
  }

  absl::StatusOr<Score> Verify(const VerifierSample& sample, const Deadline& deadline) const override {
    const std::string truth = TruthFrom(sample.ground_truth);
    if (truth.empty()) return absl::InvalidArgumentError("verifier math: the sample has no ground truth");
    Score score;
    const std::optional<std::string> answer = ExtractAnswer(sample.response, form_);
    const auto expired = [&deadline] { return deadline.passed(); };
    bool correct = false;
    if (answer) {
      score.extracted_answer = *answer;
      correct = Agree(*answer, truth, expired);
    }
    if (deadline.passed()) return absl::DeadlineExceededError("verifier math: the sample's time is over");
    score.reward = correct ? correct_ : wrong_;
    score.components = {{"correct", correct ? 1 : 0}, {"answered", answer ? 1 : 0}};
    return score;
  }

 private:
  bool Agree(const std::string& answer, const std::string& truth, const std::function<bool()>& expired) const {
    if (answer == truth) return true;
    const MathAnswer right = ParseMathAnswer(truth), given = ParseMathAnswer(answer);
    if (SameAnswer(given, right, tolerance_, expired)) return true;
    if (right.kind == MathAnswer::Kind::kWords)
      return !PlainText(truth).empty() && PlainText(answer) == PlainText(truth);
    // A sentence where a number should stand: "therefore 18 eggs".
    if (given.kind == MathAnswer::Kind::kWords || given.kind == MathAnswer::Kind::kNothing) {
      const std::optional<std::string> number = LastNumber(answer);
      if (number && answer.find('\\') == std::string::npos)
        return SameAnswer(ParseMathAnswer(*number), right, tolerance_, expired);
    }
    return false;
  }

  AnswerForm form_ = AnswerForm::kAny;
  double tolerance_ = 1e-6, correct_ = 1, wrong_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Verifier>> MakeMathVerifier(const nlohmann::json& options) {
  auto verifier = std::make_unique<MathVerifier>();
  if (absl::Status status = verifier->Configure(options); !status.ok()) return status;
  return verifier;
}

}  // namespace manta::reward
