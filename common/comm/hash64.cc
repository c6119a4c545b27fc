#include "common/comm/hash64.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace manta::comm {
namespace {

constexpr uint64_t kOdd1 = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio
constexpr uint64_t kOdd2 = 0xc2b2ae3d27d4eb4f;

uint64_t Mix(uint64_t lane, uint64_t word) {
  return std::rotl(lane ^ (word * kOdd1), 29) * kOdd2;
}

// Every bit of the input reaches every bit of the output.
uint64_t Avalanche(uint64_t x) {
  x = (x ^ (x >> 32)) * kOdd1;
  x = (x ^ (x >> 29)) * kOdd2;
  return x ^ (x >> 32);
}

}  // namespace

void Hash64::Block(const unsigned char* at) {
  uint64_t words[4];
  std::memcpy(words, at, sizeof(words));
  for (int i = 0; i < 4; ++i) lanes_[i] = Mix(lanes_[i], words[i]);
}

void Hash64::Update(const void* data, size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
  total_ += bytes;
  if (rest_bytes_ > 0) {
    const size_t n = std::min(bytes, sizeof(rest_) - rest_bytes_);
    std::memcpy(rest_ + rest_bytes_, at, n);
    rest_bytes_ += n;
    at += n;
    bytes -= n;
    if (rest_bytes_ < sizeof(rest_)) return;
    Block(rest_);
    rest_bytes_ = 0;
  }
  for (; bytes >= sizeof(rest_); at += sizeof(rest_), bytes -= sizeof(rest_)) Block(at);
  if (bytes > 0) std::memcpy(rest_, at, bytes);
  rest_bytes_ = bytes;
}

uint64_t Hash64::Finish() const {
  Hash64 last = *this;
  std::memset(last.rest_ + rest_bytes_, 0, sizeof(rest_) - rest_bytes_);
  last.Block(last.rest_);
  uint64_t hash = total_ * kOdd1;
  for (const uint64_t lane : last.lanes_) hash = Avalanche(hash ^ lane) + kOdd1;
  return hash == 0 ? 1 : hash;
}

}  // namespace manta::comm
