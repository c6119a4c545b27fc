// The weight channel from GPU to GPU, over real sessions on loopback and a transport in memory: what each side does
// when the other, or the way between them, fails.
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/comm/device_weights_for_test.h"
#include "gtest/gtest.h"

namespace manta::comm {
namespace {

TEST(DeviceWeights, OnOneGpuTheyAreReadInPlaceAndTheMappingIsKept) {
  Trainer trainer("GPU-1");
  Generator generator("GPU-1");
  ReceiveOptions verify;
  verify.verify = true;
  for (uint64_t version = 1; version <= 3; ++version) {
    trainer.Next(version);
    const auto report = generator.Update(version, {&trainer}, verify);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->transport, "cuda_ipc");
    EXPECT_EQ(report->version, version);
    EXPECT_TRUE(generator.Holds(version));
  }
  EXPECT_EQ(generator.transport->opened, 1);
  EXPECT_EQ(generator.log, std::vector<std::string>{"I weights come by cuda_ipc"});
}

TEST(DeviceWeights, BetweenGpusEveryLayoutGoesThroughOneCommunicator) {
  for (const int from : {-1, 0, 1}) {
    for (const int to : {-1, 0, 1}) {
      SCOPED_TRACE(absl::StrCat("from ", from, " to ", to));
      Trainer a("GPU-1", 0, 2, from), b("GPU-2", 1, 2, from);
      Generator generator("GPU-3", to, 1, 3);
      ReceiveOptions verify;
      verify.verify = true;
      for (uint64_t version = 1; version <= 3; ++version) {
        a.Next(version);
        b.Next(version);
        const auto report = generator.Update(version, {&a, &b}, verify);
        ASSERT_TRUE(report.ok()) << report.status();
        EXPECT_EQ(report->transport, "nccl");
        EXPECT_TRUE(generator.Holds(version));
      }
      EXPECT_EQ(generator.transport->groups, 1);
      EXPECT_EQ(generator.warnings(), 0);
    }
  }
}

TEST(DeviceWeights, TheSameGpuGoesBeforeOthersAndNobodyKeepsCopiesInVain) {
  Trainer near("GPU-1", 0), far("GPU-2", 1);
  Generator generator("GPU-1");
  for (uint64_t version = 1; version <= 2; ++version) {
    near.Next(version);
    far.Next(version);
    const auto report = generator.Update(version, {&far, &near});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->transport, "cuda_ipc");
    EXPECT_TRUE(generator.Holds(version));
    // Both know that their one reader has had it (the far one hears so a moment later): no copy on the host.
    absl::SleepFor(absl::Milliseconds(50));
    for (Trainer* trainer : {&near, &far}) {
      ASSERT_TRUE(trainer->store->BeginChange().ok());
      EXPECT_TRUE(absl::IsAborted(trainer->store->Get(version).status())) << trainer->store->Get(version).status();
    }
  }
  EXPECT_EQ(generator.transport->groups, 0);
}

TEST(DeviceWeights, HalfOnThisGpuAndHalfOnAnother) {
  Trainer a("GPU-1", 0, 2, 0), b("GPU-2", 1, 2, 0);
  Generator generator("GPU-1");
  a.Next(1);
  b.Next(1);
  const auto report = generator.Update(1, {&a, &b});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->transport, "cuda_ipc+nccl");
  EXPECT_TRUE(generator.Holds(1));
}

TEST(DeviceWeights, AReaderThatJoinsLateOrMissedAVersionConcernsNoOther) {
  Trainer trainer("GPU-1");
  Generator first("GPU-2"), second("GPU-3");
  trainer.Next(1, 2);
  ASSERT_TRUE(first.Update(1, {&trainer}).ok());
  trainer.Next(2, 2);
  ASSERT_TRUE(first.Update(2, {&trainer}).ok());
  ASSERT_TRUE(second.Update(2, {&trainer}).ok());
  EXPECT_TRUE(second.Holds(2));
  trainer.Next(3, 2);
  ASSERT_TRUE(second.Update(3, {&trainer}).ok());
  trainer.Next(4, 2);
  ASSERT_TRUE(first.Update(4, {&trainer}).ok());  // it missed 3
  EXPECT_TRUE(first.Holds(4));
  EXPECT_EQ(first.transport->groups, 1);
  second.client = nullptr;  // leaves
  trainer.Next(5, 1);
  ASSERT_TRUE(first.Update(5, {&trainer}).ok());
  EXPECT_EQ(first.transport->groups, 1);
  // What one reader has not had when it is changed is kept for it on the host.
  trainer.Next(6, 2);
  ASSERT_TRUE(first.Update(6, {&trainer}).ok());
  trainer.Change(7);
  Generator late("GPU-1");
  const auto report = late.Update(6, {&trainer});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->transport, "shared_memory");
  EXPECT_TRUE(late.Holds(6));
}

