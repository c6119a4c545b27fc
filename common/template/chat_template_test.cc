#include "common/template/chat_template.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "gtest/gtest.h"

namespace manta::chat_template {
namespace {

using Json = nlohmann::ordered_json;

std::string RenderOrError(std::string_view source, const Json& context = Json::object(),
                          const RenderOptions& options = {}) {
  const absl::StatusOr<ChatTemplate> parsed = ChatTemplate::Parse(source, "t");
  if (!parsed.ok()) return std::string(parsed.status().message());
  const absl::StatusOr<Rendered> rendered = parsed->Render(context, options);
  return rendered.ok() ? rendered->text : std::string(rendered.status().message());
}

TEST(ChatTemplateTest, ErrorsNameTemplateAndLine) {
  EXPECT_EQ(RenderOrError("a\n{% if x %}"),
            "t:2: a block is not closed: expected {% elif %} or {% else %} or {% endif %}, "
            "found the end of the template");
  EXPECT_EQ(RenderOrError("a\nb\n{{ 1 + }}"), "t:3: expected an expression, found '}}'");
  EXPECT_EQ(RenderOrError("{{ 'abc }}"), "t:1: a string is not closed: expected '");
  EXPECT_EQ(RenderOrError("\n{{ x|nope }}"), "t:2: there is no filter named 'nope'");
  EXPECT_EQ(RenderOrError("a\n{% for x in y.z %}{% endfor %}"), "t:2: 'y' is undefined");
  EXPECT_EQ(RenderOrError("{% macro f() %}\n{{ 1 + 'a' }}{% endmacro %}\n\n{{ f() }}"),
            "t:2: unsupported operand type(s) for +: 'int' and 'str'");
  EXPECT_EQ(RenderOrError("{{ raise_exception('Roles must alternate') }}"), "t:1: Roles must alternate");
  EXPECT_EQ(RenderOrError("{% include 'x' %}"), "t:1: 'include' needs another template: a chat template stands alone");
  EXPECT_EQ(RenderOrError("a\xff"), "t: byte 1 is not UTF-8");
}

TEST(ChatTemplateTest, ValuesDoNotChange) {
  EXPECT_EQ(RenderOrError("{{ l.append(1) }}", Json{{"l", {1}}}),
            "t:1: access to attribute 'append' of 'list' object is unsafe: templates change no values");
}

TEST(ChatTemplateTest, KeysKeepTheirOrder) {
  EXPECT_EQ(RenderOrError("{{ d }}{{ d|tojson }}", Json::parse(R"({"d": {"z": 1, "a": [null, true, 1.5]}})")),
            R"({'z': 1, 'a': [None, True, 1.5]}{"z": 1, "a": [null, true, 1.5]})");
}

TEST(ChatTemplateTest, TimeIsInjected) {
  RenderOptions options;
  options.now = absl::CivilSecond(2026, 1, 2, 3, 4, 5);
  EXPECT_EQ(RenderOrError("{{ strftime_now('%d %b %Y %H:%M:%S') }}", Json::object(), options), "02 Jan 2026 03:04:05");
}

TEST(ChatTemplateTest, GenerationSpansAreBytesOfTheText) {
  const auto parsed = ChatTemplate::Parse(
      "{% for m in messages %}[{{ m.role }}]{% if m.role == 'a' %}{% generation %}{{ m.content }}!{% endgeneration %}"
      "{% else %}{{ m.content }}{% endif %}{% endfor %}",
      "t");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const auto rendered = parsed->Render(Json::parse(
      R"({"messages": [{"role": "u", "content": "é"}, {"role": "a", "content": "漢"}, {"role": "a", "content": ""}]})"));
  ASSERT_TRUE(rendered.ok()) << rendered.status();
  ASSERT_EQ(rendered->generation.size(), 2u);
  auto piece = [&](size_t i) {
    return rendered->text.substr(rendered->generation[i].first,
                                 rendered->generation[i].second - rendered->generation[i].first);
  };
  EXPECT_EQ(piece(0), "漢!");
  EXPECT_EQ(piece(1), "!");
}

// What would hang, or eat memory or stack, ends with an error, and soon.
TEST(ChatTemplateTest, HostileTemplatesEnd) {
  const std::string deep_brackets = "{{ " + std::string(100000, '(') + "1" + std::string(100000, ')') + " }}";
  std::string deep_blocks, chain = "{{ 1";
  for (int i = 0; i < 50000; ++i) deep_blocks += "{% if 1 %}", chain += "+1";
  chain += " }}";
  for (const std::string& source :
       {std::string("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"),
        std::string("{% set ns = namespace(s='aaaaaaaaaaaaaaaa') %}{% for i in range(99999) %}{% set ns.s = ns.s + "
                    "ns.s %}{% endfor %}"),
        std::string("{{ 'a' * 9999999999 }}"),
        std::string("{{ [1] * 9999999999 }}"),
        std::string("{{ 'a'.ljust(99999999999) }}"),
        std::string("{{ '%999999999d' % 1 }}"),
        std::string("{{ '{:999999999}'.format(1) }}"),
        std::string("{{ 2 ** 99999 }}"),
        std::string("{{ [[1]]|tojson(indent=999999999) }}"),
        std::string("{{ 'a'|indent(99999999999, true) }}"),
        std::string("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
        std::string("{% macro f(x) %}{{ f(x) ~ f(x) }}{% endmacro %}{{ f(1) }}"),
        std::string("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"),
        std::string(
            "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}"),
        std::string("{% set ns = namespace(x=[1]) %}{% for i in range(150) %}{% set ns.x = [ns.x, ns.x] %}{% endfor "
                    "%}{{ ns.x }}"),
        std::string("{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(150) %}{% set ns.x = [ns.x, ns.x] %}{% "
                    "set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}"),
        std::string("{% set ns = namespace(g=[1]) %}{% for i in range(99999) %}{% set ns.g = ns.g|map('string') %}{% "
                    "endfor %}{{ ns.g|list }}"),
        std::string("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}"),
        std::string("{{ range(99999)|batch(1)|list|sum(start=[]) }}"),
        deep_brackets,
        deep_blocks,
        chain}) {
    EXPECT_EQ(RenderOrError(source).rfind("t:", 0), 0u) << source.substr(0, 100);
  }
}

// Objects that hold each other are freed with the render (the address sanitizer looks).
TEST(ChatTemplateTest, CyclesAreFreed) {
  EXPECT_EQ(
      RenderOrError("{% set ns = namespace() %}{% set ns.me = [ns] %}{% macro f() %}{{ f.name }}{% endmacro %}{{ f() }}"
                    "{% set ns.f = f %}{% for x in [1] %}{% set ns.loop = loop %}{% endfor %}"),
      "f");
  // A chain of namespaces is taken apart without recursion.
  EXPECT_EQ(RenderOrError("{% set at = namespace(x=none) %}{% for i in range(99999) %}{% set at.x = namespace(x=at.x) "
                          "%}{% endfor %}ok"),
            "ok");
}

TEST(ChatTemplateTest, IsSafeFromSeveralThreads) {
  const auto parsed = ChatTemplate::Parse("{% for m in messages %}{{ m.content|upper }}{% endfor %}", "t");
  ASSERT_TRUE(parsed.ok());
  const Json context = Json::parse(R"({"messages": [{"content": "abc"}, {"content": "def"}]})");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) EXPECT_EQ(parsed->Render(context)->text, "ABCDEF");
    });
  }
  for (std::thread& thread : threads) thread.join();
}

class LoadChatTemplateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::path(::testing::TempDir()) /
           ("chat_template_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  void Write(const std::string& name, const std::string& text) { std::ofstream(dir_ / name) << text; }
  std::string Error() const { return std::string(LoadChatTemplate(dir_).status().message()); }

  std::filesystem::path dir_;
};

TEST_F(LoadChatTemplateTest, TakesTheFileBeforeTheConfiguration) {
  Write("chat_template.jinja", "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ x }}");
  Write(
      "tokenizer_config.json",
      R"({"bos_token": "<s>", "eos_token": {"__type": "AddedToken", "content": "</s>"}, "pad_token": null, "chat_template": "no"})");
  const auto model = LoadChatTemplate(dir_);
  ASSERT_TRUE(model.ok()) << model.status();
  Chat chat;
  chat.messages = Json::parse(R"([{"role": "user", "content": "hi"}])");
  chat.kwargs = Json{{"x", 1}};
  const auto rendered = model->Render(chat);
  ASSERT_TRUE(rendered.ok()) << rendered.status();
  EXPECT_EQ(rendered->text, "<s>hi</s>1");
}

TEST_F(LoadChatTemplateTest, ChoosesAmongNamedTemplates) {
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "tools {{ tools|length }}"},
        {"name": "default", "template": "plain {{ tools }}"}, {"name": "rag", "template": "{{"}]})");
  const auto model = LoadChatTemplate(dir_);
  ASSERT_TRUE(model.ok()) << model.status();
  Chat chat;
  EXPECT_EQ(model->Render(chat)->text, "plain None");
  chat.tools = Json::array({Json::object()});
  EXPECT_EQ(model->Render(chat)->text, "tools 1");
}

TEST_F(LoadChatTemplateTest, SaysWhatIsWrong) {
  EXPECT_EQ(LoadChatTemplate(dir_).status().code(), absl::StatusCode::kNotFound);
  Write("tokenizer_config.json", "{");
  EXPECT_NE(Error().find("tokenizer_config.json: this is not JSON"), std::string::npos);
  Write("tokenizer_config.json", "[]");
  EXPECT_NE(Error().find("expected an object, found array"), std::string::npos);
  Write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_NE(Error().find("expected text or a list"), std::string::npos);
  Write("tokenizer_config.json", R"({"chat_template": "\n{% if %}"})");
  EXPECT_NE(Error().find("tokenizer_config.json: chat_template:2: expected an expression"), std::string::npos);
  Write("tokenizer_config.json", R"({"chat_template": "x", "bos_token": 5})");
  EXPECT_NE(Error().find("bos_token must be text or an object with `content`, found number"), std::string::npos);
}

}  // namespace
}  // namespace manta::chat_template
