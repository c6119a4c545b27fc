// What attention over past keys looks like to the model: the one thing in which training and generation differ.
//
// Forward() calls Attend once a layer, in order, with the layer's rotated queries and keys. A backend knows which
// sequences the tokens belong to. PackedAttention (packed_attention.h) is the trainer's: all keys are in the call,
// gradients flow. A generator's backend stores keys and values in its paged cache and attends over the cache; on the
// CPU both call the kernel in common/kernels/attention.h, whose sums run in the same order whatever the chunking, so
// their results agree bit for bit.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace manta::model {

struct AttentionSpec {
  int layer = 0;
  double scale = 1;    // multiplies the scores
  int64_t window = 0;  // query i sees key j when 0 <= i - j < window; 0: all before it
};

class AttentionBackend {
 public:
  virtual ~AttentionBackend() = default;
  // q: [num_tokens, num_heads, head_dim]; k, v: [num_tokens, num_kv_heads, head_dim]. The last dimension is contiguous,
  // the first may have a larger stride (q, k and v are views of one matrix). Returns [num_tokens, num_heads, head_dim],
  // contiguous. May throw c10::Error; Forward turns it into a Status.
  virtual at::Tensor Attend(const AttentionSpec& spec, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v) = 0;
};

}  // namespace manta::model
