#include "controller/node/zygote.h"

#include <signal.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/actor/zygote.h"
#include "controller/node/packet_socket.h"

namespace manta::node {
namespace {

constexpr absl::Duration kReady = absl::Seconds(10);
constexpr int kSocketFd = 3;

}  // namespace

Zygote::~Zygote() {
  host_.loop->Cancel(timer_);
  if (socket_ >= 0) {
    host_.loop->Unwatch(socket_);
    close(socket_);
  }
  if (process_.has_value() && process_->Signal(SIGKILL)) process_->WaitFor(absl::Seconds(1));
}

absl::Status Zygote::Start(const ProcessSpec& spec) {
  int ends[2];
  if (!MakePacketSocket(ends)) return absl::ResourceExhaustedError("no descriptors for a zygote");
  ProcessSpec own = spec;
  own.pass_fd = ends[1];
  own.env[actor::kZygoteFdVariable] = absl::StrCat(kSocketFd);
  auto spawned = Process::Spawn(own);
  close(ends[1]);
  socket_ = ends[0];
  host_.loop->WatchReadable(socket_, [this] { Read(); });
  if (!spawned.ok()) return spawned.status();
  process_.emplace(std::move(*spawned));
  timer_ = host_.loop->RunAfter(kReady, [this] {
    if (!ready_) Unfit("it does not create a Worker");
  });
  return absl::OkStatus();
}

// Before it is ready the socket is its queue.
bool Zygote::Fork(const v1::StartActor& start, const std::vector<int>& descriptors) {
  return socket_ >= 0 && SendMessage(socket_, start, descriptors);
}

void Zygote::Read() {
  std::string packet;
  const Received received = ReceivePacket(socket_, &packet);
  if (received == Received::kNothing) return;
  if (received == Received::kClosed) return Unfit("it has ended");
  const std::vector<std::string> words = absl::StrSplit(packet, absl::MaxSplits(' ', 3));
  uint64_t epoch = 0;
  int pid = 0;
  if (words[0] == "ready") {
    ready_ = true;
  } else if (words[0] == "refused") {
    Unfit(packet.substr(words[0].size() + 1));
  } else if (words.size() == 4 && absl::SimpleAtoi(words[2], &epoch)) {
    if (words[0] == "forked" && absl::SimpleAtoi(words[3], &pid)) host_.forked(words[1], epoch, pid);
    if (words[0] == "failed") host_.failed(words[1], epoch, words[3]);
  }
}

void Zygote::Unfit(const std::string& why) {
  host_.loop->Unwatch(socket_);
  close(std::exchange(socket_, -1));
  host_.loop->Cancel(timer_);
  const auto unfit = host_.unfit;  // may destroy this
  unfit(why);
}

}  // namespace manta::node
