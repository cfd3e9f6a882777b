// Curves as files in a folder: metrics.csv, metrics.jsonl and an event file for TensorBoard.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/unique_fd.h"
#include "lockstep/base/status.h"
#include "record/metric_points.h"

namespace lockstep::record {

// A file that grows by whole records: if one cannot be written, what was written of it is removed again, at the latest
// before the next one. The limit on the size of files (ulimit -f) is an error as a full disk is; its signal is caught.
class GrowingFile {
 public:
  // Continues a file that exists. `lines`: its records are lines. If it ends with a part of one, because a process
  // that wrote it was killed or its machine crashed, this part is removed.
  static Result<GrowingFile> open(const std::string& path, bool lines = false);

  bool empty() const { return size_ == 0; }
  const std::string& path() const { return path_; }
  // How many bytes open() has removed.
  std::uint64_t removed() const { return removed_; }
  // Blocks as long as the file system does.
  Status append(std::string_view data);

 private:
  GrowingFile(std::string path, UniqueFd fd, std::uint64_t size)
      : path_(std::move(path)), fd_(std::move(fd)), size_(size) {}
  Status remove_part();
  Status cut_to_lines();

  std::string path_;
  UniqueFd fd_;
  std::uint64_t size_;    // of the whole records
  bool partial_ = false;  // a part of one follows them
  std::uint64_t removed_ = 0;
};

// Used by one thread.
class MetricFiles {
 public:
  // Creates the folder if necessary. Continues metrics.csv and metrics.jsonl if they exist; each event file is new.
  // Errors are invalid_argument and name what cannot be written.
  static Result<std::unique_ptr<MetricFiles>> open(const std::string& folder);

  // A point that cannot be written to a file is missing there; the next ones are tried again.
  void write(std::span<const MetricPoint> points);
  // When files can no longer be written (the disk is full), when they can again, and when a file that is continued had
  // a part of a record at its end: a sentence for the user, once.
  std::string take_trouble();

 private:
  explicit MetricFiles(std::array<GrowingFile, 3> files) : files_(std::move(files)) {}
  std::string events_of(const MetricPoint& point);
  // Writes what marks the beginning of a file, if nothing does yet.
  Status begin(std::size_t file);

  std::array<GrowingFile, 3> files_;
  std::uint64_t lost_ = 0;  // points since files could be written
  bool failing_ = false;
  std::string trouble_;
  struct Last {
    std::int64_t step = 0;
    std::int64_t generation = 0;
  };
  std::map<std::string, Last> last_;  // of each metric
  std::int64_t restarted_ = -1;       // the latest generation of which TensorBoard was told
};

std::string csv_line(const MetricPoint& point);
std::string json_line(const MetricPoint& point);

}  // namespace lockstep::record
