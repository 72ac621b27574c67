// Typed reading of config.json. Each read checks presence, type and range; the first failure is kept and every later
// read returns a harmless value, so that a family's file reads as a list of fields with one check at its end:
//
//   const int64_t hidden = config.Int("hidden_size", 1, limits::kMaxWidth);
//   …
//   MOE_RETURN_IF_ERROR(config.status());
//
// A field may have several spellings: Int({"num_experts", "num_local_experts"}, …). Spellings that disagree are
// INVALID. null counts as absent, but for BoolOr as false: what it is to the code these files are written for. Messages
// name file, field, found value and what was expected.
#ifndef MOE_LOADERS_CONFIG_READER_H_
#define MOE_LOADERS_CONFIG_READER_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "parallel/base/status.h"

namespace moe {

// Upper bounds of config fields, far above every known model and low enough that products stay in 64 bits and a
// hostile config cannot make us allocate much.
namespace limits {
inline constexpr int64_t kMaxLayers = 1024;
inline constexpr int64_t kMaxWidth = int64_t{1} << 20;  // hidden_size
inline constexpr int64_t kMaxInner = int64_t{1} << 22;  // intermediate sizes
inline constexpr int64_t kMaxVocab = int64_t{1} << 24;
inline constexpr int64_t kMaxHeads = int64_t{1} << 14;
inline constexpr int64_t kMaxHeadDim = int64_t{1} << 12;
inline constexpr int64_t kMaxExperts = int64_t{1} << 14;
inline constexpr int64_t kMaxPositions = int64_t{1} << 31;
}  // namespace limits

class FieldNames {
 public:
  FieldNames(const char* name) : names_{name} {}  // NOLINT: implicit, a single spelling is the common case
  FieldNames(std::initializer_list<const char*> names) : names_(names) {}
  const std::vector<const char*>& all() const { return names_; }
  const char* first() const { return names_.front(); }

 private:
  std::vector<const char*> names_;
};

class ConfigReader {
 public:
  // `object` must outlive the reader. `path` is put before field names in messages, e.g. "text_config.".
  ConfigReader(const nlohmann::json* object, std::string file, std::string path = "");

  // Fields of a nested object where it exists (config.json of multimodal models: text_config); a field that is not in
  // it is looked up in this one. Shares the error. Without such an object: a copy of this reader.
  ConfigReader Nested(const char* name) const;
  // The fields of the object around a Nested() one; of this reader's own object where there is none.
  ConfigReader Outer() const;
  // Fields of a nested object only. Absent: an empty reader (exists() is false).
  ConfigReader Object(const char* name) const;
  // Fields of per_layer_config[layer], transformers' way to let single layers differ; a field that is not in it is
  // looked up in this one. An override of anything but `allowed` is UNSUPPORTED.
  ConfigReader PerLayer(int64_t layer, std::initializer_list<const char*> allowed) const;
  // Fields of `object` (which must outlive the reader) instead of this one's; messages put `path` before their names.
  ConfigReader Over(const nlohmann::json* object, const std::string& path) const;
  bool exists() const { return object_ != nullptr; }

  // What later reads give for fields that the file lacks under every spelling; null in the file counts as there. Called
  // again, adds to the former.
  void Assume(const nlohmann::json& defaults);

  bool Has(const FieldNames& names) const;
  // Present but null: says "none" where the family has another default for an absent field.
  bool IsNull(const char* name) const;
  // The value of a field that is there, but that neither this reader nor one it shares its error with has looked for
  // under its name; null without one. The object's own fields alone.
  const nlohmann::json* Unread(const char* name) const;
  // Of the value in the file; null when absent.
  nlohmann::json::value_t TypeOf(const char* name) const;

  int64_t Int(const FieldNames& names, int64_t min, int64_t max);
  int64_t IntOr(const FieldNames& names, int64_t fallback, int64_t min, int64_t max);
  std::optional<int64_t> OptionalInt(const FieldNames& names, int64_t min, int64_t max);

  // min and max may be infinite; a non-finite value (1e999, Infinity, {"__float__": "Infinity"}) is legal iff in range.
  double Float(const FieldNames& names, double min, double max);
  double FloatOr(const FieldNames& names, double fallback, double min, double max);
  std::optional<double> OptionalFloat(const FieldNames& names, double min, double max);

  bool Bool(const FieldNames& names);
  bool BoolOr(const FieldNames& names, bool fallback);
  std::optional<bool> OptionalBool(const FieldNames& names);

  std::string String(const FieldNames& names);
  std::string StringOr(const FieldNames& names, const std::string& fallback);
  std::optional<std::string> OptionalString(const FieldNames& names);

  // Lists; absent: empty.
  std::vector<int64_t> IntList(const FieldNames& names, int64_t min, int64_t max);
  std::vector<double> FloatList(const FieldNames& names, double min, double max);
  // … in which null stands for `otherwise`.
  std::vector<double> FloatListOr(const FieldNames& names, double otherwise, double min, double max);
  std::vector<std::string> StringList(const FieldNames& names);
  // A list of integers, or one integer.
  std::vector<int64_t> IntOrList(const FieldNames& names, int64_t min, int64_t max);

  // The value must be one of `allowed` (absent: fine), else UNSUPPORTED naming the field, the value and what is
  // offered.
  void ExpectString(const FieldNames& names, std::initializer_list<const char*> allowed);
  void ExpectBool(const FieldNames& names, bool allowed);
  // Absent, null, or an empty list, object or string, else UNSUPPORTED.
  void ExpectAbsent(const char* name);

  // For a field that transformers has but does not compute with: where the file says another value than the one it
  // always computes with, that is a warning. Of another kind than `computed` (boolean, number, string): INVALID.
  void ExpectUnusedField(const char* name, const nlohmann::json& computed);

  // Keeps the first error.
  void Fail(Status error);
  // INVALID / UNSUPPORTED about a field: "config.json: NAME: …".
  void Invalid(const char* name, const std::string& what);
  void Unsupported(const char* name, const std::string& what);
  const Status& status() const { return *status_; }
  // What whoever serves the model should know. Shared with the readers that share the error.
  const std::vector<std::string>& warnings() const { return *warnings_; }
  bool ok() const { return status_->ok(); }
  const std::string& file() const { return file_; }

 private:
  // The value under the first spelling that is present (not null), null without one. Disagreeing spellings fail.
  const nlohmann::json* Find(const FieldNames& names, std::string* label);
  const nlohmann::json* FindOne(const char* name, std::string* label) const;
  // Among the assumed values, where the file has no spelling.
  const nlohmann::json* FindAssumed(const FieldNames& names) const;
  void WrongType(const std::string& label, const nlohmann::json& value, const std::string& expected);
  void Absent(const FieldNames& names);
  bool ToInt(const std::string& label, const nlohmann::json& value, int64_t min, int64_t max, int64_t* out);
  bool ToFloat(const std::string& label, const nlohmann::json& value, double min, double max, double* out);

  const nlohmann::json* object_;           // null: no such object
  const nlohmann::json* outer_ = nullptr;  // where Nested() falls back to
  std::shared_ptr<const nlohmann::json> assumed_;
  std::string file_;
  std::string path_;
  std::string outer_path_;
  std::shared_ptr<Status> status_;
  std::shared_ptr<std::vector<std::string>> warnings_;
  std::shared_ptr<std::set<std::string>> asked_;  // the names of all fields that were looked for
};

}  // namespace moe

#endif  // MOE_LOADERS_CONFIG_READER_H_
