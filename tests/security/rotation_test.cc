// Certificates, and the CA itself, are rotated while a server and a client go on: nobody is restarted, no call fails.
#include "gmock/gmock.h"
#include "tests/security/fort.h"

namespace manta::testing {
namespace {

using ::testing::IsEmpty;

constexpr absl::Duration kSeen = absl::Milliseconds(2500);  // more than a process needs to take files over

TEST(Rotation, NobodyIsRestarted) {
  Fort fort;
  const auto dir = fort.certificates();
  const std::string first_ca = ReadFile(dir / "ca.pem").value();
  // A copy of what there was: whoever holds it is let in as long as its CA is trusted.
  const auto old = fort.dir() / "old";
  std::filesystem::copy(dir, old);
  GoodClient good(fort);

  ASSERT_TRUE(rpc::InitCertificates(dir, {.job = "job"}).ok());
  absl::SleepFor(kSeen);
  EXPECT_TRUE(Fort::GetStatus(*fort.Connect(v1::ROLE_ADMIN)).ok()) << "after the certificates were renewed";

  ASSERT_TRUE(rpc::InitCertificates(dir, {.job = "job"}, rpc::CaStep::kAdd).ok());
  absl::SleepFor(kSeen);
  ASSERT_TRUE(rpc::InitCertificates(dir, {.job = "job"}).ok());
  absl::SleepFor(kSeen);
  EXPECT_TRUE(Fort::GetStatus(*fort.Connect(v1::ROLE_ADMIN)).ok()) << "with certificates of the new CA";
  rpc::TlsFiles holder = rpc::TlsFilesIn(old, "admin").value();
  holder.ca = dir / "ca.pem";  // knows both CAs, shows a certificate of the old one
  auto of_old = fort.Connect(v1::ROLE_ADMIN, "", holder);
  EXPECT_TRUE(Fort::GetStatus(*of_old).ok()) << "both CAs are trusted";

  ASSERT_TRUE(rpc::InitCertificates(dir, {.job = "job"}, rpc::CaStep::kDropOld).ok());
  absl::SleepFor(kSeen);
  EXPECT_EQ(ReadFile(dir / "ca.pem").value().find(first_ca), std::string::npos);
  EXPECT_TRUE(Fort::GetStatus(*fort.Connect(v1::ROLE_ADMIN)).ok()) << "with the new CA alone";
  EXPECT_TRUE(Fort::GetStatus(*of_old).ok()) << "connections that stand go on";
  const uint64_t before = rpc::RefusalCount(rpc::Refusal::kTls);
  holder.ca = fort.dir() / "both.pem";
  ASSERT_TRUE(WriteFileAtomically(holder.ca, ReadFile(dir / "ca.pem").value() + first_ca).ok());
  EXPECT_EQ(Fort::GetStatus(*fort.Connect(v1::ROLE_ADMIN, "", holder), absl::Seconds(2)).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_GT(rpc::RefusalCount(rpc::Refusal::kTls), before);

  good.Stop();
  EXPECT_THAT(good.errors(), IsEmpty());
  std::printf("%d calls of a client during three rotations, none failed\n", good.calls());
}

// A certificate and its key are two files, and one is replaced before the other.
TEST(Rotation, APairThatDoesNotFitYetChangesNothing) {
  Fort fort;
  const auto dir = fort.certificates(), next = fort.dir() / "next";
  std::filesystem::copy(dir, next);
  ASSERT_TRUE(rpc::InitCertificates(next, {.job = "job"}).ok());  // by the same CA
  ASSERT_TRUE(Fort::GetStatus(*fort.Connect(v1::ROLE_READER)).ok());
  GoodClient good(fort);
  for (const char* kind : {".key", ".pem"}) {
    for (const char* name : {"admin", "reader"}) {
      const std::string file = absl::StrCat(name, kind);
      std::filesystem::rename(next / file, dir / file);
    }
    const absl::Time until = absl::Now() + kSeen;
    while (absl::Now() < until) {
      ASSERT_TRUE(Fort::GetStatus(*fort.Connect(v1::ROLE_READER)).ok()) << "after the " << kind << " files";
      absl::SleepFor(absl::Milliseconds(50));
    }
  }
  // A process that begins while the two do not belong together says which.
  std::filesystem::copy(dir, fort.dir() / "torn");
  std::filesystem::copy_file(dir / "node.key", fort.dir() / "torn" / "admin.key",
                             std::filesystem::copy_options::overwrite_existing);
  const auto torn = rpc::TlsChannel(rpc::TlsFilesIn(fort.dir() / "torn", "admin").value(), rpc::kEveryRole);
  EXPECT_THAT(std::string(torn.status().message()), ::testing::HasSubstr("admin.key is not the key of "));
  good.Stop();
  EXPECT_THAT(good.errors(), IsEmpty());
}

}  // namespace
}  // namespace manta::testing
