// NodeService as the controller serves it: streams from agents become calls of the cluster on its loop. Thread-safe;
// must outlive the server, as the loop and the cluster must.
#pragma once

#include "common/base/event_loop.h"
#include "controller/cluster/cluster.h"
#include "manta/v1/actor.grpc.pb.h"
#include "manta/v1/node.grpc.pb.h"

namespace manta::controller {

class NodeServiceImpl : public v1::NodeService::CallbackService {
 public:
  NodeServiceImpl(EventLoop& loop, Cluster* cluster) : loop_(loop), cluster_(cluster) {}
  grpc::ServerBidiReactor<v1::NodeEvent, v1::NodeCommand>* Join(grpc::CallbackServerContext* context) override;

 private:
  class Session;
  EventLoop& loop_;
  Cluster* const cluster_;
};

class ActorRegistryImpl : public v1::ActorRegistry::CallbackService {
 public:
  ActorRegistryImpl(EventLoop& loop, Cluster* cluster) : loop_(loop), cluster_(cluster) {}
  grpc::ServerUnaryReactor* Announce(grpc::CallbackServerContext* context, const v1::AnnounceRequest* request,
                                     v1::AnnounceReply* reply) override;

 private:
  EventLoop& loop_;
  Cluster* const cluster_;
};

}  // namespace manta::controller
