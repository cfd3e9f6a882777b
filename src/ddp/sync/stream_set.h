// The streams of a device that some work was queued on, so that another stream can wait for all of it.
//
// Does nothing for the CPU, which has no streams. Works with any device, through LibTorch's guards.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <vector>

namespace lockstep::detail {

// Not thread-safe.
class StreamSet {
 public:
  // The calling thread's current stream of `device`.
  void add_current(c10::Device device) {
    if (!device.is_cpu()) add(current(device));
  }
  // Makes the calling thread's current stream of `device` wait for what has been queued so far on all others of the
  // set. Does not block the host.
  void block_current(c10::Device device) const {
    if (!streams_.empty()) block(current(device));
  }
  void clear() { streams_.clear(); }
  std::size_t size() const { return streams_.size(); }

 private:
  static c10::Stream current(c10::Device device);
  void add(c10::Stream stream);
  void block(c10::Stream waiting) const;

  std::vector<c10::Stream> streams_;
};

}  // namespace lockstep::detail
