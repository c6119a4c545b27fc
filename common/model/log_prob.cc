#include "common/model/log_prob.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>

#include "common/base/status.h"
#include "common/base/strings.h"
#include "common/kernels/rows.h"
#include "common/model/catch_aten.h"
#include "common/model/compute.h"

namespace manta::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Tempered and filtered logits of a chunk, [rows, vocab] in float32 (float64 for float64).
at::Tensor ChunkLogits(const at::Tensor& hidden, const Weight& head, const LogProbOptions& options) {
  at::Tensor logits = compute::Linear(hidden, head, {});
  if (logits.scalar_type() != at::kDouble) logits = logits.to(at::kFloat);
  if (options.temperature != 1) logits.div_(options.temperature);
  const int64_t vocab = logits.size(1);
  if (options.top_k > 0 && options.top_k < vocab) {
    const at::Tensor kth = std::get<0>(logits.topk(options.top_k, -1)).select(1, options.top_k - 1);
    logits.masked_fill_(logits < kth.unsqueeze(1), kMinusInfinity);
  }
  if (options.top_p < 1) {
    // From the least likely up: a token goes while those up to and with it hold at most 1 - p. The likeliest always
    // stays.
    const auto [sorted, order] = logits.sort(/*stable=*/true, -1, /*descending=*/false);
    at::Tensor drop = at::cumsum(at::softmax(sorted, -1), -1) <= 1 - options.top_p;
    drop.select(1, vocab - 1).fill_(false);
    logits.masked_fill_(at::zeros_like(drop).scatter_(1, order, drop), kMinusInfinity);
  }
  return logits;
}

at::Tensor RowEntropy(const at::Tensor& log_p) {
  return -(log_p.exp() * log_p.masked_fill(log_p == kMinusInfinity, 0)).sum(-1);
}

// Whether the row kernels take a chunk: float32 on the CPU, and no filter.
bool UseRowKernels(const at::Tensor& hidden, const LogProbOptions& options, int64_t vocab) {
  return compute::UseKernels(hidden) && options.top_p >= 1 && (options.top_k == 0 || options.top_k >= vocab);
}

int64_t ChunkRows(const LogProbOptions& options, const at::Tensor& head) {
  const int64_t row_bytes = head.size(0) * static_cast<int64_t>(sizeof(float));
  if (options.chunk_bytes > 0) return std::max<int64_t>(1, options.chunk_bytes / row_bytes);
  if (!head.is_cpu()) return std::max<int64_t>(1, (int64_t{256} << 20) / row_bytes);
  return std::max<int64_t>(64, (int64_t{1} << 20) / row_bytes);
}

