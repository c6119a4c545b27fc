#include "common/kernels/parallel.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
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
    Stop();
    threads_ = std::max(threads, 1);
    for (int i = 1; i < threads_; ++i) workers_.emplace_back([this, i, seen = generation_.load()] { Work(i, seen); });
  }
  int threads() const { return threads_; }

  void Run(int64_t size, int pieces, absl::FunctionRef<void(int64_t, int64_t)> body) {
    std::lock_guard<std::mutex> turn(turn_);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      size_ = size;
      pieces_ = std::min(pieces, threads_);
      body_ = &body;
      left_ = pieces_ - 1;
      ++generation_;
    }
    start_.notify_all();
    Piece(0, pieces_, size, body);
    Spin([this] { return left_ == 0; });
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return left_ == 0; });
    body_ = nullptr;
  }

 private:
  static void Piece(int index, int pieces, int64_t size, absl::FunctionRef<void(int64_t, int64_t)> body) {
    const int64_t begin = size * index / pieces, end = size * (index + 1) / pieces;
    if (begin < end) body(begin, end);
  }

  void Work(int index, uint64_t seen) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      lock.unlock();
      Spin([&] { return generation_ != seen; });
      lock.lock();
      start_.wait(lock, [&] { return stopping_ || generation_ != seen; });
      if (stopping_) return;
      seen = generation_;
      if (index >= pieces_) continue;
      const auto* body = body_;
      const int pieces = pieces_;
      const int64_t size = size_;
      lock.unlock();
      Piece(index, pieces, size, *body);
      lock.lock();
      if (--left_ == 0) done_.notify_one();
    }
  }

  void Stop() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    start_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
    stopping_ = false;
  }

  std::mutex turn_;  // one Run or Resize at a time
  std::mutex mutex_;
  std::condition_variable start_, done_;
  std::vector<std::thread> workers_;
  int threads_ = 1;
  // Guarded by mutex_; the two that a thread spins on may be read without it.
  bool stopping_ = false;
  std::atomic<uint64_t> generation_ = 0;
  int64_t size_ = 0;
  int pieces_ = 0;
  std::atomic<int> left_ = 0;
  const absl::FunctionRef<void(int64_t, int64_t)>* body_ = nullptr;
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
