// Our calls: an actor that echoes, a caller that waits for each reply, and one that keeps a window of calls under way.
#pragma once

#include <string>
#include <vector>

namespace manta::bench {

int ServeEcho(const std::string& token);  // prints "listening ADDRESS", serves until it is killed
double CallsPerSecond(const std::string& address, const std::string& token, double seconds);
// To all addresses from one client, `window` calls under way to each.
double PipelinedCallsPerSecond(const std::vector<std::string>& addresses, const std::string& token, int window,
                               double seconds);

// 10^9 bytes a second of an argument of `bytes`, from the caller's buffer to the handler's span; the first call apart.
double ArgumentGbPerSecond(const std::string& address, const std::string& token, size_t bytes, bool shared_memory,
                           double seconds);

}  // namespace manta::bench
