#include "common/comm/weight_plan.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"

namespace manta::comm {
namespace {

struct Holder {
  int rank, slice;
};

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::Status CheckSame(const SliceSpec& source, const SliceSpec& destination) {
  if (source.dtype == destination.dtype && source.shape == destination.shape) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "parameter '", destination.name, "' is ", v1::DType_Name(source.dtype), " ", ShapeText(source.shape),
      " at its source and ", v1::DType_Name(destination.dtype), " ", ShapeText(destination.shape), " here"));
}

}  // namespace

size_t SizeOf(v1::DType dtype) {
  switch (dtype) {
    case v1::DTYPE_F64:
    case v1::DTYPE_I64:
      return 8;
    case v1::DTYPE_F32:
    case v1::DTYPE_I32:
      return 4;
    case v1::DTYPE_BF16:
    case v1::DTYPE_F16:
      return 2;
    case v1::DTYPE_U8:
      return 1;
    default:
      return 0;
  }
}

Box SliceSpec::box() const {
  Box box = Box::Whole(shape);
  if (shard_dim >= 0) {
    box.lower[shard_dim] = begin;
    box.upper[shard_dim] = end;
  }
  return box;
}

uint64_t SliceSpec::bytes() const {
  return static_cast<uint64_t>(box().Elements()) * SizeOf(dtype);
}

SliceSpec EvenSlice(std::string name, v1::DType dtype, std::vector<int64_t> shape, int shard_dim, int rank, int size) {
  SliceSpec slice{std::move(name), dtype, std::move(shape), shard_dim, 0, 0};
  if (shard_dim >= 0) {
    const int64_t length = slice.shape[shard_dim];
    slice.begin = length * rank / size;
    slice.end = length * (rank + 1) / size;
  }
  return slice;
}

absl::Status CheckSlice(const SliceSpec& slice) {
  const auto error = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("parameter '", slice.name, "': ", what));
  };
  if (slice.name.empty()) return absl::InvalidArgumentError("a parameter without a name");
  if (SizeOf(slice.dtype) == 0) return error(absl::StrCat("type ", static_cast<int>(slice.dtype), " is not known"));
  uint64_t elements = 1;
  for (const int64_t extent : slice.shape) {
    if (extent < 0 || (extent > 0 && elements > (uint64_t{1} << 56) / static_cast<uint64_t>(extent))) {
      return error(absl::StrCat("shape ", ShapeText(slice.shape), " makes no sense"));
    }
    elements *= static_cast<uint64_t>(extent);
  }
  if (slice.shard_dim < -1 || slice.shard_dim >= static_cast<int>(slice.shape.size())) {
    return error(absl::StrCat("no dimension ", slice.shard_dim, " in shape ", ShapeText(slice.shape)));
  }
  if (slice.shard_dim >= 0 &&
      (slice.begin < 0 || slice.begin > slice.end || slice.end > slice.shape[slice.shard_dim])) {
    return error(absl::StrCat("range [", slice.begin, ", ", slice.end, ") of dimension ", slice.shard_dim,
                              " is outside shape ", ShapeText(slice.shape)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Transfer>> PlanTransfers(absl::Span<const ShardTable> sources,
                                                    absl::Span<const ShardTable> destinations) {
  absl::flat_hash_map<std::string, std::vector<Holder>> holders;
  for (size_t rank = 0; rank < sources.size(); ++rank) {
    for (size_t i = 0; i < sources[rank].size(); ++i) {
      MANTA_RETURN_IF_ERROR(CheckSlice(sources[rank][i]));
      holders[sources[rank][i].name].push_back({static_cast<int>(rank), static_cast<int>(i)});
    }
  }
  std::vector<uint64_t> sent(sources.size(), 0);
  std::vector<Transfer> plan;
  for (size_t rank = 0; rank < destinations.size(); ++rank) {
    for (size_t i = 0; i < destinations[rank].size(); ++i) {
      const SliceSpec& wanted = destinations[rank][i];
      MANTA_RETURN_IF_ERROR(CheckSlice(wanted));
      auto found = holders.find(wanted.name);
      if (found == holders.end()) {
        return absl::NotFoundError(absl::StrCat("nobody holds parameter '", wanted.name, "'"));
      }
      std::vector<Holder> candidates = found->second;
      std::stable_sort(candidates.begin(), candidates.end(),
                       [&](const Holder& a, const Holder& b) { return sent[a.rank] < sent[b.rank]; });
      std::vector<Box> missing;
      if (wanted.box().Elements() > 0) missing.push_back(wanted.box());
      for (const Holder& holder : candidates) {
        const SliceSpec& held = sources[holder.rank][holder.slice];
        MANTA_RETURN_IF_ERROR(CheckSame(held, wanted));
        std::vector<Box> still_missing;
        for (const Box& box : missing) {
          const Box common = Intersect(box, held.box());
          if (common.Elements() == 0) {
            still_missing.push_back(box);
            continue;
          }
          plan.push_back({holder.rank, holder.slice, static_cast<int>(rank), static_cast<int>(i), common});
          sent[holder.rank] += static_cast<uint64_t>(common.Elements()) * SizeOf(wanted.dtype);
          for (Box& rest : Subtract(box, common)) still_missing.push_back(std::move(rest));
        }
        missing = std::move(still_missing);
        if (missing.empty()) break;
      }
      if (!missing.empty()) {
        return absl::NotFoundError(absl::StrCat("nobody holds ", missing.front().ToString(), " of parameter '",
                                                wanted.name, "' ", ShapeText(wanted.shape)));
      }
    }
  }
  return plan;
}

}  // namespace manta::comm
