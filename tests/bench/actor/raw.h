// gRPC by itself, as the synchronous API has it, over the same kind of channel and with the same token: what our calls
// are held against. One message there, one back.
#pragma once

#include <string>

namespace manta::bench {

int ServeRaw(const std::string& token);  // prints "listening ADDRESS", serves until it is killed
double RawStreamPerSecond(const std::string& address, const std::string& token, double seconds);
double RawStreamPipelinedPerSecond(const std::string& address, const std::string& token, double seconds);
double RawUnaryPerSecond(const std::string& address, const std::string& token, double seconds);

}  // namespace manta::bench
