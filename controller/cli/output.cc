#include "controller/cli/output.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "google/protobuf/util/json_util.h"

namespace manta::cli {

std::string Table::ToString() const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&line, row[i], std::string(widths[i] - row[i].size() + 2, ' '));
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&out, line, "\n");
  }
  return out;
}

void Table::Print() const {
  std::printf("%s", ToString().c_str());
}

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  MANTA_CHECK(google::protobuf::util::MessageToJsonString(message, &json, options).ok());
  return json;
}

void PrintJson(const google::protobuf::Message& message) {
  std::printf("%s", ToJson(message).c_str());
}

std::string StateName(v1::ActorState state) {
  std::string name = v1::ActorState_Name(state);
  if (absl::StartsWith(name, "ACTOR_STATE_")) name.erase(0, 12);
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

std::string ResultOf(const v1::JobInfo& job) {
  if (job.state() != "ENDED") return "-";
  const absl::Status status = FromProto(job.status());
  if (status.ok()) return "ok";
  return absl::IsCancelled(status) ? "stopped" : absl::StrCat("exit ", ExitCode(status));
}

std::string Mebibytes(uint64_t bytes) {
  return bytes == 0 ? "-" : absl::StrCat(bytes >> 20, " MiB");
}

std::string Ago(int64_t unix_ms) {
  if (unix_ms <= 0) return "-";
  return absl::StrCat(absl::FormatDuration(absl::Trunc(absl::Now() - absl::FromUnixMillis(unix_ms), absl::Seconds(1))),
                      " ago");
}

std::string JoinInts(const google::protobuf::RepeatedField<int>& values) {
  return values.empty() ? "-" : absl::StrJoin(values, ",");
}

}  // namespace manta::cli
