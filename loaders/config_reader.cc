#include "loaders/config_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "loaders/json_text.h"

namespace moe {
namespace {

using nlohmann::json;

std::string Shown(const json& value) {
  if (value.is_object() || value.is_array()) return std::string("a ") + (value.is_array() ? "list" : "object");
  if (value.is_string()) return Quoted(value.get_ref<const std::string&>());
  return value.dump();
}

std::string NumberText(double value) {
  if (std::isinf(value)) return value > 0 ? "infinity" : "-infinity";
  return Cat(value);
}

// {"__float__": "Infinity"}: how json_text.h hands over what Python wrote bare, and how some checkpoints spell it.
std::optional<double> NonFinite(const json& value) {
  if (!value.is_object() || value.size() != 1 || !value.contains("__float__")) return std::nullopt;
  const json& text = value["__float__"];
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  return std::nullopt;
}

}  // namespace

ConfigReader::ConfigReader(const json* object, std::string file, std::string path)
    : object_(object),
      file_(std::move(file)),
      path_(std::move(path)),
      status_(std::make_shared<Status>()),
      warnings_(std::make_shared<std::vector<std::string>>()),
      asked_(std::make_shared<std::set<std::string>>()) {
  if (object_ != nullptr && !object_->is_object()) {
    Fail(InvalidError(file_, ": ", path_.empty() ? "" : path_ + ": ", "found ", Shown(*object_),
                      ", expected an object"));
    object_ = nullptr;
  }
}

ConfigReader ConfigReader::Nested(const char* name) const {
  ConfigReader inner = Object(name);
  if (!inner.exists()) return *this;
  inner.outer_ = object_;
  inner.outer_path_ = path_;
  return inner;
}

ConfigReader ConfigReader::Outer() const {
  ConfigReader outer = *this;
  if (outer_ == nullptr) return outer;
  outer.object_ = outer_;
  outer.path_ = outer_path_;
  outer.outer_ = nullptr;
  outer.assumed_ = nullptr;
  return outer;
}

ConfigReader ConfigReader::Object(const char* name) const {
  ConfigReader inner = *this;
  inner.outer_ = nullptr;
  inner.assumed_ = nullptr;
  std::string label;
  inner.object_ = FindOne(name, &label);
  if (inner.object_ == nullptr) inner.object_ = FindAssumed(name);
  inner.path_ = label + ".";
  if (inner.object_ != nullptr && !inner.object_->is_object()) {
    inner.WrongType(label, *inner.object_, "an object");
    inner.object_ = nullptr;
  }
  return inner;
}

ConfigReader ConfigReader::PerLayer(int64_t layer, std::initializer_list<const char*> allowed) const {
  const ConfigReader all = Object("per_layer_config");
  if (!all.exists()) return *this;
  for (const auto& [key, overrides] : all.object_->items()) {
    // Keys may be padded with zeros ("03").
    const bool number = !key.empty() && key.size() <= 9 && key.find_first_not_of("0123456789") == std::string::npos;
    if (!number || std::stoll(key) != layer) continue;
    ConfigReader own = all.Object(key.c_str());
    for (const auto& [name, value] : overrides.items()) {
      if (std::find(allowed.begin(), allowed.end(), name) != allowed.end()) continue;
      own.Unsupported(name.c_str(), "an override for a single layer is not supported");
    }
    own.outer_ = object_;
    own.outer_path_ = path_;
    own.assumed_ = assumed_;
    return own;
  }
  return *this;
}

ConfigReader ConfigReader::Over(const json* object, const std::string& path) const {
  ConfigReader other = *this;
  other.object_ = object;
  other.path_ = path;
  other.outer_ = nullptr;
  other.assumed_ = nullptr;
  return other;
}

void ConfigReader::Assume(const json& defaults) {
  auto all = std::make_shared<json>(assumed_ == nullptr ? json::object() : *assumed_);
  all->update(defaults);
  assumed_ = std::move(all);
}

const json* ConfigReader::FindAssumed(const FieldNames& names) const {
  if (assumed_ == nullptr) return nullptr;
  for (const char* name : names.all()) {
    for (const json* object : {object_, outer_}) {
      if (object != nullptr && object->contains(name)) return nullptr;
    }
  }
  for (const char* name : names.all()) {
    const auto it = assumed_->find(name);
    if (it != assumed_->end()) return &*it;
  }
  return nullptr;
}

const json* ConfigReader::Unread(const char* name) const {
  if (object_ == nullptr || asked_->contains(name)) return nullptr;
  const auto it = object_->find(name);
  return it == object_->end() || it->is_null() ? nullptr : &*it;
}

json::value_t ConfigReader::TypeOf(const char* name) const {
  std::string label;
  const json* value = FindOne(name, &label);
  return value == nullptr ? json::value_t::null : value->type();
}

const json* ConfigReader::FindOne(const char* name, std::string* label) const {
  *label = path_ + name;
  asked_->insert(name);
  if (object_ != nullptr) {
    const auto it = object_->find(name);
    if (it != object_->end() && !it->is_null()) return &*it;
  }
  if (outer_ != nullptr) {
    const auto it = outer_->find(name);
    if (it != outer_->end() && !it->is_null()) {
      *label = outer_path_ + name;
      return &*it;
    }
  }
  return nullptr;
}

const json* ConfigReader::Find(const FieldNames& names, std::string* label) {
  const json* found = nullptr;
  for (const char* name : names.all()) {
    std::string this_label;
    const json* value = FindOne(name, &this_label);
    if (value == nullptr) continue;
    if (found == nullptr) {
      found = value;
      *label = this_label;
    } else if (*found != *value) {
      Fail(InvalidError(file_, ": ", *label, " is ", Shown(*found), ", but ", this_label, " is ", Shown(*value),
                        "; they mean the same and must agree"));
    }
  }
  if (found == nullptr) {
    *label = path_ + names.first();
    found = FindAssumed(names);
  }
  return ok() ? found : nullptr;
}

bool ConfigReader::Has(const FieldNames& names) const {
  std::string label;
  for (const char* name : names.all()) {
    if (FindOne(name, &label) != nullptr) return true;
  }
  return false;
}

bool ConfigReader::IsNull(const char* name) const {
  if (object_ == nullptr) return false;
  const auto it = object_->find(name);
  return it != object_->end() && it->is_null();
}

void ConfigReader::Fail(Status error) {
  if (status_->ok()) *status_ = std::move(error);
}
void ConfigReader::Invalid(const char* name, const std::string& what) {
  Fail(InvalidError(file_, ": ", path_, name, ": ", what));
}
void ConfigReader::Unsupported(const char* name, const std::string& what) {
  Fail(UnsupportedError(file_, ": ", path_, name, ": ", what));
}
void ConfigReader::WrongType(const std::string& label, const json& value, const std::string& expected) {
  Fail(InvalidError(file_, ": ", label, " is ", Shown(value), ", expected ", expected));
}
void ConfigReader::Absent(const FieldNames& names) {
  std::string text = path_ + names.first();
  for (size_t i = 1; i < names.all().size(); ++i) text += Cat(i == 1 ? " (or " : ", ", names.all()[i]);
  Fail(InvalidError(file_, ": ", text, names.all().size() > 1 ? ")" : "", " is absent"));
}

bool ConfigReader::ToInt(const std::string& label, const json& value, int64_t min, int64_t max, int64_t* out) {
  const bool fits = value.is_number_integer() &&
                    !(value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX));
  if (fits) *out = value.get<int64_t>();
  if (fits && *out >= min && *out <= max) return true;
  WrongType(label, value, Cat("an integer from ", min, " to ", max));
  return false;
}

