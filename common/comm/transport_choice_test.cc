#include "common/comm/transport_choice.h"

#include "gtest/gtest.h"

namespace manta::comm {
namespace {

v1::DeviceEndpoint End(const char* host, const char* gpu, bool ipc = true, bool nccl = true) {
  v1::DeviceEndpoint end;
  end.set_host_id(host);
  end.set_gpu(gpu);
  end.set_cuda_ipc(ipc);
  end.set_nccl(nccl);
  return end;
}

TEST(TransportChoice, FollowsFromWhereTheTwoAre) {
  const auto choose = [](const v1::DeviceEndpoint& a, const v1::DeviceEndpoint& b) {
    return ChooseTransport(a, b).transport;
  };
  EXPECT_EQ(choose(End("h", "GPU-1"), End("h", "GPU-1")), v1::WEIGHT_TRANSPORT_CUDA_IPC);
  EXPECT_EQ(choose(End("h", "GPU-1"), End("h", "GPU-2")), v1::WEIGHT_TRANSPORT_NCCL);
  EXPECT_EQ(choose(End("h", "GPU-1"), End("i", "GPU-2")), v1::WEIGHT_TRANSPORT_NCCL);
  // NCCL needs no IPC, and IPC no NCCL.
  EXPECT_EQ(choose(End("h", "GPU-1", false), End("h", "GPU-2", false)), v1::WEIGHT_TRANSPORT_NCCL);
  EXPECT_EQ(choose(End("h", "GPU-1", true, false), End("h", "GPU-1", true, false)), v1::WEIGHT_TRANSPORT_CUDA_IPC);
}

TEST(TransportChoice, TheHostIsUsedForAReason) {
  const auto reason = [](const v1::DeviceEndpoint& a, const v1::DeviceEndpoint& b) {
    const TransportChoice choice = ChooseTransport(a, b);
    EXPECT_EQ(choice.transport, v1::WEIGHT_TRANSPORT_HOST);
    return choice.reason;
  };
  EXPECT_EQ(reason(End("h", ""), End("h", "GPU-1")), "the source has no GPU");
  EXPECT_EQ(reason(End("h", "GPU-1"), End("h", "")), "the reader has no GPU");
  EXPECT_EQ(reason(End("h", ""), End("h", "")), "the source has no GPU");
  EXPECT_EQ(reason(End("h", "GPU-1"), End("i", "GPU-1")),
            "both have one GPU, in containers that do not see each other");
  EXPECT_EQ(reason(End("h", "GPU-1", false), End("h", "GPU-1")), "the source cannot export its memory");
  EXPECT_EQ(reason(End("h", "GPU-1"), End("h", "GPU-1", false)), "the reader cannot open another process's memory");
  EXPECT_EQ(reason(End("h", "GPU-1", true, false), End("h", "GPU-2")), "NCCL is not loaded on both sides");
  EXPECT_STREQ(Name(v1::WEIGHT_TRANSPORT_HOST), "host");
  EXPECT_STREQ(Name(v1::WEIGHT_TRANSPORT_CUDA_IPC), "cuda_ipc");
}

}  // namespace
}  // namespace manta::comm
