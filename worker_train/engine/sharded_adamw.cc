#include "worker_train/engine/sharded_adamw.h"

#include <c10/core/GradMode.h>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/cuda/load.h"
#include "common/model/catch_aten.h"

namespace manta::train {
namespace {

constexpr int64_t kGranule = 16;  // elements; keeps shards aligned

std::span<float> Floats(const at::Tensor& tensor, int64_t begin, int64_t count) {
  return {tensor.mutable_data_ptr<float>() + begin, static_cast<size_t>(count)};
}

std::byte* Bytes(const at::Tensor& tensor, int64_t element) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr()) + element * static_cast<int64_t>(tensor.element_size());
}

}  // namespace

ShardedAdamW::ShardedAdamW(model::Parameters* parameters, comm::Collective* collective)
    : parameters_(parameters),
      collective_(collective),
      rank_(collective == nullptr ? 0 : collective->rank()),
      world_(collective == nullptr ? 1 : collective->size()),
      total_(parameters->flat_values().numel()),
      shard_(world_ == 1 ? total_ : total_ / world_ / kGranule * kGranule),
      tail_(total_ - shard_ * world_),
      own_masters_(parameters->dtype() != at::kFloat) {}

absl::StatusOr<std::unique_ptr<ShardedAdamW>> ShardedAdamW::Create(model::Parameters* parameters,
                                                                   comm::Collective* collective) {
  std::unique_ptr<ShardedAdamW> result(new ShardedAdamW(parameters, collective));
  MANTA_RETURN_IF_ERROR(model::CatchAten("optimiser state", [&] {
    const c10::NoGradGuard no_grad;
    const auto options = at::TensorOptions().dtype(at::kFloat).device(parameters->device());
    const int64_t size = result->shard_ + result->tail_;
    result->exp_avg_ = at::zeros({size}, options);
    result->exp_avg_sq_ = at::zeros({size}, options);
    if (result->own_masters_) {
      result->master_ = at::empty({size}, options);
      result->Restore("master", parameters->flat_values());
    }
    return absl::OkStatus();
  }));
  return result;
}

absl::Status ShardedAdamW::ReduceGradients() {
  if (world_ == 1) return absl::OkStatus();
  const at::Tensor& gradients = parameters_->flat_gradients();
  if (shard_ > 0) {
    MANTA_RETURN_IF_ERROR(collective_->ReduceScatter(Bytes(gradients, 0), static_cast<size_t>(shard_),
                                                     Bytes(gradients, rank_ * shard_), comm::DataType::kF32,
                                                     comm::ReduceOp::kSum));
  }
  if (tail_ > 0) {
    MANTA_RETURN_IF_ERROR(collective_->AllReduce(Bytes(gradients, total_ - tail_), static_cast<size_t>(tail_),
                                                 comm::DataType::kF32, comm::ReduceOp::kSum));
  }
  return collective_->Wait();
}

double ShardedAdamW::LocalSquaredNorm() const {
  const at::Tensor& gradients = parameters_->flat_gradients();
  double sum = 0;
  const auto add = [&](int64_t begin, int64_t count) {
    if (count == 0) return;
    if (gradients.is_cpu()) {
      sum += SquaredNorm(Floats(gradients, begin, count));
    } else {
      sum += gradients.narrow(0, begin, count).square().sum(at::kDouble).item<double>();
    }
  };
  add(rank_ * shard_, shard_);
  if (rank_ == 0) add(total_ - tail_, tail_);
  return sum;
}

