#include "common/comm/doorman.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/rpc/token.h"

namespace manta::comm {
namespace {

constexpr std::string_view kGreeting = "MANTAdr1";
constexpr size_t kRandom = 32, kProof = 32;

std::string RandomBytes() {
  std::string bytes(kRandom, '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = getrandom(bytes.data() + done, bytes.size() - done, 0);
    MANTA_CHECK(n > 0 || errno == EINTR) << std::strerror(errno);
    if (n > 0) done += static_cast<size_t>(n);
  }
  return bytes;
}

std::string Proof(std::string_view secret, std::string_view who, std::string_view first, std::string_view second) {
  const std::string text = absl::StrCat(std::string(who), std::string(first), std::string(second));
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  MANTA_CHECK(HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                   reinterpret_cast<const unsigned char*>(text.data()), text.size(), bytes, &length) != nullptr);
  MANTA_CHECK(length == kProof);
  return std::string(reinterpret_cast<const char*>(bytes), length);
}

// Into a socket that has just been opened: it takes these few bytes, or its other end is gone.
bool SendNow(const Fd& fd, const std::string& bytes) {
  return send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size());
}

absl::StatusOr<std::string> Read(const Fd& fd, size_t bytes, absl::Time deadline) {
  std::string text(bytes, '\0');
  MANTA_RETURN_IF_ERROR(ReadAll(fd, text.data(), text.size(), deadline));
  return text;
}

absl::Status Introduce(const Fd& fd, const std::string& address, std::string_view secret, absl::Time deadline) {
  MANTA_ASSIGN_OR_RETURN(const std::string greeting, Read(fd, kGreeting.size() + kRandom, deadline));
  if (greeting.compare(0, kGreeting.size(), kGreeting) != 0) {
    return absl::PermissionDeniedError(absl::StrCat("whoever listens at ", address, " is no rank of a group"));
  }
  const std::string theirs = greeting.substr(kGreeting.size()), mine = RandomBytes();
  const std::string said = absl::StrCat(mine, Proof(secret, "rank", theirs, mine));
  MANTA_RETURN_IF_ERROR(WriteAll(fd, said.data(), said.size(), deadline));
  MANTA_ASSIGN_OR_RETURN(const std::string proof, Read(fd, kProof, deadline));
  if (proof == std::string(kProof, '\0')) {
    return absl::PermissionDeniedError(absl::StrCat("turned away at ", address, ": not the token of the job that it is of"));
  }
  if (rpc::TokensEqual(proof, Proof(secret, "door", mine, theirs))) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("whoever listens at ", address, " does not know the job's token"));
}

}  // namespace

Doorman::Doorman(Fd listener, std::string secret, size_t most)
    : listener_(std::move(listener)), secret_(std::move(secret)), most_(most) {}

absl::Status Doorman::AcceptAll() {
  for (size_t i = 0; i < most_; ++i) {  // then those who are here are heard
    absl::StatusOr<Fd> fd = Accept(listener_, absl::InfinitePast());
    if (absl::IsDeadlineExceeded(fd.status())) break;
    if (!fd.ok()) return fd.status();
    Guest guest{*std::move(fd), RandomBytes(), "", absl::Now() + kPatience};
    if (!SendNow(guest.fd, absl::StrCat(std::string(kGreeting), guest.challenge))) continue;
    guests_.push_back(std::move(guest));
    if (guests_.size() <= most_) continue;
    guests_.pop_front();
    ++turned_away_;
  }
  return absl::OkStatus();
}

bool Doorman::Hear(Guest& guest, bool* belongs) {
  char buffer[kRandom + kProof];
  const size_t missing = sizeof(buffer) - guest.said.size();
  const ssize_t n = recv(guest.fd.get(), buffer, missing, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (n <= 0) return false;
  guest.said.append(buffer, static_cast<size_t>(n));
  if (guest.said.size() < sizeof(buffer)) return true;
  const std::string_view said = guest.said;
  const std::string_view theirs = said.substr(0, kRandom);
  *belongs = rpc::TokensEqual(absl::string_view(said.data() + kRandom, kProof),
                              Proof(secret_, "rank", guest.challenge, theirs));
  const bool sent = SendNow(guest.fd, *belongs ? Proof(secret_, "door", theirs, guest.challenge) : std::string(kProof, '\0'));
  *belongs &= sent;
  return false;
}

absl::StatusOr<Fd> Doorman::Next(absl::Time deadline) {
  while (let_in_.empty()) {
    const absl::Time now = absl::Now();
    while (!guests_.empty() && guests_.front().until <= now) {
      guests_.pop_front();
      ++turned_away_;
    }
    if (now >= deadline) return absl::DeadlineExceededError("nobody came in time");
    std::vector<pollfd> polls = {{listener_.get(), POLLIN, 0}};
    for (const Guest& guest : guests_) polls.push_back({guest.fd.get(), POLLIN, 0});
    const absl::Time wake = guests_.empty() ? deadline : std::min(deadline, guests_.front().until);
    const int64_t ms = std::clamp<int64_t>(absl::ToInt64Milliseconds(wake - now) + 1, 1, 60000);
    if (poll(polls.data(), polls.size(), static_cast<int>(ms)) < 0 && errno != EINTR) {
      return absl::InternalError(absl::StrCat("poll: ", std::strerror(errno)));
    }
    std::deque<Guest> stay;
    for (size_t i = 0; i < guests_.size(); ++i) {
      Guest& guest = guests_[i];
      bool belongs = false;
      if (polls[i + 1].revents == 0 || Hear(guest, &belongs)) {
        stay.push_back(std::move(guest));
      } else if (belongs) {
        let_in_.push_back(std::move(guest.fd));
      } else {
        ++turned_away_;
      }
    }
    guests_ = std::move(stay);
    if (polls[0].revents != 0) MANTA_RETURN_IF_ERROR(AcceptAll());
  }
  Fd fd = std::move(let_in_.front());
  let_in_.pop_front();
  return fd;
}

absl::StatusOr<Fd> ConnectToDoor(const std::string& address, std::string_view secret, absl::Time deadline) {
  while (true) {
    absl::StatusOr<Fd> fd = ConnectRetrying(address, deadline);
    if (!fd.ok()) return fd;
    const absl::Status met = Introduce(*fd, address, secret, deadline);
    if (met.ok()) return fd;
    // The other end was there and went: it may be started again, or have had too many at its door.
    if (!absl::IsUnavailable(met) || absl::Now() + absl::Milliseconds(20) >= deadline) return met;
    absl::SleepFor(absl::Milliseconds(20));
  }
}

}  // namespace manta::comm
