// Certificates, and the CA itself, are rotated while a server and a client go on: nobody is restarted, no call fails.
#include "gmock/gmock.h"
#include "tests/security/fort.h"

namespace manta::testing {
namespace {

using ::testing::IsEmpty;

constexpr absl::Duration kSeen = absl::Milliseconds(2500);  // files are looked at every second

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

}  // namespace
}  // namespace manta::testing