bool ConfigReader::ToFloat(const std::string& label, const json& value, double min, double max, double* out) {
  const std::optional<double> non_finite = NonFinite(value);
  if (non_finite || value.is_number()) {
    *out = non_finite ? *non_finite : value.get<double>();
    if (*out >= min && *out <= max) return true;  // false for NaN
  }
  const std::string shown = non_finite ? "not finite" : Shown(value);
  Fail(InvalidError(file_, ": ", label, " is ", shown, ", expected a number from ", NumberText(min), " to ",
                    NumberText(max)));
  return false;
}

std::optional<int64_t> ConfigReader::OptionalInt(const FieldNames& names, int64_t min, int64_t max) {
  std::string label;
  const json* value = Find(names, &label);
  int64_t result = 0;
  if (value == nullptr || !ToInt(label, *value, min, max, &result)) return std::nullopt;
  return result;
}
int64_t ConfigReader::IntOr(const FieldNames& names, int64_t fallback, int64_t min, int64_t max) {
  return OptionalInt(names, min, max).value_or(fallback);
}
int64_t ConfigReader::Int(const FieldNames& names, int64_t min, int64_t max) {
  if (!Has(names) && FindAssumed(names) == nullptr) Absent(names);
  return IntOr(names, min, min, max);
}

std::optional<double> ConfigReader::OptionalFloat(const FieldNames& names, double min, double max) {
  std::string label;
  const json* value = Find(names, &label);
  double result = 0;
  if (value == nullptr || !ToFloat(label, *value, min, max, &result)) return std::nullopt;
  return result;
}
double ConfigReader::FloatOr(const FieldNames& names, double fallback, double min, double max) {
  return OptionalFloat(names, min, max).value_or(fallback);
}
double ConfigReader::Float(const FieldNames& names, double min, double max) {
  if (!Has(names) && FindAssumed(names) == nullptr) Absent(names);
  return FloatOr(names, min, min, max);
}

