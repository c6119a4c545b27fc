// ClusterService as the head serves it: each call becomes one of the core on its loop; answers come when the core gives
// them, that is, when what they follow from is durable.
//
// Streams (Resolve, Stacks, Logs) end when their client goes away or does not read. Thread-safe; must outlive the
// server, as the loop and the core must.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/base/event_loop.h"
#include "controller/core/core.h"
#include "manta/v1/cluster.grpc.pb.h"

namespace manta::controller {

class ClusterService final : public v1::ClusterService::CallbackService {
 public:
  struct Hooks {
    // After Shutdown has been answered: the head is to end. On the loop.
    std::function<void(const std::string& reason)> ended;
    // The head's counters by name. On the loop.
    std::function<std::map<std::string, double>()> counters;
  };
  ClusterService(EventLoop& loop, core::Core* core, Hooks hooks);
  ~ClusterService() override;

  grpc::ServerUnaryReactor* CreatePlacement(grpc::CallbackServerContext*, const v1::PlacementRequest*,
                                            v1::PlacementReply*) override;
  grpc::ServerUnaryReactor* RemovePlacement(grpc::CallbackServerContext*, const v1::PlacementRef*, v1::Done*) override;
  grpc::ServerUnaryReactor* CreateGroup(grpc::CallbackServerContext*, const v1::GroupRequest*,
                                        v1::GroupReply*) override;
  grpc::ServerUnaryReactor* RemoveGroup(grpc::CallbackServerContext*, const v1::GroupRef*, v1::Done*) override;
  grpc::ServerUnaryReactor* SubmitJob(grpc::CallbackServerContext*, const v1::SubmitRequest*, v1::JobInfo*) override;
  grpc::ServerUnaryReactor* StopJob(grpc::CallbackServerContext*, const v1::JobRef*, v1::Done*) override;
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext*, const v1::ListRequest*, v1::ListReply*) override;
  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext*, const v1::DescribeRequest*,
                                     v1::DescribeReply*) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext*, const v1::DrainRequest*, v1::Done*) override;
  grpc::ServerUnaryReactor* WaitNodes(grpc::CallbackServerContext*, const v1::WaitNodesRequest*, v1::Done*) override;
  grpc::ServerUnaryReactor* Counters(grpc::CallbackServerContext*, const v1::ListRequest*, v1::CounterList*) override;
  grpc::ServerUnaryReactor* Shutdown(grpc::CallbackServerContext*, const v1::ShutdownRequest*, v1::Done*) override;

  grpc::ServerWriteReactor<v1::ResolveReply>* Resolve(grpc::CallbackServerContext*, const v1::ResolveRequest*) override;
  grpc::ServerWriteReactor<v1::StackDump>* Stacks(grpc::CallbackServerContext*, const v1::ListRequest*) override;
  grpc::ServerWriteReactor<v1::LogChunk>* Logs(grpc::CallbackServerContext*, const v1::LogsRequest*) override;

 private:
  struct Streams;  // cluster_streams.cc
  EventLoop& loop_;
  core::Core* const core_;
  const Hooks hooks_;
  std::shared_ptr<Streams> streams_;  // subscriptions of streams that are open; the loop's
};

}  // namespace manta::controller
