// StreamWriter: the server's side of a server stream, written to from any thread.
//
//   grpc::ServerWriteReactor<v1::RunEvent>* WatchRun(grpc::CallbackServerContext*, const Request* request) override {
//     auto writer = rpc::StreamWriter<v1::RunEvent>::Create(/*max_queued=*/1024);
//     loop.Post([this, writer, request = *request] { Subscribe(writer, request); });
//     return writer->reactor();
//   }
//
// Messages are queued and go out one after the other. The handle (a shared_ptr) may be kept for as long as anyone
// likes: the reactor frees itself when gRPC is done with it, and Write then says false. Every stream must be finished,
// by Finish or by its client going away. Thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "common/rpc/status.h"
#include "grpcpp/support/server_callback.h"

namespace manta::rpc {

template <typename Message>
class StreamWriter {
 public:
  // Where `join` is given, a message that finds another one waiting is offered to it: join(waiting, message) moves it in
  // and says true, or says false and the message waits behind. A message a wake-up is what a stream costs.
  using Join = bool (*)(Message& waiting, Message& message);
  static std::shared_ptr<StreamWriter> Create(size_t max_queued, Join join = nullptr) {
    std::shared_ptr<StreamWriter> writer(new StreamWriter(max_queued, join));
    writer->reactor_ = new Reactor(writer);  // deletes itself in OnDone
    return writer;
  }
  // For the handler to return, at once.
  grpc::ServerWriteReactor<Message>* reactor() { return reactor_; }

  // False where the client is gone, the stream is finished, or `max_queued` messages wait: a client that does not read
  // does not fill this process's memory.
  bool Write(Message message) {
    std::lock_guard lock(mu_);
    if (finished_ || cancelled_) return false;
    if (join_ != nullptr && !queue_.empty() && join_(queue_.back(), message)) return true;
    if (queue_.size() >= max_queued_) return false;
    queue_.push_back(std::move(message));
    Pump();
    return true;
  }

  // Ends the stream once what is queued has been written. The first status stays.
  void Finish(absl::Status status) {
    std::lock_guard lock(mu_);
    if (finished_) return;
    finished_ = true;
    status_ = ToGrpc(status);
    Pump();
  }

  // `callback` runs once, on one of gRPC's threads, when the client goes away before the stream has been finished (at
  // once where it is gone already).
  void OnCancel(std::function<void()> callback) {
    {
      std::lock_guard lock(mu_);
      if (!cancelled_) {
        on_cancel_ = std::move(callback);
        return;
      }
    }
    callback();
  }
  bool cancelled() const {
    std::lock_guard lock(mu_);
    return cancelled_;
  }

 private:
  struct Reactor : grpc::ServerWriteReactor<Message> {
    explicit Reactor(std::shared_ptr<StreamWriter> w) : writer(std::move(w)) {}
    void OnWriteDone(bool ok) override { writer->WriteDone(ok); }
    void OnCancel() override { writer->Cancelled(); }
    void OnDone() override {
      writer->Done();
      delete this;
    }
    std::shared_ptr<StreamWriter> writer;
  };

  StreamWriter(size_t max_queued, Join join) : max_queued_(max_queued), join_(join) {}

  void Pump() {  // mu_ is held
    if (writing_ || reactor_ == nullptr || sent_finish_) return;
    if (cancelled_) queue_.clear();
    if (!queue_.empty()) {
      writing_ = true;
      current_ = std::move(queue_.front());
      queue_.pop_front();
      reactor_->StartWrite(&current_);
    } else if (finished_) {
      sent_finish_ = true;
      reactor_->Finish(*status_);
    }
  }
  void WriteDone(bool ok) {
    std::lock_guard lock(mu_);
    writing_ = false;
    if (!ok) queue_.clear();
    Pump();
  }
  void Cancelled() {
    std::function<void()> callback;
    {
      std::lock_guard lock(mu_);
      cancelled_ = true;
      callback = std::exchange(on_cancel_, nullptr);
      if (!finished_) {
        finished_ = true;
        status_ = grpc::Status::CANCELLED;
      }
      Pump();
    }
    if (callback) callback();
  }
  void Done() {
    std::lock_guard lock(mu_);
    reactor_ = nullptr;
    cancelled_ = true;
    on_cancel_ = nullptr;
  }

  const size_t max_queued_;
  const Join join_;
  mutable std::mutex mu_;
  Reactor* reactor_ = nullptr;
  std::deque<Message> queue_;
  Message current_;  // being written
  bool writing_ = false, finished_ = false, sent_finish_ = false, cancelled_ = false;
  std::optional<grpc::Status> status_;
  std::function<void()> on_cancel_;
};

}  // namespace manta::rpc
