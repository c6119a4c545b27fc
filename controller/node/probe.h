// Whether a machine says that nobody listens at an address: by a TCP connection that is tried, and dropped if it is
// made.
#pragma once

#include <functional>
#include <string>

#include "absl/time/time.h"
#include "common/base/event_loop.h"

namespace manta::node {

// `done` on the loop, once: true where the connection was refused, false where it was made (by whoever lives there, or
// by a proxy that knows no more than this process), where nothing came within `limit`, or where there is no way to it.
// Names are looked up on a thread of its own.
void Probe(EventLoop& loop, const std::string& address, absl::Duration limit, std::function<void(bool refused)> done);

}  // namespace manta::node
