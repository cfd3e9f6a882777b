// A process that has used up its descriptors.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace lockstep::testing {

// UBSan opens a pipe to check whether memory may be read, so it would report every access to memory.
#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kSanitizerNeedsDescriptors = true;
#else
inline constexpr bool kSanitizerNeedsDescriptors = false;
#endif

// While it exists, this process cannot open further descriptors.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const UniqueFd lowest_free(::dup(STDIN_FILENO));
    rlimit low = before_;
    low.rlim_cur = static_cast<rlim_t>(lowest_free.get());
    ::setrlimit(RLIMIT_NOFILE, &low);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace lockstep::testing
