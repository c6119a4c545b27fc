// What a template's source parses to: a tree of statements and expressions, immutable once parsed and then shared
// freely.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/template/value.h"

namespace manta::chat_template {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  enum class Kind {
    kConst,
    kName,
    kNamespaceRef,  // name.attribute, as the target of an assignment
    kTuple,
    kList,
    kDict,       // children: key, value, key, value, ...
    kCondition,  // children: test, then, else (may be null)
    kOr,
    kAnd,
    kNot,
    kCompare,  // children: operands; operators: between them
    kBinary,   // name: + - * / // % **
    kConcat,
    kNegate,
    kPlus,
    kAttribute,  // children: object; name
    kItem,       // children: object, key
    kSlice,      // children: object, start, stop, step (each of the three may be null)
    kCall,       // children: callee
    kFilter,     // children: value (null in a filter block); name
    kTest,       // children: value; name
  };
  Kind kind;
  int line = 1;
  int depth = 1;  // height of this tree
  std::string name;
  std::string attribute;
  Value constant;
  std::vector<ExprPtr> children;
  std::vector<std::string> operators;
  // Of a call, filter or test.
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star, star_star;  // *args, **kwargs
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

// Parameters of a macro or of a call block.
struct Signature {
  std::vector<std::string> names;
  std::vector<ExprPtr> defaults;  // of the last ones
  bool uses_caller = false;       // the body speaks of caller, kwargs or varargs without setting it
  bool uses_kwargs = false;
  bool uses_varargs = false;
};

struct Stmt {
  enum class Kind {
    kText,         // name: the text
    kOutput,       // exprs
    kFor,          // target, exprs[0]: iterable, exprs[1]: filter (may be null); body, otherwise
    kIf,           // branches, otherwise
    kSet,          // target, exprs[0]
    kSetBlock,     // target, exprs[0]: filter (may be null); body
    kMacro,        // name, signature, body
    kCallBlock,    // exprs[0]: the call; signature, body
    kFilterBlock,  // exprs[0]: the filter; body
    kWith,         // targets, exprs: their values; body
    kAutoescape,   // exprs[0]; body
    kBlock,        // name, body
    kGeneration,   // body
    kBreak,
    kContinue,
    kUnsupported,  // name: the error that reaching it gives
  };
  Kind kind;
  int line = 1;
  std::string name;
  ExprPtr target;
  std::vector<ExprPtr> targets;
  std::vector<ExprPtr> exprs;
  std::vector<std::pair<ExprPtr, Body>> branches;
  Body body, otherwise;
  Signature signature;
  bool recursive = false;
};

}  // namespace manta::chat_template
