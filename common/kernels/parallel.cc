#include "common/kernels/parallel.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace manta::kernels {
namespace {

// Looks before it sleeps: the next piece of a forward pass comes within microseconds, and waking a thread takes longer than
// most pieces do. Bounded (about 80 us), so an idle pool costs nothing.
template <typename Condition>
bool Spin(Condition condition) {
  for (int i = 0; i < 1500; ++i) {
    if (condition()) return true;
    __builtin_ia32_pause();
  }
  return false;
}

class Pool {
 public:
  static Pool& Get() {
    static Pool* pool = new Pool;  // never destroyed: kernels may run until the process ends
    return *pool;
  }

  void Resize(int threads) {
    std::lock_guard<std::mutex> turn(turn_);
    Publish(kStop);
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
    threads_ = std::clamp(threads, 1, kMostThreads);
    for (int i = 1; i < threads_; ++i) workers_.emplace_back([this, i, seen = turn_word_.load()] { Work(i, seen); });
  }
  int threads() const { return threads_; }

  void Run(int64_t size, int pieces, absl::FunctionRef<void(int64_t, int64_t)> body) {
    std::lock_guard<std::mutex> turn(turn_);
    pieces = std::min(pieces, threads_);
    size_ = size;
    body_ = &body;
    left_.store(pieces - 1, std::memory_order_relaxed);
    Publish(static_cast<uint32_t>(pieces));
    Piece(0, pieces, size, body);
    Spin([this] { return left_.load(std::memory_order_acquire) == 0; });
    for (int left = left_.load(std::memory_order_acquire); left != 0; left = left_.load(std::memory_order_acquire)) {
      left_.wait(left);
    }
  }

 private:
  static constexpr int kPieceBits = 11, kMostThreads = 1024;
  static constexpr uint32_t kStop = 0;  // in place of a number of pieces

  // The word that threads watch: how many turns there were, and this one's pieces. A thread that has no piece of a turn
  // looks at nothing else, so the next turn need not wait for it.
  void Publish(uint32_t pieces) {
    const uint32_t turns = (turn_word_.load(std::memory_order_relaxed) >> kPieceBits) + 1;
    turn_word_.store(turns << kPieceBits | pieces);
    turn_word_.notify_all();
  }

  static void Piece(int index, int pieces, int64_t size, absl::FunctionRef<void(int64_t, int64_t)> body) {
    const int64_t begin = size * index / pieces, end = size * (index + 1) / pieces;
    if (begin < end) body(begin, end);
  }

  void Work(int index, uint32_t seen) {
    while (true) {
      Spin([&] { return turn_word_.load(std::memory_order_relaxed) != seen; });
      turn_word_.wait(seen);
      seen = turn_word_.load(std::memory_order_acquire);
      const int pieces = static_cast<int>(seen & ((1u << kPieceBits) - 1));
      if (pieces == static_cast<int>(kStop)) return;
      if (index >= pieces) continue;
      Piece(index, pieces, size_, *body_);
      if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) left_.notify_one();
    }
  }

  std::mutex turn_;  // one Run or Resize at a time
  std::vector<std::thread> workers_;
  int threads_ = 1;
  std::atomic<uint32_t> turn_word_ = 0;
  // Of the turn; only threads that have a piece of it read them.
  int64_t size_ = 0;
  const absl::FunctionRef<void(int64_t, int64_t)>* body_ = nullptr;
  std::atomic<int> left_ = 0;
};

}  // namespace

void SetThreads(int threads) {
  Pool::Get().Resize(threads);
}

int Threads() {
  return Pool::Get().threads();
}

void ParallelFor(int64_t size, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body) {
  if (size <= 0) return;
  const int64_t most = size / std::max<int64_t>(grain, 1);
  const int pieces = static_cast<int>(std::min<int64_t>(Pool::Get().threads(), most));
  if (pieces <= 1) return body(0, size);
  Pool::Get().Run(size, pieces, body);
}

}  // namespace manta::kernels
