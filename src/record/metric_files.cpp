#include "record/metric_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/host_name.h"
#include "base/json_text.h"
#include "base/net/socket.h"
#include "record/event_file.h"
#include "record/ticks.h"

namespace lockstep::record {
namespace {

constexpr std::size_t kCsv = 0;
constexpr std::size_t kJson = 1;
constexpr std::size_t kEvents = 2;
constexpr std::string_view kCsvHeader = "time,step,generation,name,mean,min,max,values\n";

double seconds_of(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

// RFC 4180.
std::string csv_text(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    quoted += c;
    if (c == '"') quoted += '"';
  }
  return quoted + '"';
}

// JSON has no such numbers; as strings, float() of Python and Number() of JavaScript read them.
std::string json_number(double value) {
  if (std::isnan(value)) return "\"NaN\"";
  if (std::isinf(value)) return value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  return fmt::format("{}", value);
}

Status cannot_write(const std::string& path, int error) {
  return Status(StatusCode::invalid_argument,
                fmt::format("metrics cannot be written to '{}': {}", path, errno_text(error)));
}

// While one exists, a write beyond the limit on the size of files fails with EFBIG and does not end the process. The
// kernel sends SIGXFSZ to the thread that writes.
class SizeSignalBlocked {
 public:
  SizeSignalBlocked() {
    ::sigemptyset(&signal_);
    ::sigaddset(&signal_, SIGXFSZ);
    sigset_t pending;
    was_pending_ = ::sigpending(&pending) == 0 && ::sigismember(&pending, SIGXFSZ) == 1;
    ::pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~SizeSignalBlocked() {
    const timespec now{};
    if (!was_pending_) ::sigtimedwait(&signal_, nullptr, &now);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SizeSignalBlocked(const SizeSignalBlocked&) = delete;
  SizeSignalBlocked& operator=(const SizeSignalBlocked&) = delete;

 private:
  sigset_t signal_{}, before_{};
  bool was_pending_ = false;
};

}  // namespace

Result<GrowingFile> GrowingFile::open(const std::string& path, bool lines) {
  // Readable to find the end of the last line; a file that may only be written is continued as it is.
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!fd.valid() && errno == EACCES) fd.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!fd.valid()) return cannot_write(path, errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return cannot_write(path, errno);
  GrowingFile file(path, std::move(fd), static_cast<std::uint64_t>(info.st_size));
  if (lines && S_ISREG(info.st_mode)) LOCKSTEP_RETURN_IF_ERROR(file.cut_to_lines());
  return file;
}

Status GrowingFile::cut_to_lines() {
  constexpr std::uint64_t kLongestLine = 4096;
  std::string end(std::min(size_, kLongestLine), '\0');
  const std::uint64_t begin = size_ - end.size();
  const ssize_t got = ::pread(fd_.get(), end.data(), end.size(), static_cast<off_t>(begin));
  if (got != static_cast<ssize_t>(end.size()) || end.empty() || end.back() == '\n') return {};
  const std::size_t last = end.rfind('\n');
  if (last == std::string::npos && begin > 0) return append("\n");  // no line of ours: it is left alone
  const std::uint64_t whole = last == std::string::npos ? 0 : begin + last + 1;
  removed_ = size_ - whole;
  size_ = whole;
  partial_ = true;
  return remove_part();
}

Status GrowingFile::remove_part() {
  if (!partial_) return {};
  if (::ftruncate(fd_.get(), static_cast<off_t>(size_)) != 0) return cannot_write(path_, errno);
  partial_ = false;
  return {};
}

Status GrowingFile::append(std::string_view data) {
  const SizeSignalBlocked blocked;
  LOCKSTEP_RETURN_IF_ERROR(remove_part());
  for (std::size_t sent = 0; sent < data.size();) {
    const ssize_t written = ::write(fd_.get(), data.data() + sent, data.size() - sent);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      partial_ = sent > 0;
      static_cast<void>(remove_part());  // tried again before the next record
      return cannot_write(path_, error);
    }
    sent += static_cast<std::size_t>(written);
  }
  size_ += data.size();
  return {};
}

Result<std::unique_ptr<MetricFiles>> MetricFiles::open(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return cannot_write(folder, error.value());
  const std::int64_t now = wall_clock_ns() / 1'000'000'000;
  auto csv = GrowingFile::open(folder + "/metrics.csv", true);
  if (!csv.ok()) return csv.status();
  auto json = GrowingFile::open(folder + "/metrics.jsonl", true);
  if (!json.ok()) return json.status();
  auto events =
      GrowingFile::open(fmt::format("{}/events.out.tfevents.{:010}.{}.{}", folder, now, host_name(), ::getpid()));
  if (!events.ok()) return events.status();
  std::unique_ptr<MetricFiles> files(new MetricFiles({*std::move(csv), *std::move(json), *std::move(events)}));
  for (const std::size_t file : {kCsv, kEvents}) {
    if (const Status begun = files->begin(file); !begun.ok()) return begun;
  }
  for (const GrowingFile& file : files->files_) {
    if (file.removed() == 0) continue;
    files->trouble_ += fmt::format(
        "{}'{}' ended with a part of a line, which was removed: the job before was killed, or its disk was full",
        files->trouble_.empty() ? "" : "; ", file.path());
  }
  return files;
}

Status MetricFiles::begin(std::size_t file) {
  if (!files_[file].empty() || file == kJson) return {};
  return files_[file].append(file == kCsv ? std::string(kCsvHeader) : event_file_version(seconds_of(wall_clock_ns())));
}

std::string MetricFiles::events_of(const MetricPoint& point) {
  const double wall = seconds_of(point.wall_ns);
  std::string events;
  auto [found, is_new] = last_.try_emplace(point.name, Last{point.step, point.generation});
  Last& last = found->second;
  if (!is_new && point.generation > last.generation && point.step <= last.step) {
    // TensorBoard forgets all curves from this step on: once for each generation, and not because of a curve of
    // epochs, which would cost those of steps their points.
    const bool leads =
        std::all_of(last_.begin(), last_.end(), [&](const auto& other) { return other.second.step <= last.step; });
    if (leads && point.generation > restarted_) {
      events += restart_event(wall, point.step);
      restarted_ = point.generation;
    }
  }
  last = {point.step, point.generation};

  const std::string min = point.name + "_min";
  const std::string max = point.name + "_max";
  std::vector<EventScalar> scalars = {{point.name, static_cast<float>(point.mean)}};
  if (point.min != point.max && !std::isnan(point.min)) {
    scalars.push_back({min, static_cast<float>(point.min)});
    scalars.push_back({max, static_cast<float>(point.max)});
  }
  return events + scalars_event(wall, point.step, scalars);
}

void MetricFiles::write(std::span<const MetricPoint> points) {
  if (points.empty()) return;
  std::array<std::string, 3> texts;
  for (const MetricPoint& point : points) {
    texts[kCsv] += csv_line(point);
    texts[kJson] += json_line(point);
    texts[kEvents] += events_of(point);
  }
  Status failure;
  for (std::size_t file = 0; file < files_.size(); ++file) {
    Status status = begin(file);
    if (status.ok()) status = files_[file].append(texts[file]);
    if (!status.ok() && failure.ok()) failure = status;
  }
  if (!failure.ok()) {
    lost_ += points.size();
    if (!failing_) trouble_ = failure.message() + "; the training continues, and the curves have a gap";
  } else if (failing_) {
    trouble_ = fmt::format("metrics can be written again; {} points are missing in at least one file", lost_);
    lost_ = 0;
  }
  failing_ = !failure.ok();
}

std::string MetricFiles::take_trouble() { return std::exchange(trouble_, {}); }

std::string csv_line(const MetricPoint& point) {
  return fmt::format("{:.3f},{},{},{},{},{},{},{}\n", seconds_of(point.wall_ns), point.step, point.generation,
                     csv_text(point.name), point.mean, point.min, point.max, point.values);
}

std::string json_line(const MetricPoint& point) {
  return fmt::format(
      "{{\"time\":{:.3f},\"step\":{},\"generation\":{},\"name\":{},\"mean\":{},\"min\":{},\"max\":{},\"values\":{}}}\n",
      seconds_of(point.wall_ns), point.step, point.generation, json_string(point.name), json_number(point.mean),
      json_number(point.min), json_number(point.max), point.values);
}

}  // namespace lockstep::record
