// Task<T>: a lazy coroutine that runs on an EventLoop, and the few things to combine tasks with.
//
//   Task<absl::StatusOr<int>> Score(EventLoop& loop, Sample sample) {
//     MANTA_CO_RETURN_IF_ERROR(co_await Sleep(loop, absl::Milliseconds(10), cancel));
//     MANTA_CO_ASSIGN_OR_RETURN(auto reply, co_await rpc::Call(loop, ...));
//     co_return reply.value();
//   }
//   Spawn(loop, Score(loop, sample), [](absl::StatusOr<int> result) { ... });
//
// A task starts when it is awaited or spawned, runs on one loop's thread, and is awaited at most once. The awaiting
// coroutine owns it; a spawned one owns itself until it ends. Nothing here locks: tasks, tokens, events and semaphores
// belong to their loop's thread. Other threads reach a task through EventLoop::Post.
//
// A task that still waits when its loop is gone is not destroyed (what it waits for may yet refer to it): end tasks
// through a CancelToken before the loop. Exceptions do not leave a coroutine: one that tries ends the process.
//
// Parameters of a coroutine are copied into it: pass by value what the caller may not keep. A lambda that is a
// coroutine must outlive its run: capture nothing, and pass what it needs as parameters.
//
// g++ 12 miscompiles in coroutines: (1) co_await behind && or || in the condition of an if or a loop: it never resumes;
// (2) ?: anywhere in a statement that awaits, also in an argument: the chosen object is copied bit by bit and freed twice;
// (3) a braced list of objects as the range of a for, or as an argument in a statement that awaits. So: one co_await a
// statement, its arguments named before it.
#pragma once

#include <algorithm>
#include <coroutine>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/event_loop.h"
#include "common/base/status.h"

namespace manta {

template <typename T>
class Task;

namespace internal {

class TaskPromiseBase {
 public:
  std::suspend_always initial_suspend() noexcept { return {}; }
  void unhandled_exception() { MANTA_CHECK(false) << "an exception left a coroutine"; }
  void set_continuation(std::coroutine_handle<> continuation) { continuation_ = continuation; }

  struct FinalAwaiter {
    bool await_ready() noexcept { return false; }
    template <typename Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> self) noexcept {
      return self.promise().continuation_ ? self.promise().continuation_ : std::noop_coroutine();
    }
    void await_resume() noexcept {}
  };
  FinalAwaiter final_suspend() noexcept { return {}; }

 private:
  std::coroutine_handle<> continuation_;
};

template <typename T>
class TaskPromise : public TaskPromiseBase {
 public:
  Task<T> get_return_object();
  template <typename U>
  void return_value(U&& value) {
    value_.emplace(std::forward<U>(value));
  }
  T Take() { return std::move(*value_); }

 private:
  std::optional<T> value_;
};

template <>
class TaskPromise<void> : public TaskPromiseBase {
 public:
  Task<void> get_return_object();
  void return_void() {}
  void Take() {}
};

}  // namespace internal

template <typename T = void>
class [[nodiscard]] Task {
 public:
  using promise_type = internal::TaskPromise<T>;
  using value_type = T;

  explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  auto operator co_await() && {
    struct Awaiter {
      std::coroutine_handle<promise_type> handle;
      bool await_ready() { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<> parent) {
        handle.promise().set_continuation(parent);
        return handle;
      }
      T await_resume() { return handle.promise().Take(); }
    };
    MANTA_CHECK(handle_) << "a task was awaited twice";
    return Awaiter{handle_};
  }

 private:
  std::coroutine_handle<promise_type> handle_;
};

namespace internal {

template <typename T>
Task<T> TaskPromise<T>::get_return_object() {
  return Task<T>(std::coroutine_handle<TaskPromise<T>>::from_promise(*this));
}
inline Task<void> TaskPromise<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<TaskPromise<void>>::from_promise(*this));
}

// A coroutine that starts at once and frees itself at its end.
struct Detached {
  struct promise_type {
    Detached get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { MANTA_CHECK(false) << "an exception left a coroutine"; }
  };
};

template <typename T, typename OnDone>
Detached RunDetached(Task<T> task, OnDone on_done) {
  if constexpr (std::is_void_v<T>) {
    co_await std::move(task);
    on_done();
  } else {
    on_done(co_await std::move(task));
  }
}

}  // namespace internal

// Starts `task` on the loop's thread and calls `on_done` with its result there. Callable from any thread.
template <typename T, typename OnDone>
void Spawn(EventLoop& loop, Task<T> task, OnDone on_done) {
  loop.Post([task = std::move(task), on_done = std::move(on_done)]() mutable {
    internal::RunDetached(std::move(task), std::move(on_done));
  });
}

