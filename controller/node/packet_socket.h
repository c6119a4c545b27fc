// Protobuf messages over a SOCK_SEQPACKET socket pair, as agent and shim speak. One packet a message; never blocks.
#pragma once

#include "google/protobuf/message_lite.h"

namespace manta::node {

// Both ends, close-on-exec and non-blocking. False where there are no descriptors left.
bool MakePacketSocket(int ends[2]);

// False where the other end is gone or does not read: it is then of no use any more.
bool SendMessage(int fd, const google::protobuf::MessageLite& message);

enum class Received { kMessage, kNothing, kClosed };
Received ReceiveMessage(int fd, google::protobuf::MessageLite* message);

}  // namespace manta::node
