// Calling actors: Client, and a handle for each actor.
//
//   auto client = actor::Client::Create({.token = token, .head = [] { return "127.0.0.1:4000"; }}).value();
//   actor::ActorHandle counter = client->Actor("counter");             // by name, as the head knows it
//   actor::ActorHandle other = client->ActorAt({"counter-0", 1, "127.0.0.1:4242"});
//   absl::StatusOr<AddReply> reply = counter.CallBlocking<AddRequest, AddReply>("add", request, {.deadline = ...});
//   MANTA_CO_ASSIGN_OR_RETURN(auto reply, co_await counter.Call<AddRequest, AddReply>(loop, "add", request, options));
//
// Errors say what is known of the call's effect (ErrorInfo.outcome). A call is sent once, unless its method is marked
// idempotent: then what is lost with its actor is sent again, to wherever the resolver says that the actor is by then.
// A handle that was made by name follows its actor through restarts. The error of a call whose actor has died says how,
// where the head knows it within 150 ms.
//
// Handles are values; everything is thread-safe. The client must outlive its handles' calls. Blocking calls must not be
// made on a thread that runs completions (sinks, `done`).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/event_loop.h"
#include "common/base/task.h"
#include "common/call/call_client.h"

namespace google::protobuf {
class MessageLite;
}

namespace manta::actor {

class ClusterResolver;  // cluster_resolver.h
class GroupHandle;      // group_handle.h

struct ActorAddress {
  std::string actor_id;  // "counter-0"
  uint64_t epoch = 0;
  std::string address;  // HOST:PORT
};

// Where actors are. Thread-safe; `then` is called once, on any thread.
class Resolver {
 public:
  virtual ~Resolver() = default;
  // The ranks of the actor or group of that name, in order, once all are ready.
  virtual void Resolve(const std::string& name, absl::Duration timeout,
                       absl::AnyInvocable<void(absl::StatusOr<std::vector<ActorAddress>>)> then) = 0;
  // That address was given for the name and does not answer: no news of it is no answer any more.
  virtual void Lost(const std::string& /*name*/, const ActorAddress& /*actor*/) {}
  // Why that actor is gone, if it is known within `timeout`; else `status` as it is.
  virtual void Explain(const ActorAddress& actor, const absl::Status& status, absl::Duration timeout,
                       absl::AnyInvocable<void(absl::Status)> then) = 0;
};

struct CallOptions {
  absl::Duration deadline;  // from now, retries among it; finite and positive
  std::string key = {};     // the result is kept by the actor under it (core/call_table.h)
  int max_retries = 3;      // of idempotent methods
};

// Ends a call early; nothing where it has ended.
class CallCanceller {
 public:
  virtual ~CallCanceller() = default;
  virtual void Cancel() = 0;
};

// A reader of streamed results. Not thread-safe. Its destruction cancels the call.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // The next item; none at the stream's end. Blocks.
  virtual absl::StatusOr<std::optional<std::string>> Next() = 0;
};

namespace internal {
absl::Status ParseReply(const std::string& bytes, google::protobuf::MessageLite* reply);
std::string Serialize(const google::protobuf::MessageLite& request);
class HandleState;
}  // namespace internal

template <typename Item>
class ItemReader {
 public:
  explicit ItemReader(std::unique_ptr<ByteStream> stream) : stream_(std::move(stream)) {}
  absl::StatusOr<std::optional<Item>> Next() {
    absl::StatusOr<std::optional<std::string>> bytes = stream_->Next();
    if (!bytes.ok()) return bytes.status();
    if (!bytes->has_value()) return std::optional<Item>();
    Item item;
    if (absl::Status parsed = internal::ParseReply(**bytes, &item); !parsed.ok()) return parsed;
    return std::optional<Item>(std::move(item));
  }

 private:
  std::unique_ptr<ByteStream> stream_;
};

class ActorHandle {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<std::string>)>;

  // Bytes; `done` is called once, on a thread that polls: it must not block.
  std::shared_ptr<CallCanceller> StartBytes(std::string method, std::string argument, CallOptions options,
                                            Done done) const;
  absl::StatusOr<std::string> CallBytes(std::string_view method, std::string_view argument,
                                        const CallOptions& options) const;
  std::unique_ptr<ByteStream> StreamBytes(std::string method, std::string argument, CallOptions options) const;

  template <typename Request, typename Reply>
  absl::StatusOr<Reply> CallBlocking(std::string_view method, const Request& request,
                                     const CallOptions& options) const {
    return Parse<Reply>(CallBytes(method, internal::Serialize(request), options));
  }
  template <typename Request, typename Reply>
  Task<absl::StatusOr<Reply>> Call(EventLoop& loop, std::string method, Request request, CallOptions options) const {
    return CallTask<Reply>(*this, loop, std::move(method), internal::Serialize(request), std::move(options));
  }
  template <typename Request, typename Item>
  ItemReader<Item> Stream(std::string method, const Request& request, CallOptions options) const {
    return ItemReader<Item>(StreamBytes(std::move(method), internal::Serialize(request), std::move(options)));
  }

  explicit ActorHandle(std::shared_ptr<internal::HandleState> state) : state_(std::move(state)) {}

 private:
  template <typename Reply>
  static absl::StatusOr<Reply> Parse(absl::StatusOr<std::string> bytes) {
    if (!bytes.ok()) return bytes.status();
    Reply reply;
    if (absl::Status parsed = internal::ParseReply(*bytes, &reply); !parsed.ok()) return parsed;
    return reply;
  }
  template <typename Reply>
  static Task<absl::StatusOr<Reply>> CallTask(ActorHandle handle, EventLoop& loop, std::string method,
                                              std::string argument, CallOptions options) {
    OneShot<absl::StatusOr<std::string>> result(loop);
    handle.StartBytes(std::move(method), std::move(argument), std::move(options),
                      [result, poster = loop.poster()](absl::StatusOr<std::string> reply) mutable {
                        poster.Post([result, reply = std::move(reply)]() mutable { result.Set(std::move(reply)); });
                      });
    absl::StatusOr<std::string> bytes = co_await result.Wait();
    co_return Parse<Reply>(std::move(bytes));
  }

  std::shared_ptr<internal::HandleState> state_;
};

class Client {
 public:
  struct Options {
    std::string token;
    v1::CallerId caller = {};                // an actor's own: Worker::client
    std::function<std::string()> head = {};  // HOST:PORT, asked at each attempt; null: actors are known by address only
    std::shared_ptr<Resolver> resolver = {};  // instead of the head
  };
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Client>> Create(Options options);
  ~Client();

  // The actor of that name; of a group, its rank `rank`.
  ActorHandle Actor(const std::string& name, int rank = 0);
  ActorHandle ActorAt(ActorAddress address);
  // All ranks of a group. Blocks until it is known how many there are.
  absl::StatusOr<GroupHandle> Group(const std::string& name, absl::Duration timeout);
  // The addresses of a group's ranks. Blocks.
  absl::StatusOr<std::vector<ActorAddress>> Resolve(const std::string& name, absl::Duration timeout);
  call::CallClient& calls() { return *calls_; }

 private:
  explicit Client(Options options) : options_(std::move(options)) {}
  Options options_;
  std::unique_ptr<call::CallClient> calls_;
  std::shared_ptr<ClusterResolver> cluster_;  // null where there is no head; handles hold it, too
};

}  // namespace manta::actor