// Runs the loop until `task` is done and returns its result: for tests and programs whose whole life is one task.
template <typename T>
T RunToCompletion(EventLoop& loop, Task<T> task) {
  std::optional<T> result;
  Spawn(loop, std::move(task), [&](T value) {
    result.emplace(std::move(value));
    loop.Stop();
  });
  loop.Run();
  MANTA_CHECK(result.has_value()) << "the loop stopped before the task was done";
  return std::move(*result);
}

// ---- Cancellation
// -----------------------------------------------------------------------------------------------------

namespace internal {
struct CancelState {
  absl::Status status;  // not OK once cancelled
  uint64_t next_id = 1;
  std::vector<std::pair<uint64_t, std::function<void()>>> callbacks;
};
}  // namespace internal

// What a task looks at, or hands on to what it waits for, to be ended early. A default token is never cancelled.
class CancelToken {
 public:
  CancelToken() = default;
  bool cancelled() const { return state_ && !state_->status.ok(); }
  absl::Status status() const { return state_ ? state_->status : absl::OkStatus(); }

  // Unregisters its callback when destroyed.
  class Registration {
   public:
    Registration() = default;
    Registration(Registration&& other) noexcept = default;
    Registration& operator=(Registration&& other) noexcept {
      Reset();
      state_ = std::move(other.state_);
      id_ = other.id_;
      return *this;
    }
    ~Registration() { Reset(); }
    void Reset() {
      if (auto state = state_.lock()) std::erase_if(state->callbacks, [&](auto& c) { return c.first == id_; });
      state_.reset();
    }

   private:
    friend class CancelToken;
    std::weak_ptr<internal::CancelState> state_;
    uint64_t id_ = 0;
  };
  // Calls `callback` when cancelled; on a token that is cancelled already, never (look at cancelled() first).
  [[nodiscard]] Registration OnCancel(std::function<void()> callback) const {
    Registration registration;
    if (state_ && state_->status.ok()) {
      registration.id_ = state_->next_id++;
      registration.state_ = state_;
      state_->callbacks.emplace_back(registration.id_, std::move(callback));
    }
    return registration;
  }

 private:
  friend class CancelSource;
  explicit CancelToken(std::shared_ptr<internal::CancelState> state) : state_(std::move(state)) {}
  std::shared_ptr<internal::CancelState> state_;
};

class CancelSource {
 public:
  CancelSource() : state_(std::make_shared<internal::CancelState>()) {}
  CancelToken token() const { return CancelToken(state_); }
  bool cancelled() const { return !state_->status.ok(); }
  // The first status stays. Callbacks run at once, in order of registration.
  void Cancel(absl::Status status = absl::CancelledError("cancelled")) {
    if (cancelled()) return;
    MANTA_CHECK(!status.ok());
    state_->status = std::move(status);
    const auto state = state_;           // one of the callbacks may destroy this
    while (!state->callbacks.empty()) {  // or unregister another
      const auto callback = std::move(state->callbacks.front().second);
      state->callbacks.erase(state->callbacks.begin());
      callback();
    }
  }

 private:
  std::shared_ptr<internal::CancelState> state_;
};

// ---- Waiting
// ----------------------------------------------------------------------------------------------------------

// A value that comes once, from a callback. Copies share it. Waiters resume through the loop, never inside Set.
template <typename T>
class OneShot {
 public:
  explicit OneShot(EventLoop& loop) : state_(std::make_shared<State>(&loop)) {}
  bool is_set() const { return state_->value.has_value(); }
  // The first value stays; false where there was one.
  bool Set(T value) {
    if (is_set()) return false;
    state_->value.emplace(std::move(value));
    for (auto waiter : std::exchange(state_->waiters, {})) state_->loop->Post([waiter] { waiter.resume(); });
    return true;
  }
  // A copy of the value, once there is one.
  auto Wait() const {
    struct Awaiter {
      std::shared_ptr<State> state;
      bool await_ready() { return state->value.has_value(); }
      void await_suspend(std::coroutine_handle<> waiter) { state->waiters.push_back(waiter); }
      T await_resume() { return *state->value; }
    };
    return Awaiter{state_};
  }

 private:
  struct State {
    explicit State(EventLoop* l) : loop(l) {}
    EventLoop* loop;
    std::optional<T> value;
    std::vector<std::coroutine_handle<>> waiters;
  };
  std::shared_ptr<State> state_;
};

// OK after `delay`, or the token's status as soon as it is cancelled.
inline Task<absl::Status> Sleep(EventLoop& loop, absl::Duration delay, CancelToken cancel = {}) {
  if (cancel.cancelled()) co_return cancel.status();
  OneShot<absl::Status> done(loop);
  const EventLoop::TimerId timer = loop.RunAfter(delay, [done]() mutable { done.Set(absl::OkStatus()); });
  const CancelToken::Registration registration = cancel.OnCancel([&loop, done, timer, cancel]() mutable {
    loop.Cancel(timer);
    done.Set(cancel.status());
  });
  co_return co_await done.Wait();
}

