// A message's bytes in a form that equal messages share: maps have an order. For comparing and hashing within one build,
// not for the wire. Thread-safe.
#pragma once

#include <string>

#include "google/protobuf/message_lite.h"

namespace manta {

std::string DeterministicBytes(const google::protobuf::MessageLite& message);

}  // namespace manta