std::optional<bool> ConfigReader::OptionalBool(const FieldNames& names) {
  std::string label;
  const json* value = Find(names, &label);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) {
    WrongType(label, *value, "true or false");
    return std::nullopt;
  }
  return value->get<bool>();
}
bool ConfigReader::BoolOr(const FieldNames& names, bool fallback) {
  if (const std::optional<bool> found = OptionalBool(names)) return *found;
  const bool null =
      std::any_of(names.all().begin(), names.all().end(), [this](const char* name) { return IsNull(name); });
  return fallback && !null;
}
bool ConfigReader::Bool(const FieldNames& names) {
  if (!Has(names) && FindAssumed(names) == nullptr) Absent(names);
  return BoolOr(names, false);
}

std::optional<std::string> ConfigReader::OptionalString(const FieldNames& names) {
  std::string label;
  const json* value = Find(names, &label);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    WrongType(label, *value, "a string");
    return std::nullopt;
  }
  return value->get<std::string>();
}
std::string ConfigReader::StringOr(const FieldNames& names, const std::string& fallback) {
  return OptionalString(names).value_or(fallback);
}
std::string ConfigReader::String(const FieldNames& names) {
  if (!Has(names) && FindAssumed(names) == nullptr) Absent(names);
  return StringOr(names, "");
}

std::vector<int64_t> ConfigReader::IntList(const FieldNames& names, int64_t min, int64_t max) {
  std::string label;
  const json* value = Find(names, &label);
  if (value == nullptr) return {};
  std::vector<int64_t> result;
  if (!value->is_array()) WrongType(label, *value, "a list of integers");
  for (size_t i = 0; ok() && i < value->size(); ++i) {
    int64_t number = 0;
    if (ToInt(Cat(label, "[", i, "]"), (*value)[i], min, max, &number)) result.push_back(number);
  }
  return result;
}

