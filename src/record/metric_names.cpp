#include "record/metric_names.h"

#include <xxhash.h>

#include <algorithm>

#include "base/utf8.h"

namespace lockstep::record {
namespace {

void store_name(MetricName& entry, std::string_view name) {
  const std::string text = stored_metric_name(name);
  // Relaxed: published by `complete`.
  for (std::size_t i = 0; i < text.size(); ++i) entry.text[i].store(text[i], std::memory_order_relaxed);
  entry.text[text.size()].store('\0', std::memory_order_relaxed);
  entry.complete.store(1, std::memory_order_release);  // pairs with the acquire in find_metric_name()
}

}  // namespace

std::string stored_metric_name(std::string_view name) {
  std::string text;
  while (!name.empty()) {
    const std::size_t bytes = utf8_character(name);
    std::string_view character = name.substr(0, bytes);
    if (bytes == 0 || is_control(character)) character = "?";
    if (text.size() + character.size() >= kMetricNameBytes) break;
    text += character;
    name.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return text.empty() ? "?" : text;
}

std::optional<std::uint32_t> find_metric_name(MetricName (&table)[kMetricNames], std::string_view name) {
  const std::uint64_t hash = std::max<std::uint64_t>(XXH3_64bits(name.data(), name.size()), 1);
  for (std::size_t probe = 0; probe < kMetricNames; ++probe) {
    const std::size_t index = (hash + probe) % kMetricNames;
    MetricName& entry = table[index];
    // Relaxed: `complete` publishes the text, and the hash alone decides whose entry it is.
    std::uint64_t found = entry.hash.load(std::memory_order_relaxed);
    if (found == 0 && entry.hash.compare_exchange_strong(found, hash, std::memory_order_relaxed)) found = hash;
    if (found != hash) continue;
    if (entry.complete.load(std::memory_order_acquire) == 0) store_name(entry, name);  // see store_name()
    return static_cast<std::uint32_t>(index);
  }
  return std::nullopt;
}

}  // namespace lockstep::record
