#include "ddp/sync/pending_forwards.h"

#include <algorithm>
#include <iterator>

namespace lockstep::detail {

namespace {

bool is_gone(const PendingForwards::Record& record) { return record->hooked && record.use_count() == 1; }

}  // namespace

void PendingForwards::add(Record record) {
  std::erase_if(pending_, is_gone);
  pending_.push_back(std::move(record));
}

void PendingForwards::reach(const Record& record) {
  if (std::find(reached_.begin(), reached_.end(), record) == reached_.end()) reached_.push_back(record);
}

void PendingForwards::derive(const Record& record) {
  if (std::find(derived_.begin(), derived_.end(), record) == derived_.end()) derived_.push_back(record);
}

std::vector<PendingForwards::Record> PendingForwards::candidates() const {
  std::vector<Record> result;
  for (const Record& record : pending_) {
    if (!is_gone(record)) result.push_back(record);
  }
  result.insert(result.end(), reached_.begin(), reached_.end());
  result.insert(result.end(), derived_.begin(), derived_.end());
  return result;
}

PendingForwards::Mode PendingForwards::mode() const {
  const std::vector<Record> all = reached_.empty() ? candidates() : reached_;
  if (all.empty()) return Mode::unknown;
  const bool any = std::any_of(all.begin(), all.end(), [](const Record& record) { return record->synchronise; });
  return any ? Mode::synchronise : Mode::accumulate;
}

std::vector<std::size_t> PendingForwards::unused() const {
  const std::vector<Record> all = candidates();
  if (all.empty()) return {};
  std::vector<std::size_t> result = all[0]->unused;
  for (const Record& record : all) {
    std::vector<std::size_t> common;
    std::set_intersection(result.begin(), result.end(), record->unused.begin(), record->unused.end(),
                          std::back_inserter(common));
    result = std::move(common);
  }
  return result;
}

bool PendingForwards::weighted() const {
  const std::vector<Record> all = candidates();
  return std::any_of(all.begin(), all.end(), [](const Record& record) { return record->weight != nullptr; });
}

bool PendingForwards::synchronising() const {
  const std::vector<Record> all = candidates();
  return std::any_of(all.begin(), all.end(), [](const Record& record) { return record->synchronise; });
}

void PendingForwards::end_backward() {
  for (const Record& record : reached_) {
    std::erase(pending_, record);
    std::erase(derived_, record);
  }
  reached_.clear();
}

}  // namespace lockstep::detail
