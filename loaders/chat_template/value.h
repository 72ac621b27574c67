// The values a chat template computes with: Python's None, bool, int, float, str, list, tuple, dict, plus jinja's
// Undefined and a few objects (loop, namespace, macro …).
//
// Ownership. A render owns everything it makes through its Runtime: lists, dicts and objects live until the render ends
// (a namespace may refer to itself, so counting references would leak), strings are counted and go earlier, because
// they are what grows. A Value is 16 bytes and never outlives its Runtime; constants of the template are the exception,
// they are immortal and shared between threads.
//
// Provenance. Every string knows which of its bytes were written by the template ("trusted") and which came from
// messages, tools or arguments. Scalars carry one bit, so that the text made from them is marked as well.
#ifndef MOE_LOADERS_CHAT_TEMPLATE_VALUE_H_
#define MOE_LOADERS_CHAT_TEMPLATE_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace moe::chat {

class Runtime;
class Value;

// A stretch of text of one provenance.
struct Run {
  size_t length = 0;  // bytes
  bool trusted = false;
};

// An immutable string. `view` is the text: its own (`owned`), or of the template or the request, which outlive it.
struct StringData {
  std::string_view view;
  std::vector<Run> runs;  // Empty when all of the text has the provenance `trusted`; else covers it, neighbours differ.
  bool trusted = false;   // True only if every byte is.
  bool immortal = false;
  uint32_t references = 1;
  size_t charged_bytes = 0;
  Runtime* runtime = nullptr;  // Gets charged_bytes back at the end.
  std::string owned;

  void Unref();
};

// Anything that lives until the render ends.
class Owned {
 public:
  virtual ~Owned() = default;
};

// Why a value is undefined: `hint`, or "'object' has no attribute 'name'", or "'name' is undefined" without object.
struct UndefinedInfo : Owned {
  std::string_view object;
  std::string name;
  std::string hint;
  std::string Message() const;
};

struct ListObject;
struct DictObject;
class Object;

enum class Kind : uint8_t { kUndefined, kNone, kBool, kInt, kBigInt, kFloat, kString, kList, kDict, kObject };

class Value {
 public:
  Value() = default;  // Undefined, without a reason.
  Value(const Value& other) : kind_(other.kind_), trusted_(other.trusted_), u_(other.u_) { Ref(); }
  Value(Value&& other) noexcept : kind_(other.kind_), trusted_(other.trusted_), u_(other.u_) {
    other.kind_ = Kind::kUndefined;
    other.u_.undefined = nullptr;
  }
  Value& operator=(Value other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(trusted_, other.trusted_);
    std::swap(u_, other.u_);
    return *this;
  }
  ~Value() {
    if (kind_ == Kind::kString) u_.string->Unref();
  }

  static Value Undefined(const UndefinedInfo* info);
  static Value None(bool trusted = true);
  static Value Bool(bool value, bool trusted = true);
  static Value Int(int64_t value, bool trusted = true);
  // An integer over INT64_MAX, as JSON may hold: it can be printed and tested, not calculated with.
  static Value BigInt(uint64_t value, bool trusted = true);
  static Value Float(double value, bool trusted = true);
  static Value String(StringData* adopted);  // Takes over one reference.
  static Value List(ListObject* list, bool trusted = true);
  static Value Dict(DictObject* dict, bool trusted = true);
  static Value Of(Object* object);

  Kind kind() const { return kind_; }
  bool IsUndefined() const { return kind_ == Kind::kUndefined; }
  bool IsNone() const { return kind_ == Kind::kNone; }
  bool IsString() const { return kind_ == Kind::kString; }
  bool IsList() const { return kind_ == Kind::kList; }
  bool IsDict() const { return kind_ == Kind::kDict; }
  bool IsBool() const { return kind_ == Kind::kBool; }
  // Python's int, which bool is a kind of. Big integers are not among them.
  bool IsInt() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool IsNumber() const { return IsInt() || kind_ == Kind::kFloat; }

