// Whether a machine answers at an address: by a TCP connection that is made and dropped.
#pragma once

#include <functional>
#include <string>

#include "absl/time/time.h"
#include "common/base/event_loop.h"

namespace manta::node {

// `done` on the loop, once: true where the connection was accepted or refused (a refusal, too, is an answer of the
// machine's), false where nothing came within `limit` or there is no way to it. Names are looked up on a thread of its
// own.
void Probe(EventLoop& loop, const std::string& address, absl::Duration limit, std::function<void(bool answers)> done);

}  // namespace manta::node
