// Who was refused, and why: counted for the life of the process, and told to the log.
//
// A count a reason (manta_rpc_refused_total{reason="..."}); a line for each of the first ten refusals of a reason in a
// second, and one line that says how many more there were. Nothing here blocks: lines are written by the audit log's
// thread. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace manta::rpc {

enum class Refusal {
  kNoToken,             // a call without one
  kWrongToken,          // another job's, or a guess
  kRole,                // of a role that the method is not for
  kCertificate,         // of a role, or a job, that the token does not fit
  kMethod,              // nobody may call it: unknown, or without the access option
  kRate,                // more often than the method allows
  kMessage,             // never reached its handler: too large, or given up by the caller
  kTls,                 // the handshake failed: no certificate, another CA's, an expired one
  kFirstBytes,          // the connection speaks something else
  kSlow,                // it said nothing, or too little, in time
  kTooManyConnections,  // of all, or of that address
};
inline constexpr int kNumRefusals = 11;

// "wrong_token", as in the metric's label.
absl::string_view RefusalName(Refusal reason);

// Counts, and tells the log. `detail` names who and what; it must hold no token.
void Refuse(Refusal reason, absl::string_view detail);

// Tells the log of those that had no line of their own, once their second has passed. Servers call it every second.
void TellRefusals();

uint64_t RefusalCount(Refusal reason);
// All of them by the metric's name.
std::map<std::string, double> RefusalCounters();

}  // namespace manta::rpc