struct TokenLogProbsFunction : torch::autograd::Function<TokenLogProbsFunction> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& hidden, const at::Tensor& value,
                               const at::Tensor& targets, const Weight& head, const LogProbOptions& options) {
    const int64_t rows = hidden.size(0), step = ChunkRows(options, value);
    const at::ScalarType wide = hidden.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    at::Tensor log_probs = at::empty({rows}, hidden.options().dtype(wide));
    at::Tensor entropy = options.entropy ? at::empty_like(log_probs) : at::zeros({0}, log_probs.options());
    const bool kernel = UseRowKernels(hidden, options, value.size(0));
    at::Tensor lse = at::empty({kernel ? rows : 0}, log_probs.options());
    const at::Tensor ids = targets.contiguous();
    for (int64_t begin = 0; begin < rows; begin += step) {
      const int64_t n = std::min(step, rows - begin);
      if (kernel) {
        const at::Tensor logits = compute::Linear(hidden.narrow(0, begin, n), head, {});
        kernels::LogSoftmaxGather(n, logits.size(1), logits.const_data_ptr<float>(),
                                  static_cast<float>(options.temperature), ids.const_data_ptr<int64_t>() + begin,
                                  log_probs.data_ptr<float>() + begin, lse.data_ptr<float>() + begin,
                                  options.entropy ? entropy.data_ptr<float>() + begin : nullptr);
        continue;
      }
      const at::Tensor log_p = at::log_softmax(ChunkLogits(hidden.narrow(0, begin, n), head, options), -1);
      log_probs.narrow(0, begin, n).copy_(log_p.gather(1, targets.narrow(0, begin, n).unsqueeze(1)).squeeze(1));
      if (options.entropy) entropy.narrow(0, begin, n).copy_(RowEntropy(log_p));
    }
    ctx->save_for_backward({hidden, value, ids, lse, entropy.detach().clone()});
    if (head.grad.defined()) ctx->saved_data["grad"] = head.grad;
    ctx->saved_data["filters"] =
        std::vector<double>{options.temperature, static_cast<double>(options.top_k), options.top_p};
    ctx->saved_data["entropy"] = options.entropy;
    ctx->saved_data["chunk_bytes"] = options.chunk_bytes;
    return {log_probs, entropy};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &hidden = saved[0], &targets = saved[2];
    Weight head;
    head.value = saved[1];
    LogProbOptions options;
    const std::vector<double> filters = ctx->saved_data["filters"].toDoubleVector();
    options.temperature = filters[0];
    options.top_k = static_cast<int64_t>(filters[1]);
    options.top_p = filters[2];
    options.entropy = ctx->saved_data["entropy"].toBool() && grads[1].defined();
    options.chunk_bytes = ctx->saved_data["chunk_bytes"].toInt();
    const auto grad = ctx->saved_data.find("grad");
    const int64_t rows = hidden.size(0), step = ChunkRows(options, head.value);
    const bool kernel = UseRowKernels(hidden, options, head.value.size(0));
    const at::Tensor d_log_probs = grads[0].defined() ? grads[0].contiguous() : at::Tensor();
    const at::Tensor d_entropy = options.entropy ? grads[1].contiguous() : at::Tensor();
    at::Tensor d_hidden = ctx->needs_input_grad(0) ? at::empty_like(hidden) : at::Tensor();
    for (int64_t begin = 0; begin < rows; begin += step) {
      const int64_t n = std::min(step, rows - begin);
      const at::Tensor rows_hidden = hidden.narrow(0, begin, n);
      if (kernel) {
        const at::Tensor d = compute::Linear(rows_hidden, head, {});
        const auto at_row = [begin](const at::Tensor& x) {
          return x.defined() ? x.const_data_ptr<float>() + begin : nullptr;
        };
        kernels::LogSoftmaxGatherBackward(n, d.size(1), d.data_ptr<float>(), static_cast<float>(options.temperature),
                                          targets.const_data_ptr<int64_t>() + begin, at_row(saved[3]),
                                          options.entropy ? at_row(saved[4]) : nullptr, at_row(d_log_probs),
                                          at_row(d_entropy));
        if (d_hidden.defined()) d_hidden.narrow(0, begin, n).copy_(compute::LinearInputGradient(d, head.value));
        if (grad != ctx->saved_data.end()) compute::AddWeightGradient(d, rows_hidden, grad->second.toTensor());
        continue;
      }
      const at::Tensor log_p = at::log_softmax(ChunkLogits(rows_hidden, head, options), -1);
      const at::Tensor target = targets.narrow(0, begin, n).unsqueeze(1);
      const at::Tensor p = log_p.exp();
      // d log p(target) / d logit = [token = target] - p
      at::Tensor g = grads[0].defined() ? grads[0].narrow(0, begin, n).unsqueeze(1) : at::zeros({n, 1}, p.options());
      g = g.masked_fill(log_p.gather(1, target) == kMinusInfinity, 0);
      at::Tensor d_logits = (p * -g).scatter_add_(1, target, g);
      if (options.entropy) {
        // d H / d logit = -p (log p + H)
        const at::Tensor h = RowEntropy(log_p).unsqueeze(1);
        d_logits.sub_(p * (log_p.masked_fill(log_p == kMinusInfinity, 0) + h) *
                      grads[1].narrow(0, begin, n).unsqueeze(1));
      }
      if (options.temperature != 1) d_logits.div_(options.temperature);
      d_logits = d_logits.to(hidden.scalar_type());
      if (d_hidden.defined()) d_hidden.narrow(0, begin, n).copy_(compute::LinearInputGradient(d_logits, head.value));
      if (grad != ctx->saved_data.end()) compute::AddWeightGradient(d_logits, rows_hidden, grad->second.toTensor());
    }
    return {d_hidden, {}, {}, {}, {}};
  }
};

absl::Status CheckInputs(const Parameters& parameters, const at::Tensor& hidden, const at::Tensor& targets,
                         const LogProbOptions& options) {
  if (hidden.dim() != 2 || targets.dim() != 1 || targets.scalar_type() != at::kLong ||
      hidden.size(0) != targets.size(0)) {
    return UserError("log-probabilities: expected hidden [rows, hidden] and int64 targets [rows]");
  }
  if (!(options.temperature > 0)) return UserError(StrCat("temperature: expected above 0, got ", options.temperature));
  if (!(options.top_p > 0) || options.top_p > 1)
    return UserError(StrCat("top_p: expected in (0, 1], got ", options.top_p));
  if (options.top_k < 0) return UserError(StrCat("top_k: expected at least 0, got ", options.top_k));
  if (!targets.is_cpu() || targets.numel() == 0) return absl::OkStatus();
  const auto [low, high] = at::aminmax(targets);
  const int64_t vocab = parameters.config().vocab_size;
  if (low.item<int64_t>() < 0 || high.item<int64_t>() >= vocab) {
    const int64_t bad = low.item<int64_t>() < 0 ? low.item<int64_t>() : high.item<int64_t>();
    return UserError(StrCat("target token ", bad, " is outside the vocabulary of ", vocab));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LogProbs> TokenLogProbs(const Parameters& parameters, const at::Tensor& hidden,
                                       const at::Tensor& targets, const LogProbOptions& options) {
  MANTA_RETURN_IF_ERROR(CheckInputs(parameters, hidden, targets, options));
  return CatchAten("log-probabilities", [&]() -> absl::StatusOr<LogProbs> {
    const Weight& head = parameters.weights().lm_head;
    const variable_list out = TokenLogProbsFunction::apply(hidden, head.value, targets, head, options);
    LogProbs result;
    result.log_probs = out[0];
    if (options.entropy) result.entropy = out[1];
    return result;
  });
}

}  // namespace manta::model
