// Packets over SOCK_SEQPACKET sockets, as agent, launcher, shim and worker speak: one protobuf message (or one line of
// text) a packet, with descriptors beside it where need be. Never blocks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "google/protobuf/message_lite.h"

namespace manta::node {

constexpr size_t kMaxPacketBytes = 256 << 10;

// Both ends, close-on-exec and non-blocking. False where there are no descriptors left.
bool MakePacketSocket(int ends[2]);

// False where the other end is gone, does not read (its queue is full), or the packet is too large.
bool SendPacket(int fd, std::string_view bytes, const std::vector<int>& descriptors = {});
bool SendMessage(int fd, const google::protobuf::MessageLite& message, const std::vector<int>& descriptors = {});

enum class Received { kMessage, kNothing, kClosed };
// Descriptors that came along are the caller's (close-on-exec); without `descriptors` they are closed.
Received ReceivePacket(int fd, std::string* bytes, std::vector<int>* descriptors = nullptr);
// kClosed also where the packet is no such message.
Received ReceiveMessage(int fd, google::protobuf::MessageLite* message, std::vector<int>* descriptors = nullptr);

}  // namespace manta::node
