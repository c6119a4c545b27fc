// The metadata by which a unary call names the key that its result is kept under (common/actor/keyed_replies.h).
#pragma once

namespace manta::rpc {

inline constexpr char kCallKey[] = "x-manta-call-key";
inline constexpr char kKeptOnly[] = "x-manta-kept-only";  // present: answer with what is kept, do nothing

}  // namespace manta::rpc