std::vector<int64_t> ConfigReader::IntOrList(const FieldNames& names, int64_t min, int64_t max) {
  std::string label;
  const json* value = Find(names, &label);
  if (value == nullptr) return {};
  if (value->is_array()) return IntList(names, min, max);
  int64_t number = 0;
  if (!ToInt(label, *value, min, max, &number)) return {};
  return {number};
}

std::vector<double> ConfigReader::FloatList(const FieldNames& names, double min, double max) {
  std::string label;
  const json* value = Find(names, &label);
  if (value == nullptr) return {};
  std::vector<double> result;
  if (!value->is_array()) WrongType(label, *value, "a list of numbers");
  for (size_t i = 0; ok() && i < value->size(); ++i) {
    double number = 0;
    if (ToFloat(Cat(label, "[", i, "]"), (*value)[i], min, max, &number)) result.push_back(number);
  }
  return result;
}

std::vector<double> ConfigReader::FloatListOr(const FieldNames& names, double otherwise, double min, double max) {
  std::string label;
  const json* value = Find(names, &label);
  if (value == nullptr) return {};
  std::vector<double> result;
  if (!value->is_array()) WrongType(label, *value, "a list of numbers");
  for (size_t i = 0; ok() && i < value->size(); ++i) {
    double number = otherwise;
    const json& element = (*value)[i];
    if (element.is_null() || ToFloat(Cat(label, "[", i, "]"), element, min, max, &number)) result.push_back(number);
  }
  return result;
}

std::vector<std::string> ConfigReader::StringList(const FieldNames& names) {
  std::string label;
  const json* value = Find(names, &label);
  if (value == nullptr) return {};
  std::vector<std::string> result;
  if (!value->is_array()) WrongType(label, *value, "a list of strings");
  for (size_t i = 0; ok() && i < value->size(); ++i) {
    const json& element = (*value)[i];
    if (!element.is_string()) WrongType(Cat(label, "[", i, "]"), element, "a string");
    if (ok()) result.push_back(element.get<std::string>());
  }
  return result;
}

void ConfigReader::ExpectString(const FieldNames& names, std::initializer_list<const char*> allowed) {
  std::string label;
  const json* value = Find(names, &label);
  const std::optional<std::string> text = OptionalString(names);
  if (value == nullptr || !text) return;
  std::string offered;
  for (const char* one : allowed) {
    if (*text == one) return;
    offered += Cat(offered.empty() ? "" : ", ", "\"", one, "\"");
  }
  Fail(UnsupportedError(file_, ": ", label, " is ", Quoted(*text), "; supported for this architecture: ", offered));
}

void ConfigReader::ExpectBool(const FieldNames& names, bool allowed) {
  std::string label;
  const json* value = Find(names, &label);
  const std::optional<bool> found = OptionalBool(names);
  if (value == nullptr || !found || *found == allowed) return;
  Fail(UnsupportedError(file_, ": ", label, " is ", *found ? "true" : "false",
                        "; supported for this architecture: ", allowed ? "true" : "false"));
}

void ConfigReader::ExpectUnusedField(const char* name, const nlohmann::json& computed) {
  std::string label;
  const nlohmann::json* value = Find(name, &label);
  if (value == nullptr || *value == computed) return;
  const bool same_kind = value->type() == computed.type() || (value->is_number() && computed.is_number());
  if (!same_kind) return WrongType(label, *value, computed.is_boolean() ? "true or false" : computed.type_name());
  if (!ok()) return;
  warnings_->push_back(Cat(file_, ": ", label, " is ", value->dump(),
                           ", which is not what transformers computes with; in force is ", computed.dump()));
}

void ConfigReader::ExpectAbsent(const char* name) {
  std::string label;
  const json* value = Find(name, &label);
  if (value == nullptr || ((value->is_string() || value->is_structured()) && value->empty())) return;
  Fail(UnsupportedError(file_, ": ", label, " is ", Shown(*value), "; not supported for this architecture"));
}

}  // namespace moe
