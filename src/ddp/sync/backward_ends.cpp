#include "ddp/sync/backward_ends.h"

#include <algorithm>
#include <map>

#include "ddp/torch_compat.h"

namespace lockstep::detail {

namespace {

// By backward. Autograd's callback owns the object.
struct Running {
  std::mutex mutex;
  std::map<const void*, std::weak_ptr<BackwardEnds>> ends;  // guarded by mutex
};

// Leaked on purpose: autograd's threads may still use it while static objects are destroyed.
Running& running() {
  static auto* const instance = new Running;
  return *instance;
}

}  // namespace

// Autograd drops its callbacks if a backward throws.
class BackwardEnds::End {
 public:
  End(std::function<void()> end, std::function<void()> abandon) : end_(std::move(end)), abandon_(std::move(abandon)) {}
  ~End() {
    if (!reached_) abandon_();
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  void reach() {
    reached_ = true;
    end_();
  }

 private:
  const std::function<void()> end_;
  const std::function<void()> abandon_;
  bool reached_ = false;
};

void BackwardEnds::add(std::uint64_t number, std::function<void()> end, std::function<void()> abandon) {
  std::shared_ptr<BackwardEnds> ends;
  bool first = false;
  {
    std::lock_guard lock(running().mutex);
    std::erase_if(running().ends, [](const auto& item) { return item.second.expired(); });
    std::weak_ptr<BackwardEnds>& place = running().ends[compat::running_backward()];
    ends = place.lock();
    if (!ends) {
      place = ends = std::make_shared<BackwardEnds>();
      first = true;
    }
  }
  {
    std::lock_guard lock(ends->mutex_);
    ends->ends_.emplace_back(number, std::make_shared<End>(std::move(end), std::move(abandon)));
  }
  if (first) compat::at_end_of_backward([ends] { ends->run(); });
}

void BackwardEnds::run() {
  std::vector<std::pair<std::uint64_t, std::shared_ptr<End>>> ends;
  {
    std::lock_guard lock(mutex_);
    ends.swap(ends_);
  }
  std::stable_sort(ends.begin(), ends.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [number, end] : ends) end->reach();
}

}  // namespace lockstep::detail
