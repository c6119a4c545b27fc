// How typed handlers become the call plane's: the argument is parsed, the reply serialised. Thread-safe: functions.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/call/call_server.h"

namespace google::protobuf {
class MessageLite;
}

namespace manta::actor {

// INVALID_ARGUMENT, NOT_STARTED where the bytes are no such message.
absl::Status ParseArgument(const call::CallContext& context, google::protobuf::MessageLite* request);
void SerializeReply(const google::protobuf::MessageLite& reply, std::string* bytes);

// What a streaming method writes its items to. Write waits for the caller's credit; CANCELLED once the call is.
template <typename Item>
class ItemWriter {
 public:
  explicit ItemWriter(call::CallContext& context) : context_(context) {}
  absl::Status Write(const Item& item) {
    std::string bytes;
    SerializeReply(item, &bytes);
    return context_.WriteItem(std::move(bytes));
  }

 private:
  call::CallContext& context_;
};

template <typename Request, typename Reply>
call::Handler UnaryHandler(std::function<absl::StatusOr<Reply>(const Request&, call::CallContext&)> handler) {
  return [handler = std::move(handler)](call::CallContext& context, std::string* bytes) -> absl::Status {
    Request request;
    if (absl::Status parsed = ParseArgument(context, &request); !parsed.ok()) return parsed;
    const absl::StatusOr<Reply> reply = handler(request, context);
    if (!reply.ok()) return reply.status();
    SerializeReply(*reply, bytes);
    return absl::OkStatus();
  };
}

template <typename Request, typename Item>
call::Handler StreamHandler(
    std::function<absl::Status(const Request&, ItemWriter<Item>&, call::CallContext&)> handler) {
  return [handler = std::move(handler)](call::CallContext& context, std::string*) -> absl::Status {
    Request request;
    if (absl::Status parsed = ParseArgument(context, &request); !parsed.ok()) return parsed;
    ItemWriter<Item> items(context);
    return handler(request, items, context);
  };
}

}  // namespace manta::actor
