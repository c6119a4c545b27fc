// The values that a template computes with: Python's, as far as a chat template can meet them.
//
// A Value is a small handle; strings, lists, tuples and dicts behind it are immutable and shared (the sandbox that chat
// templates run in forbids changing them), so copies are cheap. What changes with time (namespaces, generators, loops)
// is an Object. Containers know how deeply they nest, and nesting has a limit, so that no recursion over a value
// overflows the stack. Errors are thrown as TemplateFailure and leave this folder as a Status.
//
// Values may be shared by threads only while no Object is among them; a render keeps its own to itself.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace manta::chat_template {

// Integers have no bound in Python; here they have 128 bits, and an overflow is an error.
using Int = __int128;

// Thrown inside this folder only; ChatTemplate turns it into a Status with the template's name and the line.
struct TemplateFailure {
  std::string message;
};
[[noreturn]] void Fail(std::string message);

inline constexpr int kMaxValueDepth = 200;

struct Heap {
  virtual ~Heap() = default;
  int depth = 0;  // how many containers nest in this one
};
class Object;
struct Text;
struct Sequence;
struct Dict;
struct Missing;

class Value {
 public:
  enum class Kind : uint8_t { kUndefined, kNone, kBool, kInt, kFloat, kString, kList, kTuple, kDict, kObject };

  Value() = default;  // None
  static Value Bool(bool b);
  static Value Integer(Int i);
  static Value Float(double d);
  static Value String(std::string text, bool markup = false);
  static Value List(std::vector<Value> items);
  static Value Tuple(std::vector<Value> items);
  // A tuple whose two elements are also the attributes grouper and list.
  static Value Group(Value grouper, Value list);
  static Value FromDict(std::shared_ptr<Dict> dict);
  static Value FromObject(std::shared_ptr<Object> object);
  // `message` is the error that using it gives.
  static Value Undefined(std::string message);

  Kind kind() const { return kind_; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_bool() const { return kind_ == Kind::kBool; }
  bool is_int() const { return kind_ == Kind::kInt; }
  bool is_float() const { return kind_ == Kind::kFloat; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_list() const { return kind_ == Kind::kList; }
  bool is_tuple() const { return kind_ == Kind::kTuple; }
  bool is_sequence() const { return is_list() || is_tuple(); }
  bool is_dict() const { return kind_ == Kind::kDict; }
  bool is_object() const { return kind_ == Kind::kObject; }
  bool is_number() const { return is_bool() || is_int() || is_float(); }
  bool is_integral() const { return is_bool() || is_int(); }

  // Each needs the kind that it names.
  Int integer() const { return int_; }  // also of a bool
  double number() const { return is_float() ? float_ : static_cast<double>(int_); }
  const std::string& text() const;
  bool is_markup() const;
  bool is_ascii() const;
  const std::vector<Value>& items() const;
  bool is_group() const;
  const Dict& dict() const;
  std::shared_ptr<const Dict> shared_dict() const;
  Object& object() const;
  const std::string& undefined_message() const;

  int depth() const { return heap_ == nullptr ? 0 : heap_->depth; }
  const void* identity() const { return heap_.get(); }

 private:
  Kind kind_ = Kind::kNone;
  union {
    Int int_ = 0;
    double float_;
  };
  std::shared_ptr<Heap> heap_;
};

// Yields values until it gives nothing.
using Next = std::function<std::optional<Value>()>;

struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Interpreter;

// Whatever is neither a number, a string nor a container.
class Object : public Heap {
 public:
  virtual std::string TypeName() const = 0;
  virtual std::string Repr() const;
  virtual Value Call(Interpreter& interpreter, Args args);
  virtual bool IsCallable() const { return false; }
  virtual std::optional<Value> GetAttribute(const std::string& name);
  virtual std::optional<Value> GetItem(const Value& key);  // nothing: not subscriptable, or no such element
  virtual std::optional<size_t> Length();
  virtual std::optional<Next> Iterate();
  virtual std::optional<Next> IterateReversed();
  virtual bool IsTrue();
};

struct Text : Heap {
  std::string text;
  bool markup = false;
  bool ascii = true;
};
struct Sequence : Heap {
  std::vector<Value> items;
  bool group = false;
};
struct Missing : Heap {
  std::string message;
};

struct ValueHash {
  size_t operator()(const Value& value) const;
};
struct ValueEqual {
  bool operator()(const Value& a, const Value& b) const;
};

// Keys keep the order in which they came; 1, 1.0 and true are one key. Unhashable keys are an error.
struct Dict : Heap {
  std::vector<std::pair<Value, Value>> entries;

  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  void Set(Value key, Value value);
  void Set(std::string key, Value value) { Set(Value::String(std::move(key)), std::move(value)); }

 private:
  absl::flat_hash_map<Value, size_t, ValueHash, ValueEqual> index_;  // once there are more than a few
};

// Python's names: "str", "dict", "NoneType", "Undefined".
std::string TypeName(const Value& value);

bool IsTrue(const Value& value);
bool Equals(const Value& a, const Value& b);
// a < b; an error where Python has no order for the two.
bool Less(const Value& a, const Value& b, std::string_view op = "<");
bool Contains(const Value& container, const Value& item);
// `is`: the same object.
bool IsSame(const Value& a, const Value& b);

std::optional<size_t> Length(const Value& value);
// Nothing where the value is not iterable.
std::optional<Next> TryIterate(const Value& value);
Next Iterate(const Value& value);  // an error there
std::vector<Value> ToVector(const Value& value);

// What a render may use up; every loop and every string that is built draws on it. One a thread, while a render runs.
struct Budget {
  int64_t steps = 0;
  int64_t bytes = 0;
};
class BudgetScope {
 public:
  explicit BudgetScope(Budget* budget);
  ~BudgetScope();
  BudgetScope(const BudgetScope&) = delete;
  BudgetScope& operator=(const BudgetScope&) = delete;

 private:
  Budget* before_;
};
void ChargeSteps(int64_t steps);
void ChargeBytes(size_t bytes);

}  // namespace manta::chat_template
