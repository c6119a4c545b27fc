// What the threads of a process do now: the stacks that it writes into its log itself when its shim asks it to
// (common/actor/thread_stacks.h, Python's faulthandler), and what is seen from outside: of each thread its name, state,
// what it waits for in the kernel, and its kernel stack where that may be read (root).
//
// A process that writes nothing is looked at by eu-stack or gdb, where one of them is installed. That is the last
// resort: a debugger stops the process for as long as it reads symbols (with LibTorch six seconds on an idle machine),
// and a worker that is stopped sends no beats.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/base/event_loop.h"

namespace manta::node {

// What the shim writes into a worker's log before the worker's own stacks.
inline constexpr char kStacksFollow[] = "the stacks of all threads follow: ";

struct StackSource {
  int64_t pid = 0;
  std::string log_path;   // may be empty
  int64_t log_begin = 0;  // how long the log was before the worker was asked
};

// `done` on the loop, once, within about eight seconds; the text is at most 128 KiB of printable ASCII. Runs on a
// thread of its own.
void ReadStacks(EventLoop& loop, StackSource source, std::function<void(std::string)> done);

}  // namespace manta::node
