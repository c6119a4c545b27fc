// tokenizer.json; with one that loads, a text is encoded and decoded.
#include "common/tokenizer/stream_decoder.h"
#include "common/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto tokenizer = manta::tokenizer::Tokenizer::FromJson(text);
  if (!tokenizer.ok()) return 0;
  auto ids = (*tokenizer)->Encode("12+34=46 h\xc3\xa9llo <|im_start|>\n  x", /*add_special_tokens=*/true);
  if (!ids.ok()) return 0;
  (void)(*tokenizer)->Decode(*ids, /*skip_special_tokens=*/true);
  manta::tokenizer::StreamDecoder decoder(*tokenizer, /*skip_special_tokens=*/false);
  for (int32_t id : *ids) (void)decoder.Push(id);
  (void)decoder.Finish();
  return 0;
}
