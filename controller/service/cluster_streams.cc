// The streams of ClusterService.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/stream_writer.h"
#include "controller/service/cluster_service.h"
#include "grpcpp/server_context.h"

namespace manta::controller {
namespace {

constexpr size_t kMaxQueued = 1024;                           // messages that a client has not read
constexpr int64_t kBytesALine = 512;                          // a guess, for where to begin reading
constexpr int64_t kMaxLogBytes = 64 << 20;                    // of one answer that does not follow
constexpr absl::Duration kStackPatience = absl::Seconds(12);  // an agent answers within 8 s (node/stacks.h)

}  // namespace

// Subscriptions by stream. A stream's go when its client does, or when it is finished; on the loop, and never from
// inside one of their callbacks.
struct ClusterService::Streams {
  uint64_t next = 1;
  std::map<uint64_t, std::vector<core::Subscription>> open;
};

ClusterService::ClusterService(EventLoop& loop, core::Core* core, Hooks hooks)
    : loop_(loop), core_(core), hooks_(std::move(hooks)), streams_(std::make_shared<Streams>()) {}

ClusterService::~ClusterService() = default;

namespace {

// Ends an open stream: what it holds later, on the loop.
template <typename Streams>
std::function<void()> Dropper(EventLoop& loop, const std::shared_ptr<Streams>& streams, uint64_t id) {
  return [poster = loop.poster(), streams, id] { poster.Post([streams, id] { streams->open.erase(id); }); };
}

// Writes, or ends a stream whose client does not keep up.
template <typename Message>
void WriteOrEnd(rpc::StreamWriter<Message>& writer, const Message& message, const std::function<void()>& drop) {
  if (writer.Write(message)) return;
  writer.Finish(absl::ResourceExhaustedError("this stream is not read as fast as it is written"));
  drop();
}

}  // namespace

grpc::ServerWriteReactor<v1::ResolveReply>* ClusterService::Resolve(grpc::CallbackServerContext*,
                                                                    const v1::ResolveRequest* request) {
  auto writer = rpc::StreamWriter<v1::ResolveReply>::Create(kMaxQueued);
  auto* reactor = writer->reactor();
  loop_.Post([this, writer, request = *request] {
    const uint64_t id = streams_->next++;
    const auto drop = Dropper(loop_, streams_, id);
    streams_->open[id].push_back(
        core_->Watch(request, [writer, drop](const v1::ResolveReply& reply) { WriteOrEnd(*writer, reply, drop); }));
    writer->OnCancel(drop);
  });
  return reactor;
}

grpc::ServerWriteReactor<v1::StackDump>* ClusterService::Stacks(grpc::CallbackServerContext*,
                                                                const v1::ListRequest* request) {
  auto writer = rpc::StreamWriter<v1::StackDump>::Create(kMaxQueued);
  auto* reactor = writer->reactor();
  loop_.Post([this, writer, request = *request] {
    core_->Stacks(
        request, kStackPatience, [writer](const v1::StackDump& dump) { writer->Write(dump); },
        [writer](const absl::Status& status) { writer->Finish(status); });
  });
  return reactor;
}

namespace {

// Several logs in one stream: `id` of a chunk is the rank.
struct LogStream {
  std::shared_ptr<rpc::StreamWriter<v1::LogChunk>> writer;
  std::function<void()> drop;
  int lines = 0;
  size_t open = 0;

  void End() {
    if (--open > 0) return;
    writer->Finish(absl::OkStatus());
    drop();
  }
};

// Where the last `lines` lines of `text` begin.
size_t LastLines(std::string_view text, int lines) {
  size_t at = text.size();
  if (at > 0 && text[at - 1] == '\n') --at;
  for (int n = 0; n < lines; ++n) {
    const size_t newline = at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
    if (newline == std::string_view::npos) return 0;
    at = newline;
  }
  return at + 1;
}

// One rank's part of it. Where the last lines are asked for, they are gathered first, to be cut to their number.
class LogTail {
 public:
  LogTail(std::shared_ptr<LogStream> stream, int rank, bool follow)
      : stream_(std::move(stream)), rank_(rank), gathers_(stream_->lines > 0 && !follow) {}

  void On(const absl::StatusOr<v1::LogChunk>& chunk) {
    if (ended_) return;
    if (!chunk.ok()) {
      ended_ = true;
      stream_->writer->Finish(chunk.status());
      stream_->drop();
      return;
    }
    text_ += chunk->data();
    if (!chunk->end() && gathers_) return;
    if (!started_ && stream_->lines > 0) text_.erase(0, LastLines(text_, stream_->lines));
    started_ = true;
    v1::LogChunk out;
    out.set_id(static_cast<uint64_t>(rank_));
    out.set_offset(chunk->offset());
    out.set_data(std::exchange(text_, ""));
    out.set_end(chunk->end());
    if (!out.data().empty() || out.end()) WriteOrEnd(*stream_->writer, out, stream_->drop);
    if (!chunk->end()) return;
    ended_ = true;
    stream_->End();
  }

 private:
  const std::shared_ptr<LogStream> stream_;
  const int rank_;
  const bool gathers_;
  std::string text_;
  bool started_ = false, ended_ = false;
};

}  // namespace

grpc::ServerWriteReactor<v1::LogChunk>* ClusterService::Logs(grpc::CallbackServerContext*,
                                                             const v1::LogsRequest* request) {
  auto writer = rpc::StreamWriter<v1::LogChunk>::Create(kMaxQueued);
  auto* reactor = writer->reactor();
  loop_.Post([this, writer, request = *request] {
    v1::ListRequest which;
    which.set_actors(true);
    which.set_job(request.job());
    which.set_role(request.role());
    v1::ListReply list;
    core_->List(which, &list);
    std::vector<v1::ActorInfo> actors;
    for (const v1::ActorInfo& actor : list.actors()) {
      if (request.all_ranks() || actor.rank() == request.rank()) actors.push_back(actor);
    }
    if (actors.empty()) {
      writer->Finish(
          absl::NotFoundError(absl::StrCat("no actor ", request.role().empty() ? "" : request.role(),
                                           request.all_ranks() ? "" : absl::StrCat(" of rank ", request.rank()),
                                           request.job().empty() ? "" : absl::StrCat(" in job ", request.job()))));
      return;
    }
    const uint64_t id = streams_->next++;
    auto stream = std::make_shared<LogStream>();
    stream->writer = writer;
    stream->drop = Dropper(loop_, streams_, id);
    stream->lines = request.lines();
    stream->open = actors.size();
    const int64_t offset = request.lines() > 0 ? -std::min(kMaxLogBytes, request.lines() * kBytesALine) : 0;
    for (const v1::ActorInfo& actor : actors) {
      auto tail = std::make_shared<LogTail>(stream, actor.rank(), request.follow());
      streams_->open[id].push_back(
          core_->ReadLog(actor.actor_id(), offset, kMaxLogBytes, request.follow(),
                         [tail](const absl::StatusOr<v1::LogChunk>& chunk) { tail->On(chunk); }));
    }
    writer->OnCancel(stream->drop);
  });
  return reactor;
}

}  // namespace manta::controller
