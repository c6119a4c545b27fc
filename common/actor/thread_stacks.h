// The stacks of a worker's threads, on request from outside: the shim sends SIGUSR2 to each thread of a worker whose
// group does not get on, and each writes its own into stderr, hence into the worker's log. Needs nothing of a loop or a
// lane that may be what hangs.
#pragma once

namespace manta::actor {

// For this process, once; before threads are started, so that nothing is loaded in the handler itself.
void InstallStackHandler();

}  // namespace manta::actor
