// Ring<T>: a queue in one block of memory. It grows by doubling and never shrinks, so that a steady flow through it
// allocates nothing. Elements are reused where they lie: what is popped is moved from, not destroyed. Not thread-safe.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace manta::call {

template <typename T>
class Ring {
 public:
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  T& front() { return slots_[head_]; }
  void push_back(T value) {
    if (size_ == slots_.size()) Grow();
    slots_[(head_ + size_) & (slots_.size() - 1)] = std::move(value);
    ++size_;
  }
  T pop_front() {
    T value = std::move(slots_[head_]);
    head_ = (head_ + 1) & (slots_.size() - 1);
    --size_;
    return value;
  }
  void clear() {
    while (!empty()) pop_front();
  }

 private:
  void Grow() {
    std::vector<T> larger(slots_.empty() ? 16 : 2 * slots_.size());
    for (size_t i = 0; i < size_; ++i) larger[i] = std::move(slots_[(head_ + i) & (slots_.size() - 1)]);
    slots_ = std::move(larger);
    head_ = 0;
  }
  std::vector<T> slots_;  // a power of two of them
  size_t head_ = 0, size_ = 0;
};

}  // namespace manta::call
