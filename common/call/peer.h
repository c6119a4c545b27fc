// A client's connection to one actor, as CallClient makes it (call_client.h: Peer), and what the connections of a
// client share. Thread-safe; lives as long as an operation of it is under way.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "common/call/call_client.h"
#include "common/call/client_poller.h"
#include "common/call/core/segment_pool.h"

namespace manta::call {

struct ClientShared {
  explicit ClientShared(CallClient::Options o, std::function<void()> tick, std::function<bool()> busy)
      : options(std::move(o)), poller(std::move(tick), std::move(busy)) {}
  const CallClient::Options options;
  const std::shared_ptr<SegmentPool> segments = std::make_shared<SegmentPool>(SegmentPool::FromEnvironment());
  std::atomic<uint64_t> next_transfer{1};
  ClientPoller poller;
};

class OwnedPeer : public Peer {
 public:
  virtual absl::Status Open() = 0;  // begins to connect
  virtual void Tick() = 0;
  virtual bool failed() const = 0;
  virtual bool busy() const = 0;  // calls are under way, or it is being connected to
  virtual void SayGoodbye() = 0;
  virtual bool gone() const = 0;  // no stream is left
};
std::shared_ptr<OwnedPeer> MakePeer(ClientShared* client, std::string address, const std::string& actor_id,
                                    uint64_t epoch);

}  // namespace manta::call
