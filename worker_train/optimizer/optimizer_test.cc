#include <cmath>
#include <vector>

#include "common/base/random.h"
#include "gtest/gtest.h"
#include "worker_train/optimizer/adamw.h"
#include "worker_train/optimizer/lr_schedule.h"

namespace manta::train {
namespace {

TEST(AdamWTest, FollowsTheFormula) {
  RandomStream random(1);
  const AdamWOptions options{.lr = 0.01, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
  std::vector<float> p(37), m(37), v(37), g(37);
  std::vector<double> p64(37), m64(37), v64(37);
  for (size_t i = 0; i < p.size(); ++i) p64[i] = p[i] = static_cast<float>(random.NextNormal());
  for (int step = 1; step <= 20; ++step) {
    for (float& x : g) x = static_cast<float>(random.NextNormal());
    AdamWStep(options, step, 0.5f, g, p, m, v);
    for (size_t i = 0; i < p.size(); ++i) {
      const double gradient = 0.5 * g[i];
      p64[i] *= 1 - options.lr * options.weight_decay;
      m64[i] = options.beta1 * m64[i] + (1 - options.beta1) * gradient;
      v64[i] = options.beta2 * v64[i] + (1 - options.beta2) * gradient * gradient;
      const double m_hat = m64[i] / (1 - std::pow(options.beta1, step));
      const double v_hat = v64[i] / (1 - std::pow(options.beta2, step));
      p64[i] -= options.lr * m_hat / (std::sqrt(v_hat) + options.eps);
      EXPECT_NEAR(p[i], p64[i], 1e-5);
    }
  }
}

TEST(AdamWTest, DoesNotDependOnShards) {
  RandomStream random(2);
  std::vector<float> g(1000), a(1000), am(1000), av(1000);
  for (float& x : g) x = static_cast<float>(random.NextNormal());
  for (float& x : a) x = static_cast<float>(random.NextNormal());
  std::vector<float> b = a, bm = am, bv = av;
  AdamWStep({}, 1, 1.0f, g, a, am, av);
  for (size_t start : {0, 300, 703}) {
    const size_t size = start == 0 ? 300 : start == 300 ? 403 : 297;
    const auto part = [&](std::vector<float>& x) { return std::span(x).subspan(start, size); };
    AdamWStep({}, 1, 1.0f, part(g), part(b), part(bm), part(bv));
  }
  EXPECT_EQ(a, b);
}

TEST(ClipScaleTest, LeavesSmallNormsAlone) {
  EXPECT_EQ(ClipScale(0.5, 1.0), 1.0);
  EXPECT_EQ(ClipScale(1e9, 0), 1.0);
  EXPECT_NEAR(ClipScale(4, 1), 0.25, 1e-6);
}

v1::LrScheduleEntry Entry(const std::string& name, std::map<std::string, double> kwargs) {
  v1::LrScheduleEntry entry;
  entry.set_name(name);
  entry.mutable_kwargs()->insert(kwargs.begin(), kwargs.end());
  return entry;
}

TEST(LrScheduleTest, ConstantWithoutEntries) {
  const auto schedule = LrSchedule::Create(0.5, {});
  ASSERT_TRUE(schedule.ok());
  EXPECT_EQ(schedule->At(0), 0.5);
  EXPECT_EQ(schedule->At(1000), 0.5);
}

TEST(LrScheduleTest, NamesWhatIsWrong) {
  const auto error = [](const std::vector<v1::LrScheduleEntry>& entries, const std::vector<int64_t>& milestones) {
    v1::LrSchedule config;
    for (const auto& entry : entries) *config.add_entries() = entry;
    for (int64_t milestone : milestones) config.add_milestones(milestone);
    return std::string(LrSchedule::Create(1, config).status().message());
  };
  EXPECT_NE(error({Entry("StepLR", {})}, {}).find("StepLR"), std::string::npos);
  EXPECT_NE(error({Entry("CosineAnnealingLR", {})}, {}).find("T_max"), std::string::npos);
  EXPECT_NE(error({Entry("ConstantLR", {{"gamma", 1}})}, {}).find("gamma"), std::string::npos);
  EXPECT_NE(error({Entry("ConstantLR", {}), Entry("ConstantLR", {})}, {}).find("milestones"), std::string::npos);
  EXPECT_NE(error({Entry("ConstantLR", {}), Entry("ConstantLR", {})}, {0}).find("ascend"), std::string::npos);
}

}  // namespace
}  // namespace manta::train
