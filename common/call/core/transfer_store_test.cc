// Transfers: what does not fit is refused, nothing is kept for ever, buffers are used again; headers as callers in any
// language write them, and as attackers do.
#include "common/call/core/transfer_store.h"

#include <random>

#include "common/metrics/crc32c.h"
#include "gtest/gtest.h"
#include "manta/v1/call.pb.h"

namespace manta::call {
namespace {

std::vector<std::span<const std::byte>> Pieces(const std::string& bytes) {
  const std::span<const std::byte> all = std::as_bytes(std::span(bytes.data(), bytes.size()));
  const size_t half = bytes.size() / 3;
  return {all.subspan(0, half), all.subspan(half)};
}
ChunkHeader Header(uint64_t offset, const std::string& bytes) {
  ChunkHeader header;
  header.offset = offset;
  header.data_bytes = bytes.size();
  header.crc = metrics::Crc32c(bytes);
  return header;
}

TEST(TransferStore, BringsBytesOnce) {
  TransferStore store({});
  auto transfer = store.Begin("me", 1, 10).value();
  EXPECT_EQ(store.Begin("me", 1, 10).status().code(), absl::StatusCode::kAlreadyExists);
  auto other = store.Begin("you", 1, 4).value();  // two senders with the same number
  ASSERT_TRUE(store.Append(*transfer, Header(0, "abcdef"), Pieces("abcdef")).ok());
  ASSERT_TRUE(store.Append(*other, Header(0, "WXYZ"), Pieces("WXYZ")).ok());
  EXPECT_FALSE(store.Take("me", 1).ok()) << "it is not finished";
  ASSERT_TRUE(store.Append(*transfer, Header(6, "ghij"), Pieces("ghij")).ok());
  ASSERT_TRUE(store.Finish(transfer).ok());
  ASSERT_TRUE(store.Finish(other).ok());
  const auto taken = store.Take("me", 1).value();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(taken.bytes.data()), taken.bytes.size()), "abcdefghij");
  EXPECT_FALSE(store.Take("me", 1).ok()) << "it was taken";
  EXPECT_EQ(store.Take("you", 1).value().bytes[0], std::byte{'W'});
}

TEST(TransferStore, RefusesWhatDoesNotFit) {
  TransferStore store({});
  auto transfer = store.Begin("me", 1, 10).value();
  EXPECT_EQ(store.Append(*transfer, Header(1, "abc"), Pieces("abc")).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store.Append(*transfer, Header(0, "0123456789x"), Pieces("0123456789x")).code(),
            absl::StatusCode::kInvalidArgument);
  ChunkHeader wrong = Header(0, "abc");
  wrong.crc ^= 1;
  EXPECT_EQ(store.Append(*transfer, wrong, Pieces("abc")).code(), absl::StatusCode::kDataLoss);
  ASSERT_TRUE(store.Append(*transfer, Header(0, "abc"), Pieces("abc")).ok());
  EXPECT_EQ(store.Finish(transfer).code(), absl::StatusCode::kInvalidArgument) << "truncated";
  EXPECT_FALSE(store.Begin("", 1, 10).ok());
  EXPECT_FALSE(store.Begin("me", 0, 10).ok());
  EXPECT_FALSE(store.Begin("me", 3, ~uint64_t{0}).ok());
}

TEST(TransferStore, IsBoundedAndForgets) {
  absl::Time now = absl::UnixEpoch();
  TransferStore store({.max_bytes = 4 << 20, .keep = absl::Minutes(1), .clock = [&] { return now; }});
  auto first = store.Begin("me", 1, 3 << 20).value();
  EXPECT_EQ(store.Begin("me", 2, 2 << 20).status().code(), absl::StatusCode::kResourceExhausted);
  first = nullptr;
  now += absl::Minutes(2);
  store.Tick();
  EXPECT_TRUE(store.Begin("me", 2, 2 << 20).ok());
  EXPECT_LE(store.bytes(), size_t{4} << 20);
}

TEST(TransferStore, HeadersOfAnyWriter) {
  v1::TransferChunk chunk;
  chunk.mutable_caller()->set_id("me");
  chunk.set_transfer(7);
  chunk.set_total(1000);
  chunk.set_offset(0);
  chunk.set_crc(5);
  chunk.set_data("some bytes");
  const std::string message = chunk.SerializeAsString();
  const ChunkHeader header = ParseChunkHeader(message, message.size()).value();
  EXPECT_EQ(header.caller_id, "me");
  EXPECT_EQ(header.transfer, 7u);
  EXPECT_EQ(header.total, 1000u);
  EXPECT_EQ(header.crc, 5u);
  EXPECT_EQ(message.substr(header.header_bytes), "some bytes");
  EXPECT_EQ(SerializeChunkHeader(header) + "some bytes", message);
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {  // whatever comes: refused, or inside the message
    std::string hostile = message;
    for (int k = 0; k < 3; ++k) hostile[random() % hostile.size()] = static_cast<char>(random());
    hostile.resize(random() % (hostile.size() + 1));
    const auto parsed = ParseChunkHeader(hostile.substr(0, kMaxChunkHeader), hostile.size());
    if (parsed.ok()) {
      EXPECT_EQ(parsed->header_bytes + parsed->data_bytes, hostile.size());
    }
  }
}

}  // namespace
}  // namespace manta::call
