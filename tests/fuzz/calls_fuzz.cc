// What comes over a call plane's streams: batches of calls for an actor's table, batches of replies for a caller's
// session, references to shared memory, headers of chunks. The first byte says which; batches follow one another, each
// after its length in two bytes.
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/call/core/call_table.h"
#include "common/call/core/client_session.h"
#include "common/call/core/lanes.h"
#include "common/call/core/segment_map.h"
#include "common/call/core/transfer_store.h"
#include "google/protobuf/stubs/logging.h"

namespace manta::call {
namespace {

struct Up final : CallBatchSink {
  void Write(const v1::CallBatch&) override { ++written; }
  int written = 0;
};
struct Down final : ReplyBatchSink {
  void Write(const v1::ReplyBatch&) override { ++written; }
  void Close(const absl::Status&) override { closed = true; }
  int written = 0;
  bool closed = false;
};
struct Ignore final : CallSink {
  void OnDone(const absl::Status&, v1::Reply&) override {}
};

std::string_view NextPiece(std::string_view* input) {
  if (input->size() < 2) return std::exchange(*input, {});
  const size_t size = static_cast<uint8_t>((*input)[0]) << 8 | static_cast<uint8_t>((*input)[1]);
  input->remove_prefix(2);
  const std::string_view piece = input->substr(0, size);
  input->remove_prefix(piece.size());
  return piece;
}

template <typename Message>
bool Parse(std::string_view bytes, Message* message) {
  return message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

// An actor: whatever a caller says, a number is admitted once, in order.
void Server(std::string_view input) {
  absl::Time now = absl::UnixEpoch();
  CallTable::Options options{.actor_id = "a-0", .epoch = 1, .window = 16, .max_sessions = 8, .kept_bytes = 4096};
  options.first_session = 1;
  options.max_keys = 16;
  options.clock = [&] { return now; };
  v1::MethodInfo method;
  method.set_name("work");
  options.methods.push_back(method);
  CallTable table(std::move(options));
  LaneSet lanes;
  const int lane = lanes.Add("work", {.concurrency = 1, .capacity = 4});
  std::shared_ptr<ServerSession> session;
  uint64_t link = 0;
  std::map<uint64_t, uint64_t> last;
  while (!input.empty()) {
    now += absl::Milliseconds(5);
    v1::CallBatch batch;
    if (!Parse(NextPiece(&input), &batch)) continue;
    if (batch.has_open()) {
      v1::SessionOpened opened;
      const auto result = table.Open(batch.open(), std::make_shared<Down>(), &opened);
      if (result.ok()) {
        session = result->session;
        link = result->link;
        session->OnWriteDone(link);
      }
    }
    if (session == nullptr) continue;
    std::vector<CallRef> admitted;
    session->OnBatch(link, batch, &admitted);
    for (CallRef& ref : admitted) {
      const uint64_t seq = ServerSession::context(ref.call)->call().seq();
      uint64_t& before = last[ref.session->id()];
      if (seq <= before) __builtin_trap();
      before = seq;
      const absl::Status fits = lanes.Admit(lane, ref);
      if (!fits.ok()) (void)ref.session->Finish(ref.call, fits, nullptr);
    }
    CallRef ref;
    if (lanes.ClaimAny(0) == lane) {
      while (lanes.Next(lane, &ref)) {
        if (!ref.session->StartRunning(ref.call)) continue;
        std::string reply(ServerSession::context(ref.call)->payload());
        (void)ref.session->Finish(ref.call, absl::OkStatus(), &reply);
      }
    }
    session->Flush();
    session->OnWriteDone(link);
    if (table.counts().kept_bytes > 4096) __builtin_trap();
    table.Tick();
  }
}

// A caller: whatever an actor answers.
void Client(std::string_view input) {
  absl::Time now = absl::UnixEpoch();
  ClientSession::Options options{.actor_id = "a-0", .epoch = 1, .window = 16};
  options.caller.set_id("caller");
  options.clock = [&] { return now; };
  ClientSession session(std::move(options));
  uint64_t link = 0;
  const auto sink = std::make_shared<Ignore>();
  while (!input.empty()) {
    now += absl::Milliseconds(5);
    v1::ReplyBatch batch;
    if (!Parse(NextPiece(&input), &batch)) continue;
    if (link == 0 || batch.has_opened()) {
      (void)session.OpenBatch();
      link = session.Attach(std::make_shared<Up>(), batch.opened());
    }
    const CallSpec spec{.method = 0, .payload = "x", .deadline = absl::Milliseconds(20), .item_credit = 2};
    (void)session.Start(spec, sink);
    (void)session.FindMethod("work");
    session.OnWriteDone(link);
    session.OnReplies(link, batch);
    (void)session.Tick();
    if (session.in_flight() > 16) __builtin_trap();
  }
}

void Memory(std::string_view input) {
  SegmentMap map;
  v1::ShmRef ref;
  if (Parse(input, &ref)) (void)map.Open(ref);
  const auto header = ParseChunkHeader(std::string(input.substr(0, kMaxChunkHeader)), input.size());
  if (header.ok() && header->header_bytes + header->data_bytes != input.size()) __builtin_trap();
  if (!header.ok()) return;
  TransferStore store({.max_bytes = 1 << 20});
  const auto transfer = store.Begin(header->caller_id, header->transfer, header->total);
  if (!transfer.ok()) return;
  const std::string_view data = input.substr(header->header_bytes);
  (void)store.Append(**transfer, *header, {std::as_bytes(std::span(data.data(), data.size()))});
  (void)store.Finish(*transfer);
  (void)store.Take(header->caller_id, header->transfer);
}

}  // namespace
}  // namespace manta::call

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto quiet = google::protobuf::SetLogHandler(nullptr);  // it writes a line for each wrong byte
  (void)quiet;
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      manta::call::Server(input);
      break;
    case 1:
      manta::call::Client(input);
      break;
    default:
      manta::call::Memory(input);
  }
  return 0;
}
