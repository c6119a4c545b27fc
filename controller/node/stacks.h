// What a process that does not answer is doing, as seen from outside: of each thread its name, state, what it waits for
// in the kernel, its kernel stack where that may be read (root), and the user stacks by eu-stack or gdb where one of
// them is installed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/base/event_loop.h"

namespace manta::node {

// `done` on the loop, once, within about ten seconds; the text is at most 128 KiB. Runs on a thread of its own.
void ReadStacks(EventLoop& loop, int64_t pid, std::function<void(std::string)> done);

}  // namespace manta::node