  // REQUIRES (each of the following): the kind fits.
  const UndefinedInfo* undefined() const { return u_.undefined; }
  bool boolean() const { return u_.integer != 0; }
  int64_t integer() const { return u_.integer; }
  uint64_t big_integer() const { return static_cast<uint64_t>(u_.integer); }
  double number() const { return kind_ == Kind::kFloat ? u_.number : static_cast<double>(u_.integer); }
  std::string_view text() const { return u_.string->view; }
  const StringData& string() const { return *u_.string; }
  ListObject& list() const { return *u_.list; }
  DictObject& dict() const { return *u_.dict; }
  Object& object() const { return *u_.object; }

  // Whether the value itself (not what a container holds) was made by the template.
  bool trusted() const { return kind_ == Kind::kString ? u_.string->trusted : trusted_; }
  // The object if this is one of type T, else null.
  template <typename T>
  T* As() const {
    return kind_ == Kind::kObject ? dynamic_cast<T*>(u_.object) : nullptr;
  }

 private:
  void Ref() const {
    if (kind_ == Kind::kString && !u_.string->immortal) ++u_.string->references;
  }

  Kind kind_ = Kind::kUndefined;
  bool trusted_ = true;
  union Payload {
    const UndefinedInfo* undefined = nullptr;
    int64_t integer;
    double number;
    StringData* string;
    ListObject* list;
    DictObject* dict;
    Object* object;
  } u_;
};

// Lists, tuples and the lazy sequences of Python, which differ in what may be done with them.
enum class ListKind : uint8_t {
  kList,
  kTuple,
  kRange,
  kView,       // dict.items() and its like: has a length, no index.
  kGenerator,  // What map, select … return: no length, always true, empty after the first pass.
};

struct ListObject : Owned {
  ListKind kind = ListKind::kList;
  bool group = false;  // A tuple of groupby: also has the attributes grouper and list.
  std::string label;   // How a range or a view prints.
  std::vector<Value> items;
};

// Keeps the order of insertion. Changed only while it is being built.
struct DictObject : Owned {
  std::vector<std::pair<Value, Value>> items;

  const Value* Find(std::string_view key) const;  // Null when absent.
  const Value* Find(const Value& key) const;
  void Set(const Value& key, Value value);

 private:
  // Built when a dict has grown past what a linear search is good for. Keys are text that `items` keeps alive.
  std::unordered_map<std::string_view, size_t> index_;
};

// Arguments of a call. Names live as long as the render.
struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
};

class Object : public Owned {
 public:
  virtual std::string_view type_name() const = 0;
  // Sets *out and returns true if there is an attribute of this name.
  virtual bool GetAttribute(Runtime&, std::string_view /*name*/, Value* /*out*/) { return false; }
  virtual bool callable() const { return false; }
  virtual Value Call(Runtime& runtime, Args& args);
};

// A function of the engine, possibly bound to the value it is a method of.
using NativeFunction = Value (*)(Runtime& runtime, const Value& self, Args& args);
class Function final : public Object {
 public:
  Function(std::string_view name, NativeFunction function, Value self)
      : name_(name), function_(function), self_(std::move(self)) {}
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  bool callable() const override { return true; }
  Value Call(Runtime& runtime, Args& args) override { return function_(runtime, self_, args); }
  std::string_view name() const { return name_; }

 private:
  std::string_view name_;
  NativeFunction function_;
  Value self_;
};

// namespace(): the one thing a template can change.
class Namespace final : public Object {
 public:
  std::string_view type_name() const override { return "Namespace"; }
  bool GetAttribute(Runtime&, std::string_view name, Value* out) override;
  void Set(const Value& name, Value value) { attributes_.Set(name, std::move(value)); }
  const DictObject& attributes() const { return attributes_; }

 private:
  DictObject attributes_;
};

// Python's name of a value's type: "str", "list", "dict" …
std::string_view TypeName(const Value& value);

}  // namespace moe::chat

#endif  // MOE_LOADERS_CHAT_TEMPLATE_VALUE_H_
