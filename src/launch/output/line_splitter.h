// Splits a stream of bytes into lines.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::launch {

class LineSplitter {
 public:
  // A longer line is passed on in pieces of this size, so that memory stays bounded.
  static constexpr std::size_t kMaxLine = std::size_t{64} * 1024;

  // Calls on_line(std::string_view) for each line that is complete now, without its end. A carriage return ends a line
  // too (progress bars), and "\r\n" ends one, not two.
  template <typename OnLine>
  void feed(std::string_view bytes, OnLine on_line) {
    while (!bytes.empty()) {
      if (after_return_ && bytes.front() == '\n') bytes.remove_prefix(1);
      after_return_ = false;
      const std::size_t end = bytes.find_first_of("\r\n");
      const std::size_t room = kMaxLine - partial_.size();
      if (std::min(end, bytes.size()) > room) {
        emit(bytes.substr(0, room), on_line);
        bytes.remove_prefix(room);
      } else if (end == std::string_view::npos) {
        partial_.append(bytes);
        return;
      } else {
        emit(bytes.substr(0, end), on_line);
        after_return_ = bytes[end] == '\r';
        bytes.remove_prefix(end + 1);
      }
    }
  }

  // The stream has ended: a rest without a line end counts as a line.
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

  std::string partial_;  // at most kMaxLine
  bool after_return_ = false;
};

}  // namespace lockstep::launch
