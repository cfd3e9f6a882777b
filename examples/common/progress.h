// Prints the progress of training, on rank 0: a bar on a terminal, otherwise a line every five seconds.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

class Progress {
 public:
  // `samples`: the total over all ranks. Only rank 0 prints.
  Progress(std::string title, std::int64_t samples, int rank)
      : title_(std::move(title)), total_(std::max<std::int64_t>(samples, 1)), prints_(rank == 0) {}

  // Adds `samples` that all ranks together have processed.
  void advance(std::int64_t samples, double loss) {
    done_ += samples;
    loss_ = steps_++ == 0 ? loss : 0.95 * loss_ + 0.05 * loss;
    const auto now = Clock::now();
    const auto pause = terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(5000);
    if (!prints_ || (done_ < total_ && now - printed_ < pause)) return;
    printed_ = now;
    print();
  }
  double samples_per_second() const { return static_cast<double>(done_) / std::max(seconds(), 1e-9); }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

 private:
  using Clock = std::chrono::steady_clock;

  void print() const {
    const double part = std::min(1.0, static_cast<double>(done_) / static_cast<double>(total_));
    const double left = part > 0 ? seconds() * (1 - part) / part : 0;
    char figures[160];
    std::snprintf(figures, sizeof(figures), "%3.0f %%  loss %.4f  %.0f samples/s  %.0f s left", part * 100, loss_,
                  samples_per_second(), left);
    if (!terminal_) {
      std::printf("%s: %s\n", title_.c_str(), figures);
    } else {
      constexpr int kWidth = 30;
      const int full = static_cast<int>(part * kWidth);
      std::printf("\r%s [%s%s] %s  %s", title_.c_str(), std::string(static_cast<std::size_t>(full), '#').c_str(),
                  std::string(static_cast<std::size_t>(kWidth - full), '.').c_str(), figures,
                  done_ >= total_ ? "\n" : "");
    }
    std::fflush(stdout);
  }

  std::string title_;
  std::int64_t total_;
  bool prints_;
  bool terminal_ = ::isatty(STDOUT_FILENO) != 0;
  std::int64_t done_ = 0;
  std::int64_t steps_ = 0;
  double loss_ = 0;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point printed_{};
};
