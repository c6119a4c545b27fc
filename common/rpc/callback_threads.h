// Keeps the threads that run the callbacks of this process's calls for as long as the process lives.
//
// gRPC 1.51 has one set of them for all channels and callback servers, and takes it down when the last of these goes.
// A call refers to its channel, so the last reference may go on one of those very threads, behind the callback that
// told someone that the call is over: the thread then waits for its own end and frees the queue that it reads from. The
// process aborts, hangs, or never gets another callback. A node agent whose head died had one channel, and met this.
#pragma once

namespace manta::rpc {

// Before the first call with a callback of a process that may have no server; rpc::Call and rpc::OpenStream do it.
// Cheap after the first time. Thread-safe.
void KeepCallbackThreads();

}  // namespace manta::rpc