TEST(DeviceWeights, WhileTheyAreReplacedTheReaderWaitsForTheNextVersion) {
  Trainer trainer("GPU-1");
  Generator generator("GPU-1"), late("GPU-2"), on_the_cpu("");
  trainer.Next(1);
  ASSERT_TRUE(generator.Update(1, {&trainer}).ok());
  trainer.Change(2);
  std::thread publisher([&] {
    absl::SleepFor(absl::Milliseconds(300));
    trainer.Publish(2, 3);
  });
  for (Generator* reader : {&late, &on_the_cpu}) {
    const auto report = reader->Update(1, {&trainer});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->version, 2u);
    EXPECT_TRUE(reader->Holds(2));
  }
  publisher.join();
  EXPECT_EQ(on_the_cpu.log, std::vector<std::string>{"I weights come by shared_memory"});
  // And not for ever.
  trainer.Change(3);
  ReceiveOptions hurry;
  hurry.timeout = absl::Milliseconds(300);
  const auto report = generator.Update(3, {&trainer}, hurry);
  EXPECT_FALSE(report.ok());
}

TEST(DeviceWeights, ATrainerThatDiesInATransferIsNoticedAtOnceAndItsSuccessorServes) {
  Generator generator("GPU-2");
  generator.options.device.transfer_timeout = absl::Seconds(60);
  auto trainer = std::make_unique<Trainer>("GPU-1");
  trainer->Next(1);
  ASSERT_TRUE(generator.Update(1, {trainer.get()}).ok());
  trainer->Next(2);
  trainer->transport->stall_after_buckets = 2;
  std::thread killer([&] {
    absl::SleepFor(absl::Milliseconds(200));
    trainer->Stop();
  });
  const absl::Time start = absl::Now();
  const auto report = generator.Update(2, {trainer.get()});
  killer.join();
  EXPECT_FALSE(report.ok());
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  EXPECT_TRUE(generator.in_pieces);
  EXPECT_EQ(generator.client->version(), 0u);
  EXPECT_EQ(generator.warnings(), 1) << generator.log.back();
  trainer = nullptr;
  Trainer successor("GPU-1");
  successor.Next(3);
  const auto again = generator.Update(3, {&successor});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->transport, "nccl");
  EXPECT_TRUE(generator.Holds(3));
}

TEST(DeviceWeights, ATrainerThatDiesBeforeATransferLeavesTheOldWeightsWhole) {
  for (const char* gpu : {"GPU-1", "GPU-2"}) {
    Generator generator(gpu);
    Trainer trainer("GPU-1");
    trainer.Next(1);
    ASSERT_TRUE(generator.Update(1, {&trainer}).ok());
    trainer.Next(2);
    generator.before_write = [&] {
      trainer.Stop();
      absl::SleepFor(absl::Milliseconds(100));
    };
    EXPECT_FALSE(generator.Update(2, {&trainer}).ok());
    EXPECT_FALSE(generator.in_pieces);
    EXPECT_EQ(generator.client->version(), 1u);
    EXPECT_TRUE(generator.Holds(1));
  }
}

TEST(DeviceWeights, AReaderThatDiesInATransferGivesBackWhatItBorrowed) {
  Trainer trainer("GPU-1", 0, 1, -1, /*max_borrow=*/absl::Seconds(30));
  trainer.Next(1);
  auto generator = std::make_unique<Generator>("GPU-2");
  generator->transport->fail_after_buckets = 1;
  trainer.transport->stall_after_buckets = 1;
  const auto report = generator->Update(1, {&trainer});
  ASSERT_TRUE(report.ok()) << report.status();  // through the host
  EXPECT_EQ(report->transport, "shared_memory");
  const absl::Time start = absl::Now();
  ASSERT_TRUE(trainer.store->BeginChange().ok());
  EXPECT_LT(absl::Now() - start, absl::Seconds(2));
}

TEST(DeviceWeights, AFailureFallsBackToTheHostWithOneLineAndTheNextVersionTriesAgain) {
  Trainer trainer("GPU-1");
  Generator generator("GPU-2");
  const auto update = [&](uint64_t version) {
    trainer.Next(version);
    const auto report = generator.Update(version, {&trainer});
    EXPECT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(generator.Holds(version));
    EXPECT_EQ(generator.client->version(), version);
    return report.ok() ? report->transport : "";
  };
  EXPECT_EQ(update(1), "nccl");
  trainer.transport->fail_after_buckets = 3;
  EXPECT_EQ(update(2), "shared_memory");
  EXPECT_EQ(generator.warnings(), 1);
  EXPECT_EQ(update(3), "nccl");
  EXPECT_EQ(generator.transport->groups, 2);
  // A way that stays broken is tried ever more seldom.
  trainer.transport->joins = false;
  EXPECT_EQ(update(4), "nccl");  // it has joined already
  trainer.transport->fail_after_buckets = 0;
  for (uint64_t version = 5; version <= 16; ++version) EXPECT_EQ(update(version), "shared_memory");
  EXPECT_EQ(generator.warnings(), 1 + 4);  // at versions 5, 6, 8 and 12
  trainer.transport->joins = true;
  for (uint64_t version = 17; version <= 19; ++version) EXPECT_EQ(update(version), "shared_memory");
  EXPECT_EQ(update(20), "nccl");
}

