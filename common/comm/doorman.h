// Doorman: lets those in who know a group's secret. What listens for a group's ranks may be reached by anybody on the
// network; nothing that a connection says is looked at before both ends have shown that they know the secret, and the
// secret itself never crosses the wire.
//
//   door:  "MANTAdr1", 32 random bytes A
//   rank:  32 random bytes B, HMAC-SHA256(secret, "rank" A B)
//   door:  HMAC-SHA256(secret, "door" B A); 32 zeros to one that it turns away
//
// Every message has one length, so that nothing is read beyond it. Connections are heard side by side: one that says
// nothing, garbage, or what is wrong keeps nobody out, and is closed after kPatience at the latest. What follows on the
// connection is not encrypted, as NCCL's own traffic is not. Internal to common/comm; not thread-safe.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/comm/socket.h"

namespace manta::comm {

class Doorman {
 public:
  static constexpr absl::Duration kPatience = absl::Seconds(3);  // for one to show that it belongs here

  // `most`: as many connections are heard at once; when there are more the one that has been silent longest goes.
  Doorman(Fd listener, std::string secret, size_t most);

  // The next connection of one who knows the secret. DEADLINE_EXCEEDED when nobody came.
  [[nodiscard]] absl::StatusOr<Fd> Next(absl::Time deadline);

  const Fd& listener() const { return listener_; }
  // Connections that were closed because they did not know it, or did not say so in time.
  int turned_away() const { return turned_away_; }

 private:
  struct Guest {
    Fd fd;
    std::string challenge;
    std::string said;
    absl::Time until;
  };
  absl::Status AcceptAll();
  // False where the guest is to go.
  bool Hear(Guest& guest, bool* belongs);

  const Fd listener_;
  const std::string secret_;
  const size_t most_;
  std::deque<Guest> guests_;  // the oldest first
  std::deque<Fd> let_in_;
  int turned_away_ = 0;
};

// A connection to one who listens behind a Doorman, after each has shown the other the secret. Tries again until the
// deadline where nobody listens yet, or the connection ends in between. PERMISSION_DENIED where either does not know it.
[[nodiscard]] absl::StatusOr<Fd> ConnectToDoor(const std::string& address, std::string_view secret, absl::Time deadline);

}  // namespace manta::comm