// Counts permits; waiters are served in order.
class Semaphore {
 public:
  Semaphore(EventLoop& loop, int permits) : loop_(loop), permits_(permits) {}
  auto Acquire() {
    struct Awaiter {
      Semaphore* semaphore;
      bool await_ready() {
        if (semaphore->permits_ == 0) return false;
        --semaphore->permits_;
        return true;
      }
      void await_suspend(std::coroutine_handle<> waiter) { semaphore->waiters_.push_back(waiter); }
      void await_resume() {}
    };
    return Awaiter{this};
  }
  void Release() {
    if (waiters_.empty()) {
      ++permits_;
      return;
    }
    auto waiter = waiters_.front();  // the permit goes straight to it
    waiters_.pop_front();
    loop_.Post([waiter] { waiter.resume(); });
  }

 private:
  EventLoop& loop_;
  int permits_;
  std::deque<std::coroutine_handle<>> waiters_;
};

// ---- Combining
// --------------------------------------------------------------------------------------------------------

namespace internal {

struct JoinState {
  size_t left;
  std::coroutine_handle<> parent;
  void Done() {
    if (--left == 0) parent.resume();
  }
};

struct JoinAwaiter {
  JoinState* state;
  bool await_ready() { return false; }
  bool await_suspend(std::coroutine_handle<> parent) {
    state->parent = parent;
    return --state->left != 0;
  }
  void await_resume() {}
};

}  // namespace internal

// Runs all at once and gives their results in order, when the last is done.
template <typename T>
Task<std::vector<T>> WhenAll(std::vector<Task<T>> tasks) {
  std::vector<std::optional<T>> results(tasks.size());
  internal::JoinState join{tasks.size() + 1, {}};
  for (size_t i = 0; i < tasks.size(); ++i) {
    internal::RunDetached(std::move(tasks[i]), [&results, &join, i](T value) {
      results[i].emplace(std::move(value));
      join.Done();
    });
  }
  co_await internal::JoinAwaiter{&join};
  std::vector<T> values;
  values.reserve(results.size());
  for (auto& result : results) values.push_back(std::move(*result));
  co_return values;
}

inline Task<void> WhenAll(std::vector<Task<void>> tasks) {
  internal::JoinState join{tasks.size() + 1, {}};
  for (auto& task : tasks) internal::RunDetached(std::move(task), [&join] { join.Done(); });
  co_await internal::JoinAwaiter{&join};
}

namespace internal {
template <typename T>
Task<T> RunWithPermit(Semaphore* semaphore, Task<T> task) {
  co_await semaphore->Acquire();
  T value = co_await std::move(task);
  semaphore->Release();
  co_return value;
}
}  // namespace internal

// WhenAll with at most `limit` of them begun and not done.
template <typename T>
Task<std::vector<T>> WhenAllBounded(EventLoop& loop, std::vector<Task<T>> tasks, int limit) {
  MANTA_CHECK(limit > 0);
  Semaphore semaphore(loop, limit);
  std::vector<Task<T>> bounded;
  bounded.reserve(tasks.size());
  for (auto& task : tasks) bounded.push_back(internal::RunWithPermit(&semaphore, std::move(task)));
  co_return co_await WhenAll(std::move(bounded));
}

// The first error, or OK.
template <typename T>
absl::Status FirstError(const std::vector<absl::StatusOr<T>>& results) {
  for (const auto& result : results) MANTA_RETURN_IF_ERROR(result.status());
  return absl::OkStatus();
}
inline absl::Status FirstError(const std::vector<absl::Status>& results) {
  for (const auto& result : results) MANTA_RETURN_IF_ERROR(result);
  return absl::OkStatus();
}

}  // namespace manta

// MANTA_RETURN_IF_ERROR and MANTA_ASSIGN_OR_RETURN for coroutines.
#define MANTA_CO_RETURN_IF_ERROR(expr)                                                       \
  do {                                                                                       \
    if (::absl::Status manta_status_ = (expr); !manta_status_.ok()) co_return manta_status_; \
  } while (false)
#define MANTA_CO_ASSIGN_OR_RETURN(lhs, expr) \
  MANTA_CO_ASSIGN_OR_RETURN_IMPL_(MANTA_CONCAT_(manta_statusor_, __LINE__), lhs, expr)
#define MANTA_CO_ASSIGN_OR_RETURN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                                    \
  if (!tmp.ok()) co_return tmp.status();                \
  lhs = std::move(tmp).value()
