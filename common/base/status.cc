#include "common/base/status.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace manta {
namespace {

constexpr char kPayload[] = "manta.v1.ErrorInfo";

v1::Origin DefaultOrigin(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kOutOfRange:
      return v1::ORIGIN_USER;
    case absl::StatusCode::kDeadlineExceeded:
      return v1::ORIGIN_TIMEOUT;
    case absl::StatusCode::kCancelled:
      return v1::ORIGIN_CANCELLED;
    case absl::StatusCode::kResourceExhausted:
      return v1::ORIGIN_OVERLOADED;
    case absl::StatusCode::kUnavailable:
      return v1::ORIGIN_WORKER_DIED;
    default:
      return v1::ORIGIN_INTERNAL;
  }
}

}  // namespace

absl::Status WithErrorInfo(absl::Status status, const v1::ErrorInfo& info) {
  if (!status.ok()) status.SetPayload(kPayload, absl::Cord(info.SerializeAsString()));
  return status;
}

v1::ErrorInfo GetErrorInfo(const absl::Status& status) {
  v1::ErrorInfo info;
  if (auto payload = status.GetPayload(kPayload); payload && info.ParseFromString(std::string(*payload))) return info;
  info.Clear();
  info.set_rank(-1);
  info.set_exit_code(-1);
  if (!status.ok()) info.set_origin(DefaultOrigin(status.code()));
  return info;
}

absl::Status Annotate(const absl::Status& status, std::string_view context) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(), absl::StrCat(std::string(context), ": ", status.message()));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) { annotated.SetPayload(url, payload); });
  return annotated;
}

absl::Status UserError(std::string_view message) {
  return absl::InvalidArgumentError(absl::string_view(message.data(), message.size()));
}

v1::Status ToProto(const absl::Status& status) {
  v1::Status proto;
  proto.set_code(static_cast<int>(status.code()));
  proto.set_message(std::string(status.message()));
  if (!status.ok()) *proto.mutable_error() = GetErrorInfo(status);
  return proto;
}

absl::Status FromProto(const v1::Status& proto) {
  if (proto.code() == 0) return absl::OkStatus();
  absl::Status status(static_cast<absl::StatusCode>(proto.code()), proto.message());
  return proto.has_error() ? WithErrorInfo(std::move(status), proto.error()) : status;
}

int ExitCode(const absl::Status& status) {
  if (status.ok()) return 0;
  const v1::ErrorInfo info = GetErrorInfo(status);
  switch (info.origin()) {
    case v1::ORIGIN_USER:
      if (info.exit_code() > 0) return info.exit_code();  // of a program of the user's, passed on
      return status.code() == absl::StatusCode::kInvalidArgument || status.code() == absl::StatusCode::kNotFound ||
                     status.code() == absl::StatusCode::kUnimplemented
                 ? 64
                 : 1;
    case v1::ORIGIN_INTERNAL:
    case v1::ORIGIN_CANCELLED:
      return 1;
    default:
      return 69;
  }
}

}  // namespace manta