TEST(DeviceWeights, ATransferThatStallsEndsAtItsDeadline) {
  Trainer trainer("GPU-1");
  Generator generator("GPU-2");
  generator.options.device.transfer_timeout = absl::Milliseconds(300);
  trainer.Next(1);
  trainer.transport->stall_after_buckets = 1;
  const absl::Time start = absl::Now();
  const auto report = generator.Update(1, {&trainer});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->transport, "shared_memory");
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  EXPECT_TRUE(absl::StrContains(generator.log[0], "stalled") || absl::StrContains(generator.log[0], "did not come"))
      << generator.log[0];
}

TEST(DeviceWeights, DamagedBytesAreSeen) {
  for (const char* gpu : {"GPU-1", "GPU-2"}) {
    Trainer trainer("GPU-1");
    Generator generator(gpu);
    trainer.Next(1);
    generator.transport->damage = gpu == std::string("GPU-1");
    trainer.transport->damage = gpu == std::string("GPU-2");
    ReceiveOptions verify;
    verify.verify = true;
    const auto report = generator.Update(1, {&trainer}, verify);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->transport, "shared_memory");
    EXPECT_TRUE(absl::StrContains(generator.log[0], "checksum")) << generator.log[0];
    EXPECT_TRUE(generator.Holds(1));
  }
}

TEST(DeviceWeights, WhoReadsTooLongIsToldThatTheWeightsHaveChanged) {
  Trainer trainer("GPU-1", 0, 1, -1, /*max_borrow=*/absl::Milliseconds(100));
  Generator generator("GPU-1");
  trainer.Next(1);
  int times = 0;
  generator.before_write = [&] {
    if (times++ == 0) trainer.Change(2);  // waits for the reader, in vain
  };
  const auto report = generator.Update(1, {&trainer});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->transport, "shared_memory");  // it was kept for the reader
  EXPECT_TRUE(generator.Holds(1));
  EXPECT_TRUE(absl::StrContains(generator.log[0], "changed its weights")) << generator.log[0];
}

TEST(DeviceWeights, WhereThereIsNoWayItIsSaidOnce) {
  Trainer trainer("GPU-1");
  trainer.transport->exports = false;
  Generator generator("GPU-1"), cannot_open("GPU-2");
  trainer.transport->nccl = false;
  for (uint64_t version = 1; version <= 3; ++version) {
    trainer.Next(version, 2);
    for (Generator* reader : {&generator, &cannot_open}) {
      const auto report = reader->Update(version, {&trainer});
      ASSERT_TRUE(report.ok()) << report.status();
      EXPECT_TRUE(reader->Holds(version));
    }
  }
  ASSERT_EQ(generator.log.size(), 2u);
  EXPECT_EQ(generator.log[0],
            "I weights do not go from GPU to GPU here: the source cannot export its memory: expandable segments");
  EXPECT_EQ(generator.log[1], "I weights come by shared_memory");
  EXPECT_EQ(cannot_open.log[0], "I weights do not go from GPU to GPU here: NCCL is not loaded on both sides");
}

TEST(DeviceWeights, VersionsNeverGoBack) {
  Trainer a("GPU-1"), b("GPU-1");
  Generator generator("GPU-1");
  a.Next(5);
  b.Next(4);
  ASSERT_TRUE(generator.Update(5, {&a}).ok());
  const auto back = generator.Update(4, {&b});
  EXPECT_TRUE(absl::IsFailedPrecondition(back.status())) << back.status();
  EXPECT_TRUE(absl::IsFailedPrecondition(a.store->PublishInPlace(5, {}, a.transport, nullptr, 1)));
  EXPECT_TRUE(generator.Holds(5));
  EXPECT_EQ(generator.client->version(), 5u);
}

// Readers come and go while versions are made: what each gets is one version, whole.
TEST(DeviceWeights, ReadersAndAPublisherAtOnce) {
  Trainer a("GPU-1", 0, 2, 0), b("GPU-2", 1, 2, 0);
  a.Next(1, 2);
  b.Next(1, 2);
  std::atomic<uint64_t> newest{1};
  std::atomic<int> received{0};
  std::vector<std::thread> readers;
  for (const char* gpu : {"GPU-1", "GPU-3"}) {
    readers.emplace_back([&, gpu] {
      Generator generator(gpu);
      ReceiveOptions options;
      options.timeout = absl::Seconds(5);
      while (newest < 20) {
        const auto report = generator.Update(newest, {&a, &b}, options);
        if (!report.ok()) continue;  // replaced meanwhile
        ++received;
        EXPECT_TRUE(generator.Holds(report->version)) << report->version;
      }
    });
  }
  for (uint64_t version = 2; version <= 20; ++version) {
    a.Change(version);
    b.Change(version);
    a.Publish(version, 2);
    b.Publish(version, 2);
    newest = version;
    absl::SleepFor(absl::Milliseconds(20));
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_GT(received, 0);
}

}  // namespace
}  // namespace manta::comm
