// The Unicode normalisation forms (NFC, NFD, NFKC, NFKD) by utf8proc. Text that is in the form already, which is nearly
// all text, is recognised from a table and not touched; of other text only the characters around a change are
// normalised.
#pragma once

#include <memory>

#include "common/tokenizer/normalizer.h"

namespace manta::tokenizer {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

std::unique_ptr<const NormalizerStep> MakeUnicodeNormalizer(NormalForm form);

}  // namespace manta::tokenizer
