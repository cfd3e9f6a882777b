// lockstep top: a running job, live in the terminal.
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>

#include "cli/command.h"
#include "cli/job_summary.h"
#include "cli/top_view.h"
#include "record/running_jobs.h"

namespace lockstep::cli {
namespace {

struct TopOptions {
  std::string pid;
  double interval = 1;
  bool once = false;
};

// Set by the signal handler; only that and the loop use it.
volatile std::sig_atomic_t g_stop = 0;
void on_stop(int /*signal*/) { g_stop = 1; }
void on_resize(int /*signal*/) {}  // interrupts poll(2)

// The terminal's other screen, without a cursor and without echo; the destructor restores what was there.
class FullScreen {
 public:
  FullScreen() {
    struct sigaction action {};
    action.sa_handler = on_stop;
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
    action.sa_handler = on_resize;
    ::sigaction(SIGWINCH, &action, nullptr);
    has_input_ = ::tcgetattr(STDIN_FILENO, &before_) == 0;
    if (has_input_) {
      termios keys = before_;
      keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      ::tcsetattr(STDIN_FILENO, TCSANOW, &keys);
    }
    write_all("\x1b[?1049h\x1b[?25l");
  }
  ~FullScreen() {
    write_all("\x1b[?25h\x1b[?1049l");
    if (has_input_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  FullScreen(const FullScreen&) = delete;
  FullScreen& operator=(const FullScreen&) = delete;

  static Screen size() {
    winsize window{};
    Screen screen{.columns = 80, .rows = 24, .colour = std::getenv("NO_COLOR") == nullptr};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 && window.ws_row > 0) {
      screen.columns = window.ws_col;
      screen.rows = window.ws_row;
    }
    return screen;
  }

  // Overwrites the lines in place, so that nothing flickers.
  static void draw(const std::vector<std::string>& lines) {
    std::string text = "\x1b[H";
    for (std::size_t i = 0; i < lines.size(); ++i) text += (i == 0 ? "" : "\r\n") + lines[i] + "\x1b[K";
    write_all(text + "\x1b[J");
  }

  // Until a key is pressed, the size changes or the time is over. False: the user wants to leave.
  bool wait(double seconds) const {
    pollfd input{has_input_ ? STDIN_FILENO : -1, POLLIN, 0};
    const int ready = ::poll(&input, 1, static_cast<int>(seconds * 1e3));
    if (g_stop != 0) return false;
    if (ready <= 0) return true;
    char key = 'q';
    return ::read(STDIN_FILENO, &key, 1) == 1 && key != 'q' && key != 'Q';
  }

 private:
  static void write_all(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  termios before_{};
  bool has_input_ = false;
};

JobPicture picture_of(const record::RunningJob& job, UsageSampler& sampler) {
  JobPicture picture{
      .command = job.command, .launcher = job.launcher, .ranks = job.read(), .usage = {}, .now_ns = now_ns()};
  for (const auto& rank : picture.ranks) {
    if (const auto usage = sampler.sample(rank.pid, picture.now_ns)) picture.usage[rank.pid] = *usage;
  }
  return picture;
}

int print_once(const record::RunningJob& job) {
  UsageSampler sampler;
  picture_of(job, sampler);
  // Processor time is counted between two samples.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  for (const std::string& line : top_lines(picture_of(job, sampler), {.columns = 200})) fmt::print("{}\n", line);
  return 0;
}

int watch(record::RunningJob job, double interval) {
  UsageSampler sampler;
  const std::string pid = std::to_string(job.launcher);
  {
    const FullScreen screen;
    do {
      auto current = record::find_running_job(pid);  // ranks may have been replaced
      if (!current.ok()) break;
      job = *std::move(current);
      const Screen size = FullScreen::size();
      FullScreen::draw(top_lines(picture_of(job, sampler), size));
      if (!screen.wait(interval)) return 0;
    } while (true);
  }
  fmt::print("{} (pid {}) has ended\n", job.command, job.launcher);
  return 0;
}

int top(const TopOptions& options) {
  auto job = record::find_running_job(options.pid);
  if (!job.ok()) {
    fmt::print(stderr, "lockstep top: {}\n", job.status().message());
    return 2;
  }
  if (options.once || ::isatty(STDOUT_FILENO) == 0) return print_once(*job);
  return watch(*std::move(job), options.interval);
}

}  // namespace

void add_top_command(CLI::App& app, Action& chosen) {
  CLI::App* const command = app.add_subcommand("top", "Show what the ranks of a running job do, live; q leaves");
  const auto options = std::make_shared<TopOptions>();
  command->add_option("JOB", options->pid,
                      "pid of its lockstep run, as lockstep ps prints it; may be omitted if there is only one");
  command->add_option("--interval", options->interval, "Seconds between two pictures")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command->add_flag("--once", options->once, "Print one picture, as it does if the output is not a terminal");
  command->callback([&chosen, options] { chosen = [options] { return top(*options); }; });
}

}  // namespace lockstep::cli
