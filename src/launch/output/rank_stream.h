// Forwards one output stream of a rank to the console and to a file.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/unique_fd.h"
#include "launch/output/line_splitter.h"
#include "launch/output/log_files.h"
#include "lockstep/base/status.h"

namespace lockstep::launch {

// Used by one thread.
class RankStream {
 public:
  // `folder`: of the rank's files, if the route has one. A stream that goes to a file only is written by the rank
  // itself; any other passes through here.
  static Result<RankStream> open(const LogFiles::Route& route, const std::string& folder, int stream);

  // What the rank gets as its stdout or stderr. Closed by started().
  int write_end() const { return write_end_.get(); }
  void started() { write_end_.reset(); }

  // For poll(2); -1 once there is nothing more to read.
  int read_end() const { return read_end_.get(); }
  // Reads what is available, at most a pipe's content, and calls on_line(std::string_view) for each complete line to be
  // shown. Never blocks.
  void pump(const std::function<void(std::string_view)>& on_line);
  // The rank has ended: reads the rest, including a last line without an end.
  void finish(const std::function<void(std::string_view)>& on_line);

  // The last bytes that the rank wrote, up to about 8 KiB.
  std::string tail() const;
  // Why writing to the file failed, once; otherwise empty.
  std::string take_file_trouble() { return std::exchange(file_trouble_, {}); }

 private:
  bool read_some(const std::function<void(std::string_view)>& on_line);
  void keep(std::string_view bytes);

  bool to_console_ = true;
  UniqueFd read_end_;
  UniqueFd write_end_;
  UniqueFd file_;
  std::string path_;  // of the file
  std::string file_trouble_;
  LineSplitter splitter_;
  std::string tail_;
};

}  // namespace lockstep::launch
