#include "controller/node/resources.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::node {
namespace {

using ::testing::ElementsAre;

TEST(ResourcesTest, CudaVisibleDevicesSaysWhichGpusAreOffered) {
  std::vector<v1::Gpu> gpus(3);
  for (int i = 0; i < 3; ++i) {
    gpus[i].set_index(i);
    gpus[i].set_uuid("GPU-" + std::string(1, static_cast<char>('a' + i)) + "0");
  }
  const auto visible = [&](const std::string& value) {
    std::vector<int> indices;
    for (const v1::Gpu& gpu : VisibleGpus(gpus, value)) indices.push_back(gpu.index());
    return indices;
  };
  EXPECT_THAT(visible("2,0"), ElementsAre(2, 0));
  EXPECT_THAT(visible("GPU-b, GPU-c0"), ElementsAre(1, 2));
  EXPECT_THAT(visible("1,7,2"), ElementsAre(1));
  for (const char* none : {"", "-1", "NoDevFiles", "MIG-GPU-a0/1/2", "GPU-d"}) {
    EXPECT_THAT(visible(none), ElementsAre()) << none;
  }
}

}  // namespace
}  // namespace manta::node
