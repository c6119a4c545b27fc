#include "common/actor/handlers.h"

#include <climits>

#include "absl/strings/str_cat.h"
#include "common/call/core/outcome.h"
#include "google/protobuf/message_lite.h"

namespace manta::actor {

absl::Status ParseArgument(const call::CallContext& context, google::protobuf::MessageLite* request) {
  const std::string_view bytes = context.payload();
  if (bytes.size() <= INT_MAX && request->ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return absl::OkStatus();
  return call::NotStarted(absl::InvalidArgumentError(
      absl::StrCat("the call's argument (", bytes.size(), " bytes) is no ", request->GetTypeName())));
}

void SerializeReply(const google::protobuf::MessageLite& reply, std::string* bytes) {
  reply.SerializeToString(bytes);
}

}  // namespace manta::actor
