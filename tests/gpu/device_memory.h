// Arrays on the GPU for tests and benchmarks, through ATen (which also owns the memory), and the GPU itself or a skip.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "common/base/check.h"
#include "common/cuda/load.h"
#include "gtest/gtest.h"

namespace manta::testing {

using kernels::cuda::Type;

inline at::ScalarType ScalarType(Type type) {
  return type == Type::kF32 ? at::kFloat : at::kBFloat16;
}

// Values as they are after rounding to `type`: what a kernel is given and its reference must be given too.
inline std::vector<float> Rounded(const std::vector<float>& values, Type type) {
  const at::Tensor t = at::tensor(values, at::kFloat).to(ScalarType(type)).to(at::kFloat);
  return {t.data_ptr<float>(), t.data_ptr<float>() + t.numel()};
}

inline at::Tensor ToDevice(const std::vector<float>& values, Type type = Type::kF32) {
  return at::tensor(values, at::kFloat).to(ScalarType(type)).to(at::kCUDA);
}
template <typename T>
at::Tensor IntsToDevice(const std::vector<T>& values) {
  return at::tensor(values, at::CppTypeToScalarType<T>::value).to(at::kCUDA);
}
inline at::Tensor Empty(int64_t n, Type type = Type::kF32) {
  return at::full({n}, -77, at::TensorOptions(at::kCUDA).dtype(ScalarType(type)));
}
inline std::vector<float> ToHost(const at::Tensor& tensor) {
  const at::Tensor t = tensor.to(at::kCPU).to(at::kFloat).contiguous();
  return {t.data_ptr<float>(), t.data_ptr<float>() + t.numel()};
}

}  // namespace manta::testing

// At the start of a test: `api` is the table, or the test is skipped (MANTA_REQUIRE_GPU=1: fails).
#define MANTA_NEED_GPU(api)                                                                                 \
  const auto api##_or = ::manta::cuda::Load();                                                              \
  if (!api##_or.ok()) {                                                                                     \
    if (const char* need = std::getenv("MANTA_REQUIRE_GPU"); need != nullptr && std::string(need) == "1") { \
      FAIL() << api##_or.status();                                                                          \
    }                                                                                                       \
    GTEST_SKIP() << api##_or.status();                                                                      \
  }                                                                                                         \
  const ::manta::cuda::Api* const api = *api##_or;                                                          \
  ASSERT_TRUE(api->set_device(0).ok())