absl::Status ShardedAdamW::StepRange(const AdamWOptions& options, int64_t step, double gradient_scale, int64_t begin,
                                     int64_t count, int64_t state_begin) {
  if (count == 0) return absl::OkStatus();
  const at::Tensor &values = parameters_->flat_values(), &gradients = parameters_->flat_gradients();
  if (values.is_cpu()) {
    const auto master = own_masters_ ? Floats(master_, state_begin, count) : Floats(values, begin, count);
    AdamWStep(options, step, static_cast<float>(gradient_scale), Floats(gradients, begin, count), master,
              Floats(exp_avg_, state_begin, count), Floats(exp_avg_sq_, state_begin, count));
  } else {
    const cuda::Api* api = cuda::Loaded();
    MANTA_CHECK(api != nullptr) << "parameters on a GPU, and no CUDA library";
    const auto master = own_masters_ ? Floats(master_, state_begin, count) : Floats(values, begin, count);
    kernels::cuda::AdamWArguments a;
    a.master = master.data();
    a.gradient = Floats(gradients, begin, count).data();
    a.exp_avg = Floats(exp_avg_, state_begin, count).data();
    a.exp_avg_sq = Floats(exp_avg_sq_, state_begin, count).data();
    a.parameters = values.scalar_type() == at::kBFloat16 ? Bytes(values, begin) : nullptr;
    a.n = count;
    a.lr = options.lr;
    a.weight_decay = options.weight_decay;
    a.beta1 = options.beta1;
    a.beta2 = options.beta2;
    a.eps = options.eps;
    a.step = step;
    a.gradient_scale = static_cast<float>(gradient_scale);
    if (const int error = api->adamw(a, api->current_stream()); error != 0) {
      return absl::InternalError(absl::StrCat("the optimiser's kernel: ", api->error_text(error)));
    }
    return absl::OkStatus();
  }
  if (own_masters_) values.narrow(0, begin, count).copy_(master_.narrow(0, state_begin, count));
  return absl::OkStatus();
}

absl::Status ShardedAdamW::Step(const AdamWOptions& options, int64_t step, double gradient_scale) {
  MANTA_RETURN_IF_ERROR(model::CatchAten("optimiser step", [&]() -> absl::Status {
    const c10::NoGradGuard no_grad;
    MANTA_RETURN_IF_ERROR(StepRange(options, step, gradient_scale, rank_ * shard_, shard_, 0));
    return StepRange(options, step, gradient_scale, total_ - tail_, tail_, shard_);
  }));
  const at::Tensor& values = parameters_->flat_values();
  if (world_ > 1 && shard_ > 0) {
    const size_t bytes = static_cast<size_t>(shard_) * values.element_size();
    MANTA_RETURN_IF_ERROR(collective_->AllGather(Bytes(values, rank_ * shard_), bytes, Bytes(values, 0)));
    MANTA_RETURN_IF_ERROR(collective_->Wait());
  }
  parameters_->ValuesChanged();
  return absl::OkStatus();
}

const at::Tensor& ShardedAdamW::State(const std::string& kind) const {
  MANTA_CHECK(kind == "master" || kind == "exp_avg" || kind == "exp_avg_sq") << kind;
  return kind == "master" ? master_ : kind == "exp_avg" ? exp_avg_ : exp_avg_sq_;
}

absl::StatusOr<at::Tensor> ShardedAdamW::Gather(const std::string& kind) const {
  return model::CatchAten("optimiser state", [&]() -> absl::StatusOr<at::Tensor> {
    const c10::NoGradGuard no_grad;
    if (kind == "master" && !own_masters_) return parameters_->flat_values().to(at::kCPU);
    const at::Tensor& state = State(kind);
    if (world_ == 1) return state.to(at::kCPU);
    at::Tensor flat = at::empty({total_}, state.options());
    if (shard_ > 0) {
      MANTA_RETURN_IF_ERROR(
          collective_->AllGather(Bytes(state, 0), static_cast<size_t>(shard_) * state.element_size(), Bytes(flat, 0)));
      MANTA_RETURN_IF_ERROR(collective_->Wait());
    }
    flat.narrow(0, total_ - tail_, tail_).copy_(state.narrow(0, shard_, tail_));
    return flat.to(at::kCPU);
  });
}

void ShardedAdamW::Restore(const std::string& kind, const at::Tensor& flat) {
  MANTA_CHECK(flat.numel() == total_);
  const c10::NoGradGuard no_grad;
  if (kind == "master" && !own_masters_) {
    parameters_->flat_values().copy_(flat);
    parameters_->ValuesChanged();
    return;
  }
  const at::Tensor& state = State(kind);
  state.narrow(0, 0, shard_).copy_(flat.narrow(0, rank_ * shard_, shard_));
  state.narrow(0, shard_, tail_).copy_(flat.narrow(0, total_ - tail_, tail_));
}

}  // namespace manta::train
