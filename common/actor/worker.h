// Worker: the main of a process that hosts one actor. It parses the flags that the node agent gives, listens on
// loopback, serves ActorService (Ping, Watch, Stop, PeerLost) whatever the worker computes, announces itself to the
// controller, and ends when told to. A whole worker:
//
//   class Service : public v1::RewardService::CallbackService {
//    public:
//     explicit Service(actor::Worker& worker) : lane_(worker.AddLane("score", /*num_threads=*/1, /*capacity=*/64)) {}
//     grpc::ServerUnaryReactor* Score(grpc::CallbackServerContext* context, const v1::ScoreRequest* request,
//                                     v1::ScoreReply* reply) override {
//       return lane_.Serve(context, [=] { return ScoreAll(*request, reply); });   // absl::Status; runs on the lane
//     }
//    private:
//     actor::Lane& lane_;
//   };
//
//   int main(int argc, char** argv) {
//     auto worker = manta::actor::Worker::Create(argc, argv);   // first of all, before any thread is started
//     if (!worker.ok()) return manta::actor::Fail(worker.status());
//     Service service(**worker);
//     (*worker)->Register(&service);
//     return (*worker)->Run();                                  // until it is stopped; then main returns
//   }
//
// A worker whose methods are its own needs no .proto service: it hands typed handlers to the call plane, which brings
// at-most-once calls, lanes, cancellation and streamed results (common/call; callers: client.h). A whole actor:
//
//   int main(int argc, char** argv) {
//     auto worker = manta::actor::Worker::Create(argc, argv);
//     if (!worker.ok()) return manta::actor::Fail(worker.status());
//     int64_t sum = 0;
//     (*worker)->Handle<AddRequest, AddReply>("add", [&](const AddRequest& request, manta::actor::CallContext&) {
//       AddReply reply;
//       reply.set_sum(sum += request.value());
//       return reply;
//     });
//     return (*worker)->Run();
//   }
//
// Handlers run one at a time on lane "work" unless their MethodOptions say another; SetCallLane gives a lane its
// concurrency and the length of its queue. Those of lane "control" never wait behind work, and must be short.
//
// Flags: --actor-id train-0 --epoch 3 --token-file FILE [--listen 127.0.0.1:0]; --standalone
// runs it without a node agent (--token-file is still needed: see rpc/token.h); --parent-pid PID ends it when that
// process is gone. Other arguments are the worker's own: args(). Once it listens it prints one line on stdout:
// "listening 127.0.0.1:PORT". Everything else that a worker has to say goes to stderr, which the agent keeps in
// logs/<role>-<rank>.log.
//
// It ends, with exit code 0, on Stop, SIGTERM or SIGINT: state DRAINING, OnStop callbacks, lanes closed (what is queued
// still runs, new calls are refused), the server shut down; what is not done by the deadline is cut off by _exit. A
// worker whose agent or controller dies is ended by its parent, the node agent's shim.
//
// SIGTERM and SIGINT are blocked in every thread (they are read from a descriptor): a worker that starts processes of
// its own must unblock them in the child. Lanes belong to the Worker, which must outlive the services' use of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/actor/handlers.h"
#include "common/actor/lane.h"
#include "common/actor/load.h"
#include "common/base/event_loop.h"
#include "common/call/call_client.h"
#include "common/call/call_server.h"
#include "grpcpp/channel.h"
#include "grpcpp/impl/codegen/service_type.h"

namespace manta::actor {

class Client;  // client.h

using call::CallContext;
using call::LaneOptions;
using call::MethodOptions;

// Prints "NAME: error: MESSAGE" on stderr and returns ExitCode(status).
int Fail(const absl::Status& status);

class Worker {
 public:
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Worker>> Create(int argc, char** argv);
  ~Worker();

  // ---- Before Run -------------------------------------------------------------------------------------------------
  Lane& AddLane(std::string name, int num_threads, size_t capacity);
  void Register(grpc::Service* service);  // must outlive Run
  void SetCallLane(const std::string& name, LaneOptions options);
  template <typename Request, typename Reply>
  void Handle(const std::string& method,
              std::type_identity_t<std::function<absl::StatusOr<Reply>(const Request&, CallContext&)>> handler,
              MethodOptions options = {}) {
    AddMethod(method, std::move(options), UnaryHandler<Request, Reply>(std::move(handler)));
  }
  template <typename Request, typename Item>
  void HandleStream(
      const std::string& method,
      std::type_identity_t<std::function<absl::Status(const Request&, ItemWriter<Item>&, CallContext&)>> handler,
      MethodOptions options = {}) {
    options.streaming = true;
    AddMethod(method, std::move(options), StreamHandler<Request, Item>(std::move(handler)));
  }
  // Bytes in, bytes out: context.argument() may lie in memory that the caller shares.
  void HandleBytes(const std::string& method, call::Handler handler, MethodOptions options = {}) {
    AddMethod(method, std::move(options), std::move(handler));
  }
  // Called on the worker's loop when it begins to stop: wake what waits. Must not block.
  void OnStop(std::function<void()> callback);
  // Called on the worker's loop when a rank of this actor's group is gone: abort collectives with it. Must not block.
  void OnPeerLost(std::function<void(int rank, const std::string& reason)> callback);
  // What each beat says beside the calls on lanes and of methods: work that runs elsewhere in this process. A worker
  // that has work and whose numbers stand still is what the group's watchdog looks for (progress_timeout_s). Called
  // once a second on the worker's loop. Must not block.
  void OnBeat(std::function<Load()> callback);

  int Run();

  // ---- Thread-safe ------------------------------------------------------------------------------------------------
  const std::string& actor_id() const;  // "train-0"; "standalone-0" without a controller
  int rank() const;                     // the number after the last '-'
  uint64_t epoch() const;
  const std::string& token() const;
  const std::vector<std::string>& args() const;  // flags that are not the runtime's, in order
  const std::string& address() const;            // "127.0.0.1:PORT"; set before the first call is served
  // To another process of the job, as WeightSource holders are.
  [[nodiscard]] absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& address) const;
  // For this actor's own calls to others: they carry its name and epoch, by which they are fenced. Made at first use.
  [[nodiscard]] absl::StatusOr<call::CallClient*> call_client();
  // The same with handles (client.h): by name, where an agent has started this worker, else by address only.
  [[nodiscard]] absl::StatusOr<Client*> client();
  EventLoop& loop();
  // A step of this actor's work is done: shown by `manta actors`, and progress for the watchdog. Cheap: told once a
  // second.
  void ReportProgress(int64_t step);
  // Ends the worker as Stop does; for faults after which it is of no use, with an exit code other than 0.
  void Shutdown(const std::string& reason, int exit_code);

 private:
  void AddMethod(const std::string& method, MethodOptions options, call::Handler handler);
  class Impl;
  explicit Worker(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace manta::actor
