#include "controller/node/local_host.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "controller/node/captured_log.h"
#include "controller/node/stacks.h"
#include "controller/node/state_dir.h"

namespace manta::node {
namespace {

constexpr size_t kChunk = 64 << 10;
constexpr int64_t kDefaultBytes = 1 << 20;
constexpr size_t kMaxReaders = 64;
constexpr absl::Duration kFollow = absl::Milliseconds(200);

}  // namespace

struct LocalHost::Reader {
  v1::ReadLog request;
  std::string path;
  std::function<void(const v1::LogChunk&)> chunk;
  int64_t offset = 0, left = 0;
  EventLoop::TimerId timer = 0;
};

LocalHost::LocalHost(EventLoop& loop, std::string state_dir) : loop_(loop), state_dir_(std::move(state_dir)) {}
LocalHost::~LocalHost() {
  for (const auto& [id, reader] : readers_) loop_.Cancel(reader->timer);
}

// As a server that may linger would bind it: on all addresses, without reuse.
bool LocalHost::PortIsFree(int port) {
  for (const int family : {AF_INET, AF_INET6}) {
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;  // no such family here
    int result;
    if (family == AF_INET) {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(static_cast<uint16_t>(port));
      result = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    } else {
      const int only = 1;
      setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only));
      sockaddr_in6 address{};
      address.sin6_family = AF_INET6;
      address.sin6_port = htons(static_cast<uint16_t>(port));
      result = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    }
    close(fd);
    if (result != 0) return false;
  }
  return true;
}

void LocalHost::SaveWorkerToken(const std::string& token) {
  ReplaceFile(worker_token_file(), token + "\n");
}
void LocalHost::RememberExit(const v1::ActorReport& exit) {
  WriteExit(state_dir_, exit);
}
void LocalHost::ForgetExit(const v1::ActorRef& actor) {
  RemoveExit(state_dir_, actor.actor_id(), actor.epoch());
}
std::vector<std::string> LocalHost::LastLines(const std::string& log_path) {
  return LastLinesOf(log_path, 49);
}

// ---- Logs

void LocalHost::ReadLog(const v1::ReadLog& request, const std::string& log_path,
                        std::function<void(const v1::LogChunk&)> chunk) {
  const auto found = readers_.find(request.id());
  if (found != readers_.end()) {
    loop_.Cancel(found->second->timer);
    readers_.erase(found);
  }
  if (request.cancel()) return;
  if (readers_.size() >= kMaxReaders) {
    v1::LogChunk end;
    end.set_id(request.id());
    end.set_end(true);
    chunk(end);
    return;
  }
  auto reader = std::make_unique<Reader>();
  reader->request = request;
  reader->path = log_path;
  reader->chunk = std::move(chunk);
  reader->left = request.max_bytes() > 0 ? request.max_bytes() : kDefaultBytes;
  struct stat st;
  const int64_t size = stat(log_path.c_str(), &st) == 0 ? st.st_size : 0;
  reader->offset = request.offset() >= 0 ? request.offset() : std::max<int64_t>(0, size + request.offset());
  readers_[request.id()] = std::move(reader);
  Step(request.id());
}

// One chunk at a time, so that a long log does not hold the loop up.
void LocalHost::Step(uint64_t id) {
  const auto found = readers_.find(id);
  if (found == readers_.end()) return;
  Reader& reader = *found->second;
  reader.timer = 0;
  v1::LogChunk chunk;
  chunk.set_id(id);
  const int fd = open(reader.path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    struct stat st;
    if (fstat(fd, &st) == 0 && st.st_size < reader.offset) reader.offset = 0;  // it was begun anew
    const size_t want = reader.request.follow() ? kChunk : static_cast<size_t>(std::min<int64_t>(kChunk, reader.left));
    std::string data(want, '\0');
    const ssize_t n = pread(fd, data.data(), data.size(), reader.offset);
    close(fd);
    data.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
    *chunk.mutable_data() = std::move(data);
  }
  chunk.set_offset(reader.offset);
  const auto n = static_cast<int64_t>(chunk.data().size());
  reader.offset += n;
  reader.left -= n;
  const bool more = n > 0 && (reader.request.follow() || reader.left > 0);
  const auto tell = reader.chunk;
  if (!more && !reader.request.follow()) {
    chunk.set_end(true);
    readers_.erase(found);
  } else {
    reader.timer = loop_.RunAfter(more ? absl::ZeroDuration() : kFollow, [this, id] { Step(id); });
  }
  if (n > 0 || chunk.end()) tell(chunk);
}

void LocalHost::DumpStacks(int64_t pid, const std::string& log_path, std::function<void(std::string)> done) {
  struct stat st;
  const int64_t written = stat(log_path.c_str(), &st) == 0 ? st.st_size : 0;
  ReadStacks(loop_, {.pid = pid, .log_path = log_path, .log_begin = written}, std::move(done));
}

}  // namespace manta::node
