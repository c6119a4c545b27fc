#include "common/checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/base/strings.h"
#include "common/checkpoint/header_sax.h"

namespace manta::checkpoint {
namespace {

// Well-formed UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF. Returns the first bad byte's
// position, or npos.
size_t FindBadUtf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const auto byte = [&](size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u; };
    const unsigned b0 = byte(i);
    if (b0 < 0x80) {
      ++i;
      continue;
    }
    const size_t length = b0 >= 0xF0 ? 4 : b0 >= 0xE0 ? 3 : 2;
    if (b0 < 0xC2 || b0 > 0xF4) return i;
    for (size_t k = 1; k < length; ++k) {
      if ((byte(i + k) & 0xC0) != 0x80) return i;
    }
    const unsigned b1 = byte(i + 1);
    if ((b0 == 0xE0 && b1 < 0xA0) || (b0 == 0xED && b1 > 0x9F) || (b0 == 0xF0 && b1 < 0x90) ||
        (b0 == 0xF4 && b1 > 0x8F)) {
      return i;
    }
    i += length;
  }
  return std::string_view::npos;
}

uint64_t LoadLittleEndian64(const char* p) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(p[i]);
  return value;
}

// Sizes follow from dtype and shape, and the tensors fill the data section from its first byte to its last.
absl::Status CheckLayout(SafetensorsHeader& header, uint64_t data_bytes, std::string_view file) {
  for (const TensorInfo& t : header.tensors) {
    const std::string where = StrCat(file, ": tensor \"", t.name, "\": ");
    if (t.begin > t.end) {
      return UserError(StrCat(where, "data_offsets [", t.begin, ", ", t.end, "] run backwards"));
    }
    const std::optional<uint64_t> bytes = TensorBytes(t.dtype, t.shape);
    if (!bytes) return UserError(StrCat(where, "shape ", ShapeText(t.shape), " is too large"));
    if (*bytes != t.bytes()) {
      return UserError(StrCat(where, "data_offsets hold ", t.bytes(), " bytes, expected ", *bytes, " for shape ",
                              ShapeText(t.shape), " of ", DTypeName(t.dtype)));
    }
    if (t.end > data_bytes) {
      return UserError(
          StrCat(where, "ends at byte ", t.end, " of the data, the file has only ", data_bytes, ": truncated"));
    }
  }
  std::sort(header.tensors.begin(), header.tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t at = 0;
  const TensorInfo* before = nullptr;
  for (const TensorInfo& t : header.tensors) {
    if (t.begin < at) {
      return UserError(StrCat(file, ": tensor \"", t.name, "\": overlaps tensor \"", before->name, "\" at byte ",
                              t.begin, " of the data"));
    }
    if (t.begin > at) {
      return UserError(StrCat(file, ": tensor \"", t.name, "\": a hole of ", t.begin - at, " bytes before it"));
    }
    at = t.end;
    before = &t;
  }
  if (at != data_bytes) {
    return UserError(StrCat(file, ": ", data_bytes - at, " bytes after the last tensor belong to none"));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t TensorInfo::numel() const {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return StrCat("[", absl::StrJoin(shape, ", "), "]");
}

std::optional<uint64_t> TensorBytes(DType dtype, const std::vector<int64_t>& shape) {
  // Below 2^57 elements times at most 64 bits fits 63 bits. A zero makes the tensor empty whatever the others are, but
  // the others are bounded all the same.
  uint64_t numel = 1;
  bool empty = false;
  for (int64_t d : shape) {
    if (d == 0) {
      empty = true;
      continue;
    }
    if (__builtin_mul_overflow(numel, static_cast<uint64_t>(d), &numel) || numel >= uint64_t{1} << 57)
      return std::nullopt;
  }
  if (empty) return 0;
  const uint64_t bits = numel * DTypeBits(dtype);
  if (bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view prefix, uint64_t file_size,
                                                         std::string_view file) {
  if (file_size < 8 || prefix.size() < 8) {
    return UserError(StrCat(file, ": truncated: ", file_size, " bytes, expected 8 for the header's length"));
  }
  const uint64_t length = LoadLittleEndian64(prefix.data());
  if (length > kMaxHeaderBytes) {
    return UserError(StrCat(file, ": the header's length is ", length, ", above its cap of ", kMaxHeaderBytes));
  }
  if (length > file_size - 8 || length > prefix.size() - 8) {
    return UserError(
        StrCat(file, ": truncated: the header should have ", length, " bytes, ", file_size - 8, " are there"));
  }
  const std::string_view json = prefix.substr(8, length);
  if (json.empty() || json.front() != '{') return UserError(StrCat(file, ": the header does not start with {"));
  if (const size_t bad = FindBadUtf8(json); bad != std::string_view::npos) {
    return UserError(StrCat(file, ": the header is not UTF-8 at byte ", bad));
  }
  internal::HeaderSax sax;
  bool good = false;
  try {
    good = nlohmann::json::sax_parse(json.begin(), json.end(), &sax);
  } catch (const std::exception& error) {
    return UserError(StrCat(file, ": bad JSON in the header: ", error.what()));
  }
  if (!good) return UserError(StrCat(file, ": ", sax.error));
  SafetensorsHeader header{std::move(sax.tensors), std::move(sax.metadata), 8 + length};
  MANTA_RETURN_IF_ERROR(CheckLayout(header, file_size - header.data_start, file));
  return header;
}

std::string SafetensorsHeaderBytes(std::vector<TensorInfo>& tensors,
                                   const std::vector<std::pair<std::string, std::string>>& metadata) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!metadata.empty()) {
    auto& entries = json["__metadata__"] = nlohmann::ordered_json::object();
    for (const auto& [key, value] : metadata) entries[key] = value;
  }
  // ordered_json finds a key by a walk: entries are written one by one to stay linear in their number.
  std::string text = json.dump();
  text.pop_back();  // "}"
  uint64_t at = 0;
  for (TensorInfo& t : tensors) {
    const uint64_t bytes = TensorBytes(t.dtype, t.shape).value_or(0);
    t.begin = at;
    t.end = at += bytes;
    nlohmann::ordered_json entry = {
        {"dtype", DTypeName(t.dtype)}, {"shape", t.shape}, {"data_offsets", {t.begin, t.end}}};
    text += StrCat(text.size() > 1 ? "," : "", nlohmann::json(t.name).dump(), ":", entry.dump());
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[static_cast<size_t>(i)] = static_cast<char>(text.size() >> (8 * i));
  return bytes + text;
}

}  // namespace manta::checkpoint
