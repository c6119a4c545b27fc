#include "common/rpc/callback_threads.h"

#include <memory>

#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"

namespace manta::rpc {

void KeepCallbackThreads() {
  // A channel that leads nowhere (it has no credentials) and is never closed; a call on it, which fails at once, is
  // what gives it its share in the threads.
  static const bool kept = [] {
    struct Kept {
      std::shared_ptr<grpc::Channel> channel = grpc::CreateChannel("", nullptr);
      grpc::GenericStub stub{channel};
      grpc::ClientContext context;
      grpc::Slice nothing;
      grpc::ByteBuffer request{&nothing, 1}, reply;
    };
    Kept& keep = *new Kept();
    keep.stub.UnaryCall(&keep.context, "/nobody", {}, &keep.request, &keep.reply, [](const grpc::Status&) {});
    return true;
  }();
  (void)kept;
}

}  // namespace manta::rpc
