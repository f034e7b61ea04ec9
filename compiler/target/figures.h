// Figures: reads the figures of one device model file and remembers the first error.
//
// Lives during one reading; not copied. After the first error nothing else is read. Every figure of a file is
// {"value": ..., "source": "..."}.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

class Figures {
 public:
  using Json = nlohmann::json;

  // `root` must outlive this object.
  Figures(std::string path, const Json& root) : path_(std::move(path)), root_(root) {}

  const std::string& error() const { return error_; }
  void fail(const std::string& field, const std::string& expected);

  bool has(const char* field);

  // Fails if the file has a key at the top level for which nobody asked.
  void finish() { allowOnly(root_, "", known_); }

  // The value of a figure with a source, or null after an error.
  const Json& value(const char* field);
  std::string text(const char* field);
  // An array of texts.
  std::vector<std::string> texts(const Json& found, const std::string& field);

  void number(const Json& found, const std::string& field, int64_t least, int64_t most, int32_t& out);
  void real(const Json& found, const std::string& field, double least, double most, double& out);

  struct Real {
    const char* name;
    double least, most;
    double& out;
  };
  // The members of `object`, the value of `field`, which has no others but `objects`.
  void reals(const Json& object, const std::string& field, std::initializer_list<Real> members,
             std::vector<std::string_view> objects = {});

  // Fails if `object`, the value of `field`, has another key.
  void allowOnly(const Json& object, const std::string& field, const std::vector<std::string_view>& keys);

  // The member of an object, or null.
  static const Json& member(const Json& object, const char* name);

 private:
  const std::string path_;
  const Json& root_;
  std::vector<std::string_view> known_;  // fields at the top level
  std::string error_;
};

}  // namespace sluice
