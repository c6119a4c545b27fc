// The filters, tests, methods and global functions that templates can name.
//
// A filter takes a value and arguments and gives a value; a test gives a truth. Both may call back into the interpreter
// (map('upper'), selectattr('x', 'equalto', 1)). Errors are thrown as TemplateFailure.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/template/value.h"

namespace manta::chat_template {

using Filter = Value (*)(Interpreter& interpreter, const Value& value, const Args& args);
using Test = bool (*)(Interpreter& interpreter, const Value& value, const Args& args);

// Null where there is none of that name.
Filter FindFilter(std::string_view name);
Test FindTest(std::string_view name);
std::string UnknownFilter(std::string_view name);
std::string UnknownTest(std::string_view name);

// Parts of the filter table (filters_*.cc).
struct NamedFilter {
  std::string_view name;
  Filter filter;
};
std::vector<NamedFilter> TextFilters();
std::vector<NamedFilter> SequenceFilters();
std::vector<NamedFilter> NumberFilters();

// range, dict, namespace, ...; nothing where there is no such name.
std::optional<Value> FindGlobal(std::string_view name);

// A method of a str, list, tuple, dict, int or float, bound to it; an Undefined for those that the sandbox forbids.
std::optional<Value> FindMethod(const Value& object, const std::string& name);

// A value made callable.
using Callable = std::function<Value(Interpreter&, Args)>;
Value MakeFunction(std::string name, Callable call);
// A lazy sequence that can be gone through once, as Python's generators are. `depth`: of what it draws on.
Value MakeGenerator(Next next, int depth);
// dict.items(), keys() or values().
Value MakeDictView(const Value& dict, std::string kind);
Value MakeNamespace(std::shared_ptr<Dict> attributes);

// Assigns arguments to parameters by position and by name; an error for what is missing, unknown or given twice.
class Bound {
 public:
  Bound(std::string_view function, const Args& args, std::initializer_list<std::string_view> parameters,
        size_t required = 0);

  const Value* operator[](size_t i) const { return values_[i]; }
  // The argument as the type wanted, or the default where it was not given.
  Int Integer(size_t i, Int otherwise) const;
  bool Truth(size_t i, bool otherwise) const;
  // None counts as not given.
  std::optional<std::string> Text(size_t i) const;

 private:
  std::string function_;
  std::vector<std::string_view> parameters_;
  std::vector<const Value*> values_;
};

}  // namespace manta::chat_template
