#include "common/template/chat_template.h"

#include <ctime>

#include "common/base/status.h"
#include "common/base/strings.h"
#include "common/template/interpreter.h"
#include "common/template/lexer.h"
#include "common/template/parser.h"
#include "common/template/text.h"

namespace manta::chat_template {

struct ParsedTemplate {
  std::string name;
  std::string source;
  Body body;
};

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxSourceBytes = 1 << 20;
constexpr int kMaxJsonDepth = kMaxValueDepth / 2;

Value FromJson(const Json& json, int depth) {
  if (depth > kMaxJsonDepth) Fail(StrCat("the context nests more than ", kMaxJsonDepth, " deep"));
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::Bool(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::Integer(json.get<int64_t>());
    case Json::value_t::number_unsigned:
      return Value::Integer(json.get<uint64_t>());
    case Json::value_t::number_float:
      return Value::Float(json.get<double>());
    case Json::value_t::string:
      return Value::String(json.get_ref<const std::string&>());
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(FromJson(item, depth + 1));
      return Value::List(std::move(items));
    }
    case Json::value_t::object: {
      auto dict = std::make_shared<Dict>();
      for (const auto& [key, value] : json.items()) dict->Set(key, FromJson(value, depth + 1));
      return Value::FromDict(std::move(dict));
    }
    default:
      return Value();
  }
}

CivilTime ToCivil(const std::optional<absl::CivilSecond>& given) {
  CivilTime time;
  absl::CivilSecond second;
  if (given) {
    second = *given;
  } else {
    const absl::Time now = absl::Now();
    second = absl::ToCivilSecond(now, absl::LocalTimeZone());
    time.microsecond = static_cast<int>(absl::ToUnixMicros(now) % 1'000'000);
  }
  time.year = static_cast<int>(second.year());
  time.month = second.month();
  time.day = second.day();
  time.hour = second.hour();
  time.minute = second.minute();
  time.second = second.second();
  return time;
}

}  // namespace

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(std::string_view source, std::string name) {
  if (source.size() > kMaxSourceBytes) {
    return absl::InvalidArgumentError(
        StrCat(name, ": a template has at most ", kMaxSourceBytes, " bytes, this one ", source.size()));
  }
  size_t bad = 0;
  if (!IsValidUtf8(source, &bad)) {
    return absl::InvalidArgumentError(StrCat(name, ": byte ", bad, " is not UTF-8"));
  }
  auto parsed = std::make_shared<ParsedTemplate>();
  parsed->name = std::move(name);
  parsed->source = std::string(source);
  try {
    parsed->body = ParseTemplate(source);
  } catch (const SyntaxFailure& failure) {
    return absl::InvalidArgumentError(StrCat(parsed->name, ":", failure.line, ": ", failure.message));
  } catch (const TemplateFailure& failure) {
    return absl::InvalidArgumentError(StrCat(parsed->name, ": ", failure.message));
  }
  ChatTemplate out;
  out.parsed_ = std::move(parsed);
  return out;
}

const std::string& ChatTemplate::name() const {
  return parsed_->name;
}
const std::string& ChatTemplate::source() const {
  return parsed_->source;
}

absl::StatusOr<Rendered> ChatTemplate::Render(const Json& context, const RenderOptions& options) const {
  if (!context.is_object()) {
    return absl::InvalidArgumentError(
        StrCat(parsed_->name, ": the context must be an object, not ", context.type_name()));
  }
  Budget budget{options.limits.steps, options.limits.bytes};
  BudgetScope budget_scope(&budget);
  auto globals = std::make_shared<Scope>(nullptr);
  Interpreter interpreter(globals, ToCivil(options.now));
  try {
    for (const auto& [key, value] : context.items()) globals->names.emplace_back(key, FromJson(value, 0));
    Rendered rendered;
    rendered.text = interpreter.Run(parsed_->body);
    for (const Interpreter::Span& span : interpreter.generation_spans())
      rendered.generation.emplace_back(span.begin, span.end);
    return rendered;
  } catch (const TemplateFailure& failure) {
    return absl::InvalidArgumentError(StrCat(parsed_->name, ":", interpreter.line(), ": ", failure.message));
  }
}

}  // namespace manta::chat_template
