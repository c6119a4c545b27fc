// Threads for the CPU kernels: a pool that sleeps between calls, one for the process.
//
// How work is cut never changes a result: kernels give each element of their output to one thread. Thread-safe; calls
// from several threads at once take turns. With one thread (the default) everything runs on the caller.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace manta::kernels {

// At least 1; by default 1, since a machine's cores are usually shared out among ranks.
void SetThreads(int threads);
int Threads();

// Calls body(begin, end) for pieces of [0, size), each of at least `grain` items, and returns when all are done.
void ParallelFor(int64_t size, int64_t grain, absl::FunctionRef<void(int64_t begin, int64_t end)> body);

}  // namespace manta::kernels
