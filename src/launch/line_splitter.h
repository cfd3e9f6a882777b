// Bytes as they come, cut into lines.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::launch {

class LineSplitter {
 public:
  // A longer line is handed on in pieces of this size, so that memory stays bounded.
  static constexpr std::size_t kMaxLine = 64 * 1024;

  // Calls on_line(std::string_view) for each line that is complete now, without its end. A carriage return ends a line
  // too (progress bars), and "\r\n" ends one, not two.
  template <typename OnLine>
  void feed(std::string_view bytes, OnLine on_line) {
    while (!bytes.empty()) {
      if (after_return_ && bytes.front() == '\n') bytes.remove_prefix(1);
      after_return_ = false;
      const std::size_t end = bytes.find_first_of("\r\n");
      const std::size_t room = kMaxLine - partial_.size();
      const std::size_t size = std::min({end, bytes.size(), room});
      const bool ends_here = size == end && end != std::string_view::npos;
      if (!ends_here && size < room) {
        partial_.append(bytes.substr(0, size));
        return;
      }
      emit(bytes.substr(0, size), on_line);
      if (ends_here) after_return_ = bytes[size] == '\r';
      bytes.remove_prefix(size + (ends_here ? 1 : 0));
    }
  }

  // The stream has ended: what has no line end counts as a line.
  template <typename OnLine>
  void finish(OnLine on_line) {
    if (!partial_.empty()) emit({}, on_line);
  }

 private:
  template <typename OnLine>
  void emit(std::string_view rest, OnLine& on_line) {
    if (partial_.empty()) {
      on_line(rest);
    } else {
      partial_.append(rest);
      on_line(std::string_view(partial_));
      partial_.clear();
    }
  }

  std::string partial_;  // shorter than kMaxLine
  bool after_return_ = false;
};

}  // namespace lockstep::launch
