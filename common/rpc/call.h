// Calls from a coroutine: unary calls and server streams that resume on the caller's EventLoop.
//
//   auto stub = v1::GeneratorService::NewStub(channel);
//   auto stats = co_await rpc::Call(loop, stub->async(), &rpc::AsyncOf<v1::GeneratorService>::GetStats, request,
//                                   std::move(options));  // CallOptions, named (task.h); StatusOr<GeneratorStats>
//
//   auto stream = rpc::OpenStream(loop, stub->async(), &rpc::AsyncOf<v1::GeneratorService>::Generate, request,
//                                 {.deadline = absl::Minutes(10), .cancel = token});
//   while (true) {
//     auto reply = co_await stream.Next();              // StatusOr<std::optional<GenerateReply>>
//     if (!reply.ok()) co_return reply.status();
//     if (!reply->has_value()) break;                   // the server ended it with OK
//     Use(**reply);
//   }
//
// Every call has a deadline; a call is sent at most once (nothing is retried). The stub must outlive the call. Errors
// carry ErrorInfo (status.h). These functions and the stream belong to the loop's thread; destroying a stream cancels
// it.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/event_loop.h"
#include "common/base/task.h"
#include "common/rpc/call_key.h"
#include "common/rpc/callback_threads.h"
#include "common/rpc/status.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"

namespace manta::rpc {

// Where a service's methods are named: &AsyncOf<v1::ActorService>::Ping.
template <typename Service>
using AsyncOf = typename Service::StubInterface::async_interface;

struct CallOptions {
  absl::Duration deadline;  // from now; must be finite and positive
  CancelToken cancel = {};
  absl::Duration idle_timeout = absl::InfiniteDuration();  // streams: the longest silence before Next gives up
  std::string key = {};    // the callee keeps the result under it, where the method can (call_key.h); empty: none
  bool kept_only = false;  // only ask what is kept under `key`
};

namespace internal {
inline void Prepare(grpc::ClientContext& context, const CallOptions& options) {
  MANTA_CHECK(options.deadline > absl::ZeroDuration() && options.deadline < absl::InfiniteDuration())
      << "a call without a deadline";
  KeepCallbackThreads();
  context.set_deadline(absl::ToChronoTime(absl::Now() + options.deadline));
  if (!options.key.empty()) context.AddMetadata(kCallKey, options.key);
  if (options.kept_only) context.AddMetadata(kKeptOnly, "1");
}
}  // namespace internal

template <typename Async, typename Request, typename Reply>
Task<absl::StatusOr<Reply>> Call(EventLoop& loop, std::type_identity_t<Async>* async,
                                 void (Async::*method)(grpc::ClientContext*, const Request*, Reply*,
                                                       std::function<void(grpc::Status)>),
                                 std::type_identity_t<Request> request, CallOptions options) {
  if (options.cancel.cancelled()) co_return options.cancel.status();
  struct State {
    grpc::ClientContext context;
    Request request;
    Reply reply;
  };
  auto state = std::make_shared<State>();  // gRPC's callback may come after the loop, and with it this frame, is gone
  state->request = std::move(request);
  internal::Prepare(state->context, options);
  OneShot<absl::Status> done(loop);
  const auto registration = options.cancel.OnCancel([state, done, cancel = options.cancel]() mutable {
    state->context.TryCancel();
    done.Set(cancel.status());
  });
  (async->*method)(&state->context, &state->request, &state->reply,
                   [state, done, poster = loop.poster()](grpc::Status status) {
                     poster.Post([done, status = std::move(status)]() mutable { done.Set(FromGrpc(status)); });
                   });
  absl::Status status = co_await done.Wait();
  if (!status.ok()) co_return status;
  co_return std::move(state->reply);
}

// A server stream being read. One message at most is read ahead, so a slow reader holds the writer back.
template <typename Reply>
class Stream {
 public:
  Stream(Stream&&) noexcept = default;
  Stream& operator=(Stream&&) = delete;
  ~Stream() {
    if (reader_) reader_->Abandon();
  }

