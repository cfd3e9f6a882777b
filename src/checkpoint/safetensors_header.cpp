#include "checkpoint/safetensors_header.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/printable.h"

namespace lockstep::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxDimensions = 64;
constexpr const char* kMetadataName = "__metadata__";

// Takes the header as a stream of events: a document tree of hostile JSON could need far more memory than its text, and
// would hide a name that appears twice. The first violation ends the parsing.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  SafetensorsHead take() { return std::move(header_); }
  const std::string& error() const { return error_; }

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return unexpected("a number that is not whole"); }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::shape) {
      if (entry_.info.shape.size() == kMaxDimensions) return fail_entry("has more dimensions than any tensor");
      if (value > static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max())) {
        return fail_entry("is larger than any tensor");
      }
      entry_.info.shape.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (place_ == Place::offsets) {
      if (offset_count_ == 2) return fail_entry("has more than two data_offsets");
      (offset_count_++ == 0 ? entry_.begin : entry_.end) = value;
      return true;
    }
    return unexpected("a number");
  }

  bool string(string_t& value) override {
    if (place_ == Place::metadata) {
      header_.metadata[field_] = value;
      return true;
    }
    if (place_ != Place::tensor || field_ != "dtype") return unexpected("text");
    const auto dtype = parse_dtype(value);
    if (!dtype)
      return fail_entry(fmt::format("has the type {}, which this version does not support", printable(value)));
    entry_.info.dtype = *dtype;
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::start) {
      place_ = Place::header;
    } else if (place_ == Place::header) {
      place_ = field_ == kMetadataName ? Place::metadata : Place::tensor;
      fields_.clear();
      entry_ = {};
      entry_.info.name = field_;
      offset_count_ = 0;
    } else {
      return unexpected("an object");
    }
    return true;
  }

  bool key(string_t& value) override {
    auto& seen = place_ == Place::header ? names_ : fields_;
    if (!seen.insert(value).second) return fail(fmt::format("\"{}\" appears twice", printable(value)));
    if (place_ == Place::tensor && value != "dtype" && value != "shape" && value != "data_offsets") {
      return fail_entry(fmt::format("has a field \"{}\", which the format does not have", printable(value)));
    }
    field_ = value;
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor) {
      if (fields_.size() != 3) return fail_entry("does not have all of dtype, shape and data_offsets");
      if (offset_count_ != 2) return fail_entry("has fewer than two data_offsets");
      header_.entries.push_back(std::move(entry_));
    }
    place_ = place_ == Place::header ? Place::end : Place::header;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::tensor || field_ == "dtype") return unexpected("a list");
    place_ = field_ == "shape" ? Place::shape : Place::offsets;
    return true;
  }
  bool end_array() override {
    place_ = Place::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return fail(fmt::format("it is not JSON at byte {}", position));
  }

 private:
  enum class Place { start, header, metadata, tensor, shape, offsets, end };

  bool fail(std::string why) {
    error_ = std::move(why);
    return false;
  }
  bool fail_entry(const std::string& why) {
    return fail(fmt::format("tensor \"{}\" {}", printable(entry_.info.name), why));
  }
  bool unexpected(const char* what) {
    return fail(fmt::format("there is {} at \"{}\", where the format has none", what, printable(field_)));
  }

  Place place_ = Place::start;
  std::string field_;             // the last key
  std::set<std::string> names_;   // of the header
  std::set<std::string> fields_;  // of the present object in it
  SafetensorsHead::Entry entry_;
  int offset_count_ = 0;
  SafetensorsHead header_;
  std::string error_;
};

}  // namespace

Result<SafetensorsHead> parse_safetensors_header(std::string_view json) {
  // The format requires this, and it excludes a byte order mark, which the JSON parser would accept.
  if (json.empty() || json.front() != '{') {
    return Status(StatusCode::protocol_error, "the header does not begin with \"{\"");
  }
  HeaderReader reader;
  if (!Json::sax_parse(json.begin(), json.end(), &reader)) {
    return Status(StatusCode::protocol_error, "the header is not valid: " + reader.error());
  }
  return reader.take();
}

}  // namespace lockstep::checkpoint
