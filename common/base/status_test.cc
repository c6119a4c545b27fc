#include "common/base/status.h"

#include "gtest/gtest.h"

namespace manta {
namespace {

TEST(Status, ErrorInfoSurvivesTheWireAndAnnotation) {
  v1::ErrorInfo info;
  info.set_origin(v1::ORIGIN_WORKER_DIED);
  info.set_actor("train-1");
  info.set_exit_signal(9);
  info.add_last_lines("bye");
  const absl::Status died = WithErrorInfo(absl::UnavailableError("train-1 died"), info);
  const absl::Status back = Annotate(FromProto(ToProto(died)), "step 3");
  EXPECT_EQ(back.message(), "step 3: train-1 died");
  EXPECT_EQ(GetErrorInfo(back).exit_signal(), 9);
  EXPECT_EQ(GetErrorInfo(back).last_lines(0), "bye");
  EXPECT_EQ(ExitCode(back), 69);
}

TEST(Status, ExitCodes) {
  EXPECT_EQ(ExitCode(absl::OkStatus()), 0);
  EXPECT_EQ(ExitCode(UserError("bad key")), 64);
  EXPECT_EQ(ExitCode(absl::InternalError("x")), 1);
  EXPECT_EQ(ExitCode(absl::DeadlineExceededError("x")), 69);
}

}  // namespace
}  // namespace manta