  // The next message; nullopt once the server has ended the stream with OK; its error otherwise (again and again).
  // One Next at a time.
  Task<absl::StatusOr<std::optional<Reply>>> Next() {
    auto reader = reader_;
    if (!reader->ready.is_set() && reader->options.idle_timeout < absl::InfiniteDuration()) {
      auto ready = reader->ready;
      const auto timer = reader->loop->RunAfter(reader->options.idle_timeout, [reader, ready]() mutable {
        if (ready.is_set()) return;
        reader->final.emplace(absl::DeadlineExceededError("the stream has been silent for too long"));
        reader->context.TryCancel();
        ready.Set(true);
      });
      co_await ready.Wait();
      reader->loop->Cancel(timer);
    } else {
      co_await reader->ready.Wait();
    }
    if (reader->message.has_value()) {
      std::optional<Reply> message = std::exchange(reader->message, std::nullopt);
      reader->ready = OneShot<bool>(*reader->loop);
      reader->Read();
      co_return message;
    }
    if (!reader->final->ok()) co_return *reader->final;
    co_return std::optional<Reply>();
  }

  void Cancel() { reader_->context.TryCancel(); }

  // Use OpenStream.
  struct Reader : grpc::ClientReadReactor<Reply>, std::enable_shared_from_this<Reader> {
    explicit Reader(EventLoop& l, CallOptions o) : loop(&l), poster(l.poster()), options(std::move(o)), ready(l) {}

    // Reads are started from the loop's thread, outside of gRPC's reactions: a hold keeps OnDone away until one fails.
    void Start() {
      self = this->shared_from_this();
      this->AddHold();
      Read();
      this->StartCall();
    }
    void Read() {
      reading = true;
      this->StartRead(&incoming);
    }
    void Abandon() {
      abandoned = true;
      context.TryCancel();
      if (!reading && message.has_value()) this->RemoveHold();
    }

    // On gRPC's threads: only `poster` and `incoming` (while a read runs) are touched. `self` keeps this alive to
    // OnDone.
    void OnReadDone(bool ok) override {
      if (!ok) {
        this->RemoveHold();
        return;
      }
      const bool posted = poster.Post([reader = this->shared_from_this()] {
        reader->reading = false;
        if (reader->final.has_value() || reader->abandoned) {
          reader->RemoveHold();
          return;
        }
        reader->message.emplace(std::move(reader->incoming));
        reader->incoming = Reply();
        reader->ready.Set(true);
      });
      if (!posted) this->RemoveHold();
    }
    void OnDone(const grpc::Status& status) override {
      auto reader = std::exchange(self, nullptr);
      poster.Post([reader, status] {
        if (!reader->final.has_value()) {
          reader->final = reader->options.cancel.cancelled() ? reader->options.cancel.status() : FromGrpc(status);
        }
        reader->registration.Reset();
        reader->ready.Set(true);
      });
    }

    EventLoop* const loop;
    const EventLoop::Poster poster;
    const CallOptions options;
    grpc::ClientContext context;
    Reply incoming;
    std::shared_ptr<Reader> self;
    // On the loop's thread:
    OneShot<bool> ready;  // a message, or the end
    std::optional<Reply> message;
    std::optional<absl::Status> final;
    bool reading = false, abandoned = false;
    CancelToken::Registration registration;
  };
  explicit Stream(std::shared_ptr<Reader> reader) : reader_(std::move(reader)) {}

 private:
  std::shared_ptr<Reader> reader_;
};

template <typename Async, typename Request, typename Reply>
Stream<Reply> OpenStream(EventLoop& loop, std::type_identity_t<Async>* async,
                         void (Async::*method)(grpc::ClientContext*, const Request*, grpc::ClientReadReactor<Reply>*),
                         const std::type_identity_t<Request>& request, CallOptions options) {
  auto reader = std::make_shared<typename Stream<Reply>::Reader>(loop, options);
  if (options.cancel.cancelled()) {
    reader->final = options.cancel.status();
    reader->ready.Set(true);
    return Stream<Reply>(reader);
  }
  internal::Prepare(reader->context, options);
  std::weak_ptr<typename Stream<Reply>::Reader> weak = reader;
  reader->registration = options.cancel.OnCancel([weak] {
    if (auto r = weak.lock()) r->context.TryCancel();
  });
  (async->*method)(&reader->context, &request, reader.get());  // serialises the request before it returns
  reader->Start();
  return Stream<Reply>(reader);
}

}  // namespace manta::rpc
