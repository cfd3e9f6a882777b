#include "launch/report/stall_watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/start_thread.h"
#include "base/unique_fd.h"
#include "record/running_jobs.h"
#include "record/ticks.h"

namespace lockstep::launch {
namespace {

// Less than the time after which other hosts take a rank that does not answer for lost.
constexpr std::chrono::milliseconds kStopped{2'000};

// The folder may be writable for all users: nothing that exists is followed or overwritten.
UniqueFd create_file(const std::string& path) {
  return UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
}

bool append(const UniqueFd& file, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(file.get(), text.data() + done, text.size() - done);
    if (written <= 0) return false;
    done += static_cast<std::size_t>(written);
  }
  return true;
}

}  // namespace

StallOptions stall_options(const std::string& log_folder) {
  StallOptions options;
  const char* const temporary = std::getenv("TMPDIR");
  options.folder = !log_folder.empty() ? log_folder : temporary != nullptr && *temporary != '\0' ? temporary : "/tmp";
  const char* const seconds = std::getenv("LOCKSTEP_STALL_SECONDS");
  if (seconds != nullptr) {
    options.after = std::chrono::milliseconds(static_cast<std::int64_t>(std::max(0.0, std::atof(seconds)) * 1e3));
  }
  return options;
}

StallWatch::~StallWatch() {
  cancel_ = true;
  if (writer_.joinable()) writer_.join();
}

std::string StallWatch::poll(const std::vector<const record::RecordMemory*>& records) {
  if (options_.after.count() == 0 || !next_.expired()) return {};
  next_ = Deadline::after(std::chrono::seconds(1));
  {
    const std::lock_guard lock(mutex_);
    if (!message_.empty()) return std::exchange(message_, {});
  }
  if (!next_dump_.expired()) return {};
  std::vector<record::RankRecord> ranks;
  for (const auto* memory : records) {
    record::RankRecord rank = record::read_activity(memory->area());
    if (rank.pid > 0) ranks.push_back(std::move(rank));
  }
  const auto now_ns = static_cast<std::int64_t>(record::monotonic_ns());
  const auto all_waiting = record::find_waiting(ranks, now_ns);
  std::erase_if(reported_, [&](const auto& one) {
    return std::ranges::none_of(
        all_waiting, [&](const auto& waiting) { return one.first == std::pair(waiting.group, waiting.sequence); });
  });
  for (const auto& waiting : all_waiting) {
    const std::chrono::nanoseconds waited(now_ns - waiting.since_ns);
    if (waited < options_.after) continue;
    const auto [reported, first_time] = reported_.try_emplace({waiting.group, waiting.sequence}, waited);
    if (!first_time && waited < 2 * reported->second) continue;
    reported->second = waited;
    next_dump_ = Deadline::after(options_.pause);
    std::string headline =
        fmt::format("{} has run for {:.1f} s {}", waiting.name, static_cast<double>(waited.count()) * 1e-9,
                    waiting.missing.empty() ? "and all ranks of this node have reached it"
                                            : fmt::format("and waits for rank {}", fmt::join(waiting.missing, ", ")));
    auto described = describe_ranks(ranks, now_ns);
    const std::string first = described.empty() ? "" : described.front().text;
    if (dumps_ < options_.most_dumps) start(headline, std::move(described));
    return waiting.missing.empty() ? headline : fmt::format("{}; {}", headline, first);
  }
  return {};
}

void StallWatch::start(std::string headline, std::vector<RankActivity> ranks) {
  if (writer_.joinable()) writer_.join();  // it began options_.pause ago
  auto writer = start_thread(
      "writes stacks", [this, headline = std::move(headline), ranks = std::move(ranks), number = dumps_++] {
        const std::string path = fmt::format("{}/lockstep-stall-{}-{}.txt", options_.folder, ::getpid(), number);
        const UniqueFd file = create_file(path);
        std::size_t count = 0;
        bool written = append(file, headline + "\n");
        for (const RankActivity& rank : ranks) {
          if (cancel_ || !written) break;
          written = append(
              file, count++ < kRanks ? dump_rank(rank, {.limit = kStopped, .cancel = &cancel_}) : rank.text + "\n");
        }
        const std::lock_guard lock(mutex_);
        message_ = written ? fmt::format("the stacks of its ranks are in {}", path)
                           : fmt::format("the stacks of its ranks cannot be written to {}", path);
      });
  if (writer.ok()) {
    writer_ = *std::move(writer);
    return;
  }
  const std::lock_guard lock(mutex_);
  message_ = fmt::format("the stacks of its ranks cannot be taken: {}", writer.status().message());
}

}  // namespace lockstep::launch
