#include "common/comm/doorman.h"

#include <sys/socket.h>

#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace manta::comm {
namespace {

constexpr char kSecret[] = "0123456789abcdef0123456789abcdef";

absl::Time In(absl::Duration duration) { return absl::Now() + duration; }

class DoormanTest : public ::testing::Test {
 protected:
  DoormanTest() : door_(Listen("127.0.0.1:0").value(), kSecret, /*most=*/16), address_(BoundAddress(door_.listener())) {}
  // One that belongs here comes, and is let in within `limit`.
  void ExpectLetIn(absl::Duration limit) {
    const absl::Time start = absl::Now();
    std::thread rank([&] {
      absl::StatusOr<Fd> fd = ConnectToDoor(address_, kSecret, In(absl::Seconds(10)));
      ASSERT_TRUE(fd.ok()) << fd.status();
      EXPECT_TRUE(WriteMessage(*fd, "it is me", In(absl::Seconds(1))).ok());
    });
    absl::StatusOr<Fd> fd = door_.Next(In(absl::Seconds(10)));
    ASSERT_TRUE(fd.ok()) << fd.status();
    EXPECT_EQ(ReadMessage(*fd, In(absl::Seconds(1))).value_or(""), "it is me");
    EXPECT_LT(absl::Now() - start, limit);
    rank.join();
  }
  Fd Stranger() { return Connect(address_, In(absl::Seconds(1))).value(); }

  Doorman door_;
  const std::string address_;
};

TEST_F(DoormanTest, WhoKnowsTheSecretIsLetIn) {
  ExpectLetIn(absl::Seconds(1));
  ExpectLetIn(absl::Seconds(1));
  EXPECT_EQ(door_.turned_away(), 0);
}

TEST_F(DoormanTest, AnotherJobsTokenIsTurnedAwayAndToldSo) {
  for (const std::string secret : {"another job's token", ""}) {
    absl::Status status;
    std::thread other([&] { status = ConnectToDoor(address_, secret, In(absl::Seconds(5))).status(); });
    EXPECT_TRUE(absl::IsDeadlineExceeded(door_.Next(In(absl::Milliseconds(300))).status()));
    other.join();
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
    EXPECT_EQ(status.message().find("another job's token"), std::string::npos) << "a secret in a message";
  }
  EXPECT_EQ(door_.turned_away(), 2);
  ExpectLetIn(absl::Seconds(1));
}

TEST_F(DoormanTest, SilentSlowAndGarbledStrangersKeepNobodyOut) {
  std::vector<Fd> strangers;
  for (int i = 0; i < 12; ++i) {
    strangers.push_back(Stranger());
    const std::string said = i % 3 == 0 ? "GET / HTTP/1.1\r\n\r\n" : std::string(i % 3 == 1 ? 5000 : 0, '\xff');
    EXPECT_TRUE(WriteAll(strangers.back(), said.data(), said.size(), In(absl::Seconds(1))).ok());
  }
  strangers.push_back(Stranger());
  strangers.back().Close();
  std::thread slow([this] {  // a byte a tenth of a second
    const Fd fd = Stranger();
    for (int i = 0; i < 50 && send(fd.get(), "x", 1, MSG_NOSIGNAL) == 1; ++i) absl::SleepFor(absl::Milliseconds(100));
  });
  ExpectLetIn(absl::Seconds(1));
  EXPECT_TRUE(absl::IsDeadlineExceeded(door_.Next(In(Doorman::kPatience + absl::Milliseconds(500))).status()));
  for (const Fd& stranger : strangers) {
    if (!stranger) continue;
    char bytes[256];
    while (recv(stranger.get(), bytes, sizeof(bytes), MSG_DONTWAIT) > 0) continue;  // the greeting, and that it is refused
    EXPECT_TRUE(PeerClosed(stranger)) << "one is still there after the door's patience";
  }
  slow.join();
  EXPECT_EQ(door_.turned_away(), 14);
}

TEST_F(DoormanTest, MoreStrangersThanAreHeardAtOnce) {
  std::vector<Fd> strangers;
  for (int i = 0; i < 100; ++i) strangers.push_back(Stranger());
  ExpectLetIn(absl::Seconds(1));
  EXPECT_GE(door_.turned_away(), 100 - 16);
}

TEST(Doorman, NobodyComes) {
  Doorman door(Listen("127.0.0.1:0").value(), kSecret, 4);
  const absl::Time start = absl::Now();
  EXPECT_TRUE(absl::IsDeadlineExceeded(door.Next(In(absl::Milliseconds(100))).status()));
  EXPECT_LT(absl::Now() - start, absl::Seconds(1));
}

// Whoever listens at the address has to know the secret too: here one that sends back what it is sent.
TEST(Doorman, AnImpostorAtTheAddressIsFoundOut) {
  const Fd listener = Listen("127.0.0.1:0").value();
  for (const bool echo : {true, false}) {
    std::string heard;
    std::thread impostor([&] {
      const Fd fd = Accept(listener, In(absl::Seconds(5))).value();
      const std::string greeting = absl::StrCat("MANTAdr1", std::string(32, 'a'));
      EXPECT_TRUE(WriteAll(fd, greeting.data(), greeting.size(), In(absl::Seconds(1))).ok());
      heard.resize(64);
      EXPECT_TRUE(ReadAll(fd, heard.data(), heard.size(), In(absl::Seconds(5))).ok());
      const std::string proof = echo ? heard.substr(32) : std::string(32, 'b');
      EXPECT_TRUE(WriteAll(fd, proof.data(), proof.size(), In(absl::Seconds(1))).ok());
    });
    const absl::Status status = ConnectToDoor(BoundAddress(listener), kSecret, In(absl::Seconds(5))).status();
    impostor.join();
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
    EXPECT_NE(status.message().find("does not know the job's token"), std::string::npos) << status;
    EXPECT_EQ(heard.find(kSecret), std::string::npos);
  }
}

TEST(Doorman, SomethingElseListensThere) {
  const Fd listener = Listen("127.0.0.1:0").value();
  std::thread other([&] {
    const Fd fd = Accept(listener, In(absl::Seconds(5))).value();
    const std::string text = "220 mail.example.org ESMTP, a service that has nothing to do with this\r\n";
    EXPECT_TRUE(WriteAll(fd, text.data(), text.size(), In(absl::Seconds(1))).ok());
  });
  const absl::Status status = ConnectToDoor(BoundAddress(listener), kSecret, In(absl::Seconds(5))).status();
  other.join();
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
}

}  // namespace
}  // namespace manta::comm
