// gRPC by itself, as the synchronous API has it, over the same kind of channel and with the same token: what our calls
// are held against. One message there, one back.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace manta::bench {

int ServeRaw(const std::string& token);  // prints "listening ADDRESS", serves until it is killed
double RawStreamPerSecond(const std::string& address, const std::string& token, double seconds);
double RawStreamPipelinedPerSecond(const std::string& address, const std::string& token, double seconds);
double RawUnaryPerSecond(const std::string& address, const std::string& token, double seconds);
// Unary calls with `window` of them under way (raw_load.cc, as the rest).
double RawUnaryPipelinedPerSecond(const std::string& address, const std::string& token, int window, double seconds);
// A stream to each address, each written to and read from by threads of its own.
double RawStreamsPipelinedPerSecond(const std::vector<std::string>& addresses, const std::string& token,
                                    double seconds);
// 10^9 bytes a second of an argument of `bytes`, in messages of a MiB, from the caller's buffer into the server's.
double RawArgumentGbPerSecond(const std::string& address, const std::string& token, size_t bytes, double seconds);
// Connects and makes one unary call.
bool RawCallOnce(const std::string& address, const std::string& token);

}  // namespace manta::bench
